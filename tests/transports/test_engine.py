"""The engine of docs/howto/write-an-engine.md: real processes and sockets, and parties that are killed in between."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from oracles import relative_error
from vpem import Consensus, VerticalGaussianMixture
from vpem.estimators import checks
from vpem.transports import wire

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "write-an-engine.md"
PARTITION = [[0, 1], [2], [3, 4]]
SETTINGS = {"n_components": 2, "tol": 0.0, "max_iter": 80}
SECONDS = 120


def free_ports(count):
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


@contextmanager
def process(folder, number):
    """A party; it is gone in the end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    environment["NUMBA_NUM_THREADS"] = "1"  # three processes share the cores
    command = [sys.executable, str(folder / "party.py"), str(number), str(folder)]
    with (folder / f"{number}.log").open("a") as log, subprocess.Popen(command, stderr=log, env=environment) as found:
        try:
            yield found
        finally:
            found.kill()


def wait_until(condition, folder):
    end = time.monotonic() + SECONDS
    while not condition():
        logs = {path.name: path.read_text() for path in folder.glob("*.log")}
        assert time.monotonic() < end, logs
        assert not any(logs.values()), logs
        time.sleep(0.005)


@pytest.fixture
def study(tmp_path):
    """A folder with the page's program and a study, and its model as the simulation finds it."""
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert program.count("\n") < 100
    (tmp_path / "party.py").write_text(program)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)) + 1.5 * (np.arange(300) % 2)[:, None]
    for number, columns in enumerate(PARTITION):
        np.save(tmp_path / f"{number}.npy", X[:, columns])
    content = {"links": [[0, 1], [1, 2], [0, 2]], "ports": free_ports(3), "settings": SETTINGS, "rounds": 20}
    (tmp_path / "study.json").write_text(json.dumps({**content, "seed": checks.shared_seed(0)}))
    model = VerticalGaussianMixture(
        partition=PARTITION, graph=nx.cycle_graph(3), summation=Consensus(20), random_state=0, **SETTINGS
    )
    with pytest.warns(match="did not converge"):
        return tmp_path, model.fit(X)


def newest(folder, number):
    """A party's last checkpoint on disk."""
    path = folder / f"{number}.state"
    return wire.decode_state(path.read_bytes()).checkpoints[-1].number if path.exists() else 0


def assert_same(folder, model):
    for number, columns in enumerate(PARTITION):
        found = np.load(folder / f"{number}.npz")
        assert relative_error(found["weights"], model.hub_weights_[number]) < 1e-9
        assert relative_error(found["means"], model.means_[:, columns]) < 1e-9
        assert relative_error(found["covariances"], model.covariances_[number]) < 1e-9


@pytest.mark.long
def test_a_party_of_a_real_network_may_be_killed_and_started_again(study):
    folder, model = study
    with ExitStack() as stack:
        parties = [stack.enter_context(process(folder, number)) for number in range(3)]
        for victim, checkpoint in ((1, 15), (0, 40)):
            wait_until(lambda number=victim, least=checkpoint: newest(folder, number) >= least, folder)
            parties[victim].send_signal(signal.SIGKILL)
            parties[victim].wait()
            assert not list(folder.glob("[0-9].npz")), "it was in the middle"
            parties[victim] = stack.enter_context(process(folder, victim))
        wait_until(lambda: all((folder / f"{number}.npz").exists() for number in range(3)), folder)
    assert_same(folder, model)
