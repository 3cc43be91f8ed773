"""The page about columns of different families, in a browser."""

import numpy as np
import pandas as pd

from vpem import VerticalMixture
from vpem.report import write_report


def test_categories_are_bars_and_zeros_a_spike(visit, tmp_path):
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=500)
    job = np.where(rng.random(500) < 0.1 + 0.8 * group, "nurse", rng.choice(["smith", "clerk"], size=500)).astype(
        object
    )
    job[:3] = "astronaut"  # too few to be named
    table = pd.DataFrame(
        {
            "job": job,
            "spent": np.where(rng.random(500) < 0.6, 0.0, np.exp(rng.normal(3 + group, 0.5))),
            "visits": rng.poisson(4 + 5 * group),
            "age": rng.normal(30 + 20 * group, 5),
        }
    )
    model = VerticalMixture(2, partition={"a": ["job", "age"], "b": ["spent", "visits"]}, random_state=0).fit(table)
    assert model.families_["spent"] == "zeros"
    write_report(model, table, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "nurse" in text
    assert "astronaut" not in text
    page = visit(tmp_path / "page.html")
    for party, column, expected in [
        ("a", "job", "categories"),
        ("b", "spent", "(zeros)"),
        ("b", "visits", "(counts:"),
    ]:
        page.locator("#party").select_option(label=party)
        page.locator("#feature").select_option(label=column)
        assert expected in page.locator("#marginals").inner_text()
        assert page.locator("#marginals svg rect.bars").count() >= 3
    assert "nurse" in page.locator("#profiles").inner_text()
    for select in ("#across", "#up"):  # an ellipse of categories would mean nothing
        assert sorted(page.locator(f"{select} option").all_inner_texts()) == ["age", "spent", "visits"]
    data = page.evaluate("data.features.find((feature) => feature.name === 'spent')")
    for share, curve in zip(
        model.fitted_.mixture.density.point_mass(model.fitted_.mixture.blocks[1], 0), data["curves"], strict=True
    ):
        curve = np.array(curve)
        spike = curve.argmax()
        assert curve[spike] / 100 > 0.9 * share  # its area, as one of 100 steps of the figure
        limits = data["limits"]
        assert abs(limits[0] + spike / 100 * (limits[1] - limits[0])) < (limits[1] - limits[0]) / 100


def test_a_cell_has_the_colour_of_the_category_that_it_names(visit, tmp_path):
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=600)
    # The first group's most common number of vessels, 0, is rarer there than in all rows.
    vessels = np.where(
        group, rng.choice(4, p=[0.8, 0.1, 0.07, 0.03], size=600), rng.choice(4, p=[0.4, 0.3, 0.2, 0.1], size=600)
    )
    table = pd.DataFrame({"vessels": vessels, "age": rng.normal(40 + 25 * group, 4), "pulse": rng.normal(size=600)})
    model = VerticalMixture(2, partition={"a": ["vessels"], "b": ["age", "pulse"]}, random_state=0).fit(table)
    profile = model.profile().query("column == 'vessels'").set_index("component")
    shares = model.parameters_[0]["others"]
    everyone = np.bincount(vessels, minlength=4) / 600
    write_report(model, table, tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    page.locator("#columns").select_option("all")
    row = page.locator("#profiles tbody tr", has_text="vessels")
    for k in range(2):
        cell = row.locator("td.heat").nth(k)
        place = int(profile.loc[k, "category"])
        assert cell.inner_text() == f"{place} {100 * shares[k, place]:.1f}%".replace(".0%", "%")
        # Blue: the share of the category that is named is above everyone's, as vpem show and plot_profiles tell.
        assert shares[k, place] > everyone[place]
        assert "above" in cell.get_attribute("class")
        assert float(page.evaluate("k => data.features[0].distances[k]", k)) == round(profile.loc[k, "distance"], 3)
        told = cell.get_attribute("title")
        assert f"in component {k}, and of {100 * everyone[place]:.1f}".removesuffix(".0") in told
        assert told.endswith("deviations above everyone.")
    assert min(shares[:, 0]) == max(shares[shares[:, 0].argmin()]), "the most common one"
    assert "0 " not in row.locator("td.heat").nth(int(shares[:, 0].argmin())).inner_text()[:2]
    legend = page.locator("#profiles .legend").inner_text()
    assert legend.startswith("orange: ")
    assert "deviations below everyone" in legend
    assert "blue: " in legend
    assert "above" in legend.split("blue: ")[1]


def test_rare_categories_are_not_told_by_cells(visit, tmp_path):
    rng = np.random.default_rng(0)
    group = np.arange(400) % 2
    job = np.where(rng.random(400) < 0.5, "nurse", "smith").astype(object)
    job[group == 1] = "nurse"
    job[[1, 3, 5]] = "astronaut"  # far above everyone, relative to its deviation
    table = pd.DataFrame({"job": job, "age": rng.normal(40 + 25 * group, 4)})
    model = VerticalMixture(2, random_state=0, smoothing=0.0).fit(table)
    write_report(model, table, tmp_path / "page.html")
    page = visit(tmp_path / "page.html")
    assert "astronaut" not in page.locator("#profiles").inner_text()
    feature = page.evaluate("data.features[0]")
    assert {feature["labels"][place] for place in feature["typical"]} == {"nurse", "smith"}
