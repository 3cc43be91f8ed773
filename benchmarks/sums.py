"""An iteration with each kind of sum, compared with the paper's hundred rounds, on a sparse network of 100 parties.

The sums take turns, forwards and backwards; an iteration's time is the difference between a long fit and a short one.
`python benchmarks/sums.py`, two minutes; `make bench` has the same in its table, from fewer turns.
"""

import time
import warnings

import numpy as np
from speed import RADII, ROUNDS, draw_network, make_rows, ours

from vpem import Consensus, Differences, Tree

TURNS, SHORT, LONG = 10, 2, 22
WAYS = {"Consensus(100)": Consensus(ROUNDS), "Tree()": Tree(), "Differences(Tree())": Differences(Tree())}


def clocks() -> np.ndarray:
    """The time, and the time of this process on the processor."""
    return np.array([time.perf_counter(), time.process_time()])


def iteration(fit) -> np.ndarray:
    """Seconds, and of the processor."""
    times = []
    for n_iter in (SHORT, LONG):
        begin = clocks()
        fit(n_iter)
        times.append(clocks() - begin)
    return (times[1] - times[0]) / (LONG - SHORT)


def main() -> None:
    """Print all of it."""
    warnings.simplefilter("ignore")  # fits are to end early
    X, graph = make_rows(150_000), draw_network(RADII["sparse"])
    fits = {name: ours(X, graph=graph, summation=way) for name, way in WAYS.items()}
    for fit in fits.values():
        fit(SHORT)
    found = {name: [] for name in WAYS}
    for turn in range(TURNS):
        for name in sorted(WAYS, reverse=bool(turn % 2)):
            found[name].append(iteration(fits[name]))
    rounds = np.array(found["Consensus(100)"])
    print(f"| one iteration, medians of {TURNS} turns | time | processor | time relative to 100 rounds | processor |")
    print("|---|---|---|---|---|")
    for name, turns in found.items():
        seconds, processor = 1000 * np.median(turns, axis=0)
        ratios = np.array(turns) / rounds
        (low, low_cpu), (high, high_cpu) = ratios.min(axis=0), ratios.max(axis=0)
        middle, middle_cpu = np.median(ratios, axis=0)
        spans = f"{middle:.2f} ({low:.2f} to {high:.2f}) | {middle_cpu:.2f} ({low_cpu:.2f} to {high_cpu:.2f})"
        print(f"| `{name}` | {seconds:.0f} ms | {processor:.0f} ms | {spans} |", flush=True)


if __name__ == "__main__":
    main()
