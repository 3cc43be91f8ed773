"""One pass over the rows: contributions, their sum over the network, responsibilities, statistics.

EM and k-means are the same pass with other contributions. Nothing of size agents x rows x components is held:
a chunk of rows goes all the way before the next one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from vpem.core.network import Network
from vpem.core.summation import Adder

Array = NDArray[np.float64]
Rows = NDArray[np.floating]
Collected = TypeVar("Collected")

CHUNK_VALUES = 2**20
"""Values of one array in a chunk: 8 MiB, small beside the table, large beside the interpreter's overhead."""

N_WORST = 16
"""How many badly explained rows a pass remembers."""


class Table(Protocol):
    """Rows that can be read some at a time: an array, a memory map, or a table on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> Rows:
        """Rows by slice or by number, as an array of shape (n_rows, n_features)."""


@dataclass(frozen=True, eq=False)
class Sweep(Generic[Collected]):
    """What one pass leaves behind."""

    counts: Array
    """(n_views, n_components): sum of each root's responsibilities."""
    scores: Array
    """(n_views,): sum over rows of what `respond` returned beside them (log-likelihood, inertia)."""
    disagreement: float
    """Largest difference between two roots' responsibilities."""
    collected: tuple[Collected, ...]
    """What `collect` found for each block, from its own root's responsibilities; empty without it."""
    worst: tuple[Array, NDArray[np.intp]]
    """Lowest scores of single rows, as the root of the first hub sees them, in ascending order; and those rows."""


def row_chunks(start: int, stop: int, values_per_row: int) -> Iterator[slice]:
    """Consecutive slices of rows whose arrays fit the cache."""
    size = max(64, CHUNK_VALUES // values_per_row)
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


def lowest(scores: Array, rows: NDArray[np.intp]) -> tuple[Array, NDArray[np.intp]]:
    """The rows of the lowest finite scores, lowest first; of equal scores (rows that are alike) only one."""
    if len(scores) > 8 * N_WORST:
        few = np.argpartition(scores, 8 * N_WORST)[: 8 * N_WORST]
        scores, rows = scores[few], rows[few]
    found, places = np.unique(scores[np.isfinite(scores)], return_index=True)
    return found[:N_WORST], rows[np.isfinite(scores)][places[:N_WORST]]


def network_sums(
    X: Table,
    network: Network,
    adder: Adder,
    n_values: int,
    contribute: Callable[[int, Rows], Array],
    within: slice | None = None,
) -> Iterator[tuple[slice, list[Rows], Array]]:
    """Send rows through the network, some at a time.

    Parameters
    ----------
    X : Table of shape (n_samples, n_features)
    network : Network
    adder : Adder
    n_values : int
        Numbers that a block contributes per row.
    contribute : callable
        Block number and its columns of some rows, (n_rows, n_columns), to contributions (n_rows, n_values).
    within : slice, optional
        Only these rows.

    Yields
    ------
    rows : slice
    blocks : list of arrays of shape (n_rows, n_columns)
        Each block's columns of these rows.
    sums : array of shape (n_views, n_rows, n_values)
    """
    columns = network.block_columns
    within = slice(0, len(X)) if within is None else within
    values_per_row = max(n_values * len(columns), n_values * max(map(len, columns)), X.shape[1])
    for rows in row_chunks(within.start, within.stop, values_per_row):
        chunk = X[rows]
        blocks = [chunk[:, held] for held in columns]
        # Values before rows in memory, as the adder likes it.
        contributions = np.empty((len(blocks), n_values, len(chunk))).transpose(0, 2, 1)
        for number, block in enumerate(blocks):
            contributions[number] = contribute(number, block)
        yield rows, blocks, adder.add(contributions, rows)


def sweep(
    X: Table,
    network: Network,
    adder: Adder,
    *,
    n_values: int,
    contribute: Callable[[int, Rows], Array],
    respond: Callable[[Array], tuple[Array, Array]],
    collect: Callable[[int, Rows, Array], Collected] | None = None,
    merge: Callable[[Collected, Collected], Collected] | None = None,
    within: slice | None = None,
) -> Sweep[Collected]:
    """One pass over the rows: sums, responsibilities, statistics.

    Parameters
    ----------
    X, network, adder, n_values, contribute, within
        As in `network_sums`.
    respond : callable
        Sums (n_views, n_rows, n_values) to responsibilities of the same shape and scores (n_views, n_rows).
    collect : callable, optional
        Block number, its columns of some rows, and its root's responsibilities (n_rows, n_values) to statistics.
    merge : callable, optional
        Statistics of two sets of rows to those of both.
    """
    counts = np.zeros((adder.n_views, n_values))
    scores = np.zeros(adder.n_views)
    disagreement = 0.0
    collected: list[Collected] = []
    worst = np.empty(0), np.empty(0, dtype=np.intp)
    for rows, blocks, sums in network_sums(X, network, adder, n_values, contribute, within):
        responsibilities, row_scores = respond(sums)
        counts += responsibilities.sum(axis=1)
        scores += row_scores.sum(axis=1)
        if adder.n_views > 1:
            spread = responsibilities.max(axis=0) - responsibilities.min(axis=0)
            disagreement = max(disagreement, float(spread.max()))
        first = adder.view_of_hub[0]
        # A row that is missing everywhere is explained neither well nor badly.
        seen = np.where(sums[first].any(axis=1), row_scores[first], np.inf)
        worst = lowest(np.concatenate([worst[0], seen]), np.concatenate([worst[1], np.arange(rows.start, rows.stop)]))
        if collect is not None:
            new = [
                collect(number, block, responsibilities[view])
                for number, (block, view) in enumerate(zip(blocks, adder.view_of_hub, strict=True))
            ]
            collected = list(map(merge, collected, new)) if collected and merge is not None else new
    return Sweep(counts, scores, disagreement, tuple(collected), worst)
