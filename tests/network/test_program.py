"""Whole studies by the program alone: keys, a party or a server in each process, new rows, a party that is gone."""

import json
import re
import signal
import time
from contextlib import suppress

import numpy as np
import pyarrow.csv as pa_csv
import pytest
from typer.testing import CliRunner

import vpem
from clinics import NAMES, Clinics
from vpem.cli.app import app

pytestmark = pytest.mark.network


def said(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return re.sub(r"\s+", " ", result.output)


def ended(processes, code=0):
    """What processes have printed; all must have left with this code."""
    texts = {name: process.communicate(timeout=90)[0] for name, process in processes.items()}
    assert {process.returncode for process in processes.values()} == {code}, texts
    return texts


def check_rows(path, ids, expected, atol=1e-9):
    """A table of ids and probabilities has those of the simulation.

    Those of a fit are of its last iteration: the last step and rounded changes are in between.
    """
    found = pa_csv.read_csv(path).to_pydict()
    assert sorted(found["patient"]) == sorted(ids)
    rows = [ids.index(one) for one in found["patient"]]
    np.testing.assert_allclose(
        np.array([found["probability_0"], found["probability_1"]]).T, expected[rows], atol=atol
    )


def make_keys(made):
    """Keys as people make them: each party a request, one signs, certificates go back."""
    authority = made.folder / "authority"
    assert "never send" in said("keys", "ca", "--folder", authority)
    for name in (*NAMES, "server"):
        home = (made.folder if name == "server" else made.folder / name) / "keys"
        told = said("keys", "request", name, "--folder", home, "--host", "127.0.0.1")
        fingerprint = re.search(r"telephone: (\S+)", told)[1]
        assert re.search(rf"never send: \S*{name}\.key", told)
        signed = said("keys", "sign", home / f"{name}.csr", "--folder", authority, "-o", home / f"{name}.pem")
        assert fingerprint in signed
        (home / "ca.pem").write_bytes((authority / "ca.pem").read_bytes())
        shown = said("keys", "show", home / f"{name}.pem", home / "ca.pem")
        assert f"certificate of {name!r}" in shown
        assert fingerprint in shown
        assert "authority of 'vpem study'" in shown
        assert "hosts: 127.0.0.1" in shown


def test_a_star_with_keys_gaps_and_new_rows(tmp_path):
    made = Clinics(tmp_path / "clinics", links="star", gaps=60)
    make_keys(made)
    copy, expected = made.copy(), made.expected()
    assert "3 parties, 3 links" in said("study", "check", copy, "--party", made.folder / "north" / "clinic.toml")
    who = (*NAMES, "server")
    for name, text in ended({name: made.process(copy, name, secure=True) for name in who}).items():
        assert "refused" not in text
        assert "plain TCP" not in text
        assert name == "server" or "verdict: " in text
    for name in NAMES:
        check_rows(made.folder / name / "results" / "rows.csv", made.ids, expected.predict_proba(made.X), atol=2e-3)
    X = made.X[:20] + 5
    ids = made.new_rows(X, absent=["east"])
    X[:, 2:4] = np.nan
    options = {name: [made.folder / name / "new.csv", "-o", made.folder / name / "scores.csv"] for name in NAMES}
    options["server"] = ["--rows", 20]
    ended({name: made.process(copy, name, *options[name], command="predict", secure=True) for name in who})
    for name in NAMES:
        check_rows(made.folder / name / "scores.csv", ids, expected.predict_proba(X))


def wait_for(log, iteration):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        lines = log.read_text().splitlines() if log.exists() else []
        if any(json.loads(line).get("iteration", 0) >= iteration for line in lines[-5:] if line.endswith("}")):
            return
        time.sleep(0.02)
    raise AssertionError(log)


def check_means(made):
    expected = made.expected()
    for place, name in enumerate(NAMES):
        part = vpem.load(made.folder / name / "results" / "model.vpem")
        np.testing.assert_allclose(part.means_, expected.means_[:, 2 * place : 2 * place + 2], rtol=1e-9)


def test_ctrl_c_and_kill_and_the_same_command_again(tmp_path):
    made = Clinics(tmp_path / "clinics", model="tol = 0\nmax_iter = 150", n_rows=400)
    copy = made.copy()
    running = {name: made.process(copy, name) for name in NAMES}
    wait_for(made.folder / "east" / "results" / "log.jsonl", 20)
    running["south"].send_signal(signal.SIGINT)
    [text] = ended({"south": running["south"]}, 130).values()
    assert "run the same command to go on" in text
    running["east"].kill()
    running["east"].communicate()
    for name in ("east", "south"):
        running[name] = made.process(copy, name)
    for name, text in ended(running).items():
        assert name == "north" or "going on from the last checkpoint" in text
    check_means(made)


def test_a_disk_that_fills_up_ends_a_party_which_then_goes_on(tmp_path, small_disk):
    made = Clinics(tmp_path / "clinics", model="tol = 0\nmax_iter = 150", n_rows=400)
    results = made.folder / "east" / "results"
    results.symlink_to(small_disk)
    copy = made.copy()
    running = {name: made.process(copy, name) for name in NAMES}
    wait_for(results / "log.jsonl", 20)
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(2**16))
    [text] = ended({"east": running["east"]}, 1).values()
    assert "No space left on device" in text
    assert "run the same command again" in text
    assert "Traceback" not in text
    (small_disk / "filler").unlink()
    running["east"] = made.process(copy, "east")
    ended(running)
    check_means(made)


def test_two_go_on_without_the_third(tmp_path):
    made = Clinics(tmp_path / "clinics", links="complete", model="tol = 0\nmax_iter = 150", n_rows=400)
    copy = made.copy()
    running = {name: made.process(copy, name) for name in NAMES}
    wait_for(made.folder / "east" / "results" / "log.jsonl", 10)
    running.pop("south").kill()
    for process in running.values():
        process.send_signal(signal.SIGINT)
    for text in ended(running, 130).values():
        assert "run the same command to go on" in text
    rest = ("north", "east")
    ended({name: made.process(copy, name, "--without", "south") for name in rest})
    expected, own = made.expected(rest), made.columns(made.X, rest)
    for name in rest:
        check_rows(made.folder / name / "results" / "rows.csv", made.ids, expected.predict_proba(own), atol=2e-3)
    whole = tmp_path / "whole.vpem"
    said("assemble", *(made.folder / name / "results" / "model.vpem" for name in rest), "-o", whole)
    np.testing.assert_allclose(vpem.load(whole).means_, expected.means_, rtol=1e-9)
    X = made.X[:20] + 5
    ids = made.new_rows(X)
    scores = {name: made.folder / name / "scores.csv" for name in rest}
    asked = {name: [made.folder / name / "new.csv", "-o", scores[name], "--without", "south"] for name in rest}
    ended({name: made.process(copy, name, *asked[name], command="predict") for name in rest})
    for name in rest:
        check_rows(scores[name], ids, expected.predict_proba(made.columns(X, rest)))


def test_two_files_that_differ_name_the_field(tmp_path):
    made = Clinics(tmp_path / "clinics")
    copy = made.copy()
    other = copy.with_name("other-study.toml")
    other.write_text(copy.read_text().replace("components = 2", "components = 3"))
    running = {"north": made.process(copy, "north"), "east": made.process(other, "east")}
    for text in ended(running, 5).values():
        assert "model.components" in text
        assert "nothing was sent" in text
