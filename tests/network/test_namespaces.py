"""Links between machines that are cut or slow: network namespaces and veth pairs; skipped where there are none."""

import os
import signal
import subprocess
import time

import pytest

from network.harness import LEASE, STAR, Study
from network.test_pauses import TREE, table

pytestmark = pytest.mark.network


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Machines:
    """Namespaces on one bridge, each with an address of its own."""

    def __init__(self, count):
        self.names = [f"vpem{os.getpid() % 10000}-{number}" for number in range(count)]
        self.bridge = f"vpem{os.getpid() % 10000}b"
        self.addresses = [f"10.213.7.{number + 1}" for number in range(count)]

    def __enter__(self):
        try:
            ip("link", "add", self.bridge, "type", "bridge")
            ip("link", "set", self.bridge, "up")
            for number, name in enumerate(self.names):
                ip("netns", "add", name)
                ip("link", "add", f"{name}o", "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("link", "set", f"{name}o", "master", self.bridge, "up")
                ip("-n", name, "addr", "add", f"{self.addresses[number]}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', error)}")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)

    def start(self, study, start=None):
        study.write(listen=[f"{address}:7450" for address in self.addresses])
        for number, name in enumerate(self.names):
            (start or study.start)(number, prefix=["ip", "netns", "exec", name])

    def cut(self, number, is_cut):
        ip("link", "set", f"{self.names[number]}o", "down" if is_cut else "up")


PATH = [[0, 1], [1, 2]]


def test_a_link_may_be_cut_and_restored(tmp_path):
    with Study(tmp_path, PATH, n_parties=3, max_iter=400) as study, Machines(3) as machines:
        machines.start(study)
        for turn, seconds in enumerate((0.5, 2.5 * LEASE)):  # shorter and longer than the lease
            study.wait_for_checkpoint(0, 20 + 100 * turn)
            machines.cut(turn, is_cut=True)
            time.sleep(seconds)
            machines.cut(turn, is_cut=False)
        study.check()
        assert study.told(1, "Away")


def test_a_link_may_be_slow(tmp_path):
    with (
        Study(tmp_path, PATH, n_parties=3, adding="tree", rows=10_000, max_iter=4) as study,
        Machines(3) as machines,
    ):
        device = f"{machines.names[0]}o"
        limit = f"tc qdisc add dev {device} root tbf rate 1mbit burst 32kb latency 50ms".split()
        if subprocess.run(limit, capture_output=True).returncode:
            pytest.skip("no tc with tbf here")
        begin = time.monotonic()
        machines.start(study)
        study.check()
        sent = study.told(1, "Progress")[-1]["sent"]
        n_slow = 4 * 10_000 * 2 * 8  # totals of the sums, one direction of one link
        assert time.monotonic() - begin > n_slow / 125_000
        assert sent < 20 * n_slow
        assert not study.told(0, "Away"), "slow is not away"
        assert not study.told(1, "Away")


@pytest.mark.parametrize(
    ("links", "n_parties", "sum_", "victim"), [(STAR, 3, "star", 3), (TREE, 4, "tree", 1)], ids=["server", "tree"]
)
def test_one_with_several_neighbours_may_stop_for_ten_leases(tmp_path, links, n_parties, sum_, victim):
    neighbours = [sum(link) - victim for link in links]
    about = {"components": 4, "init": "random", "max_iter": 8, "secure": True, "X": table(n_parties)}
    with (
        Study(tmp_path, links, n_parties=n_parties, adding=sum_, **about) as study,
        Machines(len(study.numbers)) as machines,
    ):
        machines.start(study)
        study.wait_for_checkpoint(0, 3)
        study.processes[victim].send_signal(signal.SIGSTOP)
        time.sleep(10 * LEASE)
        assert all(study.told(one, "Away") for one in neighbours)
        study.processes[victim].send_signal(signal.SIGCONT)
        study.check()
