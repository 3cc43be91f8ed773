"""The report in a real browser, offline; and what must not be in it."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from fits import changed, judged
from vpem import VerticalGaussianMixture, figures, load, save
from vpem.core.decisions.repair import Repair
from vpem.datasets import make_network_mixture, make_vertical_blobs
from vpem.models import NOT_JUDGED
from vpem.report import describe, feature_cards, make_report, write_report
from vpem.report import page as report
from vpem.report.page import write_page
from vpem.tables import join
from vpem.verdict import Finding, colour, in_study

DRAWN = ["certainty", "marginals", "pairs", "covariances", "trajectory", "agreement", "network"]
SECTIONS = ["verdict", "facts", "profiles", "importance", *DRAWN[:4], "rows", *DRAWN[4:], "traffic", "settings"]
FITS_THE_WIDTH = "document.scrollingElement.scrollWidth <= document.scrollingElement.clientWidth"


@pytest.fixture(scope="module")
def cancer_page(cancer, tmp_path_factory):
    model, data = cancer
    path = tmp_path_factory.mktemp("report") / "a page.html"
    write_report(model, data.data, path, title="Tumours", feature_names=data.feature_names)
    return path


def read_data(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))


def content(page, section):
    """What a section's figure draws."""
    return page.locator(f"#{section} .plot svg").evaluate("svg => svg.innerHTML")


# In the browser


def test_every_section_is_there_and_drawn(visit, cancer_page, cancer):
    page = visit(cancer_page)
    assert page.title() == "Tumours"
    assert page.locator("h1").inner_text() == "Tumours"
    assert page.locator("main section").evaluate_all("all => all.map(one => one.id)") == SECTIONS
    for section in DRAWN:
        [drawing] = page.locator(f"#{section} .plot svg").all()
        assert drawing.get_attribute("role") == "img"
        assert drawing.get_attribute("aria-label")
        assert drawing.locator("path, rect, circle, line").count() >= 2, section
        assert "NaN" not in content(page, section)
    facts = dict(
        zip(
            page.locator("dl.facts dt").all_inner_texts(),
            page.locator(".facts .value").all_inner_texts(),
            strict=True,
        )
    )
    assert [facts[name] for name in ("Rows", "Columns", "Parties", "Components")] == ["569", "30", "3", "2"]
    model = cancer[0]
    assert float(facts["Log-likelihood per row"]) == pytest.approx(model.log_likelihood_, rel=1e-4)
    assert "vpem docs privacy" in page.locator("#traffic .note").inner_text()
    assert page.locator("#traffic tbody tr").count() == 3
    assert page.locator("#rows .about").inner_text() == (
        "All parties have all 569 rows. The fit uses all of them. No value is missing."
    )
    assert page.locator("#rows table").count() == 0
    assert "No component collapsed" in page.locator("#trajectory .about").inner_text()
    assert "graph\nring" in page.locator("#settings").inner_text()


def test_the_page_is_built_for_everybody(visit, cancer_page):
    page = visit(cancer_page)
    assert page.locator("html").get_attribute("lang") == "en"
    assert [page.locator(landmark).count() for landmark in ("header", "nav", "main", "footer")] == [1, 1, 1, 1]
    levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(one => one.tagName)")
    assert levels == ["H1"] + ["H2"] * len(SECTIONS)
    unnamed = (
        "all => all.filter(one => one.getAttribute('role') !== 'img' && one.getAttribute('aria-hidden') !== 'true')"
    )
    assert page.locator("svg").evaluate_all(unnamed) == []
    assert page.locator("select, input").evaluate_all("all => all.filter(one => !one.labels.length)") == []
    page.locator("#network summary").click()
    assert page.locator("#network tbody tr").count() == 3
    page.locator("#party").focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert page.locator("#party").evaluate("one => getComputedStyle(one).outlineStyle") == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(visit, cancer_page, scheme):
    page = visit(cancer_page, color_scheme=scheme)

    def luminance(name):
        text = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")
        parts = np.array([int(text[place : place + 2], 16) for place in (1, 3, 5)]) / 255
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    for ink in ("ink", "quiet"):
        for ground in ("paper", "ground"):
            one, other = sorted([luminance(ink), luminance(ground)])
            assert (other + 0.05) / (one + 0.05) > 4.5  # WCAG AA


