"""python nursery.py: a process that has imported and compiled what a party needs, and forks parties.

Each is a process of its own, but begins at once. It gets JSON lines: arguments of `party.main`, or `vpem` and those
of the program, and where to write; it answers with process numbers, and later with their exit codes. It ends when
its input does.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from pathlib import Path


class Forked:
    """A party, as `subprocess.Popen` would show it."""

    def __init__(self, nursery, pid):
        self.nursery, self.pid, self.returncode = nursery, pid, None

    def poll(self):
        self.returncode = self.nursery.codes.get(self.pid)
        return self.returncode

    def wait(self, timeout=None):
        with self.nursery.changed:
            if not self.nursery.changed.wait_for(lambda: self.poll() is not None, timeout):
                raise subprocess.TimeoutExpired("party", timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The other end: starts parties."""

    def __init__(self, environment):
        self.codes, self.pids, self.changed = {}, [], threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        atexit.register(self.process.stdin.close)

    def _read(self):
        for line in self.process.stdout:
            found = json.loads(line)
            with self.changed:
                if "code" in found:
                    self.codes[found["pid"]] = found["code"]
                else:
                    self.pids.append(found["pid"])
                self.changed.notify_all()

    def start(self, arguments, out, err):
        self.process.stdin.write(json.dumps([arguments, str(out), str(err)]) + "\n")
        self.process.stdin.flush()
        with self.changed:
            assert self.changed.wait_for(lambda: self.pids, 300), "the nursery has ended"
            return Forked(self, self.pids.pop())


def warm_up():
    """Load what parties would compile or load."""
    import networkx as nx
    import numpy as np

    from network.party import SUMS
    from vpem import VerticalGaussianMixture

    X = np.random.default_rng(0).normal(size=(60, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("consensus", "tree", "differences"):
            graph, about = nx.path_graph(2), {"n_components": 2, "max_iter": 2, "engine": "agents"}
            VerticalGaussianMixture(
                partition=[[0, 1], [2, 3]], graph=graph, summation=SUMS[name], random_state=0, **about
            ).fit(X)


def child(arguments, out, err):
    """What a party's process does; never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, path in ((0, os.devnull), (1, out), (2, err)):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            os.dup2(file, number)
            os.close(file)
        if arguments[0] == "vpem":
            from vpem.cli import main as program

            sys.argv = arguments
            program()
            code = 0
        else:
            from network import party

            code = party.main(*arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def answer(content):
    """Write a line."""
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


def main():
    """Fork parties until the input ends."""
    warm_up()
    ends, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    left = b""
    while True:
        ready, _, _ = select.select([0, ends], [], [])
        if ends in ready:
            os.read(ends, 4096)
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if pid == 0:
                    break
                answer({"pid": pid, "code": os.waitstatus_to_exitcode(status)})
        if 0 in ready:
            content = os.read(0, 65536)
            if not content:
                return
            *lines, left = (left + content).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    os.close(ends)
                    os.close(wake)
                    child(*asked)
                answer({"pid": pid})


if __name__ == "__main__":
    main()
