"""Tiles of rows, and what a pass does with one: add its contributions, collect its statistics.

A tile is held with columns before rows, in the order of the blocks, so that vector instructions run along rows.
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
from vpem.core.blocks.arrays import Statistics
from vpem.core.rows import Rows

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout:
    """Where each block's columns are, in the order of the blocks."""

    starts: Numbers
    """(n_blocks + 1,): first column of each block."""
    n_components: int

    @property
    def n_columns(self) -> int:
        """Columns of all blocks."""
        return int(self.starts[-1])

    @cached_property
    def widths(self) -> Numbers:
        """(n_blocks,): numbers of columns."""
        return np.diff(self.starts)

    def columns(self, b: int) -> slice:
        """A block's columns."""
        return slice(int(self.starts[b]), int(self.starts[b + 1]))


def first_columns(widths: Sequence[int]) -> Numbers:
    """First column of each block with so many columns, and the number of all; (n_blocks + 1,)."""
    return np.concatenate([[0], np.cumsum(np.array(widths, dtype=np.int64))]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Tile:
    """Some rows, as the kernels expect them."""

    XT: Array
    """(n_columns, n_rows)"""
    rows: slice
    """Which rows of the table these are."""
    noted: Any = None
    """What the blocks noted about its gaps, for both halves of a pass; see `Packed.look`."""


class Collector(ABC):
    """What a pass collects, by each block's own view of the responsibilities; that of other rows can be added."""

    takes_rows: bool = False
    """Whether `collect_rows` works."""

    @abstractmethod
    def collect(self, tile: Tile, responsibilities: Array, views: Numbers) -> None:
        """Take in the rows of a tile.

        Parameters
        ----------
        tile : Tile
        responsibilities : array of shape (n_views, n_components, n_rows)
        views : array of shape (n_columns,)
            The view of each column's block.
        """

    @abstractmethod
    def add(self, other: Self) -> None:
        """Take in what later rows gave."""

    def collect_rows(self, chunk: Rows, responsibilities: Array, order: NDArray[np.intp]) -> None:
        """Take in rows (n_rows, n_columns) as they lie in memory, by one view (n_components, n_rows)."""
        raise NotImplementedError

    def statistics(self) -> tuple[Statistics, ...]:
        """Each block's."""
        raise NotImplementedError

    def again(self) -> Callable[[], Collector] | None:
        """An empty collector with which to visit the rows once more, if this one has lost digits."""
        return None


class Contributions(ABC):
    """What blocks add to the network's sum."""

    takes_rows: bool = False
    """Whether `pass_rows` works."""

    @abstractmethod
    def add(self, tile: Tile, targets: Numbers, out: Array) -> None:
        """Add a tile's contributions.

        Parameters
        ----------
        tile : Tile
        targets : array of shape (n_columns,)
            Place of each column's block in `out`.
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
        """Do both halves of a pass at once, where the sum is exact and nothing is missing: each row is read once.

        Parameters
        ----------
        chunk : array of shape (n_rows, n_columns)
            Rows as they lie in memory, in the order of the table.
        order : array of shape (n_columns,)
            The table's columns, block by block.
        log_weights : array of shape (1, n_components), optional
        scores : array of shape (1, n_rows)
            To be set.
        counts, entropies : arrays of shape (1, n_components) and (1,)
            To be added to.
        into : Collector, optional
            With `takes_rows`.
        """
        raise NotImplementedError


class Packed(Contributions):
    """Blocks as a pass over the rows needs them."""

    layout: Layout

    def look(self, XT: Array, has_gaps: NDArray[np.bool_]) -> Any:
        """What both halves of a pass need to know of a tile's gaps; the tile keeps it as `noted`.

        Parameters
        ----------
        XT : array of shape (n_columns, n_rows)
        has_gaps : array of shape (n_columns,)
            Where there may be some.
        """
        del XT, has_gaps

    @abstractmethod
    def collector(self, means: Array, variances: Array, centres: Array | None = None) -> Callable[[], Collector]:
        """How to make an empty collector of statistics, in which gaps are filled in as these blocks expect them.

        Parameters
        ----------
        means, variances : arrays of shape (n_columns,)
            Of all rows, in the order of the blocks.
        centres : array of shape (n_components, n_columns), optional
            Where the rows of each component will be; by default, where the blocks' means are.
        """


class Distances(Contributions):
    """Minus half the squared distances to centres, which blocks contribute in k-means; a gap adds nothing."""

    takes_rows = True

    def __init__(self, centres: Array):
        self.centres = np.ascontiguousarray(centres)
        self.ones, self.zeros = np.ones(centres.shape), np.zeros(centres.shape)
        self.columns = np.arange(centres.shape[1])

    def add(self, tile: Tile, targets: Numbers, out: Array) -> None:
        """Add a tile's."""
        kernels.add_columns(tile.XT, self.columns, self.centres, self.ones, self.zeros, targets, out)

    def add_rows(self, chunk: Rows, order: NDArray[np.intp], out: Array) -> None:
        """Add those of rows as they lie in memory to (n_centres, n_rows)."""
        kernels.add_row_distances(np.ascontiguousarray(chunk), as_in_table(self.centres, order), out)

    def pass_rows(
        self,
        chunk: Rows,
        order: NDArray[np.intp],
        log_weights: Array | None,  # noqa: ARG002 (of EM)
        scores: Array,
        counts: Array,
        entropies: Array,  # noqa: ARG002
        into: Collector | None,
    ) -> None:
        """Give each row to the nearest centre; see `Contributions`."""
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
        """Take in the rows of a tile; see `Collector`."""
        self.collect_columns(tile.XT, np.arange(len(tile.XT)), responsibilities, views)

    def collect_columns(self, XT: Array, columns: Numbers, responsibilities: Array, views: Numbers) -> None:
        """Take in some columns."""
        sums = self.counts, self.firsts, self.seconds
        kernels.collect_columns(XT, columns, self.shifts, responsibilities, views, *sums)

    def collect_rows(self, chunk: Rows, responsibilities: Array, order: NDArray[np.intp]) -> None:
        """Take in rows as they lie in memory; see `Collector`."""
        sums = np.zeros((3, *self.shifts.shape))
        kernels.collect_rows(np.ascontiguousarray(chunk), as_in_table(self.shifts, order), responsibilities, *sums)
        self.counts, self.firsts, self.seconds = sums[:, :, order]

    def add(self, other: Self) -> None:
        """Take in what later rows gave."""
        for name in ("counts", "firsts", "seconds"):
            getattr(self, name)[...] += getattr(other, name)

    def column_counts(self) -> Array:
        """Sums of responsibilities of every column; (n_components, n_columns)."""
        counts: Array = self.counts
        return counts

    def means(self) -> Array:
        """Weighted means of all columns; the shift where there are no rows. (n_components, n_columns)."""
        counts = self.column_counts()
        means: Array = self.shifts + self.firsts / np.where(counts > 0, counts, 1.0)
        return means


def columns_first(rows: Rows, order: NDArray[np.intp]) -> Array:
    """Some rows as a tile has them, in double precision; (n_columns, n_rows), the columns in a given order.

    A view, if that is how they lie in memory; not of an array that is read-only, as for that every kernel would have
    to be compiled again.
    """
    first = int(order[0]) if len(order) else 0
    in_order = bool((order == np.arange(first, first + len(order))).all())
    found = rows.T[first : first + len(order)] if in_order else rows.T[order]
    return np.require(found, np.float64, ["C", "W"])


def as_in_table(packed: Array, order: NDArray[np.intp]) -> Array:
    """Parameters (n_components, n_columns) in the order of the blocks, put into the order of the table."""
    return np.ascontiguousarray(packed[:, np.argsort(order)])