def test_the_keyboard_changes_the_figures(visit, cancer_page):
    page = visit(cancer_page)
    for control, section, key in [
        ("party", "marginals", "ArrowUp"),
        ("feature", "marginals", "ArrowDown"),
        ("across", "pairs", "ArrowUp"),
        ("up", "pairs", "ArrowUp"),
        ("agent", "network", "ArrowDown"),
        ("iteration", "trajectory", "ArrowLeft"),
        ("block", "covariances", "ArrowUp"),
        ("of", "covariances", "ArrowDown"),
    ]:
        before, said = content(page, section), page.locator(f"#{section} figcaption").inner_text()
        page.locator(f"#{control}").focus()
        page.keyboard.press(key)
        assert content(page, section) != before, control
        assert page.locator(f"#{section} figcaption").inner_text() != said, control


def test_the_same_feature_twice_is_no_pair(visit, cancer_page):
    page = visit(cancer_page)
    page.locator("#up").select_option(page.locator("#across").input_value())
    assert "different" in page.locator("#pairs .plot").inner_text()


def test_the_pointer_reads_out_numbers(visit, cancer_page, cancer):
    page = visit(cancer_page)
    page.locator("#trajectory").scroll_into_view_if_needed()
    box = page.locator("#trajectory .plot svg").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + box["height"] / 2)
    said = page.locator("#trajectory figcaption").inner_text()
    assert said == f"Iteration 1: {cancer[0].lower_bounds_[0]:.4f} per row."
    page.locator("#network .plot svg .sign").nth(1).hover()
    assert page.locator("#network figcaption").inner_text().startswith("error: 10 columns, 2 links")


def test_traffic_can_be_sorted(visit, tmp_path, cancer):
    _, data = cancer
    star = VerticalGaussianMixture(2, partition=data.partition, random_state=0).fit(data.data)
    write_report(star, data.data, tmp_path / "star.html")
    page = visit(tmp_path / "star.html")
    names = page.locator("#traffic tbody th")
    assert names.first.inner_text() == "server"
    page.locator("#traffic button", has_text="Agent").click()
    assert names.all_inner_texts() == ["error", "mean", "server", "worst"]
    assert page.locator("#traffic th[aria-sort=ascending]").inner_text() == "Agent"
    page.locator("#traffic button", has_text="Agent").click()
    assert names.first.inner_text() == "worst"


def test_curves_and_ellipses_are_the_models(visit, cancer_page, cancer):
    """The script computes densities and correlations from what the page holds: six and three digits."""
    page, (model, _) = visit(cancer_page), cancer
    dense = model.covariance_matrix()
    for feature in (0, 17, 29):
        low, high = page.evaluate(f"data.features[{feature}].limits")
        for component in (0, 1):
            found = page.evaluate(f"density(data.features[{feature}], {component}, 0.3) / {high - low}")
            deviation = dense[component, feature, feature] ** 0.5
            x = low + 0.3 * (high - low)
            expected = model.weights_[component] * norm.pdf(x, model.means_[component, feature], deviation)
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-12)
    for one, other in [(0, 3), (13, 11), (29, 20), (0, 29)]:
        found = page.evaluate(f"correlation({one}, {other}, 1)")
        expected = dense[1, one, other] / np.sqrt(dense[1, one, one] * dense[1, other, other])
        assert found == pytest.approx(expected, abs=5e-4)


def test_blocks_show_how_strongly_columns_correlate(visit, cancer_page, cancer):
    page, (model, _) = visit(cancer_page), cancer
    dense = model.covariance_matrix()
    deviations = np.sqrt(np.diagonal(dense, axis1=1, axis2=2))
    strengths = model.weights_ @ np.abs(dense / deviations[:, :, None] / deviations[:, None, :]).reshape(2, -1)
    found = page.evaluate("blockSquares(1)")
    assert len(found) == 100
    for row, column, size, strength in found:
        assert size == 1
        expected = 0.12 + 0.88 * strengths.reshape(30, 30)[10 + row, 10 + column]
        assert float(strength) == pytest.approx(expected, abs=1e-3)  # three decimals


