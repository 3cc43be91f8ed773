"""What the documents show must run."""

import doctest
import importlib
import pkgutil
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import vpem
from vpem.cli import app
from vpem.core.script.phases import PHASES, draw_life

ROOT = Path(__file__).parent.parent
MODULES = ["vpem", *(module.name for module in pkgutil.walk_packages(vpem.__path__, "vpem."))]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    if name == "vpem.flower.apps":
        pytest.importorskip("flwr", reason="no flwr: pip install 'vpem[flower]' to test studies on Flower")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_docstrings_to_run():
    assert doctest.testmod(importlib.import_module("vpem.estimators.gaussian_mixture")).attempted > 5


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/architecture.md",
        "docs/real-data.md",
        "docs/howto/choose-k.md",
        "docs/howto/families.md",
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
    _, life = re.findall(r"```mermaid\n(.*?)\n```", text, flags=re.DOTALL)
    assert life == draw_life()
    for name, phase in PHASES.items():
        assert f"| {name} | {phase.meaning} ({phase.exchange}) |" in text


def test_the_reference_of_the_program_lists_every_option():
    hooks = pytest.importorskip("mkdocs_hooks", reason="no mkdocs: install it to test the hooks of the documentation")
    page = (ROOT / "docs" / "reference" / "program.md").read_text()
    assert hooks.OPTIONS in page
    made = hooks.on_page_markdown(page)
    assert hooks.OPTIONS not in made
    program = typer.main.get_command(app)
    for name, command in {"": program, **program.commands}.items():
        [part] = re.findall(rf"^### {f'vpem {name}'.strip()}\n(.*?)(?=^### |\Z)", made, re.S | re.M)
        for param in command.params:
            [row] = [
                line
                for line in part.splitlines()
                if line.startswith((f"| `{param.opts[0]}`", f"| `{param.name.upper()}` "))
            ]
            assert param.help, f"vpem {name}: {param.name} says what it means"
            assert param.help.replace("|", "\\|") in row
            assert all(f"`{option}`" in row for option in param.opts if option.startswith("-"))
            assert ("| required |" in row) == param.required


def size_of(picture):
    """Width and height of a PNG."""
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    return struct.unpack(">II", content[16:24])


def test_the_picture_of_the_report_can_be_made_again(tmp_path):
    committed = ROOT / "docs" / "images" / "report.png"
    assert "(images/report.png)" in (ROOT / "docs" / "tutorial.md").read_text()
    assert committed.stat().st_size < 120_000
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        pytest.skip("no chromium: install it to make the picture of the report")
    pytest.importorskip("playwright.sync_api")
    script = committed.with_suffix(".py")
    subprocess.run([sys.executable, str(script), str(tmp_path / "report.png")], check=True)
    made, kept = size_of(tmp_path / "report.png"), size_of(committed)
    assert made[0] == kept[0]
    assert abs(made[1] - kept[1]) < 0.1 * kept[1], "the page has changed: run docs/images/report.py again"
