"""Vertical k-means: Lloyd's algorithm and k-means++, with distances that the network adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.sweep import ONE_VIEW, Pass, Sums, kmeans_pass
from vpem.core.blocks.tiles import Packed
from vpem.core.decisions.initial import (
    draw_candidates,
    lloyd_stop,
    movement_limit,
    n_candidates,
    potentials,
    random_rows,
)
from vpem.core.network.summation import Shape
from vpem.simulation.channel import Channel
from vpem.simulation.model import Problem
from vpem.simulation.sweep import Sum, distances_seen_first, sweep

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KMeansFit:
    """Result of one run."""

    centres: tuple[Array, ...]
    """Each block's part, at its root: (n_clusters, n_columns)."""
    n_iter: int
    converged: bool


def kmeans(
    problem: Problem,
    channel: Channel,
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
    channel : Channel
    n_clusters : int
    init : {"k-means++", "random"} or array of shape (n_clusters, n_features)
    rng : numpy.random.Generator
        Shared by all parties.
    max_iter : int
    tol : float
    """
    X, network = problem.X, problem.network
    columns = network.block_columns
    channel.forget()
    if not isinstance(init, str):
        centres = [np.asarray(init, dtype=np.float64)[:, held] for held in columns]
    elif init == "random":
        rows = random_rows(rng, len(X), n_clusters)
        centres = problem.overall.centres(X, rows, network)
    else:
        centres = plus_plus_centres(problem, channel, n_clusters, rng)
    limits = [
        movement_limit(tol, problem.overall.feature_variances(b, held), part, X.shape[1])
        for b, (held, part) in enumerate(zip(columns, centres, strict=True))
    ]
    lowest, since_lowest = np.full(len(columns), np.inf), np.zeros(len(columns), dtype=int)
    converged, ended, n_iter = False, False, 0
    while n_iter < max_iter and not ended:
        n_iter += 1
        found = assign(problem, channel, centres)
        moved = _cut(centres, found.means())
        settled = np.array(
            [np.square(new - old).sum() <= limit for new, old, limit in zip(moved, centres, limits, strict=True)]
        )
        inertia = found.scores[channel.view_of_hub]
        would_stop, lowest, since_lowest = lloyd_stop(settled, inertia, lowest, since_lowest)
        centres, converged, ended = moved, bool(settled.all()), bool(would_stop.all())
    # The decision to stop rides on one sum more, which gives the labels of the last centres: see `assign`.
    return KMeansFit(tuple(centres), n_iter, converged)


def assign(problem: Problem, channel: Channel, centres: Sequence[Array], fill: Packed | None = None) -> Sums:
    """Give every row to the nearest centre, at each root by the distances that it sees; collect around the centres.

    With `fill`, for which gaps are filled in, blocks are collected as EM needs them; otherwise each column by itself.
    """

    def alone(hub: int) -> Pass:
        columns = problem.columns_of[hub]
        zeros = np.zeros(len(columns), dtype=np.int64)
        found = kmeans_pass(centres[hub], columns, zeros, problem.overall, ONE_VIEW, hub=hub)
        return replace(found, has_gaps=problem.overall.has_gaps[problem.order])

    halves = kmeans_pass(
        np.concatenate(centres, axis=1),
        problem.order,
        problem.block_of_column,
        problem.overall,
        channel.view_of_hub,
        fill=fill,
        n_views=channel.n_views,
        separate=not channel.is_exact,
    )
    return sweep(problem, channel, halves, alone, Sum("cluster", 1))[0]


def _cut(like: Sequence[Array], packed: Array) -> list[Array]:
    """Each block's part of an array whose columns are in the order of the blocks."""
    ends = np.cumsum([part.shape[1] for part in like])
    return np.split(packed, ends[:-1], axis=1)


def plus_plus_centres(problem: Problem, channel: Channel, n_clusters: int, rng: np.random.Generator) -> list[Array]:
    """Rows chosen by k-means++ as first centres; each block's part, (n_clusters, n_columns).

    The first row follows from the shared seed. After that the root of the first hub draws the candidates from
    the distances that it sees, picks the best, and floods the pick together with the next candidates. A party that
    lacks a picked row takes its column means.
    """
    n_tries, X = n_candidates(n_clusters), problem.X
    picked, closest = random_rows(rng, len(X), 1), np.full(len(X), np.inf)

    def approach(rows: slice, distances: Array) -> None:
        np.minimum(closest[rows], distances[:, 0], out=closest[rows])

    if n_clusters > 1:
        _see(problem, channel, picked, approach)
        while len(picked) < n_clusters:
            candidates, left, seen = draw_candidates(rng, closest, n_tries), np.zeros(n_tries), [np.empty(0)]

            def weigh(rows: slice, distances: Array, left: Array = left, seen: list[Array] = seen) -> None:
                left += potentials(closest[rows], distances)
                seen[0] = distances

            channel.flood(1 + n_tries)
            _see(problem, channel, candidates, weigh)
            best = int(left.argmin())
            picked = np.append(picked, candidates[best])
            if channel.linear is None:
                approach(slice(0, len(X)), seen[0][:, [best]])
            elif len(picked) < n_clusters:  # seen already, but computing it again is cheaper than keeping it
                _see(problem, channel, picked[-1:], approach, counted=False)
        channel.flood(1 + n_tries)
    return problem.overall.centres(X, picked, problem.network)


def _see(
    problem: Problem,
    channel: Channel,
    rows: NDArray[np.intp],
    visit: Callable[[slice, Array], None],
    *,
    counted: bool = True,
) -> None:
    """Visit the squared distances of all rows to some, as the root of the first hub sees them, a chunk at a time."""
    centres = np.concatenate(problem.overall.centres(problem.X, rows, problem.network), axis=1)
    shape = Shape(len(problem.X), len(rows))
    for chunk, distances in distances_seen_first(problem, channel, centres):
        visit(chunk, distances)
    if counted and channel.linear is not None:
        channel.count(shape)
