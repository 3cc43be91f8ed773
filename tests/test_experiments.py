"""The experiments run, resume, and their committed results are those that the page shows."""

import csv
import importlib
import json
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from experiments.__main__ import ORDER, page
from experiments.common import RESULTS, Experiment, markdown, mean_and_range, queue_stand_in

PROJECT = Path(__file__).parent.parent
NEEDS_BEIJING = {"cycle", "components", "air", "adult"}


def rows(name, table):
    with (RESULTS / name / f"{table}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def read_once(beijing, monkeypatch):
    """The air of Beijing as it was read before."""
    for module in ("common", "air", "adult"):
        monkeypatch.setattr(f"experiments.{module}.fetch_beijing_air", lambda: beijing)
    return beijing


# Steps that are kept


def test_a_step_is_done_once(tmp_path, capsys):
    calls = []

    def work():
        calls.append(1)
        return {"number": np.float64(1.5), "list": np.arange(3)}

    for _ in range(2):
        found = Experiment("one", {"n": 1}, quick=True, out=tmp_path).step("a", work)
        assert found == {"number": 1.5, "list": [0, 1, 2]}
    assert len(calls) == 1
    assert "kept from the last run" in capsys.readouterr().out
    Experiment("one", {"n": 2}, quick=True, out=tmp_path).step("a", work)
    assert len(calls) == 2, "other parameters, another run"
    Experiment("one", {"n": 1}, quick=True, out=tmp_path, fresh=True).step("a", work)
    assert len(calls) == 3


def test_a_journal_that_was_cut_off(tmp_path):
    first = Experiment("one", {}, quick=True, out=tmp_path)
    first.step("a", lambda: 1)
    first.step("b", lambda: 2)
    first.journal.write_text(first.journal.read_text()[:-5])
    second = Experiment("one", {}, quick=True, out=tmp_path)
    assert second.done == {"a": 1}
    second.step("b", lambda: 3)
    assert Experiment("one", {}, quick=True, out=tmp_path).done == {"a": 1, "b": 3}


def test_a_step_that_cannot_be_kept(tmp_path):
    with pytest.raises(TypeError, match="numbers, lists and texts"):
        Experiment("one", {}, quick=True, out=tmp_path).step("a", lambda: {"x": object()})


def test_texts():
    assert mean_and_range([1.0, 2.0]) == "1.5 (1.0 to 2.0)"
    assert markdown([{"a": 1, "b": 2}]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_the_stand_in(read_once):
    pool = queue_stand_in(2650, "Dongsi", 0)
    assert pool.shape == (2650, 5)
    assert set(pool[:, 0]) == set(range(24))
    assert set(pool[:, 1]) == set(range(7))
    # The first hour of the data, the first of March 2013, was a Friday.
    friday = (read_once.time[0].astype("datetime64[D]").astype(int) + 3) % 7
    assert friday == 4
    assert abs(pool[:, 4].mean()) < 1e-9


# Small runs of each


@pytest.mark.long
@pytest.mark.parametrize("name", ORDER)
def test_a_quick_run(name, tmp_path, request):
    request.getfixturevalue("read_once" if name in NEEDS_BEIJING else "htru2")
    module = importlib.import_module(f"experiments.{name}")
    experiment = Experiment(name, {**module.FULL, **module.QUICK}, quick=True, out=tmp_path)
    module.run(experiment)
    text = (experiment.folder / "README.md").read_text()
    assert "nan" not in text.replace("nan |", "")
    figures = sorted(path.stem for path in experiment.folder.glob("*.svg"))
    assert figures, "there is a figure"
    for figure in figures:
        assert f"]({figure}.svg)" in text, "the page shows it"
        assert (experiment.folder / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        ElementTree.parse(experiment.folder / f"{figure}.svg")
    tables = list(experiment.folder.glob("*.csv"))
    assert tables
    assert all(len(table.read_text().splitlines()) > 1 for table in tables)
    assert not [path for path in experiment.folder.iterdir() if path.name.startswith(".")], "nothing unfinished"


@pytest.mark.long
def test_killed_in_the_middle_and_started_again(tmp_path):
    command = [sys.executable, "-m", "experiments.batches", "--quick", "--out", str(tmp_path)]
    journal = tmp_path / "batches.jsonl"
    first = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL)
    while not journal.is_file() and first.poll() is None:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert first.returncode == -signal.SIGKILL
    assert not (tmp_path / "batches").exists(), "no half of a result"
    done = [json.loads(line)["step"] for line in journal.read_text().splitlines() if line.endswith("}")]
    again = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert again.stdout.count("kept from the last run") == len(done) == 1
    assert (tmp_path / "batches" / "README.md").is_file()


# What is committed


def test_the_page_shows_the_committed_results():
    assert (PROJECT / "docs" / "experiments.md").read_text() == page(), "run python -m experiments --page"


@pytest.mark.parametrize("name", ORDER)
def test_committed_results_are_of_a_full_run_and_small(name):
    text = (RESULTS / name / "README.md").read_text()
    module = importlib.import_module(f"experiments.{name}")
    assert "quick run" not in text
    for parameter in module.FULL:
        assert f"- {parameter}: " in text
    files = list((RESULTS / name).iterdir())
    assert {path.suffix for path in files} == {".md", ".csv", ".svg", ".png"}
    assert all(path.stat().st_size < 500_000 for path in files)
    for path in files:
        if path.suffix == ".svg":
            assert f"({path.name})" in text


def test_the_papers_claims_in_the_committed_numbers():
    synthetic = rows("synthetic", "trajectories")
    last = {}
    for row in synthetic:
        last[row["network"], row["method"]] = float(row["log_likelihood_per_row"])
    for network in {network for network, _ in last}:
        assert last[network, "EM"] > last[network, "VP-EM"]
        assert last[network, "VP-EM"] == pytest.approx(last[network, "block-diagonal EM"], abs=0.5)
    draws = rows("pulsar", "draws")

    def accuracies(features, method):
        return [float(row["accuracy"]) for row in draws if (row["features"], row["method"]) == (features, method)]

    assert len(accuracies("raw", "VP-EM, cycle, 1 hop")) == 20
    assert np.mean(accuracies("raw", "k-means")) == pytest.approx(76.6, abs=0.2)
    assert np.mean(accuracies("raw", "EM")) == pytest.approx(84.6, abs=0.2)
    assert 85.0 < min(accuracies("raw", "VP-EM, cycle, 1 hop")) < max(accuracies("raw", "VP-EM, cycle, 1 hop")) < 88.5
    assert np.mean(accuracies("standardized", "k-means")) > 93


def test_the_mismatch_vanishes_at_the_theorys_rate_in_the_committed_numbers():
    for network in {row["network"] for row in rows("rounds", "mismatches")}:
        own = [row for row in rows("rounds", "mismatches") if row["network"] == network]
        for row in own:
            assert float(row["sum"]) <= 1.5 * float(row["theory"]) + 1e-12


def test_auto_is_never_worse_than_tied_with_oas_on_rows_kept_back():
    """What the program's default rests on: the committed numbers of every data set."""
    scores = {}
    for row in rows("shrinkage", "shrinkage"):
        scores.setdefault(row["data"], {}).setdefault(row["way"], []).append(float(row["kept_back"]))
    assert len(scores) == 13
    for name, ways in scores.items():
        auto, tied, full = (np.mean(ways[way]) for way in ("full, auto", "tied, oas", "full"))
        assert auto > tied, name
        if name in ("pulsars, all", "Beijing, 12 stations"):
            assert auto == pytest.approx(full, abs=0.005), "well-posed blocks are left alone"