def test_a_block_shows_names_and_signs(visit, cancer_page, cancer):
    page, (model, data) = visit(cancer_page), cancer
    page.locator("#block").select_option(label="worst")
    dense = model.covariance_matrix()
    deviations = np.sqrt(np.diagonal(dense, axis1=1, axis2=2))
    correlations = dense / deviations[:, :, None] / deviations[:, None, :]
    for choice, expected in [("", np.tensordot(model.weights_, correlations, 1)), ("1", correlations[1])]:
        page.locator("#of").select_option(choice)
        cells = page.locator("#covariances .block .pair")
        assert cells.count() == 45
        told = cells.locator("title").evaluate_all("all => all.map(one => one.textContent)")
        places = [(20 + row, 20 + column) for row in range(10) for column in range(row)]
        fills = cells.evaluate_all("all => all.map(one => one.getAttribute('fill'))")
        for (one, other), text, fill in zip(places, told, fills, strict=True):
            pair, _, number = text.rpartition(": ")
            assert pair == f"{data.feature_names[one]} with {data.feature_names[other]}"
            assert float(number.replace("\u2212", "-")) == pytest.approx(expected[one, other], abs=0.006)
            if abs(expected[one, other]) > 0.001:
                assert fill == ("var(--positive)" if expected[one, other] > 0 else "var(--negative)")
        written = page.locator("#covariances .block > text").all_text_contents()
        names = [name.removeprefix("worst ") for name in data.feature_names[20:]]
        assert [text for text in written if text[0] not in "+\u2212"] == names
        numbers = [text for text in written if text[0] in "+\u2212"]
        shown = [text.rpartition(": ")[2].replace("0.", ".") for text in told]
        assert numbers == shown, "where there is room, in the cells too"
    page.set_viewport_size({"width": 390, "height": 900})
    page.locator("#covariances .plot svg[viewBox^='0 0 32']").wait_for()
    written = page.locator("#covariances .block > text").all_text_contents()
    n_signs = sum(text in "+\u2212" for text in written)
    lower = np.abs(np.tril(correlations[1][20:, 20:], -1))
    assert (lower >= 0.101).sum() <= n_signs <= (lower >= 0.099).sum()


def test_cards_without_an_empty_half(visit, cancer_page, tmp_path):
    """Below what a card holds there is no more than its padding, and columns close up."""
    blank = """all => all.map(one => [one.id, one.getBoundingClientRect().bottom
        - Math.max(...[...one.children].map(child => child.getBoundingClientRect().bottom))])"""
    boxes = """all => all.map(one => { const box = one.getBoundingClientRect();
        return [one.id, box.left, box.top, box.right, box.bottom]; })"""
    page = visit(cancer_page)
    page.evaluate("new Promise(resolve => setTimeout(resolve, 100))")
    assert all(size < 40 for _, size in page.locator("main > section").evaluate_all(blank))
    found = page.locator("main > section").evaluate_all(boxes)
    for number, (one, left, top, right, bottom) in enumerate(found):
        for other, left2, top2, right2, bottom2 in found[:number]:
            apart = left >= right2 or left2 >= right or top >= bottom2 or top2 >= bottom
            assert apart, f"{one} over {other}"
        above = [box[4] for box in found if box[4] <= top and box[1] < right and left < box[3]]
        if above and one not in ("covariances", "settings"):  # those begin below both columns
            assert top - max(above) < 40, one
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.locator("#network summary").click()
        page.evaluate("new Promise(resolve => setTimeout(resolve, 100))")
        tops = [box[2] for box in page.locator("main > section").evaluate_all(boxes)]
        assert width == 1280 or tops == sorted(tops)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0.0, "They are the same"),
        (3e-8, "agree to a millionth"),
        (0.004, "differ a little"),
        (0.2, "They differ: for some rows"),
        (1.0, "They differ widely"),
    ],
)
def test_words_for_a_disagreement_fit_its_size(visit, tmp_path, cancer, size, words):
    model = changed(cancer[0], disagreement=size)
    write_report(model, cancer[1].data, tmp_path / "page.html")
    told = visit(tmp_path / "page.html").locator("#agreement .about").inner_text()
    assert words in told
    assert ("differ a little" in told) == (size == 0.004)


