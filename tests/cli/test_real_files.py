"""The program with files of other programs: what gets in, what is said, and a new user's path to a report."""

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import vpem
from vpem import VerticalGaussianMixture
from vpem.cli.app import COVARIANCES, app
from vpem.core.blocks.covariances import STRUCTURES
from vpem.datasets import make_vertical_blobs
from vpem.tables import join

NAMES = ["income", "debt", "visits", "spent"]
DATA = make_vertical_blobs(300, 2, 2, 3, correlation=0.0, random_state=0).data
FRAME = pd.DataFrame(DATA, columns=NAMES)
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def vpem_says(*arguments, code=0):
    """What the program prints, on both streams; its exit code must be as told."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return re.sub(r"\s+", " ", result.output)


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


WAYS = {
    "excel.csv": (
        {"index": False, "sep": ";", "decimal": ",", "encoding": "cp1252"},
        "semicolons, with decimal commas",
    ),
    "unicode.txt": ({"index": False, "sep": "\t", "encoding": "utf-16"}, "read as UTF-16, separated by tabs"),
    "default.csv": ({}, "the first column has no name and counts the rows: left out (else: --id index)"),
    "packed.csv.gz": ({"index": False}, "fitting"),
    "names.csv": ({"index": False, "header": False}, "the columns are column_0 to column_3 (else: --header)"),
}


@pytest.mark.parametrize("name", WAYS)
def test_fit_and_predict_with_a_file(name):
    options, note = WAYS[name]
    FRAME.to_csv(name, **options)
    assert note in vpem_says("fit", name, "-k", 3)
    expected = VerticalGaussianMixture(3, random_state=0, n_init=5, shrinkage="auto", standardize=True).fit(DATA)
    np.testing.assert_allclose(vpem.load("model.vpem").means_, expected.means_, rtol=1e-9)
    said = vpem_says("predict", "model.vpem", name)
    assert (note in said) == (name not in ("packed.csv.gz", "default.csv"))
    assert [int(row["component"]) for row in rows("scores.csv")] == expected.predict(DATA).tolist()
    assert "best by held-out rows: 3 components; by BIC: 3" in vpem_says("select", name, "-k", "2..3")


def test_forms_can_be_told():
    FRAME.to_csv("odd.csv", index=False, sep="x", decimal=",", encoding="utf-16-le")
    told = ("--separator", "x", "--decimal", ",", "--encoding", "utf-16-le", "--header")
    vpem_says("fit", "odd.csv", "-k", 2, *told)
    assert list(vpem.load("model.vpem").feature_names_in_) == NAMES
    vpem_says("predict", "model.vpem", "odd.csv", *told)
    vpem_says("select", "odd.csv", "-k", "1..2", *told)
    assert len(rows("scores.csv")) == 300
    assert "one character as separator" in vpem_says("fit", "odd.csv", "-k", 2, "--separator", "ab", code=1)


def test_several_columns_make_an_id_and_come_back():
    hours = pd.date_range("2020-02-27", periods=300, freq="h")
    keys = pd.DataFrame({"month": hours.month, "day": hours.day, "hour": hours.hour})
    pd.concat([keys, FRAME[NAMES[:2]]], axis=1)[:200].to_csv("bank.csv.gz", index=False)
    pd.concat([keys, FRAME[NAMES[2:]].assign(word="w")], axis=1)[100:].to_csv("shop.csv", index=False, sep=";")
    options = ("bank.csv.gz", "shop.csv", "--id", "month, day,hour")
    said = vpem_says("fit", *options, "-k", 2, "--ignore", "debt,shop.word")
    assert "2 parties" in said
    assert list(vpem.load("model.vpem").feature_names_in_) == ["income", "visits", "spent"]
    vpem_says("predict", "model.vpem", *options)
    found = rows("scores.csv")
    assert len(found) == 300
    assert list(found[0])[:4] == ["month", "day", "hour", "component"]
    assert [found[-1][name] for name in ("month", "day", "hour")] == [str(keys.iloc[-1][name]) for name in keys]
    X = FRAME.drop(columns="debt").to_numpy()
    X[200:, 0] = X[:100, 1:] = np.nan
    model = vpem.load("model.vpem")
    del model.feature_names_in_
    np.testing.assert_allclose([float(row["log_density"]) for row in found], model.score_samples(X), rtol=1e-9)


def test_a_column_that_counts_the_rows_is_noted():
    FRAME.assign(No=np.arange(1, 301)).to_csv("table.csv", index=False)
    said = vpem_says("fit", "table.csv", "-k", 2)
    assert "table.csv: column 'No' counts the rows, 1, 2, ...: is it a measurement? (else: --ignore No)" in said


def test_all_problems_of_all_files_are_one_message():
    FRAME.assign(name="x", person=range(300)).to_csv("bank.csv", index=False)
    FRAME.assign(name="x", when="2020-01-01", person=range(300)).to_csv("shop.csv", index=False, sep=";")
    FRAME[:0].assign(person=0).to_csv("empty.csv", index=False)
    said = vpem_says("fit", "bank.csv", "shop.csv", "empty.csv", "--id", "person", "-k", 2, code=1)
    for text in (
        "got 3 problems",
        "bank.csv, line 2, column 'name': expected a number or nothing, got 'x': always the same word (the same in 1 "
        "more: shop.csv)",
        "shop.csv, line 2, column 'when': expected a number or nothing, got a date or time, 2020-01-01",
        "empty.csv: expected rows, got none",
        "try: leave the columns out with --ignore name,when, or turn into numbers first",
    ):
        assert text in said
    said = vpem_says("fit", "bank.csv", "shop.csv", "--id", "persn", "--ignore", "nme,whn", "-k", 2, code=1)
    for meant in ("person", "name", "when"):
        assert f"did you mean '{meant}'?" in said
    said = vpem_says("fit", "bank.csv", "shop.csv", "-k", 2, code=1)
    assert "which column names the rows? All have income, debt, visits, spent, name, person" in said
    said = vpem_says("fit", "none.csv", "nothing.csv", "-k", 2, code=1)
    assert "none.csv: expected the file of a table, found no such file" in said
    assert "nothing.csv: expected the file of a table, found no such file" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-k", "0"], "--components to be a whole number, 1 or more, got '0'"),
        (["-k", "2", "--covariance", "ful"], "did you mean 'full'?"),
        (["-k", "2", "--init", "kmean"], "did you mean 'kmeans'?"),
        (["-k", "2", "--graph", "rng"], "did you mean 'ring'?"),
        (["-k", "2", "--graph", "ring", "--rounds", "0"], "rounds"),
        (["-k", "2", "--shrinkage", "2"], "from 0 to 1"),
        (["-k", "2", "--starts", "0"], "n_init"),
        (["-k", "2", "--hops", "-1"], "hops"),
        (["-k", "2", "--max-iter", "-1"], "max_iter"),
        (["-k", "2", "--batch-size", "0"], "batch_size"),
        (["-k", "2", "--decimal", ";"], "decimal mark"),
    ],
)
def test_options_are_checked_before_tables_are_read(options, message):
    said = vpem_says("fit", "none.csv", *options, code=1)
    assert message in said
    assert "found none" not in said


def test_links_are_checked_before_rows_are_read(folder):
    FRAME.assign(name="x").to_csv("bank.csv", index=False)
    (folder / "links.txt").write_text("income, debt\ndebt, visit\n")
    said = vpem_says("fit", "bank.csv", "-k", 2, "--graph", "links.txt", code=1)
    assert "line 2: party 'visit' is not there; did you mean 'visits'?" in said
    FRAME.to_csv("table.csv")  # the index is no party
    (folder / "links.txt").write_text("income, debt\ndebt, visits\nvisits, spent\n")
    assert "4 parties" in vpem_says("fit", "table.csv", "-k", 2, "--graph", "links.txt")


def test_words_of_options_are_those_of_the_library():
    assert set(COVARIANCES) == set(STRUCTURES)


def test_columns_of_a_parties_file(folder):
    FRAME.assign(name="x").to_csv("table.csv", index=False)
    (folder / "parties.toml").write_text('[parties]\nbank = ["incme", "debt"]\nshop = ["visit"]\n')
    said = vpem_says("fit", "table.csv", "--parties", "parties.toml", "-k", 2, code=1)
    assert "'incme' is not there; did you mean 'income'?" in said
    assert "'visit' is not there; did you mean 'visits'?" in said
    (folder / "parties.toml").write_text('[parties]\nbank = ["income", "debt"]\nshop = ["visits", "name"]\n')
    vpem_says("fit", "table.csv", "--parties", "parties.toml", "-k", 2, "--ignore", "name")
    assert vpem.load("model.vpem").partition_ == {"bank": [0, 1], "shop": [2]}


def test_a_title_for_the_report(folder):
    FRAME.to_csv("table.csv", index=False)
    vpem_says("fit", "table.csv", "-k", 2, "--report", "report.html", "--title", "Four <columns>")
    assert "<title>Four &lt;columns&gt;" in (folder / "report.html").read_text()
    vpem_says("fit", "table.csv", "-k", 2, "--report", "report.html")
    assert "<title>table.csv, K=2" in (folder / "report.html").read_text()


@pytest.mark.long
def test_twelve_stations_of_beijing_in_one_command(folder):
    """As the tutorial says, with the files as they are."""
    data = Path(os.environ.get("VPEM_DATA", "")) / "beijing-air"
    if not data.is_dir():
        pytest.skip("no beijing-air: set VPEM_DATA to the folder that holds it")
    (folder / "beijing-air").symlink_to(data)
    block = re.search(r"^```console\n\$ (vpem fit beijing-air.*?)^```", TUTORIAL.read_text(), re.S | re.M).group(1)
    command, shown = re.match(r"((?:[^\n]*\\\n)*[^\n]*\n)(.*)", block, re.S).groups()
    program = shlex.join([sys.executable, "-c", "from vpem.cli import main; main()"])
    shell = ["bash", "-e", "-c", command.replace("vpem ", f"{program} ", 1)]
    wide = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(shell, capture_output=True, text=True, check=False, env=wide)
    assert done.returncode == 0, done.stderr
    printed = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert shown.strip()
    for line in shown.splitlines():
        assert " ".join(line.split()) in printed
    assert "Air of Beijing" in (folder / "air.html").read_text()
    model = vpem.load("air.vpem")
    assert len(model.partition_) == 12
    assert {len(held) for held in model.partition_.values()} == {10}
    names = {str(name).partition(".")[2] for name in model.feature_names_in_}
    assert not names & {"No", "RAIN", "wd", "station", "year"}
    # The numbers that went in, by a reader that is not ours.
    table = join(
        {path.name[:-7]: path for path in sorted(data.glob("*.csv.gz"))},
        on=["year", "month", "day", "hour"],
        ignore=["No", "RAIN", "wd", "station"],
    )
    assert table.column_names == list(model.feature_names_in_)
    for station, held in model.partition_.items():
        frame = pd.read_csv(data / f"{station}.csv.gz").drop(columns=["No", "RAIN", "wd", "station"])
        np.testing.assert_array_equal(table[:][:, held], frame.iloc[:, 4:].to_numpy())
        assert table.ids == list(frame.iloc[:, :4].astype(str).itertuples(index=False, name=None))
    assert np.isfinite(model.score(table))
