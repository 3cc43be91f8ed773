"""`vpem study init` and `vpem study check`: questions in a terminal, options without one, mistakes in the files."""

import os
import select
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from vpem.cli.app import app
from vpem.studies.shared_file import read_study

pty = pytest.importorskip("pty", reason="no terminals here")

PARTIES = "north=north.org:7450, south=south.org:7451"
PATIENCE = 300
"""Seconds: a new environment on a busy machine compiles all that it imports."""


def in_terminal(arguments, answers):
    """Exit code and screen of the program in a terminal, with an answer after each of these texts."""
    terminal, own = pty.openpty()
    command = [sys.executable, "-c", "from vpem.cli import main; main()", *map(str, arguments)]
    process = subprocess.Popen(command, stdin=own, stdout=own, stderr=own)
    os.close(own)
    screen, seen = "", 0
    while select.select([terminal], [], [], PATIENCE)[0]:
        try:
            screen += os.read(terminal, 4096).decode()
        except OSError:  # it has ended
            break
        while answers and answers[0][0] in screen[seen:]:
            text, answer = answers.pop(0)
            seen = screen.index(text, seen) + len(text)
            os.write(terminal, answer.encode() + b"\n")
    os.close(terminal)
    return process.wait(PATIENCE), screen


def said(*arguments, code=0):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_what_is_not_given_is_asked_and_asked_again(tmp_path):
    answers = [
        ("name of the study: ", "my clinics"),
        ("name of the study: ", "clinics"),
        ("south=south.org:7450: ", "north=north.org"),
        ("south=south.org:7450: ", PARTIES),
        ("links (star, tree, ring, path, complete) [tree]: ", "star"),
        ("host:port: ", "hub.org:7452"),
        ("number of components: ", "three"),
        ("number of components: ", "3"),
    ]
    code, screen = in_terminal(["study", "init", tmp_path / "a"], answers)
    assert (code, answers) == (0, []), screen
    for problem in ("expected 1 to 64 letters", "expected host:port", "expected a whole number"):
        assert screen.count(problem) == 1, screen
    study = read_study(tmp_path / "a" / "study.toml")
    assert study.names == ("north", "south", "server")
    assert study.members[1].address == "south.org:7451"
    assert (study.name, study.model.components, study.shape) == ("clinics", 3, "star")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["north.toml", "server.toml", "south.toml", "study.toml"]


def test_return_takes_the_default_and_options_are_not_asked(tmp_path):
    answers = [("[tree]: ", "")]
    given = ["--name", "clinics", "--parties", PARTIES, "-k", 2]
    code, screen = in_terminal(["study", "init", tmp_path / "a", *given], answers)
    assert (code, answers) == (0, []), screen
    assert "number of components" not in screen
    assert read_study(tmp_path / "a" / "study.toml").shape == "tree"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "expected an option for: name of the study; got none"),
        (["--name", "a b"], "name of the study: expected 1 to 64 letters, digits, - and _, got 'a b'"),
        (["--name", "a", "--parties", "x=h:1"], "expected two parties or more, with different names, got 'x=h:1'"),
        (["--name", "a", "--parties", "x=h:1,x=h:2"], "with different names"),
        (["--name", "a", "--parties", "x=h:1,y=h:2", "-k", "0"], "expected a whole number, 1 or more, got '0'"),
        (["--name", "a", "--parties", "x=h:1,y=h:2", "--links", "line"], "expected one of star, tree, ring"),
        (["--name", "a", "--parties", "x=h:1,y=h:2", "--links", "star", "-k", "2"], "address of the server"),
    ],
)
def test_options_that_are_wrong_or_missing_without_a_terminal(tmp_path, options, problem):
    assert problem in said("study", "init", tmp_path / "a", *options, code=1)
    assert not (tmp_path / "a").exists()


def test_nothing_is_written_over(tmp_path):
    given = ["study", "init", tmp_path, "--name", "a", "--parties", PARTIES, "-k", 2]
    said(*given)
    before = (tmp_path / "study.toml").read_text()
    said(*given, code=1)
    assert (tmp_path / "study.toml").read_text() == before


def test_a_mistake_in_either_file_is_said_with_its_line(tmp_path):
    said("study", "init", tmp_path, "--example")
    shared, own = (
        tmp_path / "study.toml",
        next(tmp_path.rglob("north*.toml"), None) or tmp_path / "north" / "clinic.toml",
    )
    check = ["study", "check", shared, "--party", own, "--insecure"]
    assert "digest of the rows" in said(*check)
    for path, right, wrong in ((shared, "components =", "componnets ="), (own, "table =", "tabel =")):
        text = path.read_text()
        assert text.count(right) == 1
        path.write_text(text.replace(right, wrong))
        line = 1 + text[: text.index(right)].count("\n")
        found = said(*check, code=1)
        assert f"{path.name}, line {line}" in found
        assert f"did you mean {right.split()[0]!r}" in found
        path.write_text(text)
