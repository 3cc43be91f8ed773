"""`vpem plan`: what it tells of shapes and of tables, and that a fit with the same options sends so much."""

import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vpem.cli.app import app, out
from vpem.datasets import make_vertical_blobs

NAMES = ["income", "debt", "visits", "spent", "age"]
DATA = make_vertical_blobs(300, 5, 1, 3, random_state=0).data.round(3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A whole table, two parties' own tables that share some rows, parties and links."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(out, "_width", 220)  # a terminal wide enough for whole rows
    write("people.csv", ["person", *NAMES], [[f"p{n}", *DATA[n]] for n in range(300)])
    write("bank.csv", ["person", "income", "debt"], [[n, *DATA[n, :2]] for n in range(200)])
    write("shop.csv", ["person", "visits"], [[n, DATA[n, 2]] for n in range(100, 300)])
    (tmp_path / "parties.toml").write_text(
        '[parties]\nbank = ["income", "debt"]\nshop = ["visits", "spent"]\nclinic = ["age"]\n'
    )
    (tmp_path / "links.txt").write_text("bank, shop\nshop, clinic\n")
    return tmp_path


def write(path, names, rows):
    with open(path, "w") as file:
        file.writelines(",".join(map(str, line)) + "\n" for line in [names, *rows])


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def told(*arguments, code=0):
    return re.sub(r"\s+", " ", run(*arguments, code=code).output)


def planned(*arguments):
    return json.loads(run("plan", *arguments, "--json").stdout)


def test_a_shape_on_a_ring():
    said = told("plan", "--rows", 100000, "--parties", 8, "--columns", 1, "-k", 3, "--graph", "ring")
    assert "8 parties, 8 links, diameter 4" in said
    assert "lambda_2 0.8047" in said
    assert "64 rounds for a millionth" in said
    assert "100,000 rows, 3 components, 5 starts of 20 to 100 iterations of EM, 5 to 60 of k-means" in said
    for name in ("Tree()", "Differences(Tree())", "Consensus(100)", "Consensus()", "RunningSums()"):
        assert name in said
    assert "exact in the end" in said
    assert "sending the table once: 6.4 MB, 532 ms; gzipped: not known without the table" in said
    assert "cheapest: Differences(Tree()), --sum differences; quickest:" in said
    assert "default: Tree()" in said
    assert "x gzip" not in said


def test_the_example_of_the_documents():
    page = (Path(__file__).parents[2] / "docs" / "howto" / "scale-and-cost.md").read_text()
    [command] = re.findall(r"^vpem (plan --rows .*)$", page, re.M)
    [shown] = re.findall(r"the second one prints\n\n```text\n(.*?)```", page, re.S)
    printed = [line.rstrip() for line in run(*command.split()).stdout.splitlines()]
    for line, expected in zip(printed, shown.splitlines(), strict=True):
        if "at least" not in line:  # the low end is zstandard's, of whatever version
            assert line == expected


def test_a_shape_on_a_star():
    said = told("plan", "--rows", 1000, "--parties", 3, "--columns", "3,1,2", "-k", 2)
    assert "3 parties, each linked with a server: diameter 2" in said
    assert "Star()" in said
    assert "Consensus" not in said
    assert "sending the table once: 48.0 kB" in said


def test_parties_from_a_file_without_tables():
    found = planned("--rows", 1000, "--parties", "parties.toml", "-k", 2, "--graph", "links.txt")
    assert found["parties"] == {"bank": 2, "shop": 2, "clinic": 1}
    assert (found["links"], found["diameter"]) == (2, 2)
    assert found["table"] == {"bytes": 8 * 1000 * 5, "gzipped": None}


def test_what_programs_get():
    found = planned("--rows", 1000, "--parties", 4, "-k", 2, "--graph", "path", "--iterations", "10..20")
    assert found["iterations"] == [10, 20]
    assert found["kmeans_iterations"] == [5, 60]
    assert (found["bandwidth"], found["latency"]) == (12.5e6, 0.02)
    assert (found["default"], found["cheapest"]) == ("Tree()", "Differences(Tree())")
    assert found["spectrum"]["rounds"] > 10
    for choice in found["choices"].values():
        assert choice["bounds"][0] <= choice["bytes"][0] <= choice["bytes"][1] <= choice["bounds"][1]
        assert choice["messages"][0] < choice["messages"][1]
    tree, changes = (found["choices"][name] for name in ("Tree()", "Differences(Tree())"))
    assert (tree["error_factor"], tree["exact_in_the_end"], tree["memory"]) == (0, False, 0)
    assert changes["exact_in_the_end"]
    assert changes["memory"] > 1000


def test_rounds_of_your_own_and_a_slower_line():
    shape = ("--rows", 1000, "--parties", 8, "-k", 2, "--graph", "ring", "--rounds", 3)
    fast, slow = planned(*shape), planned(*shape, "--bandwidth", "1Mbit", "--latency", "200ms")
    assert fast["choices"]["Consensus(3)"]["error_factor"] == pytest.approx(((1 + 2**0.5) / 3) ** 3)
    assert fast["quickest"] != "Consensus(3)", "its sums are not near enough"
    for name, choice in slow["choices"].items():
        assert choice["seconds"][0] > 9 * fast["choices"][name]["seconds"][0]


def test_tables_are_looked_at():
    found = planned("bank.csv", "shop.csv", "--id", "person", "-k", 2)
    assert found["parties"] == {"bank": 2, "shop": 1}
    assert found["rows"] == 300
    size = found["table"]
    assert size["bytes"] == 8 * 300 * 3
    joined = DATA[:, :3].copy()
    joined[200:, :2], joined[:100, 2] = np.nan, np.nan
    text = "\n".join(",".join(map(str, row)) for row in joined.tolist()).replace("nan", "")
    assert size["gzipped"] == pytest.approx(len(zlib.compress(text.encode())), rel=0.1)
    assert "x gzip" in told("plan", "bank.csv", "shop.csv", "--id", "person", "-k", 2)


def test_every_column_is_a_party_and_some_are_left_out():
    assert list(planned("people.csv", "--ignore", "person,age", "-k", 2)["parties"]) == NAMES[:4]


@pytest.mark.parametrize(
    "options",
    [
        ["--graph", "star"],
        ["--graph", "ring", "--rounds", 4],
        ["--graph", "links.txt", "--hops", 1],
        ["--graph", "ring", "--batch-size", 70],
        ["--graph", "links.txt", "--hops", 1, "--rounds", 4],
        ["--graph", "links.txt", "--accelerate", "squarem"],
    ],
    ids=str,
)
def test_a_fit_with_the_same_options_sends_so_much(options):
    same = ["people.csv", "--parties", "parties.toml", "-k", 2, "--init", "random_from_data", "--starts", 2, *options]
    run("fit", *same, "--tol", 0, "--max-iter", 6, "-o", "m")
    sent = json.loads(run("show", "m", "--json").stdout)
    found = planned(*same, "--iterations", 6)
    chosen = found["default"] if "--rounds" not in options else "Consensus(4)"
    choice = found["choices"][chosen]
    assert choice["bytes"] == [sent["bytes"]] * 2 == choice["bounds"]
    assert choice["messages"] == [sent["messages"]] * 2


def test_a_fit_by_differences_stays_within_the_bounds():
    same = ["people.csv", "--parties", "parties.toml", "-k", 2, "--init", "random", "--starts", 1, "--graph", "ring"]
    run("fit", *same, "--sum", "differences", "--tol", 0, "--max-iter", 6, "-o", "m")
    sent = json.loads(run("show", "m", "--json").stdout)
    choice = planned(*same, "--iterations", 6)["choices"]["Differences(Tree())"]
    assert choice["bounds"][0] < sent["bytes"] < choice["bounds"][1]
    assert choice["messages"] == [sent["messages"]] * 2


def test_a_fit_over_links_that_lose_messages_sends_so_much():
    same = ["people.csv", "--parties", "parties.toml", "-k", 2, "--init", "random", "--starts", 1, "--graph", "ring"]
    run("fit", *same, "--sum", "running", "--tol", 0, "--max-iter", 6, "-o", "m")
    sent = json.loads(run("show", "m", "--json").stdout)
    choice = planned(*same, "--iterations", 6)["choices"]["RunningSums()"]
    assert choice["bytes"] == [sent["bytes"]] * 2 == choice["bounds"]


def test_how_a_fit_is_told():
    for options, expected in {
        ("--graph", "star", "--rows", 100): "cheapest: Differences(Star()), --sum differences",
        ("--graph", "complete", "--rows", 100): "quickest: Consensus(), --sum consensus;",
        ("--graph", "complete", "--rows", 100, "--rounds", 2): "quickest: Consensus(), --sum consensus;",
    }.items():
        assert expected in told("plan", "--parties", 3, "-k", 3, *options)


SHAPE = ["--rows", 100, "--parties", 4, "-k", 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", 10, "--parties", 2], "expected --components, or a study's file"),
        (["-k", 2], "expected tables, or a shape by --rows and --parties; try vpem plan --rows"),
        (["-k", 2, "--rows", 10], "expected tables, or a shape"),
        ([*SHAPE, "--bandwidth", "100"], "expected a bandwidth above 0 in bits or bytes a second, as 100Mbit"),
        ([*SHAPE, "--latency", "20"], "expected a latency with its unit, s, ms or us, as 20ms or 0.5s, got '20'"),
        ([*SHAPE, "--iterations", "100..20"], "expected --iterations as 20..100 or as one number"),
        ([*SHAPE, "--kmeans-iterations", "few"], "expected --kmeans-iterations as"),
        (
            [*SHAPE, "--columns", "1,2"],
            "as one number or 4 numbers, 1 or more each, got 4 parties and '1,2'",
        ),
        ([*SHAPE, "--columns", "x"], "got 4 parties and 'x'"),
        ([*SHAPE, "--columns", "0"], "got 4 parties and '0'"),
        ([*SHAPE, "--graph", "rnig"], "expected a graph by name"),
        (
            [*SHAPE, "--init", "best"],
            "labels, random or random_from_data, got 'best'",
        ),
        ([*SHAPE, "--starts", 0], "expected n_init to be a whole number, 1 or more, got 0"),
        ([*SHAPE, "--accelerate", "more"], "expected accelerate to be None or 'squarem', got 'more'"),
        ([*SHAPE, "--graph", "ring", "--accelerate", "squarem", "--rounds", 3], "expected no --rounds with --accel"),
        ([*SHAPE, "--hops", 1], "expected hops=0 on a star"),
        (["--rows", 1, "--parties", 4, "-k", 2], "expected as many rows as components or more, got 1 and 2"),
        (["--rows", 10, "--parties", 0, "-k", 2], "expected one party or more"),
        (["--rows", 10, "--parties", "none.toml", "-k", 2], "none.toml: expected a file with the parties"),
        (["--rows", 10, "--parties", "parties.toml", "--columns", 2, "-k", 2], "expected no --columns with a file"),
        (["people.csv", "--ignore", "person", "--rows", 5, "-k", 2], "expected no --rows and --columns with tables"),
        (["bank.csv", "shop.csv", "-k", 2], "expected --id with several tables"),
    ],
)
def test_what_is_wrong_is_said(arguments, message):
    assert message in told("plan", *arguments, code=1)


