"""One pass over the rows: contributions, their sum over the network, responsibilities, statistics.

EM and k-means are the same pass with other contributions. Nothing of size agents x rows x components is held:
a chunk of rows goes all the way before the next one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.mixture import Statistics, add_statistics, block_statistics
from vpem.core.network import Network
from vpem.core.summation import Adder

Array = NDArray[np.float64]
Table = NDArray[np.floating]

CHUNK_VALUES = 2**20
"""Values of one array in a chunk: 8 MiB, small beside the table, large beside the interpreter's overhead."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """What one pass leaves behind."""

    counts: Array
    """(n_views, n_components): sum of each root's responsibilities."""
    scores: Array
    """(n_views,): sum over rows of what `respond` returned beside them (log-likelihood, inertia)."""
    disagreement: float
    """Largest difference between two roots' responsibilities."""
    statistics: tuple[Statistics, ...]
    """Each block's, from its own root's responsibilities; empty if none were asked for."""


def row_chunks(n_samples: int, values_per_row: int) -> Iterator[slice]:
    """Consecutive slices of rows whose arrays fit the cache."""
    size = max(64, CHUNK_VALUES // values_per_row)
    for start in range(0, n_samples, size):
        yield slice(start, min(start + size, n_samples))


def network_sums(
    X: Table, network: Network, adder: Adder, n_values: int, contribute: Callable[[int, Table], Array]
) -> Iterator[tuple[slice, list[Table], Array]]:
    """Send all rows through the network once, some at a time.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    network : Network
    adder : Adder
    n_values : int
        Numbers that a block contributes per row.
    contribute : callable
        Block number and its columns of some rows, (n_rows, n_columns), to contributions (n_rows, n_values).

    Yields
    ------
    rows : slice
    blocks : list of arrays of shape (n_rows, n_columns)
        Each block's columns of these rows.
    sums : array of shape (n_views, n_rows, n_values)
    """
    columns = network.block_columns
    for rows in row_chunks(len(X), n_values * max(len(columns), *map(len, columns))):
        blocks = [X[rows][:, held] for held in columns]
        # Values before rows in memory, as the adder likes it.
        contributions = np.empty((len(blocks), n_values, len(blocks[0]))).transpose(0, 2, 1)
        for number, block in enumerate(blocks):
            contributions[number] = contribute(number, block)
        yield rows, blocks, adder.add(contributions, rows)


def sweep(
    X: Table,
    network: Network,
    adder: Adder,
    *,
    n_values: int,
    contribute: Callable[[int, Table], Array],
    respond: Callable[[Array], tuple[Array, Array]],
    is_matrix: bool | None = None,
) -> Sweep:
    """One pass over the rows: sums, responsibilities, statistics.

    Parameters
    ----------
    X, network, adder, n_values, contribute
        As in `network_sums`.
    respond : callable
        Sums (n_views, n_rows, n_values) to responsibilities of the same shape and scores (n_views, n_rows).
    is_matrix : bool, optional
        Statistics with whole scatter matrices, or their diagonals; by default there are no statistics.
    """
    counts = np.zeros((adder.n_views, n_values))
    scores = np.zeros(adder.n_views)
    disagreement = 0.0
    statistics: list[Statistics] = []
    for _, blocks, sums in network_sums(X, network, adder, n_values, contribute):
        responsibilities, row_scores = respond(sums)
        counts += responsibilities.sum(axis=1)
        scores += row_scores.sum(axis=1)
        if adder.n_views > 1:
            spread = responsibilities.max(axis=0) - responsibilities.min(axis=0)
            disagreement = max(disagreement, float(spread.max()))
        if is_matrix is not None:
            new = [
                block_statistics(block, responsibilities[view], is_matrix=is_matrix)
                for block, view in zip(blocks, adder.view_of_hub, strict=True)
            ]
            statistics = list(map(add_statistics, statistics, new)) if statistics else new
    return Sweep(counts, scores, disagreement, tuple(statistics))


def column_means(X: Table) -> Array:
    """Mean of every column in float64; (n_features,)."""
    total = np.zeros(X.shape[1])
    for rows in row_chunks(*X.shape):
        total += X[rows].sum(axis=0, dtype=np.float64)
    return total / len(X)
