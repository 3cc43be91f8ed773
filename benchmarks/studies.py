"""Whole studies as processes over mTLS on this machine: 8 parties of HTRU2 on a ring, 30 parties, a million rows.

For each iteration: seconds, processor time of all processes and how much of it is the agents' own (maths, encoding,
checkpoints; the rest is links, zenoh and TLS), bytes sent and expected by `vpem plan`.
`python benchmarks/studies.py`, or only some of it: `python benchmarks/studies.py million lines`
"""

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import networkx as nx
import numba
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

TURNS = 5
"""Number of turns of large studies and of their comparisons."""


def measure(study):
    """Seconds, processor seconds, those of the agents' own threads, bytes, and the longest and the shortest wait.

    Of all parties, for an iteration; waits are of single parties.
    """
    study.start()
    assert set(study.codes(seconds=600)) == {0}, study.report()
    found, waits = np.zeros(4), []
    for number in study.numbers:
        lines = [line for line in study.told(number, "Progress") if line["iteration"]]
        first, last = lines[0], lines[-1]
        count = last["iteration"] - first["iteration"]
        own = [(last[name] - first[name]) / count for name in ("after", "cpu", "thread_cpu", "sent")]
        found += [max(own[0] - found[0], 0.0), *own[1:]]
        waits.append((last["waited"] - first["waited"]) / count)
    return *found, max(waits), min(waits)


def planned(study, summation, n_rows, n_components, line=None):
    """Bytes and seconds of one more iteration, as `vpem plan` expects them: from and to."""
    from vpem.planning import Line, Study, estimate, make_network

    graph = nx.Graph()
    graph.add_nodes_from(range(study.n_parties))
    graph.add_edges_from(study.links)
    network = make_network(dict(enumerate(study.partition)), graph)
    about = Study(n_rows=n_rows, n_components=n_components, init_params="random")
    spans = [{"iterations": (number, number), "kmeans_iterations": (1, 1)} for number in (20, 40)]
    less, more = (estimate(summation, network, about, **span, line=line or Line()) for span in spans)
    pairs = (more.usual_bytes, less.usual_bytes), (more.seconds, less.seconds)
    return [tuple((np.array(most) - fewest) / 20) for most, fewest in pairs]


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
            seconds, cpu, own, sent, longest, _ = measure(study)
        (low, high), _ = planned(study, SUMS[adding], len(X), 2)
    times = f"{seconds:7.3f} s, waiting up to {longest:6.3f} s   processor {cpu:7.3f} s, agents {own:6.3f} s"
    sizes = f"sent {sent / 1e6:8.3f} MB, planned {low / 1e6:.3f} to {high / 1e6:.3f}"
    print(f"{name:<34} {times}   {sizes}   simulation with its start {simulated:.3f} s", flush=True)


def show_line(adding, n_rows, n_iterations, *, megabits=None, delay=0.0):
    """A path of three over lines of known speed: seconds of an iteration, and `vpem plan`'s estimate.

    Machines with slow lines are network namespaces (root only); delays come from proxies.
    """
    from network.harness import Study
    from network.party import SUMS
    from network.proxy import Proxy
    from network.test_namespaces import Machines
    from vpem.planning import Line

    path = [[0, 1], [1, 2]]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        about = {"adding": adding, "rows": n_rows, "max_iter": n_iterations, "lease": 10.0, "secure": True}
        about |= {"init": "random"}  # k-means would send whole sums, for minutes
        study = stack.enter_context(Study(Path(folder), path, n_parties=3, **about))
        start = study.start
        if megabits:
            machines = stack.enter_context(Machines(3))
            limit = f"root tbf rate {megabits}mbit burst 32kb latency 50ms".split()
            for name in machines.names:
                for where in (["dev", f"{name}o"], ["dev", "eth0"]):
                    inside = ["-n", name] if where[1] == "eth0" else []
                    subprocess.run(["tc", *inside, "qdisc", "add", *where, *limit], check=True)
            study.start = lambda: machines.start(study, start)
        else:
            proxies = {f"{one}-{other}": Proxy(study.ports[other], delay=delay) for one, other in path}
            for proxy in proxies.values():
                stack.enter_context(proxy)
            study.write(addresses={name: f"127.0.0.1:{proxy.port}" for name, proxy in proxies.items()})
        seconds = measure(study)[0]
    line = Line(bandwidth=(megabits or 10_000) * 1e6 / 8, latency=delay or 0.001)
    _, (low, high) = planned(study, SUMS[adding], n_rows, 2, line)
    what = f"{megabits} Mbit/s" if megabits else f"{1000 * delay:.0f} ms"
    print(
        f"path of 3, {n_rows:,} rows, {adding}, {what}: {seconds:.2f} s, planned {low:.2f} to {high:.2f} s",
        flush=True,
    )


