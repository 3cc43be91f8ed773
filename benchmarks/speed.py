"""Side by side with scikit-learn and with a naive simulation: `make bench`; a tenth of the rows with `--quick`.

Ratios are of times in this one run: the same rows, the same start, the same number of iterations, the same threads.
An iteration's time is the difference between a long fit and a short one, the best of some repeats.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
import tracemalloc
import warnings
from pathlib import Path

import networkx as nx
import numba
import numpy as np
import scipy
import sklearn
from scipy.sparse import csr_array
from sklearn.datasets import load_breast_cancer
from sklearn.mixture import GaussianMixture

import vpem
from vpem import Consensus, VerticalGaussianMixture

N_COMPONENTS, N_COLUMNS, ROUNDS = 3, 100, 100
RADII = {"dense": 0.38, "sparse": 0.19}


def make_rows(n_rows: int, n_columns: int = N_COLUMNS) -> np.ndarray:
    """Rows of three overlapping groups."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    X += rng.normal(scale=0.5, size=(3, n_columns))[rng.integers(3, size=n_rows)]
    return X


def draw_network(radius: float, n_agents: int = N_COLUMNS) -> nx.Graph:
    """The first connected random geometric network."""
    graphs = (nx.random_geometric_graph(n_agents, radius, seed=seed) for seed in range(1000))
    return next(graph for graph in graphs if nx.is_connected(graph))


def blocks_of(n_columns: int, width: int) -> list[list[int]]:
    """Parties of so many columns each."""
    return [list(range(first, first + width)) for first in range(0, n_columns, width)]


def ours(X: np.ndarray, width: int = 1, n_components: int = N_COMPONENTS, **arguments):
    """A fit of ours from a given start, for some number of iterations."""
    parties = blocks_of(X.shape[1], width)
    start = {
        "weights_init": np.full(n_components, 1 / n_components),
        "means_init": X[:n_components],
        "precisions_init": [np.array([np.eye(width)] * n_components)] * len(parties),
    }
    return lambda n_iter: VerticalGaussianMixture(
        n_components, partition=parties, max_iter=n_iter, tol=0, **start, **arguments
    ).fit(X)


def theirs(X: np.ndarray, covariance_type: str):
    """Scikit-learn's from the same start."""
    n_columns = X.shape[1]
    one = np.ones(n_columns) if covariance_type == "diag" else np.eye(n_columns)
    start = {
        "weights_init": np.full(N_COMPONENTS, 1 / N_COMPONENTS),
        "means_init": X[:N_COMPONENTS],
        "precisions_init": np.array([one] * N_COMPONENTS),
    }
    # It makes a start of its own all the same; this one costs the least.
    return lambda n_iter: GaussianMixture(
        N_COMPONENTS,
        covariance_type=covariance_type,
        max_iter=n_iter,
        tol=0,
        init_params="random_from_data",
        random_state=0,
        **start,
    ).fit(X)


def seconds_per_iteration(fit, few: int, many: int, repeats: int) -> float:
    """Best long fit minus best short fit."""
    best = {}
    for n_iter in (few, many):
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            fit(n_iter)
            times.append(time.perf_counter() - start)
        best[n_iter] = min(times)
    return (best[many] - best[few]) / (many - few)


def seconds_of_literal_rounds(graph: nx.Graph, n_rows: int, n_tried: int = 5) -> float:
    """A sum by literal rounds of averaging, sparse or dense, whichever is faster; some rounds are timed."""
    W = np.zeros((len(graph), len(graph)))
    for one, other in graph.edges:
        W[one, other] = W[other, one] = 1 / (1 + max(graph.degree[one], graph.degree[other]))
    np.fill_diagonal(W, 1 - W.sum(axis=1))
    times = []
    for matrix in (csr_array(W), W):
        values = np.random.default_rng(0).normal(size=(len(graph), n_rows * N_COMPONENTS))
        start = time.perf_counter()
        for _ in range(n_tried):
            values = matrix @ values
        times.append((time.perf_counter() - start) / n_tried * ROUNDS)
    return min(times)


