"""The cards about what the clusters are: the model's own numbers, and nothing of a few rows."""

import re

import numpy as np
import pytest

from vpem import VerticalGaussianMixture
from vpem.core.rows import row_chunks
from vpem.datasets import make_vertical_blobs
from vpem.meaning import make_certainty
from vpem.report import describe, write_report
from vpem.report.bins import SMALLEST_COUNT, hide_small
from vpem.report.cluster_cards import certainty_card, importance_card, without_small

FITS_THE_WIDTH = "document.scrollingElement.scrollWidth <= document.scrollingElement.clientWidth"


@pytest.fixture(scope="module")
def page_of(cancer, tmp_path_factory):
    model, data = cancer
    path = tmp_path_factory.mktemp("clusters") / "page.html"
    write_report(model, data.data, path, feature_names=data.feature_names)
    return path


def number(text):
    return float(text.replace(",", "").replace("\u2212", "-"))


# Numbers


def test_profiles_are_the_models(cancer):
    model, data = cancer
    found = describe(model, data.data, "title", data.feature_names)
    profile = model.profile().pivot(index="column", columns="component", values="distance")
    everyone = model.profile().query("component == 0")
    nats = model.importance().set_index("column")["information"]
    for column, feature in enumerate(found["features"]):
        np.testing.assert_allclose(feature["distances"], profile.loc[str(column)], atol=5e-4)
        own = everyone[["overall_mean", "overall_deviation"]].iloc[column]
        np.testing.assert_allclose(feature["everyone"], own, rtol=1e-5)
        assert feature["nats"] == pytest.approx(nats[str(column)], abs=5e-4)
    assert [str(place) for place in found["ranked"]] == model.importance()["column"].tolist()


def test_importance_is_the_models(cancer):
    model, _ = cancer
    found = importance_card(model.fitted_, 569)
    parties = model.importance(by="party").set_index("party")
    assert found["entropy"] == pytest.approx(-model.weights_ @ np.log(model.weights_), abs=5e-4)
    for party, (nats, error) in zip(model.partition_, found["party_nats"], strict=True):
        assert nats == pytest.approx(parties.loc[party, "information"], abs=5e-4)
        assert error == pytest.approx(parties.loc[party, "error"], abs=5e-4)


def test_certainty_is_the_models_but_for_small_counts():
    blobs = make_vertical_blobs(400, 2, 2, 3, random_state=0)
    X = blobs.data * 0.35 + np.random.default_rng(0).normal(size=blobs.data.shape)
    model = VerticalGaussianMixture(3, partition=blobs.partition, random_state=0, max_iter=500).fit(X)
    expected, found = model.certainty(X), certainty_card(model.certainty(X), model.weights_)["certainty"]
    assert found["counts"] == hide_small(expected.counts).tolist()
    assert ((expected.counts > 0) & (expected.counts < SMALLEST_COUNT)).any(), "or else nothing was hidden"
    assert found["left_out"] == pytest.approx(1 - hide_small(expected.counts).sum() / 400, abs=1e-4)
    assert found["sure"] == ["", pytest.approx(expected.sure_share, abs=1e-4)]
    assert found["mean"] == pytest.approx(expected.mean_largest, abs=5e-4)
    pairs = {(one, other): share for one, other, share in expected.confused_pairs(most=6)}
    assert found["confused"]
    for one, other, share in found["confused"]:
        assert share == pytest.approx(pairs[one, other], abs=1e-4)
        assert share * model.weights_[one] * 400 >= SMALLEST_COUNT


# What must not be seen


def test_a_component_of_a_few_rows_has_no_part_in_everyone():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 2)), [[50.0, 60.0], [50.1, 60.2], [50.2, 60.1]]])
    model = VerticalGaussianMixture(2, graph="path", random_state=0).fit(X)
    small = int(np.argmin(model.weights_))
    found = describe(model, X, "title", None)
    for column, feature in enumerate(found["features"]):
        assert feature["distances"][small] is None
        assert feature["distances"][1 - small] == 0
        mean, deviation = model.means_[1 - small, column], X[:300, column].std()
        assert feature["everyone"] == pytest.approx([mean, deviation], rel=1e-3)
        assert feature["nats"] == 0, "one component is left, of which there is nothing to tell"
    assert found["entropy"] == 0
    assert found["certainty"]["sure"] == ["more than", round(1 - 5 / 303, 4)]
    assert found["certainty"]["counts"][small] == [0] * 20
    assert found["certainty"]["confused"] == []


