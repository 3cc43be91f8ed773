"""Tiles of rows, and the two steps of a pass over a tile: add its contributions, collect its statistics.

A tile is stored with columns before rows, in the order of the blocks, so that vector instructions run along rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks import kernels
from vpem.core.blocks.arrays import Array, Statistics
from vpem.core.rows import Rows

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout:
    """Positions of each block's columns, in the order of the blocks."""

    starts: Numbers
    """(n_blocks + 1,): first column of each block."""
    n_components: int

    @property
    def n_columns(self) -> int:
        """Number of columns of all blocks."""
        return int(self.starts[-1])

    @cached_property
    def widths(self) -> Numbers:
        """Number of columns of each block; (n_blocks,)."""
        return np.diff(self.starts)

    def columns(self, b: int) -> slice:
        """Columns of a block."""
        return slice(int(self.starts[b]), int(self.starts[b + 1]))


def first_columns(widths: Sequence[int]) -> Numbers:
    """First column of each block, given their numbers of columns, then the total; (n_blocks + 1,)."""
    return np.concatenate([[0], np.cumsum(np.array(widths, dtype=np.int64))]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Tile:
    """Rows in the memory layout that the kernels expect."""

    XT: Array
    """(n_columns, n_rows): values, columns in the order of the blocks."""
    rows: slice
    """Position of the rows in the table."""
    noted: Any = None
    """The blocks' analysis of the tile's gaps, for both halves of a pass; see `Packed.look`."""


class Collector(ABC):
    """Sums that a pass collects, weighted by each block's view of the responsibilities; collectors can be added."""

    takes_rows: bool = False
    """True if `collect_rows` is supported."""

    @abstractmethod
    def collect(self, tile: Tile, responsibilities: Array, views: Numbers) -> None:
        """Add the rows of a tile.

        Parameters
        ----------
        tile : Tile
        responsibilities : array of shape (n_views, n_components, n_rows)
        views : array of shape (n_columns,)
            The view of each column's block.
        """

    @abstractmethod
    def add(self, other: Self) -> None:
        """Add the sums of later rows."""

    def collect_rows(self, chunk: Rows, responsibilities: Array, order: NDArray[np.intp]) -> None:
        """Add rows (n_rows, n_columns) in their order in memory, weighted by one view (n_components, n_rows)."""
        raise NotImplementedError

    def statistics(self) -> tuple[Statistics, ...]:
        """Statistics of each block."""
        raise NotImplementedError

    def again(self) -> Callable[[], Collector] | None:
        """Return a factory of collectors for a second visit of the rows; None if no digits were lost."""
        return None


class Contributions(ABC):
    """Contributions of blocks to the network's sum."""

    takes_rows: bool = False
    """True if `pass_rows` is supported."""

    @abstractmethod
    def add(self, tile: Tile, targets: Numbers, out: Array) -> None:
        """Add a tile's contributions.

        Parameters
        ----------
        tile : Tile
        targets : array of shape (n_columns,)
            Index of each column's block in `out`.
        out : array of shape (n_targets, n_components, n_rows)
        """

    def pass_rows(
        self,
        chunk: Rows,
        order: NDArray[np.intp],
        log_weights: Array | None,
        scores: Array,
        counts: Array,
        entropies: Array,
        into: Collector | None,
    ) -> None:
        """Do both halves of a pass at once, reading each row once; requires an exact sum and rows without gaps.

        Parameters
        ----------
        chunk : array of shape (n_rows, n_columns)
            Rows of the table, with columns in the order of the table.
        order : array of shape (n_columns,)
            The table's columns, block by block.
        log_weights : array of shape (1, n_components), optional
        scores : array of shape (1, n_rows)
            Output, overwritten.
        counts, entropies : arrays of shape (1, n_components) and (1,)
            Outputs, added to.
        into : Collector, optional
            Its `takes_rows` is True.
        """
        raise NotImplementedError


class Packed(Contributions):
    """Blocks, packed for a pass over the rows."""

    layout: Layout

    def look(self, XT: Array, has_gaps: NDArray[np.bool_]) -> Any:
        """Analyse a tile's gaps for both halves of a pass; the tile stores the result as `noted`.

        Parameters
        ----------
        XT : array of shape (n_columns, n_rows)
        has_gaps : array of shape (n_columns,)
            True for columns that may have gaps.
        """

    @abstractmethod
    def collector(self, means: Array, variances: Array, centres: Array | None = None) -> Callable[[], Collector]:
        """Return a factory of empty collectors of statistics, which fill in gaps by the parameters of these blocks.

        Parameters
        ----------
        means, variances : arrays of shape (n_columns,)
            Moments of all rows, in the order of the blocks.
        centres : array of shape (n_components, n_columns), optional
            Expected location of the rows of each component; by default, the blocks' means.
        """


class Distances(Contributions):
    """Minus half the squared distances to centres: contributions of blocks in k-means; a gap adds nothing."""

    takes_rows = True

    def __init__(self, centres: Array):
        self.centres = np.ascontiguousarray(centres)
        self.ones, self.zeros = np.ones(centres.shape), np.zeros(centres.shape)
        self.columns = np.arange(centres.shape[1])

    def add(self, tile: Tile, targets: Numbers, out: Array) -> None:
        """Add a tile's contributions; see `Contributions`."""
        kernels.add_columns(tile.XT, self.columns, self.centres, self.ones, self.zeros, targets, out)

    def add_rows(self, chunk: Rows, order: NDArray[np.intp], out: Array) -> None:
        """Add the contributions of rows, in the order of the table's columns, to (n_centres, n_rows)."""
        kernels.add_row_distances(np.ascontiguousarray(chunk), as_in_table(self.centres, order), out)

    def pass_rows(
        self,
        chunk: Rows,
        order: NDArray[np.intp],
        log_weights: Array | None,
        scores: Array,
        counts: Array,
        entropies: Array,
        into: Collector | None,
    ) -> None:
        """Assign each row to the nearest centre; see `Contributions`."""
        distances = np.zeros((1, len(self.centres), len(chunk)))
        self.add_rows(chunk, order, distances[0])
        kernels.respond_nearest(distances, scores, counts)
        if into is not None:
            into.collect_rows(chunk, distances[0], order)


class ColumnTally(Collector):
    """Weighted sums of each column's deviations from shifts, and of their squares; gaps are left out."""

    takes_rows = True

    def __init__(self, shifts: Array):
        self.shifts = np.ascontiguousarray(shifts)
        self.counts, self.firsts, self.seconds = np.zeros((3, *shifts.shape))

    def collect(self, tile: Tile, responsibilities: Array, views: Numbers) -> None:
        """Add the rows of a tile; see `Collector`."""
        self.collect_columns(tile.XT, np.arange(len(tile.XT)), responsibilities, views)

    def collect_columns(self, XT: Array, columns: Numbers, responsibilities: Array, views: Numbers) -> None:
        """Add the given columns of a tile."""
        sums = self.counts, self.firsts, self.seconds
        kernels.collect_columns(XT, columns, self.shifts, responsibilities, views, *sums)

    def collect_rows(self, chunk: Rows, responsibilities: Array, order: NDArray[np.intp]) -> None:
        """Add rows in their order in memory; see `Collector`."""
        sums = np.zeros((3, *self.shifts.shape))
        kernels.collect_rows(np.ascontiguousarray(chunk), as_in_table(self.shifts, order), responsibilities, *sums)
        self.counts, self.firsts, self.seconds = sums[:, :, order]

    def add(self, other: Self) -> None:
        """Add the sums of later rows."""
        for name in ("counts", "firsts", "seconds"):
            getattr(self, name)[...] += getattr(other, name)

    def column_counts(self) -> Array:
        """Sums of responsibilities of every column; (n_components, n_columns)."""
        counts: Array = self.counts
        return counts

    def means(self) -> Array:
        """Weighted means of all columns, (n_components, n_columns); the shift for components without rows."""
        counts = self.column_counts()
        means: Array = self.shifts + self.firsts / np.where(counts > 0, counts, 1.0)
        return means


def columns_first(rows: Rows, order: NDArray[np.intp]) -> Array:
    """Return rows as a tile stores them: (n_columns, n_rows), double precision, the columns in a given order.

    The result is a view if the rows already have this layout in memory. A read-only array is copied, because every
    kernel would have to be compiled again for read-only arrays.
    """
    first = int(order[0]) if len(order) else 0
    in_order = bool((order == np.arange(first, first + len(order))).all())
    found = rows.T[first : first + len(order)] if in_order else rows.T[order]
    return np.require(found, np.float64, ["C", "W"])


def as_in_table(packed: Array, order: NDArray[np.intp]) -> Array:
    """Reorder parameters (n_components, n_columns) from the order of the blocks to the order of the table."""
    return np.ascontiguousarray(packed[:, np.argsort(order)])
