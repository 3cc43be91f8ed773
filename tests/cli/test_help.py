"""Help, completion and errors about options: in 80 columns, in plain words, with what to try."""

import re
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import vpem
from vpem.cli.app import app, out
from vpem.core.settings import STARTS

COMMANDS = typer.main.get_command(app).commands


def run(*arguments, code=0, **environment):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    monkeypatch.setattr(out, "_width", 80)


@pytest.mark.parametrize("command", ["fit", "select", "plan", "predict", "impute", "compare", "join"])
def test_help_fits_80_columns(command, narrow):
    lines = run(command, "--help").splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 125, "what is said has room"
    assert "…" not in "".join(lines)


def test_a_plan_fits_80_columns(narrow):
    lines = run("plan", "--rows", 100000, "--parties", 8, "-k", 3, "--graph", "ring").splitlines()
    [heading] = [line.split() for line in lines if line.startswith("choice")]
    assert heading == ["choice", "bytes", "time", "sums"]
    table = lines[lines.index(next(line for line in lines if line.startswith("choice"))) :]
    assert all(len(line) <= 80 and "…" not in line for line in table[:8])
    assert "a wider terminal shows more columns; --json has all numbers" in lines


def complete(monkeypatch, *words):
    """What Tab would offer for the last word."""
    answer = CliRunner().invoke(
        app,
        [],
        prog_name="vpem",
        env={"_VPEM_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)},
    )
    return answer.output.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["fit", "a.csv", "--covariance", "di"], ["diag"]),
        (["fit", "a.csv", "--init", ""], list(STARTS)),
        (["fit", "a.csv", "--sum", "m"], ["masked"]),
        (["fit", "a.csv", "--graph", "c"], ["complete"]),
        (["fit", "a.csv", "--shrinkage", "o"], ["oas"]),
        (["fit", "a.csv", "--family", "a"], ["auto"]),
        (["plan", "--init", "ran"], ["random", "random_from_data"]),
        (["docs", "priv"], ["privacy"]),
        (["fit", "a.csv", "--rounds", ""], ["auto"]),
        (["graph", "g"], ["geometric"]),
        (["experiment", "p"], ["pulsar"]),
        (["study", "init", "--links", "t"], ["tree"]),
    ],
)
def test_tab_completes_words(monkeypatch, words, offered):
    assert complete(monkeypatch, "vpem", *words) == offered


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["fit", "a.csv", "-k", "3", "--covariance", "diagonal"],
            "to be full, tied, diag or spherical, got 'diagonal'; did you mean 'diag'?",
        ),
        (["fit", "a.csv", "-k", "3", "--init", "k-mean"], "got 'k-mean'; did you mean 'kmeans'?"),
        (["fit", "a.csv", "-k", "3,5"], "got '3,5'; to compare several, vpem select a.csv -k 3,5"),
        (["fit", "a.csv", "-k", "2..4"], "vpem select a.csv -k 2..4"),
        (["fit", "a.csv", "-k", "x"], "expected --components to be a whole number, 1 or more, got 'x'"),
        (["select", "a.csv", "-k", "a,b"], "expected --components as 1..10, as 2,3,5 or as one number, got 'a,b'"),
        (["docs", "privat"], "page 'privat' is not there; did you mean 'privacy'?"),
    ],
)
def test_wrong_words_are_told_with_the_right_ones(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    assert said in re.sub(r"\s+", " ", run(*arguments, code=1))


@pytest.mark.parametrize(
    "arguments",
    [["fit", "{}", "-k", 2], ["select", "{}"], ["plan", "{}", "-k", 2], ["predict", "m", "{}"], ["show", "{}"]],
)
def test_folders_and_addresses_are_no_files(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(40, 2))
    vpem.save(vpem.VerticalGaussianMixture(1, partition=[[0], [1]]).fit(X), "m")
    for given, said in [
        (".", "got a folder; name the files in it"),
        ("https://example.org/x.csv", "got the address https://example.org/x.csv; download it first"),
        ("nothing.csv", "nothing.csv: expected the file of a"),
    ]:
        told = run(*(given if one == "{}" else one for one in arguments), code=1)
        assert said in re.sub(r"\s+", " ", told)


def test_a_selection_fits_80_columns(tmp_path, monkeypatch, narrow):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=200)
    rows = zip(1e6 * rng.normal(3 * group), rng.normal(3 * group), group, strict=True)
    (tmp_path / "a.csv").write_text("x,y,class\n" + "".join(f"{x},{y},{one}\n" for x, y, one in rows))
    lines = run("select", "a.csv", "-k", "1,2", "--label", "class", "--starts", 1).splitlines()
    heading = next(line for line in lines if "components" in line)
    assert "…" not in "".join(lines)
    assert "adj. Rand" in heading
    assert "held out" in heading


def test_a_seed_out_of_range(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = re.sub(r"[\s│]+", " ", run("fit", "a.csv", "-k", 2, "--seed", -1, code=2))
    assert "expected a whole number from 0 to 4294967295, got -1" in said


def test_a_plan_takes_words_as_categories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x,w\n" + "".join(f"{n},{'yes' if n % 3 else 'no'}\n" for n in range(30)))
    refused = run("plan", "a.csv", "-k", 2, code=1)
    assert "--family auto" in refused
    assert "30 rows, 2 components" in run("plan", "a.csv", "-k", 2, "--family", "auto")


def test_the_documentation_comes_with_the_program(narrow):
    listed = run("docs")
    for name in ("privacy", "tutorial", "howto/choose-k", "howto/deploy", "reference/program"):
        assert re.search(rf"^{name} ", listed, re.M)
    shown = run("docs", "privacy")
    assert "What the messages reveal" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_no_output_names_a_file_of_the_checkout():
    """Users of the package have no such file: `vpem docs` shows the pages."""
    for path in Path(vpem.__file__).parent.rglob("*"):
        if path.suffix == ".html" or path.suffix == ".js":
            assert "docs/" not in path.read_text()
    assert "docs/" not in run("explain", "--help")