def finding(severity, sentence="s", remedy="r", code="few_rows"):
    return Finding(code, severity, sentence, remedy)


@pytest.mark.parametrize(
    ("findings", "colour", "words"),
    [
        ([finding("note", "n", ""), finding("red", "<b>bad</b>", "more rounds"), finding("amber")], "red", "trusted"),
        ([finding("amber"), finding("note", "n", "")], "amber", "Look at the findings"),
        ([finding("note", "n", "")], "green", "Nothing was found wrong"),
        ([], "green", "Nothing was found wrong"),
        ([NOT_JUDGED], "not judged", "saved by an older version"),
    ],
)
def test_the_verdict_is_the_first_card(visit, tmp_path, cancer, findings, colour, words):
    model = judged(cancer[0], findings)
    write_report(model, cancer[1].data, tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    assert page.locator("main section").evaluate_all("all => all.map(one => one.id)") == SECTIONS
    assert page.locator("#verdict").get_attribute("data-colour") == colour.replace("not judged", "none")
    assert page.locator("#verdict h2").inner_text() == f"Verdict {colour}"
    assert words in page.locator("#verdict .about").inner_text()
    assert page.locator("nav a").first.inner_text() == "Verdict"
    order = ["red", "amber", "note"]
    told = page.locator("#verdict li").all_inner_texts()
    if colour == "not judged":
        assert told == []
        return
    expected = sorted(findings, key=lambda finding: order.index(finding.severity))
    assert len(told) == len(expected)
    for text, one in zip(told, expected, strict=True):
        assert one.sentence in text, "the worst first, and never as markup"
        assert (f"What to try: {one.remedy}." in text) == bool(one.remedy)


def test_the_verdict_is_the_models_own(cancer):
    model, data = cancer
    found = describe(model, data.data, "title", None)["verdict"]
    assert found["colour"] == colour(model.verdict_)
    assert sorted(one["sentence"] for one in found["findings"]) == sorted(one.sentence for one in model.verdict_)


def test_a_file_without_a_verdict_is_not_judged(cancer, tmp_path):
    model = judged(cancer[0], [NOT_JUDGED])
    save(model, tmp_path / "model")
    model = load(tmp_path / "model")
    X = model.sample(50)[0]
    assert describe(model, X, "title", None)["verdict"] == {"colour": None, "findings": []}


def test_twelve_parties_with_132_columns(visit, tmp_path):
    rng = np.random.default_rng(0)
    stations = {f"Station{number}": range(11 * number, 11 * number + 11) for number in range(12)}
    X = rng.normal(size=(400, 132)) + rng.integers(2, size=(400, 1)) * 2
    names = [f"{station}.{kind}" for station in stations for kind in "ABCDEFGHIJK"]
    model = VerticalGaussianMixture(2, partition=stations, covariance_type="tied", random_state=0).fit(X)
    write_report(model, X, tmp_path / "page.html", feature_names=names)
    for width in (1280, 390):
        page = visit(tmp_path / "page.html", width=width)
        assert page.evaluate(FITS_THE_WIDTH)
        groups = page.locator("#across optgroup").evaluate_all(
            "all => all.map(one => [one.label, one.children.length])"
        )
        assert groups == [[station, 11] for station in stations]
        drawn = page.locator("#network .plot text").all_text_contents()
        assert len(drawn) == 13, "every agent has its name"
        assert page.locator("#block option").count() == 12
        named = [text for text in page.locator("#covariances .block > text").all_text_contents() if text.isalpha()]
        assert named == list("ABCDEFGHIJK")
        boxes = page.locator("#network .plot text").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])"
        )
        for number, (left, top, right, bottom) in enumerate(boxes):
            for other in boxes[:number]:
                assert left >= other[2] or other[0] >= right or top >= other[3] or other[1] >= bottom, "legible"


