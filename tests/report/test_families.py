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
        model._mixture.density.point_mass(model._mixture.blocks[1], 0), data["curves"], strict=True
    ):
        curve = np.array(curve)
        spike = curve.argmax()
        assert curve[spike] / 100 > 0.9 * share  # its area, as one of 100 steps of the figure
        limits = data["limits"]
        assert abs(limits[0] + spike / 100 * (limits[1] - limits[0])) < (limits[1] - limits[0]) / 100
