"""Real processes that are killed, stopped, started late, or have bad connections: the same numbers all the same."""

import random
import shutil
import signal
import time
from contextlib import ExitStack
from functools import partial

import pytest

from network.harness import LEASE, RING, STAR
from network.harness import Study as AnyStudy
from network.proxy import Proxy

pytestmark = pytest.mark.network
TREE = [[0, 1], [0, 2], [1, 3]]
Study = partial(AnyStudy, forked=True)


@pytest.mark.parametrize("seed", range(2))
def test_any_party_may_be_killed_at_any_moment(tmp_path, seed):
    draw = random.Random(seed)
    links, sum_ = ((RING, "consensus"), (TREE, "differences"))[seed]
    about = {"adding": sum_, "max_iter": 400, "secure": seed == 1}
    with AnyStudy(tmp_path, links, n_parties=4, forked=seed == 0, **about) as study:
        study.start()
        for turn in range(5):
            victim = draw.randrange(4)
            study.wait_for_checkpoint(victim, 10 + 70 * turn + draw.randrange(50))
            time.sleep(draw.random() * 0.02)
            assert study.processes[victim].poll() is None, "it was in the middle"
            study.kill(victim)
            study.start(victim)
        study.check()


def test_two_parties_or_all_may_be_killed_at_once(tmp_path):
    with Study(tmp_path, RING, n_parties=4, max_iter=200) as study:
        study.start()
        study.wait_for_checkpoint(0, 20)
        study.kill(1, 2)
        study.start(1, 2)
        study.wait_for_checkpoint(1, 70)
        study.kill(*range(4))
        study.start()
        study.check()


@pytest.mark.parametrize("sum_", ["star", "differences on a star"])
def test_the_server_of_a_star_may_be_killed(tmp_path, sum_):
    with Study(tmp_path, STAR, n_parties=3, adding=sum_, max_iter=200, secure=True) as study:
        study.start()
        for least in (20, 80):
            study.wait_for_checkpoint(0, least)
            study.kill(3)
            study.start(3)
        study.check()


def test_a_party_may_stop_for_longer_than_the_lease(tmp_path):
    with Study(tmp_path, RING, n_parties=4, max_iter=200) as study:
        study.start()
        study.wait_for_checkpoint(1, 20)
        study.processes[1].send_signal(signal.SIGSTOP)
        study.wait_until(lambda: study.told(0, "Away") and study.told(2, "Away"))
        time.sleep(15 - LEASE)
        study.processes[1].send_signal(signal.SIGCONT)
        study.check()


def test_a_party_may_come_late(tmp_path):
    with Study(tmp_path, RING, n_parties=4, secure=True) as study:
        study.start(0, 1, 3)
        study.wait_until(lambda: study.told(0, "Here") and study.told(3, "Here"))
        time.sleep(10)
        study.start(2)
        study.check()


def test_a_party_killed_at_the_last_moment_finds_the_others_still_there(tmp_path):
    with Study(tmp_path, [[0, 1], [1, 2]], n_parties=3, max_iter=100) as study:
        study.start()
        study.wait_for_checkpoint(2, 99)
        study.kill(2)
        study.start(2)
        study.check()


@pytest.mark.parametrize("trouble", ["reset", "stall", "delay"])
def test_connections_may_be_bad(tmp_path, trouble):
    draw = random.Random(1)
    n_iterations = 20 if trouble == "delay" else 250
    with ExitStack() as stack:
        study = stack.enter_context(
            Study(tmp_path, RING, n_parties=4, adding="tree", max_iter=n_iterations, secure=trouble == "reset")
        )
        proxies = {}
        for one, other in RING:
            proxy = Proxy(study.ports[other], delay=0.1 if trouble == "delay" else 0.0)
            proxies[f"{one}-{other}"] = stack.enter_context(proxy)
        study.write(addresses={name: f"127.0.0.1:{proxy.port}" for name, proxy in proxies.items()})
        study.start()
        study.wait_for_checkpoint(0, 5)
        for turn in range(0 if trouble == "delay" else 6):
            study.wait_for_checkpoint(0, 5 + 30 * turn)
            proxy = draw.choice(list(proxies.values()))
            proxy.reset() if trouble == "reset" else proxy.stall(1.0)
        study.check()


def test_clocks_may_be_a_day_apart(tmp_path):
    if shutil.which("faketime") is None:
        pytest.skip("no faketime: apt-get install faketime")
    with Study(tmp_path, [[0, 1], [1, 2]], n_parties=3, secure=True) as study:
        study.start(0)
        for number, shift in ((1, "+1d"), (2, "-1d")):  # a wrong date leaves the clock of timeouts as it is
            study.start(number, prefix=["faketime", "--exclude-monotonic", "-f", shift])
        study.check()


def test_all_end_when_a_party_stays_away_and_go_on_when_it_is_back(tmp_path):
    with Study(tmp_path, [[0, 1], [1, 2], [2, 3]], n_parties=4, max_iter=300, patience=4.0) as study:
        study.start()
        study.wait_for_checkpoint(3, 20)
        study.kill(3)
        assert study.codes(0, 1, 2) == [4, 4, 4]
        for number in range(3):
            [outcome] = study.told(number, "Outcome")
            assert outcome["awaited"][0]["name"] == "3"
            assert outcome["awaited"][0]["seconds"] > 4.0
        study.start()
        study.check()


def test_they_may_go_on_without_a_party(tmp_path):
    with Study(tmp_path, RING, n_parties=4, max_iter=100, patience=3.0) as study:
        study.start()
        study.wait_for_checkpoint(0, 20)
        study.kill(3)
        assert study.codes(0, 1, 2) == [4, 4, 4]
        study.start(0, 1, 2, without=[3])
        assert study.codes(0, 1, 2) == [0, 0, 0], study.report()
