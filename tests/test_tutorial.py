"""The tutorial can be followed, and no page speaks of commands, options or files that are not there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from vpem.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text()
COMMANDS = typer.main.get_command(app).commands


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def commands(block):
    """A block of shell, cut so that every call of the program stands alone."""
    found = [""]
    for line in block.splitlines(keepends=True):
        if line.startswith("vpem "):
            found += [line, ""]
        else:
            found[-1] += line
    return [command for command in found if command]


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The folder in which all was typed that the tutorial says, and what was printed.

    The first call of the program is a process of its own. The others run here, which saves the time to start it.
    """
    folder, printed, n_calls = tmp_path_factory.mktemp("tutorial"), "", 0
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        patch.setenv("COLUMNS", "80")
        for command in [command for block in blocks(TUTORIAL, "sh") for command in commands(block)]:
            n_calls += command.startswith("vpem ")
            if command.startswith("vpem ") and n_calls > 1:
                result = CliRunner().invoke(app, shlex.split(command)[1:])
                assert result.exit_code == 0, result.output + repr(result.exception)
                printed += result.stdout
            else:
                shell = ["bash", "-e", "-o", "pipefail", "-c", command]
                done = subprocess.run(shell, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
                printed += done.stdout
        assert n_calls > 5
        names = {}
        for block in blocks(TUTORIAL, "python"):
            exec(block, names)
    return folder, printed


NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?")


def is_same_number(found, shown):
    """Whether two printed numbers agree as far as they do on every processor.

    Whole numbers (rows, columns, iterations, messages) are equal. Others may be rounded to the neighbouring last
    digit. Those printed with all their digits agree to 1e-9: sums in another order changed the thirteenth digit, and
    a fit may enlarge that.
    """
    if not re.search(r"[.e]", found + shown):
        return found == shown
    one, other = (float(text.replace(",", "")) for text in (found, shown))
    digits, _, exponent = shown.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(one - other) <= max(1.001 * last if len(digits) < 10 else 0.0, 1e-9 * abs(other))


def is_same_line(found, shown):
    """Whether two lines agree but for spaces and for digits that depend on the processor."""
    found, shown = (" ".join(line.split()) for line in (found, shown))
    if NUMBER.sub("#", found) != NUMBER.sub("#", shown):
        return False
    return all(map(is_same_number, NUMBER.findall(found), NUMBER.findall(shown)))


@pytest.mark.parametrize(
    ("found", "shown", "same"),
    [
        ("fit  7 rounds, 3.0725", "fit 7 rounds, 3.0726", True),
        ("fit 7 rounds, 3.0725", "fit 7 rounds, 3.0727", False),
        ("fit 7 rounds, 3.0725", "fit 8 rounds, 3.0725", False),
        ("2,692 messages", "2,693 messages", False),
        ("-1,375.7 *", "-1,375.6 *", True),
        ("-1,375.7 *", "-1,375.7", False),
        ("1.7e-06", "1.8e-06", True),
        ("1.7e-06", "1.7e-05", False),
        ("0.0e+00", "1.7e-06", False),
        (
            '"t1",1,-5.368696304069176,1.0877058715962823e-33',
            '"t1",1,-5.368696304069172,1.0877058715962668e-33',
            True,
        ),
        (
            '"t1",1,-5.368696304069176,1.0877058715962823e-33',
            '"t1",1,-5.368696304069172,1.0877058815962668e-33',
            False,
        ),
        ('"t1",0,-5.368696304069176', '"t1",1,-5.368696304069176', False),
        ('"t2",1,-5.368696304069176', '"t1",1,-5.368696304069176', False),
    ],
)
def test_digits_count_as_far_as_they_are_the_same_everywhere(found, shown, same):
    assert is_same_line(found, shown) == same


@pytest.mark.processors
def test_the_shell_prints_what_the_tutorial_shows(followed):
    shown = [line for block in blocks(TUTORIAL, "text") for line in block.splitlines()]
    assert len(shown) > 20
    printed = iter(followed[1].splitlines())
    for line in shown:  # in this order
        assert any(is_same_line(found, line) for found in printed), f"not printed where the tutorial shows it: {line}"
    assert "best by held-out rows: 7 components" in followed[1], "as the text says"


@pytest.mark.processors
def test_the_files_of_the_tutorial_appear(followed):
    typed = re.sub(
        r"^```console.*?^```|`vpem predict air.*?`", "", TUTORIAL, flags=re.S | re.M
    )  # tests/cli has these
    named = set(re.findall(r"(?<![/\w-])[\w-]+\.(?:csv|toml|vpem|html|png|txt)\b", typed))
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
            command = COMMANDS[name]
            for word in rest.split()[: hasattr(command, "commands")]:  # of a group, as `vpem study check`
                assert word in command.commands, f"{page}: {line}"
                command = command.commands[word]
            known = {option for given in command.params for option in given.opts} | {"--help"}
            assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest)) <= known, f"{page}: {line}"
            found.add(name)
    assert found == set(COMMANDS), "every command is in the documents"


def test_the_site_lists_every_page():
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1].split("\nvalidation:")[0]
    listed = re.findall(r"[\w/-]+\.md", nav)
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
