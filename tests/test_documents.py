"""What the documents show must run."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import vpem
from vpem.core.agent.phases import PHASES, draw_life

ROOT = Path(__file__).parent.parent
MODULES = ["vpem", *(module.name for module in pkgutil.walk_packages(vpem.__path__, "vpem."))]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_docstrings_to_run():
    assert doctest.testmod(importlib.import_module("vpem.estimators.gaussian")).attempted > 5


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/real-data.md",
        "docs/howto/choose-k.md",
        "docs/howto/gaps.md",
        "docs/howto/what-the-clusters-are.md",
        "docs/howto/graphs-and-hops.md",
        "docs/howto/scale-and-cost.md",
    ],
)
def test_the_python_of_a_page_runs(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    names = {}
    for block in blocks:
        exec(block, names)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
    ],
)
def test_links_between_pages_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_life_of_an_agent_is_drawn_from_the_table_of_phases():
    text = (ROOT / "docs" / "architecture.md").read_text()
    [drawing] = re.findall(r"```mermaid\n(.*?)\n```", text, flags=re.DOTALL)
    assert drawing == draw_life()
    for name, phase in PHASES.items():
        assert f"| {name} | {phase.meaning} ({phase.exchange}) |" in text
