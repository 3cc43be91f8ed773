"""Local clusters, by which a hub's root summarizes its own columns before any message, for a start from labels.

Columns are divided by their deviations. Local k-means runs on a sample of the hub's rows. Then every row gets the
label of its nearest centre, compared by its observed values. Both engines do this block by block, with the same
arrays in the same tiles, so that their labels are bitwise identical.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks import kernels
from vpem.core.blocks.kmeans_features import Features
from vpem.core.blocks.tiles import ColumnTally, Distances, Tile, columns_first
from vpem.core.decisions.initial import (
    KMEANS_TOL,
    draw_candidates,
    movement_limit,
    n_candidates,
    potentials,
)
from vpem.core.network.packets import ABSENT, MOST_LOCAL, LocalLabels
from vpem.core.rows import Table

Array = NDArray[np.float64]
Columns = NDArray[np.intp]
Run = Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]]
"""Function that calls another one for each of several numbers, such as `map`; in sequence or in threads."""

SAMPLE = 2**14
"""Approximate number of rows in the sample of local k-means."""

TILE_ROWS = 2**12
"""Rows of a tile, independent of the width of the table: the same at an agent and in the simulation."""

N_TRIES = 2
"""Number of starts of local k-means, of which the best is kept."""

MOST_ITERATIONS = 25
"""Maximum number of iterations of local k-means."""


def draw_seed(rng: np.random.Generator) -> int:
    """Draw the seed of one start's local clusters and of the clustering of their cells."""
    return int(rng.integers(2**63))


def describe_rows(
    X: Table,
    blocks: Sequence[Columns],
    counts: Sequence[int],
    hubs: Sequence[int],
    seed: int,
    run: Run = map,
    features: Sequence[Features] = (),
) -> list[LocalLabels]:
    """Compute local labels of hubs: of all hubs in the simulation, of its own at an agent.

    Parameters
    ----------
    X : Table of shape (n_rows, n_columns)
    blocks : sequence of arrays of int
        Columns of each hub.
    counts : sequence of int
        Number of values in the fullest column of each hub.
    hubs : sequence of int
        Numbers of the hubs.
    seed : int
        From `draw_seed`.
    run : callable, optional
        Function that calls another one for each hub; by default in sequence.
    features : sequence of Features, optional
        Features by which each hub compares its rows; by default, the columns themselves.
    """
    samples = _draw_samples(X, blocks, counts, seed, features)

    def cluster(number: int) -> tuple[Array, Array]:
        generator = np.random.default_rng([seed, 1 + hubs[number]])
        return local_clusters(samples[number], generator, is_scaled=bool(features))

    found = list(run(cluster, range(len(blocks))))
    codes = np.empty((len(blocks), len(X)), dtype=np.uint8)
    sums = [np.zeros((2, len(centres))) for _, centres in found]
    for rows, chunk in _chunks(X):
        for block, (held, (scales, centres), own) in enumerate(zip(blocks, found, sums, strict=True)):
            XT = _columns(chunk, held, block, features) / scales[:, None]
            codes[block, rows], squares = nearest(XT, centres)
            is_there = codes[block, rows] != ABSENT
            labels = codes[block, rows][is_there]
            own += [np.bincount(labels, each, len(centres)) for each in (None, squares[is_there])]
    return [
        LocalLabels(code, np.square(centres[:, None] - centres).sum(axis=2), own[1] / np.maximum(own[0], 1.0))
        for code, (_, centres), own in zip(codes, found, sums, strict=True)
    ]


def local_clusters(XT: Array, rng: np.random.Generator, *, is_scaled: bool = False) -> tuple[Array, Array]:
    """Deviations of columns, and centres of local clusters in units of these, from a sample (n_columns, n_rows).

    There are at most `MOST_LOCAL` clusters, and fewer if there are fewer distinct rows. With `is_scaled`, the rows
    are features, which are scaled already.
    """
    is_there = ~np.isnan(XT)
    counts = is_there.sum(axis=1)
    means = np.where(is_there, XT, 0.0).sum(axis=1) / np.maximum(counts, 1)
    deviations = np.where(is_there, XT - means[:, None], 0.0)
    scales = np.sqrt(np.square(deviations).sum(axis=1) / np.maximum(counts, 1))
    # A column without values in the sample must not affect the distances.
    scales = np.where(counts == 0, np.inf, np.where((scales > 0) & (not is_scaled), scales, 1.0))
    XT = XT / scales[:, None]
    filled = np.where(is_there, XT, (means / scales)[:, None])
    best, lowest = np.empty((0, len(XT))), np.inf
    for _ in range(N_TRIES):
        centres, inertia = _lloyd(XT, _plus_plus(XT, filled, rng))
        if inertia < lowest:
            best, lowest = centres, inertia
    return scales, best