def test_a_column_with_few_values_of_a_component_has_no_everyone():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) + np.repeat([0.0, 8.0], [240, 60])[:, None]
    X[12:, 2] = np.nan
    model = VerticalGaussianMixture(2, partition=[[0], [1, 2]], random_state=0).fit(X)
    first, _, few = describe(model, X, "title", None)["features"]
    assert (model.weights_ * 12 < SMALLEST_COUNT).any()
    assert few["everyone"] is few["distances"] is few["nats"] is None
    assert None not in first["distances"]


def test_nothing_is_told_of_a_few_rows():
    X = np.random.default_rng(0).normal(size=(4, 2))
    model = VerticalGaussianMixture(1, reg_covar=0.1, random_state=0).fit(X)
    found = describe(model, X, "title", None)
    assert found["certainty"] is None
    assert found["party_nats"] == []
    assert all(feature["everyone"] is None for feature in found["features"])
    fitted = model.fitted_
    assert without_small(fitted, 4) is fitted


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.97, 1.0])
def test_shares_do_not_count_a_few_rows(share):
    responsibilities = np.repeat([[1.0, 0.0], [0.6, 0.4]], [round(100 * share), round(100 * (1 - share))], axis=0)
    expected = {0.0: ["less than", 0.05], 0.03: ["less than", 0.05], 0.5: ["", 0.5]}
    found = certainty_card(make_certainty(responsibilities), np.full(2, 0.5))["certainty"]["sure"]
    assert found == expected.get(share, ["more than", 0.95])


def test_certainty_reads_some_rows_at_a_time(small_chunks):
    blobs = make_vertical_blobs(300, 2, 2, 2, random_state=0)
    model = VerticalGaussianMixture(2, partition=blobs.partition, random_state=0).fit(blobs.data)
    assert len(list(row_chunks(0, 300, 4))) > 1
    assert sum(map(sum, certainty_card(model.certainty(blobs.data), model.weights_)["certainty"]["counts"])) > 280


# In the browser


def test_the_table_of_profiles_has_the_means(visit, page_of, cancer):
    model, data = cancer
    page = visit(page_of)
    assert page.locator("#profiles tbody tr").count() == 12, "the most telling ones first"
    names = page.locator("#profiles tbody th span").all_inner_texts()
    ranked = [int(column) for column in model.importance()["column"]]
    parties = [party for party, held in model.partition_.items() for _ in held]
    assert names == [re.sub(rf"^{parties[c]} | {parties[c]}$", "", data.feature_names[c]) for c in ranked[:12]]
    heads = page.locator("#profiles thead th").all_inner_texts()
    shares = [f"{weight:.1%}".replace(".0%", "%") for weight in model.weights_]
    assert all(share in head for share, head in zip(shares, heads[1:3], strict=True))
    for row, column in enumerate(ranked[:12]):
        cells = page.locator("#profiles tbody tr").nth(row).locator("td.heat span").all_inner_texts()
        assert [number(cell) for cell in cells] == pytest.approx(model.means_[:, column].tolist(), rel=6e-3)
    page.locator("#columns").select_option("all")
    assert page.locator("#profiles tbody tr:not(.party)").count() == 30
    assert page.locator("#profiles .party").all_inner_texts() == list(model.partition_)
    page.locator("#columns").select_option(label="worst")
    assert page.locator("#profiles tbody tr:not(.party)").count() == 10


def test_cells_tell_their_values(visit, page_of, cancer):
    model, data = cancer
    page = visit(page_of)
    [most, *_] = [int(column) for column in model.importance()["column"]]
    distance = model.profile().query(f"component == 1 and column == '{most}'")["distance"].item()
    page.locator("#profiles tbody tr").first.locator("td.heat").nth(1).hover()
    told = page.locator("#profiles figcaption").inner_text()
    assert told.startswith(f"{data.feature_names[most]}, held by ")
    assert f"{abs(distance):.2g} deviations {'above' if distance > 0 else 'below'} everyone" in told
    cell = page.locator("#profiles tbody tr").first.locator("td.heat").nth(1)
    assert cell.get_attribute("title") == told
    assert ("above" in cell.get_attribute("class")) == (distance > 0)
    page.locator("#profiles .plot rect").last.hover()
    assert page.locator("#profiles figcaption").inner_text().startswith(data.feature_names[29])


