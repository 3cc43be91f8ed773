"""Whole studies as processes over mTLS on this machine: 8 parties of HTRU2 on a ring, and 30 parties.

For each iteration: seconds, processor time of all processes and how much of it is the agents' own (maths, encoding,
checkpoints; the rest is links, zenoh and TLS), bytes sent beside what `vpem plan` expects.
`python benchmarks/studies.py`
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import networkx as nx
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def measure(study):
    """Seconds, processor seconds, those of the agents' own threads, and bytes: of all parties, for an iteration."""
    study.start()
    assert set(study.codes(seconds=600)) == {0}, study.report()
    found = np.zeros(4)
    for number in study.numbers:
        lines = [line for line in study.told(number, "Progress") if line["iteration"]]
        first, last = lines[0], lines[-1]
        count = last["iteration"] - first["iteration"]
        own = [(last[name] - first[name]) / count for name in ("after", "cpu", "thread_cpu", "sent")]
        found += [max(own[0] - found[0], 0.0), *own[1:]]
    return found


def planned(study, summation, n_rows, n_components):
    """Bytes of one more iteration, as `vpem plan` expects them: from and to."""
    from vpem.planning import Line, Study, estimate, make_network

    graph = nx.Graph()
    graph.add_nodes_from(range(study.n_parties))
    graph.add_edges_from(study.links)
    network = make_network(dict(enumerate(study.partition)), graph)
    about = Study(n_rows=n_rows, n_components=n_components, init_params="random")
    spans = [{"iterations": (number, number), "kmeans_iterations": (1, 1)} for number in (20, 40)]
    less, more = (estimate(summation, network, about, **span, line=Line()).usual_bytes for span in spans)
    return (more.low - less.low) / 20, (more.high - less.high) / 20


def show(name, X, links, adding, n_iterations, **more):
    """Run a study, and print what an iteration takes."""
    from network.harness import Study
    from network.party import SUMS

    n_parties = len({end for link in links for end in link})
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        study = Study(
            Path(folder), links, n_parties=n_parties, X=X, adding=adding, max_iter=n_iterations, secure=True, **more
        )
        simulated = (time.perf_counter() - begin) / n_iterations
        with study:
            seconds, cpu, own, sent = measure(study)
        low, high = planned(study, SUMS[adding], len(X), 2)
    times = f"{seconds:7.3f} s   processor {cpu:7.3f} s, agents {own:6.3f} s"
    sizes = f"sent {sent / 1e6:8.3f} MB, planned {low / 1e6:.3f} to {high / 1e6:.3f}"
    print(f"{name:<34} {times}   {sizes}   simulation with its start {simulated:.3f} s", flush=True)


def ring(number):
    """Links of a ring."""
    return [sorted((one, (one + 1) % number)) for one in range(number)]


def main():
    """Print all of it."""
    print("an iteration; K=2")
    path = Path(os.environ.get("VPEM_DATA", "")) / "HTRU_2.csv"
    if path.is_file():
        X = np.loadtxt(path, delimiter=",")[:, :8]
        X /= X.std(axis=0)
        show("HTRU2, ring of 8, 100 rounds", X, ring(8), "paper", 4)
        show("HTRU2, ring of 8, differences", X, ring(8), "differences", 40)
        show("HTRU2, ring of 8, exact tree", X, ring(8), "tree", 40)
    else:
        print("no HTRU_2.csv: set VPEM_DATA to the folder that holds it")
    X = np.random.default_rng(0).normal(size=(1000, 30)) + 1.5 * (np.arange(1000) % 2)[:, None]
    show("30 parties on a ring, differences", X, ring(30), "differences", 10, lease=10.0, patience=600.0)


if __name__ == "__main__":
    main()
