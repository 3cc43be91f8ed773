"""Three processes over mTLS: the one run of a real network that every run of the tests has."""

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np

import vpem
from clinics import NAMES, PROGRAM, Clinics


def test_three_processes_find_the_numbers_of_the_simulation(tmp_path):
    made = Clinics(tmp_path / "clinics", n_rows=120)
    repeats = np.random.default_rng(1).normal(size=(120, 4))
    made.replace(np.hstack([made.X[:, :2], np.tile(made.X[:, :2], 2) + 10 * repeats]))
    command = [*PROGRAM, "study", "up", str(made.folder / "study.toml")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert done.stderr == ""
    assert "refused" not in text
    expected = made.expected()
    for place, name in enumerate(NAMES):
        lines = re.findall(rf"^ *{name} \| (.*)", text, re.MULTILINE)
        assert lines[0].startswith(f"{name} in study clinics: waiting for"), text
        assert lines[-1].startswith("results: "), "nothing is lost or out of order at the end"
        folder = made.folder / name / "results"
        assert "columns of this party depend on those of the others" in (folder / "verdict.json").read_text()
        part = vpem.load(folder / "model.vpem")
        np.testing.assert_allclose(part.means_, expected.means_[:, 2 * place : 2 * place + 2], rtol=1e-9)
        np.testing.assert_allclose(part.weights_, expected.weights_, rtol=1e-9)


def processes(words):
    """Numbers of the processes whose command has these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if all(word in path.read_bytes() for word in words):
                found.append(int(path.parent.name))
    return found


def test_a_party_that_is_killed_ends_the_others_with_the_signal(tmp_path):
    made = Clinics(tmp_path / "clinics", patience="1h")
    command = [*PROGRAM, "study", "up", str(made.folder / "study.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while not (found := processes([b"\0join\0", f"{made.folder}/south/".encode()])):
            assert running.poll() is None
            time.sleep(0.05)
        os.kill(found[0], signal.SIGKILL)
        _, said = running.communicate(timeout=600)
    assert running.returncode == 128 + signal.SIGKILL
    assert said == "south ended with: signal 9, without a word; without it, north, east ended too\n"


def test_when_one_party_cannot_begin_the_others_end_with_its_reason(tmp_path):
    made = Clinics(tmp_path / "clinics", patience="1h")
    (made.folder / "east" / "table.csv").unlink()
    command = [*PROGRAM, "study", "up", str(made.folder / "study.toml")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=600)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.startswith("east ended with: ")
    assert "table.csv" in done.stderr
    assert "without it, north, south ended too" in done.stderr
