"""The page that compares models: the numbers of the comparison, in a real browser, offline."""

import json
import re

import numpy as np
import pytest

from fits import judged
from vpem import VerticalGaussianMixture
from vpem.datasets import load_breast_cancer_parties
from vpem.meaning import compare_models
from vpem.models import NOT_JUDGED
from vpem.report import make_comparison, write_comparison
from vpem.verdict import Finding

FITS_THE_WIDTH = "document.scrollingElement.scrollWidth <= document.scrollingElement.clientWidth"


@pytest.fixture(scope="module")
def fitted():
    data = load_breast_cancer_parties()
    common = {"partition": data.partition, "random_state": 0, "standardize": True, "shrinkage": "auto"}
    models = {
        "two": VerticalGaussianMixture(2, **common),
        "four": VerticalGaussianMixture(4, max_iter=500, **common),
        "<b>ring</b>": VerticalGaussianMixture(2, graph="ring", **common),
    }
    for model in models.values():
        model.fit(data.data)
    found = [Finding("x", "note", "a note", ""), Finding("y", "red", "<i>bad</i>", "fewer")]
    models |= {"two": judged(models["two"], []), "four": judged(models["four"], found)}
    return models, data.data


@pytest.fixture(scope="module")
def found(fitted):
    models, X = fitted
    return compare_models(models, [X] * 3)


@pytest.fixture(scope="module")
def page_of(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("comparison") / "page.html"
    write_comparison(found, path, title="Three & more")
    return path


def rows_of(page, section):
    """A table as lists of texts, by the first cell of a row."""
    rows = page.locator(f"#{section} tbody tr").evaluate_all(
        "all => all.map(row => [...row.children].map(cell => cell.innerText))"
    )
    return {first: rest for first, *rest in rows}


def read_data(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))


def test_models_stand_side_by_side(visit, page_of, found):
    page = visit(page_of)
    assert page.title() == "Three & more"
    assert page.locator("#models thead th").all_inner_texts() == ["", *found.names], "names are only text"
    rows = rows_of(page, "models")
    assert rows["Verdict"] == [facts["verdict"] for facts in found.facts]
    assert rows["Verdict"][:2] == ["green", "red"]
    assert rows["Components"] == ["2", "4", "2"]
    for key, name in (("bic", "BIC"), ("aic", "AIC")):
        values = [facts[key] for facts in found.facts]
        told = [text.split("\n") for text in rows[name]]
        assert [float(text[0].replace(",", "")) for text in told] == pytest.approx(values, rel=1e-5)
        assert [len(text) > 1 for text in told] == [value == min(values) for value in values], "the best is marked"
    told = [float(text) for text in rows["Log-likelihood per row"]]
    assert told == pytest.approx([facts["log_likelihood"] for facts in found.facts], rel=1e-4)
    assert [int(text.split("\n")[0]) for text in rows["Iterations"]] == [facts["iterations"] for facts in found.facts]
    assert [int(text.replace(",", "")) for text in rows["Messages"]] == [facts["messages"] for facts in found.facts]
    assert all("B" in text for text in rows["Sent"])


def test_labels_are_compared(visit, page_of, found):
    rows = rows_of(visit(page_of), "agreement")
    assert list(rows) == found.names
    np.testing.assert_allclose([[float(text) for text in row] for row in rows.values()], found.agreement, atol=6e-4)


def test_findings_and_trajectories_of_each_model(visit, page_of, found):
    page = visit(page_of)
    told = page.locator("#verdicts .verdicts > div").all_inner_texts()
    assert len(told) == 3
    assert "nothing was found wrong" in told[0]
    assert told[1].index("<i>bad</i>") < told[1].index("a note"), "the worst first"
    assert "What to try: fewer." in told[1]
    assert page.locator("#trajectories .curve").count() == 3 + 3, "with their legend"
    lines = page.evaluate("data.trajectories.map(one => one.length)")
    assert lines == [facts["iterations"] for facts in found.facts]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_every_width(visit, page_of, scheme):
    for width in (1280, 390):
        page = visit(page_of, width=width, color_scheme=scheme)
        assert page.evaluate(FITS_THE_WIDTH)
        assert "NaN" not in page.locator("#trajectories .plot svg").evaluate("svg => svg.innerHTML")
        links = page.locator("nav a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
        assert links == ["#models", "#agreement", "#trajectories", "#verdicts"]


def test_without_rows_the_fits_are_compared(visit, tmp_path, fitted):
    models, _ = fitted
    write_comparison(compare_models(models), tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    rows = rows_of(page, "models")
    assert "BIC" not in rows
    told = [float(text.split("\n")[0]) for text in rows["Log-likelihood per row"]]
    assert told == pytest.approx([model.log_likelihood_ for model in models.values()], rel=1e-4)
    assert "table of five rows or more" in page.locator("#agreement").inner_text()


def test_models_of_different_columns_do_not_compare(visit, tmp_path, fitted):
    models, X = fitted
    part = VerticalGaussianMixture(2, random_state=0, standardize=True, shrinkage="auto").fit(X[:, :5])
    found = compare_models({"all": models["two"], "part": part}, [X, X[:, :5]])
    write_comparison(found, tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    assert "do not compare" in page.locator("#models .about").inner_text()
    assert "best" not in page.locator("#models").inner_text()
    assert page.locator("#trajectories").count() == 0


def test_a_model_without_a_verdict_is_not_judged(visit, tmp_path):
    old = VerticalGaussianMixture(2, random_state=0).fit(np.random.default_rng(0).normal(size=(60, 3)))
    old = judged(old, [NOT_JUDGED])
    X = old.sample(40)[0]
    found = compare_models({"one": old, "other": old}, [X, X])
    assert [facts["verdict"] for facts in found.facts] == [None, None]
    write_comparison(found, tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    assert rows_of(page, "models")["Verdict"] == ["not judged", "not judged"]
    assert "saved by an older version" in page.locator("#verdicts").inner_text()


def test_nothing_is_told_of_a_few_rows(fitted):
    models, X = fitted
    told = read_data(make_comparison(compare_models(models, [X[:4]] * 3)))
    assert told["agreement"] is None
    assert told["rows"] == 0
    assert all(facts[name] is None for facts in told["facts"] for name in ("log_likelihood", "bic", "aic"))
    assert read_data(make_comparison(compare_models(models, [X[:5]] * 3)))["rows"] == 5


def test_hostile_names_are_only_text(visit, tmp_path, fitted):
    hostile = "</script><script>window.broken = 1</script>"
    models, X = fitted
    found = compare_models({hostile: models["two"], "other": models["four"]}, [X, X])
    write_comparison(found, tmp_path / "page.html", title=hostile)
    assert (tmp_path / "page.html").read_text().count("<script") == 2
    page = visit(tmp_path / "page.html")
    assert page.evaluate("window.broken") is None
    assert page.locator("h1").inner_text() == hostile
    assert page.evaluate(FITS_THE_WIDTH)