def test_the_map_has_a_cell_for_each_party_and_column(visit, page_of, cancer):
    """Columns of the same name, as "mean radius" and "worst radius" of the parties mean and worst, stand together."""
    page, (model, _) = visit(page_of), cancer
    assert page.locator("#profiles .plot rect").count() == 60
    written = page.locator("#profiles .plot text").all_text_contents()
    assert written.count("radius") == 2, "once for each component"
    assert [text for text in written if text in model.partition_] == list(model.partition_)


def test_no_map_without_columns_in_common(visit, tmp_path):
    blobs = make_vertical_blobs(100, 3, 2, 2, random_state=0)
    model = VerticalGaussianMixture(2, partition=blobs.partition, random_state=0).fit(blobs.data)
    write_report(model, blobs.data, tmp_path / "page.html", feature_names=list("abcdef"))
    page = visit(tmp_path / "page.html")
    assert page.locator("#profiles .plot").count() == 0
    assert page.locator("#profiles .party").count() == 3


def test_bars_are_in_the_order_of_their_information(visit, page_of, cancer):
    model, data = cancer
    page = visit(page_of)
    widths = page.locator("#importance .telling").evaluate_all("all => all.map(one => one.width.baseVal.value)")
    assert len(widths) == 3 + 8
    assert widths[:3] == sorted(widths[:3], reverse=True)
    assert widths[3:] == sorted(widths[3:], reverse=True)
    told = page.locator("#importance .telling title").evaluate_all("all => all.map(one => one.textContent)")
    assert told[0].startswith(f"{model.importance(by='party')['party'].iloc[0]}: ")
    assert told[3].startswith(data.feature_names[int(model.importance()["column"].iloc[0])])
    page.locator("#telling").select_option(label="all")
    assert page.locator("#importance .telling").count() == 33


def test_certainty_in_the_page(visit, page_of, cancer):
    model, data = cancer
    page, found = visit(page_of), model.certainty(data.data)
    assert f"{100 * found.sure_share:.1f}".removesuffix(".0") in page.locator("#certainty .about").inner_text()
    drawn = page.locator("#certainty .layer").count()
    assert drawn == (hide_small(found.counts) > 0).sum()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_on_colour_has_contrast(visit, page_of, scheme):
    page = visit(page_of, color_scheme=scheme)
    page.locator("#columns").select_option("all")
    looks = page.locator("#profiles td.heat, .sign-of").evaluate_all(
        "all => all.map(one => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor])"
    )

    def luminance(text):
        parts = np.array([float(part) for part in re.findall(r"[\d.]+", text)[:3]])
        parts = parts / 255 if text.startswith("rgb") else parts
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    assert len(looks) > 60
    for ink, ground in looks:
        one, other = sorted([luminance(ink), luminance(ground)])
        assert (other + 0.05) / (one + 0.05) > 4.5, (ink, ground)  # WCAG AA


def test_many_columns_and_components_on_a_telephone(visit, tmp_path):
    blobs = make_vertical_blobs(600, 12, 11, 10, random_state=0)
    names = [f"Station{p}.{kind}" for p in range(12) for kind in "ABCDEFGHIJK"]
    stations = {f"Station{number}": range(11 * number, 11 * number + 11) for number in range(12)}
    model = VerticalGaussianMixture(10, partition=stations, covariance_type="diag", random_state=0).fit(blobs.data)
    write_report(model, blobs.data, tmp_path / "page.html", feature_names=names)
    for width in (1280, 390):
        page = visit(tmp_path / "page.html", width=width)
        page.locator("#columns").select_option("all")
        page.locator("#telling").select_option(label="all")
        assert page.locator("#profiles tbody tr:not(.party)").count() == 132
        assert page.locator("#profiles .plot rect").count() == 1320
        assert page.evaluate(FITS_THE_WIDTH)
        edges = "all => all.map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])"
        for left, right in page.locator("#profiles .plot text, #importance .plot text").evaluate_all(edges):
            assert left >= 0, "no name is cut off"
            assert right <= width