def seconds_of_whole_fit(model, X: np.ndarray, repeats: int) -> float:
    """Best of some."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        model.fit(X)
        times.append(time.perf_counter() - start)
    return min(times)


def peak_growth(arguments: list[str]) -> float:
    """Growth of the peak memory by a fit, in a process of its own, in units of X."""
    command = [sys.executable, __file__, "--memory", *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def measure_memory(n_rows: int, radius: str) -> None:
    """Print the growth of the peak by one fit."""
    X = make_rows(n_rows)
    graph = {} if radius == "star" else {"graph": draw_network(float(radius)), "summation": Consensus(ROUNDS)}
    ours(make_rows(300), **graph)(1)  # compiled code is not what is measured
    tracemalloc.start()
    ours(X, **graph)(2)
    print(tracemalloc.get_traced_memory()[1] / X.nbytes)


def row(work: str, against: str, our_time: float, their_time: float, goal: float) -> str:
    """One line of the table."""
    ratio = their_time / our_time
    verdict = "reached" if ratio >= goal else "not reached"
    times = f"{our_time * 1e3:,.0f} ms | {against} | {their_time * 1e3:,.0f} ms"
    return f"| {work} | {times} | {ratio:.1f}x | {goal:g}x: {verdict} |"


def main(quick: bool) -> None:
    """Print the tables."""
    warnings.simplefilter("ignore")
    n_rows, repeats = (15_000, 2) if quick else (150_000, 3)
    X = make_rows(n_rows)
    graphs = {name: draw_network(radius) for name, radius in RADII.items()}
    print(
        f"vpem {vpem.__version__}, numpy {np.__version__}, scipy {scipy.__version__}, "
        f"scikit-learn {sklearn.__version__}, numba {numba.__version__}, "
        f"Python {platform.python_version()}; {os.cpu_count()} cores, {numba.get_num_threads()} threads; "
        f"{n_rows:,} rows, {N_COLUMNS} columns, K={N_COMPONENTS}\n",
        flush=True,
    )
    ours(X[:1000])(1), ours(X[:1000], 10)(1)  # compile
    print("| one iteration of | ours | against | theirs | ratio | goal |\n|---|---|---|---|---|---|", flush=True)
    diag = seconds_per_iteration(theirs(X, "diag"), 2, 12, repeats)
    federated = seconds_per_iteration(ours(X), 2, 22, repeats)
    print(row("federated, 100 parties of one column", "scikit-learn, diag", federated, diag, 4), flush=True)
    full = seconds_per_iteration(theirs(X, "full"), 1, 4, repeats)
    tens = seconds_per_iteration(ours(X, 10), 2, 12, repeats)
    print(row("federated, 10 parties of ten columns", "scikit-learn, full", tens, full, 10), flush=True)
    for name, graph in graphs.items():
        decentralized = seconds_per_iteration(ours(X, graph=graph, summation=Consensus(ROUNDS)), 1, 5, repeats)
        what = (
            f"decentralized, {name} network (degree {2 * graph.number_of_edges() / len(graph):.0f}), {ROUNDS} rounds"
        )
        print(row(what, "scikit-learn, full", decentralized, full, 1), flush=True)
        literal = seconds_of_literal_rounds(graph, n_rows)
        print(row(what, f"{ROUNDS} literal rounds", decentralized, literal, 25), flush=True)
    print(
        "\n| whole fit, start included | ours | against | theirs | ratio | goal |\n|---|---|---|---|---|---|",
        flush=True,
    )
    tables = {"breast cancer, 3 parties of ten columns": (load_breast_cancer().data, 10)}
    pulsars = Path(os.environ.get("VPEM_DATA", "")) / "HTRU_2.csv"
    if pulsars.is_file():
        tables["HTRU2, 8 parties of one column"] = (np.loadtxt(pulsars, delimiter=",")[:, :8], 1)
    for name, (table, width) in tables.items():
        mine = VerticalGaussianMixture(2, partition=blocks_of(table.shape[1], width), random_state=0)
        other = GaussianMixture(2, covariance_type="full" if width > 1 else "diag", random_state=0)
        times = [seconds_of_whole_fit(model, table, 5) for model in (mine, other)]
        kind = f"scikit-learn, {other.covariance_type}, {other.n_iter_} iterations"
        print(row(f"{name}, {mine.n_iter_} iterations", kind, *times, 1), flush=True)
    print("\n| growth of one federated iteration | time |\n|---|---|", flush=True)
    for rows in (n_rows // 4, n_rows // 2, n_rows):
        print(f"| {rows:,} rows | {seconds_per_iteration(ours(X[:rows]), 2, 22, repeats) * 1e3:.1f} ms |", flush=True)
    for columns in (25, 50, 100):
        part = np.ascontiguousarray(X[:, :columns])
        print(f"| {columns} parties | {seconds_per_iteration(ours(part), 2, 22, repeats) * 1e3:.1f} ms |", flush=True)
    for k in (2, 4, 8):
        print(
            f"| K={k} | {seconds_per_iteration(ours(X, n_components=k), 2, 22, repeats) * 1e3:.1f} ms |", flush=True
        )
    print("\n| growth of peak memory by a fit | in units of X (goal: below 1) |\n|---|---|", flush=True)
    for name, radius in {"federated": "star", **{f"decentralized, {n}": str(r) for n, r in RADII.items()}}.items():
        print(f"| {name} | {peak_growth([str(n_rows), radius]):.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--memory", nargs=2, metavar=("ROWS", "RADIUS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        measure_memory(int(options.memory[0]), options.memory[1])
    else:
        main(options.quick)
