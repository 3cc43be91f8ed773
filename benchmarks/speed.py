"""Side by side with scikit-learn and with a naive simulation: `make bench`; a tenth of the rows with `--quick`.

Ratios are of times in this one run: the same rows, the same start, the same number of iterations, the same threads.
An iteration's time is the difference between a long fit and a short one, the best of some repeats; those to be
compared take turns.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
import tracemalloc
import warnings
from functools import partial
from pathlib import Path

import networkx as nx
import numba
import numpy as np
import scipy
import sklearn
from scipy.linalg import block_diag
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer
from sklearn.mixture import GaussianMixture

import vpem
from vpem import Consensus, Differences, Tree, VerticalGaussianMixture, VerticalKMeans

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
    one = np.ones(width) if arguments.get("covariance_type") == "diag" else np.eye(width)
    start = {
        "weights_init": np.full(n_components, 1 / n_components),
        "means_init": X[:n_components],
        "precisions_init": [np.array([one] * n_components)] * len(parties),
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


def best_seconds(repeats: int, *calls) -> list[float]:
    """Best time of each call; they take turns."""
    best = [np.inf] * len(calls)
    for _ in range(repeats):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def seconds_per_iteration(repeats: int, *fits) -> list[float]:
    """Best long minus best short fit, of each (fit, few, many)."""
    calls = [partial(fit, n_iter) for fit, few, many in fits for n_iter in (few, many)]
    times = iter(best_seconds(repeats, *calls))
    return [(-next(times) + next(times)) / (many - few) for _, few, many in fits]


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


def whole_fits(X: np.ndarray, width: int):
    """Ours and scikit-learn's, each with a k-means of its own, both of as many iterations as ours needs.

    Both begin EM where our k-means ends: scikit-learn runs its own, and then takes the parameters that it is given.
    """
    parties, kind = blocks_of(X.shape[1], width), "full" if width > 1 else "diag"
    mine = VerticalGaussianMixture(2, partition=parties, random_state=0)
    first, n_iter = mine.fit(X).lower_bounds_[0], mine.n_iter_
    labels = VerticalKMeans(2, partition=parties, n_init=1, random_state=0).fit(X).labels_
    groups = [X[labels == k] for k in range(2)]
    covariances = [
        [np.cov(group[:, held].T, bias=True).reshape(width, width) for held in parties] for group in groups
    ]
    precisions = np.linalg.inv([block_diag(*parts) + mine.reg_covar * np.eye(X.shape[1]) for parts in covariances])
    other = GaussianMixture(
        2,
        covariance_type=kind,
        random_state=0,
        max_iter=n_iter,
        tol=0,
        weights_init=np.array([len(group) for group in groups]) / len(X),
        means_init=[group.mean(axis=0) for group in groups],
        precisions_init=precisions if kind == "full" else np.diagonal(precisions, axis1=1, axis2=2),
    )
    start = clone(other).set_params(max_iter=1).fit(X).lower_bound_
    assert np.isclose(start, first, rtol=1e-6), "not the same start"
    mine.set_params(max_iter=n_iter, tol=0)
    return lambda: mine.fit(X), lambda: other.fit(X), n_iter, kind


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
    federated, diag = seconds_per_iteration(repeats, (ours(X), 2, 22), (theirs(X, "diag"), 2, 12))
    print(row("federated, 100 parties of one column", "scikit-learn, diag", federated, diag, 4), flush=True)
    tens, full = seconds_per_iteration(repeats, (ours(X, 10), 2, 22), (theirs(X, "full"), 1, 4))
    print(row("federated, 10 parties of ten columns", "scikit-learn, full", tens, full, 10), flush=True)
    for name, graph in graphs.items():
        decentralized = ours(X, graph=graph, summation=Consensus(ROUNDS))
        decentralized, full = seconds_per_iteration(repeats, (decentralized, 1, 5), (theirs(X, "full"), 1, 4))
        what = (
            f"decentralized, {name} network (degree {2 * graph.number_of_edges() / len(graph):.0f}), {ROUNDS} rounds"
        )
        print(row(what, "scikit-learn, full", decentralized, full, 1), flush=True)
        literal = seconds_of_literal_rounds(graph, n_rows)
        print(row(what, f"{ROUNDS} literal rounds", decentralized, literal, 25), flush=True)
    ways = [
        (ours(X, graph=graphs["sparse"], summation=way), 1, 7)
        for way in (Consensus(ROUNDS), Tree(), Differences(Tree()))
    ]
    averages, tree, differences = seconds_per_iteration(repeats, *ways)
    print(row("sparse network, Tree()", f"{ROUNDS} rounds of ours", tree, averages, 1), flush=True)
    print(
        row("sparse network, Differences(Tree())", f"{ROUNDS} rounds of ours", differences, averages, 1), flush=True
    )
    print(
        "\n| whole fit, start included | ours | against | theirs | ratio | goal |\n|---|---|---|---|---|---|",
        flush=True,
    )
    tables = {"breast cancer, 3 parties of ten columns": (load_breast_cancer().data, 10)}
    pulsars = Path(os.environ.get("VPEM_DATA", "")) / "HTRU_2.csv"
    if pulsars.is_file():
        tables["HTRU2, 8 parties of one column"] = (np.loadtxt(pulsars, delimiter=",")[:, :8], 1)
    for name, (table, width) in tables.items():
        *fits, n_iter, kind = whole_fits(table, width)
        times = best_seconds(3 * repeats, *fits)
        print(row(f"{name}, {n_iter} iterations", f"scikit-learn, {kind}", *times, 1), flush=True)
    vertical, plain = VerticalKMeans(N_COMPONENTS, random_state=0), KMeans(N_COMPONENTS, n_init=1, random_state=0)
    times = best_seconds(repeats, lambda: vertical.fit(X), lambda: plain.fit(X))
    what = f"k-means, 100 parties of one column, {vertical.n_iter_} iterations"
    print(row(what, f"scikit-learn, {plain.n_iter_} iterations", *times, 1), flush=True)
    print(
        "\n| a fit's start: checks, moments, first parameters | 100 x 1 column | 10 x 10 columns |\n|---|---|---|",
        flush=True,
    )
    passes = {1: federated, 10: tens}
    for init in ("random_from_data", "random", "k-means++", "kmeans"):
        cells = []
        for width, iteration in passes.items():
            model = VerticalGaussianMixture(
                N_COMPONENTS, partition=blocks_of(N_COLUMNS, width), max_iter=1, init_params=init, random_state=0
            )
            # A fit of one iteration makes two passes more, for the final likelihood and the certificate.
            (seconds,) = best_seconds(repeats, partial(model.fit, X))
            seconds -= 3 * iteration
            cells.append(f"{seconds * 1e3:.0f} ms, {seconds / iteration:.1f} iterations")
        print(f"| {init} | {' | '.join(cells)} |", flush=True)
    print("\n| growth of one federated iteration | time |\n|---|---|", flush=True)
    for rows in (n_rows // 4, n_rows // 2, n_rows):
        print(
            f"| {rows:,} rows | {seconds_per_iteration(repeats, (ours(X[:rows]), 2, 22))[0] * 1e3:.1f} ms |",
            flush=True,
        )
    for columns in (25, 50, 100):
        part = np.ascontiguousarray(X[:, :columns])
        print(
            f"| {columns} parties | {seconds_per_iteration(repeats, (ours(part), 2, 22))[0] * 1e3:.1f} ms |",
            flush=True,
        )
    for k in (2, 4, 8):
        seconds = seconds_per_iteration(repeats, (ours(X, n_components=k), 2, 22))[0]
        print(f"| K={k} | {seconds * 1e3:.1f} ms |", flush=True)
    print("\n| one iteration with gaps | without | with | ratio | goal |\n|---|---|---|---|---|", flush=True)
    for what, width, share, kind, goal in (
        ("3 parties of ten columns, diag, 5 %", 10, 0.05, "diag", 2),
        ("30 parties of one column, 5 %", 1, 0.05, "full", 2),
        ("3 parties of ten columns, full, 2 %", 10, 0.02, "full", 3),
        ("one party of thirty columns, full, 2 %", 30, 0.02, "full", 3),
    ):
        whole = np.ascontiguousarray(X[:, :30])
        gappy = whole.copy()
        gappy[N_COMPONENTS:][np.random.default_rng(1).random((n_rows - N_COMPONENTS, 30)) < share] = np.nan
        fits = [(ours(table, width, covariance_type=kind), 2, 12) for table in (whole, gappy)]
        without, having = seconds_per_iteration(repeats, *fits)
        verdict = "reached" if having <= goal * without else "not reached"
        times = f"{without * 1e3:.1f} ms | {having * 1e3:.1f} ms | {having / without:.1f}x"
        print(f"| {what} | {times} | at most {goal}x: {verdict} |", flush=True)
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