def test_hostile_names_are_only_text(visit, tmp_path):
    hostile = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>\u2028${1}$data"
    blobs = make_vertical_blobs(60, 2, 2, 2, random_state=0)
    partition = {hostile: [0, 1], "other": [2, 3]}
    model = VerticalGaussianMixture(2, partition=partition, graph="path", random_state=0).fit(blobs.data)
    names = [f"{hostile} {number}" for number in range(4)]
    path = tmp_path / "page.html"
    write_report(model, blobs.data, path, title=f"\ud800 & {hostile}", feature_names=names)
    assert path.read_text().count("<script") == 2
    page = visit(path)
    assert page.evaluate("window.broken") is None
    assert "<img src=x" in page.locator("h1").inner_text()
    assert page.locator("img").count() == 0
    assert page.locator("#agent option").first.text_content() == hostile
    assert page.locator("#feature option").first.text_content().startswith(hostile)
    assert "</script><script>" in page.locator("#traffic tbody").inner_text()
    assert page.evaluate(FITS_THE_WIDTH)


def test_the_page_may_not_connect(browser, cancer_page):
    """The policy in the page itself forbids what a script might try."""
    page = browser.new_page()
    page.goto(cancer_page.as_uri())
    page.evaluate("window.refused = []")
    page.evaluate("document.addEventListener('securitypolicyviolation', e => refused.push(e.effectiveDirective))")
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', error => error.name)") == "TypeError"
    for name, own in [("script", "{textContent: 'window.broken = 1'}"), ("img", "{src: 'http://127.0.0.1:9/'}")]:
        page.evaluate(f"document.body.append(Object.assign(document.createElement('{name}'), {own}))")
    page.evaluate("new Promise(resolve => setTimeout(resolve, 50))")
    assert page.evaluate("refused") == ["connect-src", "script-src-elem", "img-src"]
    assert page.evaluate("window.broken") is None
    page.close()


def test_dark_is_dark_and_print_is_light(visit, cancer_page):
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light, dark = (visit(cancer_page, color_scheme=scheme) for scheme in ("light", "dark"))
    assert light.evaluate(ground) == "rgb(243, 244, 246)"
    assert dark.evaluate(ground) == "rgb(17, 20, 23)"
    dark.emulate_media(media="print", color_scheme="dark")
    assert dark.evaluate(ground) == "rgb(255, 255, 255)"
    assert not dark.locator("nav").is_visible()
    assert dark.locator("#feature").is_visible(), "the choice is printed"
    assert dark.locator("figure").first.evaluate("one => getComputedStyle(one).breakInside") == "avoid"
    assert light.pdf(format="A4").startswith(b"%PDF")


def blobs_with(partition=None, n_samples=300, **settings):
    blobs = make_vertical_blobs(n_samples, 4, 2, 3, random_state=0)
    settings = {"n_components": 3, "partition": partition or blobs.partition, "random_state": 0, **settings}
    return VerticalGaussianMixture(**settings).fit(blobs.data), blobs.data


def gaps():
    X = make_vertical_blobs(300, 4, 2, 3, random_state=0).data
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    X[3:, 7] = np.nan  # three values: too few to be shown
    return VerticalGaussianMixture(2, partition=[[0, 1], [2, 3, 4], [5, 6, 7]], random_state=0).fit(X), X


def stream():
    X = make_vertical_blobs(300, 4, 2, 3, random_state=0).data
    model = VerticalGaussianMixture(2, graph="ring", random_state=0)
    for rows in np.split(X, 3):
        model.partial_fit(rows)
    return model, X


def network():
    data = make_network_mixture(20_000, random_state=0)
    model = VerticalGaussianMixture(3, graph=data.graph, means_init=data.means, random_state=0, max_iter=10)
    return model.fit(data.data), data.data