def show_large(adding, spread=3.0, n_rows=1_000_000, n_columns=10, n_components=5, n_iterations=12):
    """Two parties with many rows: an iteration compared with the simulation's pass over one block, and memory.

    Both take turns, and the median of the turns counts. Two processes simulate at a time, as two parties share the
    machine's memory; and one, which has it for itself. Components whose means are spread by three deviations are told
    apart at once, so that nothing changes any more; by a third, they overlap, and all rows' ratios change in every
    iteration.
    """
    X = draw_groups(n_rows, 2 * n_columns, n_components, spread)
    about = {"components": n_components, "max_iter": n_iterations, "adding": adding}
    _, bare = two_parties(X[:1000], about)  # of few rows: the process has imported and compiled the same
    turns = []
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as two:
        pair = [[n] * 2 for n in (n_rows, n_columns, n_components, spread, n_iterations)]
        for number in range(TURNS + 1):
            both = np.mean(list(two.map(time_passes, *pair)), axis=0)
            alone = two.submit(time_passes, *(one for one, _ in pair)).result()
            if number:  # before, they compile
                turns.append((both, alone, *two_parties(X, about)))
    passes, lone, found, most = (np.array(parts, dtype=float) for parts in zip(*turns, strict=True))
    (one_pass, one_cpu), middle = np.median(passes, axis=0), np.median(found, axis=0)
    seconds, cpu, own, sent, longest, shortest = middle
    ratios = found[:, 2] / 2 / passes[:, 1]
    memory = (most.max() - bare) / (8 * n_rows * (n_columns + n_components))
    print(
        f"{n_rows:,} x {n_columns} at each of two parties, K={n_components}, spread {spread}, {adding}; an iteration:"
    )
    print(f"  {seconds:.2f} s, of it a party waits {shortest:.2f} to {longest:.2f} s for the network and the other")
    print(f"  simulation of one block {one_pass:.2f} s, processor {one_cpu:.2f} s")
    spans = f"{np.median(ratios):.2f} x the simulation ({ratios.min():.2f} to {ratios.max():.2f} in {TURNS} turns)"
    print(f"  processor, each party {cpu / 2:.2f} s, of it the agent {own / 2:.2f} s: {spans}")
    ratios = found[:, 2] / 2 / lone[:, 1]
    print(f"  relative to one simulation {np.median(ratios):.2f} x ({ratios.min():.2f} to {ratios.max():.2f})")
    print(
        f"  sent {sent / 1e6:.1f} MB; memory {memory:.2f} x (columns + responsibilities) beyond a bare process",
        flush=True,
    )


@cache
def draw_groups(n_rows, n_columns, n_components, spread):
    """Rows of some groups, in turn."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    X += spread * rng.normal(size=(n_components, n_columns))[np.arange(n_rows) % n_components]
    return X


def time_passes(n_rows, n_columns, n_components, spread, n_iterations):
    """Seconds, and processor seconds, of an iteration of the simulation, with one block."""
    from vpem import VerticalGaussianMixture

    X = draw_groups(n_rows, n_columns, n_components, spread)
    alone = VerticalGaussianMixture(
        n_components,
        partition=[list(range(X.shape[1]))],
        tol=0.0,
        init_params="random",
        random_state=0,
        standardize=False,
    )
    times = []
    numba.set_num_threads(1)  # as the processes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are to end early
        for number in (1, n_iterations + 1):
            begin = time.perf_counter(), time.process_time()
            alone.set_params(max_iter=number).fit(X)
            assert alone.n_iter_ == number
            times.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    return (np.array(times[1]) - times[0]) / n_iterations


def two_parties(X, about):
    """What `measure` finds of a study of two with half the columns each; and the most bytes in memory."""
    from network.harness import Study

    about = about | {"lease": 10.0, "secure": True, "patience": 600.0, "files": True}
    with tempfile.TemporaryDirectory() as folder, Study(Path(folder), [[0, 1]], n_parties=2, X=X, **about) as study:
        found = measure(study)
        return found, max(line["most_bytes"] for number in (0, 1) for line in study.told(number, "Progress"))


def ring(number):
    """Links of a ring."""
    return [sorted((one, (one + 1) % number)) for one in range(number)]


def show_pulsars():
    """The paper's protocol, the default and the exact tree."""
    path = Path(os.environ.get("VPEM_DATA", "")) / "HTRU_2.csv"
    if not path.is_file():
        print("no HTRU_2.csv: set VPEM_DATA to the folder that holds it")
        return
    X = np.loadtxt(path, delimiter=",")[:, :8]
    X /= X.std(axis=0)
    show("HTRU2, ring of 8, 100 rounds", X, ring(8), "paper", 4)
    show("HTRU2, ring of 8, differences", X, ring(8), "differences", 40)
    show("HTRU2, ring of 8, exact tree", X, ring(8), "tree", 40)


def show_many():
    """Thirty parties."""
    X = np.random.default_rng(0).normal(size=(1000, 30)) + 1.5 * (np.arange(1000) % 2)[:, None]
    show("30 parties on a ring, differences", X, ring(30), "differences", 10, lease=10.0, patience=600.0)


def show_million():
    """Groups that are far apart, and that overlap; and the exact tree."""
    for adding, spread in (("differences", 3.0), ("differences", 0.3), ("tree", 3.0)):
        show_large(adding, spread)


def show_lines():
    """Delays, and, for root, slow links."""
    show_line("tree", 300, 10, delay=0.05)
    show_line("differences", 300, 10, delay=0.05)
    if os.name == "posix" and os.geteuid() == 0 and shutil.which("tc"):
        show_line("tree", 20_000, 10, megabits=20)
        show_line("differences", 100_000, 10, megabits=1)


SHOWN = {"pulsars": show_pulsars, "many": show_many, "million": show_million, "lines": show_lines}


def main():
    """Print all of it, or what is asked for."""
    print("an iteration; K=2")
    for name in sys.argv[1:] or SHOWN:
        SHOWN[name]()


if __name__ == "__main__":
    main()
