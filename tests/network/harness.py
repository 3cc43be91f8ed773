"""Studies of real processes for tests: folders, free ports, processes that are gone in the end, logs."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from network.certificates import Authority
from network.nursery import Nursery
from oracles import relative_error
from vpem import VerticalGaussianMixture
from vpem.estimators import checks
from vpem.transports import wire

PROGRAM = Path(__file__).with_name("party.py")
SECONDS = 90
LEASE = 2.0


def free_ports(count):
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


_nurseries = []


def nursery(environment):
    """The one of this process."""
    if not _nurseries:
        _nurseries.append(Nursery(environment))
    return _nurseries[0]


def simulated(X, partition, graph, summation, settings):
    """The model as one process finds it."""
    model = VerticalGaussianMixture(partition=partition, graph=graph, summation=summation, random_state=0, **settings)
    with pytest.warns(match="did not converge"):
        return model.fit(X)


class Study:
    """A study in a folder, and its processes; a context that ends them."""

    def __init__(
        self,
        folder,
        links,
        *,
        n_parties,
        adding="consensus",
        rows=300,
        max_iter=60,
        secure=False,
        X=None,
        components=2,
        init="kmeans",
        forked=False,
        **changes,
    ):
        from network.party import SUMS

        self.forked = forked and os.name == "posix"
        """Whether processes are forks of one that has imported everything: they begin at once."""
        self.folder, self.n_parties, self.links = folder, n_parties, links
        self.numbers = sorted({end for link in links for end in link})
        if X is None:
            rng = np.random.default_rng(0)
            X = rng.normal(size=(rows, 2 * n_parties)) + 1.5 * (np.arange(rows) % 2)[:, None]
        self.partition = [list(one) for one in np.split(np.arange(X.shape[1]), n_parties)]
        for number, columns in enumerate(self.partition):
            np.save(folder / f"{number}.npy", X[:, columns])
        settings = {"n_components": components, "tol": 0.0, "max_iter": max_iter}
        graph = "star" if len(self.numbers) > n_parties else nx.Graph(links)
        if not isinstance(graph, str):
            graph = nx.Graph()
            graph.add_nodes_from(range(n_parties))
            graph.add_edges_from(links)
        self.model = simulated(X, self.partition, graph, SUMS[adding], {**settings, "init_params": init})
        self.ports = free_ports(len(self.numbers))
        tls = None
        if secure:
            self.authority = Authority(folder)
            tls = [self.authority.sign(f"party-{number}") for number in self.numbers]
        content = {
            "name": "test",
            "links": links,
            "listen": [f"127.0.0.1:{port}" for port in self.ports],
            "addresses": {},
            "settings": settings,
            "init": init,
            "sum": adding,
            "seed": checks.shared_seed(0),
            "fields": {"model.components": "2"},
            "lease": LEASE,
            "patience": 60.0,
            "tls": tls,
            **changes,
        }
        self.content = content
        self.write()
        self.processes, self._all = {}, []

    def write(self, **changes):
        self.content |= changes
        (self.folder / "study.json").write_text(json.dumps(self.content))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._all:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def start(self, *numbers, prefix=(), program=PROGRAM, **changes):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        for number in numbers or self.numbers:
            path = str(self.folder / "study.json")
            if self.forked and not prefix and program is PROGRAM:
                places = [self.folder / f"{number}.{name}" for name in ("out", "err")]
                process = nursery(environment).start([path, number, json.dumps(changes)], *places)
                self.processes[number] = process
                self._all.append(process)
                continue
            command = [*prefix, sys.executable, str(program), path, str(number)]
            with (self.folder / f"{number}.out").open("ab") as out, (self.folder / f"{number}.err").open("ab") as err:
                process = subprocess.Popen([*command, json.dumps(changes)], stdout=out, stderr=err, env=environment)
            self.processes[number] = process
            self._all.append(process)
        return self

    def kill(self, *numbers):
        for number in numbers:
            self.processes[number].send_signal(signal.SIGKILL)
        for number in numbers:
            self.processes[number].wait()

    def log(self, number):
        path = self.folder / f"{number}.log"
        return (
            [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
            if path.exists()
            else []
        )

    def checkpoint(self, number):
        """Number of a party's last checkpoint on disk."""
        path = self.folder / f"{number}.state"
        return wire.decode_state(path.read_bytes()).checkpoints[-1].number if path.exists() else 0

    def errors(self):
        return {path.name: path.read_text()[-3000:] for path in sorted(self.folder.glob("*.err"))}

    def report(self):
        last = {number: self.log(number)[-12:] for number in self.numbers}
        return json.dumps({"errors": self.errors(), "logs": last}, indent=1)

    def wait_until(self, condition, seconds=SECONDS):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.report()
            assert not any(self.errors().values()), self.report()
            time.sleep(0.02)

    def wait_for_checkpoint(self, number, least):
        self.wait_until(lambda: self.checkpoint(number) >= least)

    def codes(self, *numbers, seconds=SECONDS):
        """Exit codes, when the processes have ended."""
        found = []
        end = time.monotonic() + seconds
        for number in numbers or self.numbers:
            try:
                found.append(self.processes[number].wait(max(end - time.monotonic(), 0.1)))
            except subprocess.TimeoutExpired:
                raise AssertionError(self.report()) from None
        return found

    def check(self):
        """All have finished, with the simulation's numbers."""
        assert set(self.codes()) == {0}, self.report()
        assert not any(self.errors().values()), self.report()
        self.check_numbers(range(self.n_parties), self.model, self.partition)

    def check_numbers(self, numbers, model, partition):
        for position, number in enumerate(numbers):
            found = np.load(self.folder / f"{number}.npz")
            assert relative_error(found["weights"], model.hub_weights_[position]) < 1e-9
            assert relative_error(found["means"], model.means_[:, partition[position]]) < 1e-9
            assert relative_error(found["covariances"], model.covariances_[position]) < 1e-9

    def told(self, number, event, words=""):
        return [line for line in self.log(number) if line["event"] == event and words in json.dumps(line)]


RING = [[0, 1], [1, 2], [2, 3], [0, 3]]
STAR = [[0, 3], [1, 3], [2, 3]]
