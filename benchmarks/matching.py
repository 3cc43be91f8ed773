"""How long parties take to match their rows: each a process, frames through pipes.

Run: python -m benchmarks.matching [IDS] [PARTIES]
"""

from __future__ import annotations

import resource
import sys
import time
from multiprocessing import Pipe, Process, connection
from queue import SimpleQueue
from threading import Thread
from typing import Any

from vpem.privacy.ids import spell
from vpem.privacy.matching import Matching
from vpem.privacy.parcels import Agents


def party(number: int, agents: Agents, n_ids: int, pipes: dict[int, Any], report: Any) -> None:
    """One party: rows of its own, of which nine in ten are common."""
    keys = [(str(key + number * n_ids // 20),) for key in range(n_ids)]
    one = Matching(number, agents, spell(keys).spelled, b"salt")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    out: SimpleQueue[Any] = SimpleQueue()

    def carry() -> None:  # two that send each other more than a pipe holds would wait for ever
        while (frame := out.get()) is not None:
            pipes[frame.receiver].send_bytes(frame.content)

    carrier = Thread(target=carry)
    carrier.start()
    for peer in pipes:
        for frame in one.connect(peer):
            out.put(frame)
    while not one.is_done:
        for ready in connection.wait(list(pipes.values())):
            peer = next(peer for peer, pipe in pipes.items() if pipe is ready)
            for frame in one.receive(peer, ready.recv_bytes()):  # type: ignore[attr-defined]
                out.put(frame)
    out.put(None)
    carrier.join()
    assert one.matched is not None
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    report.send((one.matched.n_rows, time.perf_counter() - begun, time.process_time(), memory))


def main() -> None:
    """All parties on this machine."""
    n_ids = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    links = tuple((one, other) for one in range(n) for other in range(one + 1, n))
    agents = Agents(tuple(f"p{number}" for number in range(n)), links, tuple(range(n)), 0, "inner", "")
    ends: dict[int, dict[int, Any]] = {number: {} for number in range(n)}
    for one, other in links:
        ends[one][other], ends[other][one] = Pipe()
    reports = [Pipe(duplex=False) for _ in range(n)]
    processes = [
        Process(target=party, args=(number, agents, n_ids, ends[number], reports[number][1])) for number in range(n)
    ]
    for process in processes:
        process.start()
    for number, (report, _) in enumerate(reports):
        n_rows, seconds, busy, memory = report.recv()
        print(
            f"party {number}: {n_rows:,} of {n_ids:,} rows are common; {seconds:.1f} s "
            f"({busy:.1f} s of a core), {memory / 1024:.0f} MB more"
        )
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
