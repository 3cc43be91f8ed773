"""CONTRIBUTING.md's walk through a new summation."""

import re
from pathlib import Path

import pytest

import vpem
from vpem.datasets import make_vertical_blobs
from vpem.extend import SUMMATIONS
from vpem.planning import choices, make_network
from vpem.summations import BUILT_IN, BuiltIn, named_summation, way_of

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def walked(monkeypatch):
    """Names that the blocks define; `SUMMATIONS` is restored afterwards."""
    monkeypatch.setitem(SUMMATIONS, "all to all", None)
    section = PAGE.read_text().split("## Add a summation in ten minutes\n")[1].split("\n## ")[0]
    names = {"__name__": "walked"}
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(block, names)
    return names


def test_the_blocks_run_and_files_can_name_the_summation(walked, tmp_path):
    made = walked["AllToAll"]()
    data = make_vertical_blobs(100, n_parties=3, n_columns=2, n_components=2, random_state=0)
    settings = {"partition": data.partition, "graph": "complete", "random_state": 0}
    model = vpem.VerticalGaussianMixture(2, **settings, summation=made).fit(data.data)
    assert model.traffic_.messages % 6 == 0
    vpem.save(model, tmp_path / "model.vpem")
    assert vpem.load(tmp_path / "model.vpem").summation == made
    with pytest.raises(ValueError, match="try graph='complete'"):
        model.set_params(graph="star").fit(data.data)


def test_one_line_makes_it_one_of_vpem_s_own(walked, monkeypatch):
    line = BuiltIn("here", "AllToAll", "all", "everybody adds")
    load = BuiltIn.load
    monkeypatch.setattr(BuiltIn, "load", lambda one: walked["AllToAll"] if one is line else load(one))
    monkeypatch.setitem(BUILT_IN, "all to all", line)
    monkeypatch.setitem(vpem.summations.WAYS, "all", "everybody adds")
    made = walked["AllToAll"]()
    assert named_summation("all", is_star=False) == made
    assert way_of(made) == "all"
    complete, ring = (make_network({n: [n] for n in range(4)}, graph) for graph in ("complete", "ring"))
    assert made in choices(complete)
    assert made not in choices(ring)


def test_every_built_in_summation_has_its_way():
    for is_star in (True, False):
        network = make_network({n: [n] for n in range(4)}, "star" if is_star else "ring")
        for one in choices(network):
            one.check(network)
            assert type(named_summation(way_of(one), is_star=is_star)) is type(one)