STUDY = """vpem = 1
name = "clinics"
[model]
components = 3
starts = 2
max_iter = 50
hops = {hops}
standardize = false
[network]
links = {links}
[rows]
salt = "00112233445566778899aabbccddeeff"
[parties.a]
address = "a:1"
[parties.b]
address = "b:1"
[parties.c]
address = "c:1"
"""


@pytest.mark.parametrize(
    ("links", "graph", "own"),
    [
        ('"star"\nserver = { address = "s:1" }', "star", "Masked(Star())"),
        ('"path"\nsum = "exact"', "path", "Tree()"),
        ('"ring"\nsum = "consensus"\nrounds = 7', "ring", "Consensus(7)"),
    ],
)
def test_a_study_is_planned_as_the_same_options(folder, links, graph, own):
    hops = 1 if graph == "path" else 0
    (folder / "study.toml").write_text(STUDY.format(links=links, hops=hops))
    found = planned("study.toml", "--rows", 500, "--columns", "3,1,2")
    (folder / "names.toml").write_text('[parties]\na = ["x", "y", "z"]\nb = ["u"]\nc = ["v", "w"]\n')
    options = ["-k", 3, "--starts", 2, "--graph", graph, "--iterations", "20..50", "--hops", hops]
    expected = planned("--rows", 500, "--parties", "names.toml", *options, *(["--rounds", 7] if hops == 0 else []))
    assert found.pop("default") == own
    expected.pop("default")
    assert found == expected
    assert f"the study's: {own}" in told("plan", "study.toml", "--rows", 500)
    assert "expected --rows with study.toml" in told("plan", "study.toml", code=1)
    assert "expected --rows and --columns alone" in told("plan", "study.toml", "--rows", 500, "-k", 2, code=1)


def test_nothing_is_written(folder):
    before = sorted(folder.iterdir())
    told("plan", "people.csv", "--ignore", "person", "-k", 2)
    assert sorted(folder.iterdir()) == before
    assert np.isfinite(planned("people.csv", "--ignore", "person", "-k", 2)["table"]["gzipped"])
