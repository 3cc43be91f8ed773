"""The tutorial can be followed, and no page speaks of commands, options or files that are not there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from vpem.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text()
COMMANDS = typer.main.get_command(app).commands


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The folder in which somebody has typed all that the tutorial says, and what the shell printed."""
    folder = tmp_path_factory.mktemp("tutorial")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", "\n".join(blocks(TUTORIAL, "sh"))],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        names = {}
        for block in blocks(TUTORIAL, "python"):
            exec(block, names)
    return folder, done.stdout


def pattern(line):
    """A line whatever its numbers, whose last digits may differ between machines, and its spaces."""
    return re.sub(r"\d[\d.,e+-]*", "#", " ".join(line.split()))


@pytest.mark.long
def test_the_shell_prints_what_the_tutorial_shows(followed):
    printed = {pattern(line) for line in followed[1].splitlines()}
    shown = [line for block in blocks(TUTORIAL, "text") for line in block.splitlines()]
    assert len(shown) > 20
    assert [line for line in shown if pattern(line) not in printed] == []


@pytest.mark.long
def test_the_files_of_the_tutorial_appear(followed):
    named = set(re.findall(r"(?<![/\w-])[\w-]+\.(?:csv|toml|vpem|html|png|txt)\b", TUTORIAL))
    assert {"tumours.csv", "model.vpem", "report.html", "select.png", "links.txt"} <= named
    assert [name for name in sorted(named) if not (followed[0] / name).stat().st_size] == []


def test_commands_that_pages_mention_exist():
    found = set()
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        text = page.read_text()
        fences = re.findall(r"^```\w*\n(.*?)^```", text, re.S | re.M)
        spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
        for line in "\n".join([*fences, *spans]).splitlines():
            called = re.match(r"(?:\$ )?vpem ([a-z]+)\b(.*)", line)
            if called is None:
                continue
            name, rest = called.groups()
            assert name in COMMANDS, f"{page}: {line}"
            known = {option for given in COMMANDS[name].params for option in given.opts} | {"--help"}
            assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest)) <= known, f"{page}: {line}"
            found.add(name)
    assert found == set(COMMANDS), "every command is in the documents"


def test_the_site_lists_every_page():
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1].split("\nvalidation:")[0]
    listed = re.findall(r"[\w/-]+\.md", nav)
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