FITS = {
    "star": blobs_with,
    "ring": lambda: blobs_with(graph="ring"),
    "hops": lambda: blobs_with(graph="path", hops=1),
    "tied": lambda: blobs_with(covariance_type="tied"),
    "spherical": lambda: blobs_with(covariance_type="spherical"),
    "batches": lambda: blobs_with(batch_size=100),
    "single component": lambda: blobs_with(n_components=1),
    "many components": lambda: blobs_with(n_components=12),
    "one party": lambda: blobs_with(partition={"alone": list(range(8))}, graph="ring"),
    "start only": lambda: blobs_with(max_iter=0),
    "gaps": gaps,
    "stream": stream,
    "one column": lambda: (
        VerticalGaussianMixture(2, random_state=0).fit(np.arange(50.0)[:, None] % 7),
        np.arange(50.0)[:, None] % 7,
    ),
    "few rows": lambda: (lambda X: (VerticalGaussianMixture(1).fit(X), X))(np.eye(3)),
    "100 agents": network,
}


@pytest.mark.parametrize("kind", FITS)
def test_every_kind_of_fit_has_a_page_for_every_width(visit, tmp_path, kind):
    model, X = FITS[kind]()
    path = tmp_path / "page.html"
    write_report(model, X, path)
    assert path.stat().st_size < (1_000_000 if kind == "100 agents" else 200_000)
    page = visit(path)
    for width in (1280, 380):
        if width != 1280:
            page.set_viewport_size({"width": width, "height": 900})
            page.reload()
        assert page.evaluate(FITS_THE_WIDTH)
        for section in DRAWN:
            if (kind, section) not in (("start only", "trajectory"), ("few rows", "certainty")):
                assert "NaN" not in content(page, section), section
        assert page.locator("#traffic tbody tr").count() == len(model.graph_)
        columns = page.evaluate("getComputedStyle(document.querySelector('main')).gridTemplateColumns").split()
        assert len(columns) == (2 if width == 1280 else 1)


def test_figures_follow_the_width(visit, cancer_page):
    page = visit(cancer_page)
    page.set_viewport_size({"width": 380, "height": 900})
    page.locator("#pairs .plot svg[viewBox^='0 0 31']").wait_for()  # text keeps its size
    assert page.evaluate(FITS_THE_WIDTH)


def test_repairs_are_told(visit, tmp_path, cancer):
    repairs = (Repair(3, 1, "worst", "starved"), Repair(4, 0, "mean", "collapsed", False))
    model, data = changed(cancer[0], repairs=repairs), cancer[1].data
    write_report(model, data, tmp_path / "page.html")
    rows = visit(tmp_path / "page.html").locator("#repairs tbody tr").all_inner_texts()
    assert [row.split("\t") for row in rows] == [
        ["3", "1", "worst", "starved", "restarted on another row"],
        ["4", "0", "mean", "collapsed", "kept as it was"],
    ]


def test_a_partys_page_is_about_its_own_part(visit, cancer, tmp_path):
    _, data = cancer
    model = VerticalGaussianMixture(2, partition={"north": list(range(10))}, random_state=0).fit(data.data[:, :10])
    X, about = data.data[:, :10], {"title": "tumours: columns of north", "wording": in_study}
    others = ["east", "south"]  # as `vpem join` says it
    write_page(model.fitted_, X, tmp_path / "part.html", others=others, **about)
    page = visit(tmp_path / "part.html")
    assert page.text_content("#lead").startswith("One party's part of a mixture that 3 parties fitted together")
    facts = page.text_content("#facts")
    assert "Also east, south; this page is about the columns of north alone." in facts
    assert "Received" in facts
    for card in ("network", "agreement"):
        assert page.query_selector(f"#{card}") is None
    assert "What the messages reveal" in page.text_content("#traffic")
    settings = page.text_content("#settings")
    assert "n_components" in settings
    assert not any(name in settings for name in ("engine", "partition"))


# Without a browser


def test_no_value_of_the_data_is_in_the_page():
    X = np.random.default_rng(1).normal(size=(80, 4)) * [1, 10, 1000, 0.01] + [0, 5, 0, 1]
    model = VerticalGaussianMixture(2, partition=[[0, 1], [2, 3]], graph="path", random_state=0).fit(X)
    page = make_report(model, X)
    texts = {f"{value:.{digits}g}" for value in np.abs(X).ravel() for digits in (6, 7, 8, 12, 17)}
    numbers = set(re.findall(r"\d+\.?\d*(?:e-?\d+)?", page))
    # Among so few numbers of six digits, equal ones by chance would be rare.
    assert not {text for text in texts & numbers if len(text.replace(".", "").strip("0")) >= 6}
    assert max(len(number.replace(".", "").strip("0")) for number in re.findall(r"\d+\.\d+", page)) == 6


