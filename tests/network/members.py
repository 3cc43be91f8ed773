"""The program's processes of one study, which are killed and started again."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pyarrow.csv as pa_csv

from clinics import NAMES
from network.harness import SECONDS, nursery

LONGEST_PAUSE = 3.0
"""Seconds between a kill and the next start, at most."""


class Members:
    """All members of a study, each with a command of the program; a context that ends them.

    Parameters
    ----------
    made : Clinics
    command : str
    options : dict
        Of the command, by member.
    secure : bool
    """

    def __init__(self, made, command, options=None, *, secure=True):
        self.made, self.copy, self.names = made, made.copy(), made.study.names
        self.command, self.options, self.secure = command, options or {}, secure
        self.processes, self._all = {}, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._all:
            process.kill()
            process.wait()

    def start(self, *names):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        for name in names or self.names:
            who = ["--server"] if name == "server" else ["--party", str(self.made.folder / name / "clinic.toml")]
            options = [*map(str, self.options.get(name, ())), *([] if self.secure else ["--insecure"])]
            arguments = ["vpem", self.command, str(self.copy), *who, *options]
            output = self.made.folder / f"{name}.out"
            self.processes[name] = process = nursery(environment).start(arguments, output, output)
            self._all.append(process)

    @property
    def running(self):
        return [name for name, process in self.processes.items() if process.poll() is None]

    def disturb(self, n_kills, draw, longest):
        """Kill members at random, also some while others are dead; returns how many before all had ended.

        Parameters
        ----------
        n_kills : int
        draw : random.Random
        longest : float
            Seconds between two kills, at most.
        """
        self.start()
        again, n_done = {}, 0
        while n_done < n_kills and (again or self.running):
            time.sleep(draw.random() * longest)
            if self.running:
                victim = draw.choice(self.running)
                self.processes[victim].kill()
                self.processes[victim].wait()
                again[victim] = time.monotonic() + draw.uniform(0.0, LONGEST_PAUSE)
                n_done += 1
            for name in [name for name, when in again.items() if when < time.monotonic()]:
                del again[name]
                self.start(name)
        self.start(*again) if again else None
        return n_done

    def check_codes(self):
        """Wait until all have ended, each with 0."""
        end = time.monotonic() + SECONDS
        for process in self.processes.values():
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                raise AssertionError(self.report()) from None
        assert {process.returncode for process in self.processes.values()} == {0}, self.report()

    def report(self):
        """What each has said last."""
        said = {name: (self.made.folder / f"{name}.out").read_text().splitlines()[-8:] for name in self.names}
        return json.dumps({"running": self.running, "said": said}, indent=1)


def probabilities(path):
    """By id, from a table of rows."""
    found = pa_csv.read_csv(path).to_pydict()
    rows = zip(*(values for name, values in found.items() if name.startswith("probability")), strict=True)
    return dict(zip([one.strip().lower() for one in found["patient"]], rows, strict=True))


def check_matched(made, n_rows):
    """All parties have the same common rows, with the same probabilities."""
    found = [probabilities(made.folder / name / "results" / "rows.csv") for name in NAMES]
    common = [{key for key, row in one.items() if None not in row} for one in found]
    assert common[0] == common[1] == common[2]
    assert len(common[0]) == n_rows
    for other in found[1:]:
        for key in common[0]:
            np.testing.assert_allclose(other[key], found[0][key], atol=1e-9)


def check_scores(made, ids, expected):
    """All parties have these probabilities of new rows."""
    for name in NAMES:
        found = probabilities(made.folder / name / "scores.csv")
        assert sorted(found) == sorted(ids)
        np.testing.assert_allclose([found[one] for one in ids], expected, atol=1e-6)
