"""Processes that are stopped for longer than the lease while neighbours send: every link comes back.

Messages are larger than what sockets hold, so that both ends of a connection are in the middle of one. Zenoh's own
reconnection does not survive that: the other end refused it for ever ("MAX_LINKS"), or took its messages for nobody.
"""

import signal
import time
from functools import partial

import numpy as np
import pytest

from network.harness import LEASE, STAR
from network.harness import Study as AnyStudy

pytestmark = pytest.mark.network
ROWS = 150_000
"""With four components, 4.8 MB for each message."""
TREE = [[0, 1], [1, 2], [1, 3]]
"""Party 1 has three neighbours: one connects to it, and it connects to the others."""
Study = partial(AnyStudy, forked=True, components=4, init="random", max_iter=12, secure=True, patience=300.0)


def table(n_parties):
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, n_parties)) + 3.0 * (np.arange(ROWS) % 2)[:, None]


@pytest.mark.parametrize(
    ("links", "n_parties", "sum_", "victim"), [(STAR, 3, "star", 3), (TREE, 4, "tree", 1)], ids=["server", "tree"]
)
def test_one_with_several_neighbours_may_stop_for_longer_than_the_lease(tmp_path, links, n_parties, sum_, victim):
    neighbours = [sum(link) - victim for link in links]
    with Study(tmp_path, links, n_parties=n_parties, adding=sum_, X=table(n_parties)) as study:
        study.start()
        for turn in range(3):
            study.wait_for_checkpoint(0, 2 + 3 * turn)
            study.processes[victim].send_signal(signal.SIGSTOP)
            study.wait_until(lambda turn=turn: all(len(study.told(one, "Away")) > turn for one in neighbours))
            time.sleep((1 + turn) * LEASE)
            study.processes[victim].send_signal(signal.SIGCONT)
        study.check()


def test_who_waits_says_for_whom_and_what_that_one_said_last(tmp_path):
    with AnyStudy(tmp_path, [[0, 1], [1, 2]], n_parties=3, forked=True, max_iter=300, patience=300.0) as study:
        study.start()
        study.wait_for_checkpoint(0, 20)
        study.processes[2].send_signal(signal.SIGSTOP)
        study.wait_until(lambda: study.told(0, "Waiting", ", waiting for 2") and study.told(1, "Waiting", '"2"'))
        [near] = study.told(0, "Waiting", ", waiting for 2")[0]["awaited"]
        assert near["name"] == "1"
        assert near["said"].startswith("iteration")
        assert near["heard"] < near["seconds"], "it is there"
        [paused] = study.told(1, "Waiting")[-1]["awaited"]
        assert paused["name"] == "2"
        assert paused["said"]
        study.processes[2].send_signal(signal.SIGCONT)
        study.wait_until(lambda: study.told(1, "Waiting")[-1]["awaited"] == [])
        study.check()