def test_small_bins_and_small_components_are_hidden():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 2)), [[50.0, 60.0], [50.1, 60.2], [50.2, 60.1]]])
    model = VerticalGaussianMixture(2, graph="path", random_state=0).fit(X)
    assert sorted(np.round(model.weights_ * 303)) == [3, 300], "the second component are three rows"
    data = read_data(make_report(model, X))
    small = int(np.argmin(model.weights_))
    for column, feature in enumerate(data["features"]):
        assert feature["means"][small] is None
        assert feature["deviations"][small] is None
        assert feature["means"][1 - small] is not None
        low, high = feature["limits"]
        expected = np.histogram(X[:, column], bins=len(feature["counts"]), range=(low, high))[0]
        assert (expected[expected > 0] < 5).any(), "or else nothing was hidden"
        assert feature["counts"] == np.where(expected < 5, 0, expected).tolist()
        assert X[:, column].min() < low
        assert high < X[:, column].max()
    [shades] = data["shades"].values()
    cells = np.histogram2d(*X.T, bins=data["n_pair_bins"], range=[feature["limits"] for feature in data["features"]])[
        0
    ]
    assert [digit != "0" for digit in shades] == (cells >= 5).ravel().tolist()


def test_correlations_of_small_components_are_hidden():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 2)), 50 + rng.normal(size=(4, 2))])
    model = VerticalGaussianMixture(2, partition=[[0, 1]], random_state=0).fit(X)
    [block] = read_data(make_report(model, X))["correlations"]
    small = int(np.argmin(model.weights_))
    assert block["values"][small] == [0]
    assert block["values"][1 - small] != [0]


def test_settings_do_not_hold_rows():
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = VerticalGaussianMixture(
        2, means_init=X[:2].tolist(), weights_init=np.array([0.5, 0.5]), graph="path"
    ).fit(X)
    settings = dict(read_data(make_report(model, X))["settings"])
    assert settings["means_init"] == "list of 2"
    assert settings["weights_init"] == "array of shape (2,)"
    assert settings["tol"] == "0.001"
    model.graph = model.graph_
    assert dict(read_data(make_report(model, X))["settings"])["graph"] == "graph with 2 agents, 1 links"


def test_of_many_features_the_most_telling_are_shown(monkeypatch, cancer):
    model, data = cancer
    monkeypatch.setattr(feature_cards, "MOST_FEATURES", 5)
    monkeypatch.setattr(feature_cards, "MOST_PAIRED", 3)
    found = read_data(make_report(model, data.data, feature_names=data.feature_names))
    most = sorted(int(column) for column in model.importance()["column"][:5])
    assert [feature["name"] for feature in found["features"]] == [data.feature_names[column] for column in most]
    assert len(found["shades"]) == 3
    assert found["n_columns"] == 30
    assert {len(block["features"]) for block in found["correlations"]} <= set(range(6))


class Streaming:
    """A table that is read some rows at a time, and remembers how many."""

    streams_rows = True

    def __init__(self, X):
        self._X, self.shape, self.column_names, self.most = X, X.shape, ["a", "b", "c", "d"], 0

    def __len__(self):
        return len(self._X)

    def __getitem__(self, rows):
        self.most = max(self.most, len(self._X[rows]))
        return self._X[rows]


def test_tables_of_all_kinds_give_the_same_page(small_chunks):
    X = make_vertical_blobs(300, 2, 2, 2, random_state=0).data
    X[::7, 1] = np.nan
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).convert_dtypes()
    streaming = Streaming(X)
    model = VerticalGaussianMixture(2, partition=[["a", "b"], ["c", "d"]], random_state=0).fit(frame.astype(float))
    pages = {make_report(model, table) for table in (X, X.tolist(), frame, streaming)}
    assert len(pages) == 1
    assert 0 < streaming.most <= 64, "some rows at a time"
    assert [feature["name"] for feature in read_data(pages.pop())["features"]] == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="columns of the fit, a, b, c, d, got d, c, b, a"):
        make_report(model, frame[["d", "c", "b", "a"]])


