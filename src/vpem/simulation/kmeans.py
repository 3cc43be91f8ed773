"""Vertical k-means: Lloyd's algorithm and k-means++, with distances that the network adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.density import Packed
from vpem.core.blocks.sweep import Sums, kmeans_pass
from vpem.core.blocks.tiles import Distances
from vpem.core.decisions.initial import (
    draw_candidates,
    lloyd_stop,
    movement_limit,
    n_candidates,
    random_rows,
)
from vpem.core.network.summation import Adder, flood_traffic, sum_traffic
from vpem.core.network.traffic import FLOAT_BYTES, Traffic, make_traffic
from vpem.simulation.model import Problem
from vpem.simulation.sweep import network_sums, sweep

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KMeansFit:
    """Result of one run."""

    centres: tuple[Array, ...]
    """Each block's part, at its root: (n_clusters, n_columns)."""
    n_iter: int
    converged: bool
    traffic: Traffic
    """With the sum of the last labels, for which see `assign`."""


def kmeans(
    problem: Problem,
    n_clusters: int,
    init: str | Array,
    rng: np.random.Generator,
    *,
    max_iter: int = 300,
    tol: float = 1e-4,
) -> KMeansFit:
    """Lloyd's algorithm; each root moves its block of the centres by its own labels.

    It ends when every block's centres move by no more than the block's share of `tol` times the mean variance of
    all columns, so that no sum is needed to end at least as late as scikit-learn would. Sums that are not exact
    can make Lloyd's algorithm go in circles: a root whose inertia has reached no new low for `PATIENCE` iterations
    has nothing against ending either. All end together, by the network's AND. A cluster that loses all its rows
    keeps its centre.

    Parameters
    ----------
    problem : Problem
    n_clusters : int
    init : {"k-means++", "random"} or array of shape (n_clusters, n_features)
    rng : numpy.random.Generator
        Shared by all parties.
    max_iter : int
    tol : float
    """
    X, network, summation = problem.X, problem.network, problem.summation
    columns = network.block_columns
    adder = summation.adder(network)
    traffic = make_traffic(network.agents)
    if not isinstance(init, str):
        centres = [np.asarray(init, dtype=np.float64)[:, held] for held in columns]
    elif init == "random":
        rows = random_rows(rng, len(X), n_clusters)
        centres = problem.overall.rows(X, rows, network)
    else:
        centres, traffic = plus_plus_centres(problem, n_clusters, rng)
    variances = problem.overall.variances
    limits = [
        movement_limit(tol, variances[held], part, X.shape[1]) for held, part in zip(columns, centres, strict=True)
    ]
    lowest, since_lowest = np.full(len(columns), np.inf), np.zeros(len(columns), dtype=int)
    converged, ended, n_iter = False, False, 0
    while n_iter < max_iter and not ended:
        n_iter += 1
        found = assign(problem, adder, centres)
        moved = _cut(problem, found.means())
        settled = np.array(
            [np.square(new - old).sum() <= limit for new, old, limit in zip(moved, centres, limits, strict=True)]
        )
        inertia = found.scores[adder.view_of_hub]
        would_stop, lowest, since_lowest = lloyd_stop(settled, inertia, lowest, since_lowest)
        centres, converged, ended = moved, bool(settled.all()), bool(would_stop.all())
    # The decision to stop rides on one sum more, which gives the labels of the last centres.
    one_sum = sum_traffic(summation, network, FLOAT_BYTES * len(X) * n_clusters, FLOAT_BYTES)
    return KMeansFit(tuple(centres), n_iter, converged, traffic + one_sum * (n_iter + 1))


def assign(problem: Problem, adder: Adder, centres: Sequence[Array], fill: Packed | None = None) -> Sums:
    """Give every row to the nearest centre, at each root by the distances that it sees; collect around the centres.

    With `fill`, for which gaps are filled in, blocks are collected as EM needs them; otherwise each column by itself.
    """
    halves = kmeans_pass(
        np.concatenate(centres, axis=1),
        problem.order,
        problem.block_of_column,
        problem.overall,
        np.asarray(adder.view_of_hub, dtype=np.int64),
        fill=fill,
        n_views=adder.n_views,
        separate=not adder.is_exact,
    )
    return sweep(problem, adder, halves)


def _cut(problem: Problem, packed: Array) -> list[Array]:
    """Each block's part of an array whose columns are in the order of the blocks."""
    ends = np.cumsum([len(held) for held in problem.network.block_columns])
    return np.split(packed, ends[:-1], axis=1)


def plus_plus_centres(problem: Problem, n_clusters: int, rng: np.random.Generator) -> tuple[list[Array], Traffic]:
    """Greedy k-means++: rows far from the centres so far, the best of a few candidates each time.

    The first row follows from the shared seed. After that the root of the first hub draws the candidates from
    the distances that it sees, picks the best, and floods the pick together with the next candidates.

    Returns
    -------
    centres : list of arrays of shape (n_clusters, n_columns)
        Each block's part; a party that lacks a picked row takes its column means.
    traffic : Traffic
    """
    X, network, summation = problem.X, problem.network, problem.summation
    n_tries = n_candidates(n_clusters)
    adder = summation.adder(network)
    picked = random_rows(rng, len(X), 1)
    flood = flood_traffic(summation, network, FLOAT_BYTES * (n_tries + 1))
    traffic = make_traffic(network.agents)
    closest = np.full(len(X), np.inf)
    if n_clusters > 1:
        traffic += sum_traffic(summation, network, FLOAT_BYTES * len(X), 0)
        # One flood before each centre's sum, and one for the last pick.
        one_sum = sum_traffic(summation, network, FLOAT_BYTES * len(X) * n_tries, 0)
        traffic += (flood + one_sum) * (n_clusters - 1) + flood
    while len(picked) < n_clusters:
        for rows, distances in distances_seen_first(problem, adder, picked[-1:]):
            np.minimum(closest[rows], distances[:, 0], out=closest[rows])
        candidates = draw_candidates(rng, closest, n_tries)
        potentials = np.zeros(n_tries)
        for rows, distances in distances_seen_first(problem, adder, candidates):
            potentials += np.minimum(distances, closest[rows, None]).sum(axis=0)
        picked = np.append(picked, candidates[potentials.argmin()])
    return problem.overall.rows(X, picked, network), traffic


def distances_seen_first(problem: Problem, adder: Adder, rows: NDArray[np.intp]) -> Iterator[tuple[slice, Array]]:
    """Squared distances of all rows to some, as the root of the first hub sees them.

    Yields
    ------
    chunk : slice
        Some of all rows.
    distances : array of shape (n_chunk, n_rows)
    """
    X, network = problem.X, problem.network
    centres = problem.overall.rows(X, rows, network)
    distances = Distances(np.concatenate(centres, axis=1))
    seen = adder.seen_by(adder.view_of_hub[0])
    for chunk, sums in network_sums(problem, seen, distances, len(rows)):
        yield chunk, -2.0 * sums[0].T