def nearest(XT: Array, centres: Array) -> tuple[NDArray[np.uint8], Array]:
    """Return the nearest centre of each row, or `ABSENT` if all its values are missing, and the squared distance."""
    sums, codes, largest = _sums(XT, centres)[0], np.empty(XT.shape[1], dtype=np.uint8), np.empty(XT.shape[1])
    kernels.find_largest(sums, codes, largest)
    codes[np.isnan(XT).all(axis=0)] = ABSENT
    return codes, -2.0 * largest


def _columns(chunk: NDArray[np.floating], held: Columns, block: int, features: Sequence[Features]) -> Array:
    """Return a hub's rows as columns or features, (n_columns or n_features, n_rows)."""
    XT = columns_first(chunk, held)
    return np.ascontiguousarray(features[block].make(XT)) if features else XT


def _draw_samples(
    X: Table, blocks: Sequence[Columns], counts: Sequence[int], seed: int, features: Sequence[Features]
) -> list[Array]:
    """Draw a sample of the rows that each hub has, (n_columns, n_rows): all rows if they are few."""
    rng = np.random.default_rng([seed, 0])
    parts: list[list[Array]] = [[] for _ in blocks]
    for _, chunk in _chunks(X):
        lots = rng.random(len(chunk))
        for block, (held, count, own) in enumerate(zip(blocks, counts, parts, strict=True)):
            XT = _columns(chunk[lots * count < SAMPLE], held, block, features)
            own.append(XT[:, ~np.isnan(XT).all(axis=0)])
    return [np.ascontiguousarray(np.concatenate(own, axis=1)) for own in parts]


def _chunks(X: Table) -> Iterator[tuple[slice, NDArray[np.floating]]]:
    for start in range(0, len(X), TILE_ROWS):
        rows = slice(start, min(start + TILE_ROWS, len(X)))
        yield rows, X[rows]


def _sums(XT: Array, centres: Array) -> Array:
    """Minus half the squared distances by the observed values; (1, n_centres, n_rows)."""
    out = np.zeros((1, len(centres), XT.shape[1]))
    Distances(centres).add(Tile(XT, slice(0, XT.shape[1])), np.zeros(len(XT), dtype=np.int64), out)
    return out


def _distances(XT: Array, centres: Array) -> Array:
    """Squared distances, (n_centres, n_rows)."""
    found: Array = -2.0 * _sums(XT, centres)[0]
    return found


def _plus_plus(XT: Array, filled: Array, rng: np.random.Generator) -> Array:
    """Choose rows as initial centres by k-means++, while some rows lie on no centre; (n_centres, n_columns)."""
    picked = rng.integers(XT.shape[1], size=1)
    closest = _distances(XT, filled[:, picked].T)[0]
    while len(picked) < MOST_LOCAL and closest.max() > 0:
        drawn = draw_candidates(rng, closest, n_candidates(MOST_LOCAL))
        distances = _distances(XT, filled[:, drawn].T)
        best = int(potentials(closest, distances.T).argmin())
        picked, closest = np.append(picked, drawn[best]), np.minimum(closest, distances[best])
    return filled[:, picked].T


def _lloyd(XT: Array, centres: Array) -> tuple[Array, float]:
    """Run Lloyd's algorithm; return the centres that have rows, and the sum of squared distances."""
    limit = movement_limit(KMEANS_TOL, np.ones(len(XT)), centres, len(XT))
    tile, views = Tile(XT, slice(0, XT.shape[1])), np.zeros(len(XT), dtype=np.int64)
    for _ in range(MOST_ITERATIONS):
        centres = np.ascontiguousarray(centres)
        sums = _sums(XT, centres)
        scores, counts, tally = np.empty((1, XT.shape[1])), np.zeros((1, len(centres))), ColumnTally(centres)
        kernels.respond_nearest(sums, scores, counts)
        tally.collect(tile, sums, views)
        moved = tally.means()
        settled = np.square(moved - centres).sum() <= limit
        centres = moved[counts[0] > 0]
        if settled:
            break
    return centres, float(scores.sum())