def test_wrong_arguments_say_what_to_try(cancer):
    model, data = cancer
    with pytest.raises(TypeError, match=r"expected a fitted VerticalGaussianMixture.*try model.fit"):
        make_report(VerticalGaussianMixture(2), data.data)
    with pytest.raises(ValueError, match=r"expected rows of 30 columns.*got a table of shape \(569, 3\)"):
        make_report(model, data.data[:, :3])
    with pytest.raises(ValueError, match="expected feature_names to be 30 names"):
        make_report(model, data.data, feature_names=["a", "b"])


def test_a_report_is_written_whole_or_not_at_all(tmp_path, cancer, monkeypatch):
    model, data = cancer
    path = tmp_path / "new" / "page.html"
    write_report(model, data.data, path)
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    path.write_text("old")

    def write_half(self, text):
        self.write_text("half")
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_half)
        with pytest.raises(OSError, match="no space left"):
            write_report(model, data.data, path)
    with pytest.raises(ValueError, match="expected rows"):
        write_report(model, data.data[:, :2], path)
    assert path.read_text() == "old"
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    with pytest.raises(OSError, match="page"):  # a file is no folder
        write_report(model, data.data, path / "page.html")


def test_numbers_are_the_models(cancer):
    model, data = cancer
    found = describe(model, data.data, "title", None)
    assert found["lower_bounds"] == pytest.approx(model.lower_bounds_, rel=1e-5)
    assert found["traffic"]["bytes"] == model.traffic_.bytes
    assert found["gain"] == pytest.approx(model.certificate_.gain, rel=1e-5)
    assert [feature["name"] for feature in found["features"]][:2] == ["column 0", "column 1"]


def test_colours_are_those_of_the_figures():
    style = (Path(report.__file__).parent / "assets" / "page.css").read_text()
    assert tuple(re.findall(r"--colour-\d: (#\w+);", style)) == figures.COLOURS
    for orders in re.findall(r"(?:--component-\d: #\w+;\s*){8}", style):
        assert sorted(re.findall(r"#\w+", orders)) == sorted(figures.COLOURS)


def test_rows_of_each_party_and_gaps_are_told(visit, tmp_path):
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=300)
    bank = pd.DataFrame({"id": range(200), "income": rng.normal(size=200) + 6 * group[:200]})
    shop = pd.DataFrame({"id": range(80, 300), "visits": rng.normal(size=220) + 6 * group[80:]})
    bank.loc[:2, "income"], shop.loc[:29, "visits"] = np.nan, np.nan
    tables = {"bank": bank, "shop": shop}
    model = VerticalGaussianMixture(2, random_state=0).fit(tables, on="id")
    write_report(model, join(tables, on="id"), tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    assert page.locator("#rows .about").inner_text() == (
        "300 rows in all. All parties have 120 of them. The fit uses 297 of them. "
        "Gaps are values that are missing in rows that the party has."
    )
    assert page.locator("#rows tr").all_inner_texts() == [
        *("Party\tRows\tOf these at another party", "bank\t200\t120", "shop\t220\t120"),
        *("Column\tGaps", "income\tfewer than 5", "visits\t30"),
    ]
    facts = page.locator("dl.facts").inner_text()
    assert "of the values are missing, in gaps and in rows that a party does not have." in facts


def test_values_are_missing_only_in_rows_that_a_party_does_not_have(visit, tmp_path):
    rng = np.random.default_rng(0)
    bank = pd.DataFrame({"id": range(40), "income": rng.normal(size=40)})
    shop = pd.DataFrame({"id": range(10, 50), "visits": rng.normal(size=40)})
    tables = {"bank": bank, "shop": shop}
    model = VerticalGaussianMixture(1).fit(tables, on="id")
    write_report(model, join(tables, on="id"), tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    facts = page.locator("dl.facts").inner_text()
    assert "20% of the values are missing, all in rows that a party does not have." in facts
    assert "No value is missing in the rows that a party has." in page.locator("#rows .about").inner_text()
