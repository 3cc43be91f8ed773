"""All blocks' parameters and statistics in a few arrays, as the compiled kernels like them.

A tile of rows is held with columns before rows, in the order of the blocks. Blocks of one column, and those with
variances only, are worked on column by column; matrices of moderate width by the kernels for matrices. What neither
can do (wide matrices, where BLAS is faster; rows with gaps in blocks of several columns) is done block by block with
the functions of `vpem.core.gaps`, which define what all of this computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core import kernels
from vpem.core.covariances import TINY_COUNT
from vpem.core.gaps import Marginals, expected_statistics, observed_contribution
from vpem.core.mixture import Block, Statistics

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

WIDEST_MATRIX = 128
"""Columns of a block up to which the kernel beats BLAS; `benchmarks/crossover.py` measures it."""

FAR = 1e4
"""A shift that is this many variances away from the mean (squared) costs too many digits."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each block is in the packed arrays; made by `make_layout`."""

    starts: Numbers
    """(n_blocks + 1,): first column of each block, in the order of the blocks."""
    offsets: Numbers
    """(n_blocks + 1,): where its matrix begins, per component, in the flat array of matrices."""
    is_matrix: bool
    """Whether covariances are whole matrices."""
    by_column: NDArray[np.bool_]
    """(n_blocks,): whether its columns are independent of each other."""
    n_components: int

    @property
    def n_columns(self) -> int:
        """Columns of all blocks."""
        return int(self.starts[-1])

    def columns(self, b: int) -> slice:
        """A block's columns."""
        return slice(int(self.starts[b]), int(self.starts[b + 1]))

    def matrices(self, flat: Array, b: int) -> Array:
        """A block's part of a flat array of matrices, as a view; (n_components, width, width)."""
        width = int(self.starts[b + 1] - self.starts[b])
        return flat[self.offsets[b] : self.offsets[b + 1]].reshape(self.n_components, width, width)


def make_layout(widths: Sequence[int], n_components: int, *, is_matrix: bool) -> Layout:
    """Layout of blocks with so many columns."""
    sizes = np.array(widths, dtype=np.int64)
    by_column = np.array([width == 1 or not is_matrix for width in widths])
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    flat = np.where(by_column, 0, n_components * sizes**2)
    return Layout(starts, np.concatenate([[0], np.cumsum(flat)]).astype(np.int64), is_matrix, by_column, n_components)


@dataclass(frozen=True, eq=False)
class Kinds:
    """Which way each block goes, for one tile."""

    columns: Numbers
    """Columns of blocks that go column by column."""
    matrices: Numbers
    """Blocks that go through the kernel for matrices."""
    others: list[int]
    """Blocks that go by themselves."""


def sort_blocks(layout: Layout, XT: Array, may_have_gaps: NDArray[np.bool_]) -> Kinds:
    """Look at a tile: gaps send a block of several columns its own way."""
    widths = np.diff(layout.starts)
    other = ~layout.by_column & (widths > WIDEST_MATRIX)
    for b in np.flatnonzero(may_have_gaps & (widths > 1) & ~other).tolist():
        other[b] = np.isnan(XT[layout.columns(b)]).any()
    column_blocks = layout.by_column & ~other
    return Kinds(
        np.flatnonzero(np.repeat(column_blocks, widths)),
        np.flatnonzero(~layout.by_column & ~other),
        np.flatnonzero(other).tolist(),
    )


class Densities:
    """Log-densities that all blocks' rows contribute, under given parameters."""

    def __init__(self, layout: Layout, blocks: Sequence[Block]):
        self.layout, self.blocks = layout, blocks
        self.marginals = [Marginals(block) for block in blocks]
        shape = (layout.n_components, layout.n_columns)
        self.means, self.scales = np.empty(shape), np.zeros(shape)
        self.whiteners = np.empty(layout.offsets[-1])
        self.normalizers = np.empty((len(blocks), layout.n_components))
        for b, block in enumerate(blocks):
            columns = layout.columns(b)
            self.means[:, columns] = block.means
            self.normalizers[b] = block.log_normalizers
            if not layout.by_column[b]:
                layout.matrices(self.whiteners, b)[:] = block.whiteners
            elif block.whiteners.ndim == 3:
                self.scales[:, columns] = block.whiteners[:, :, 0]
            else:
                self.scales[:, columns] = block.whiteners
        with np.errstate(divide="ignore"):  # of columns that belong to a matrix
            self.column_normalizers = np.log(self.scales) - 0.5 * np.log(2 * np.pi)

    def add(self, XT: Array, kinds: Kinds, targets: Numbers, out: Array) -> None:
        """Add a tile's log-densities.

        Parameters
        ----------
        XT : array of shape (n_columns, n_rows)
        kinds : Kinds
        targets : array of shape (n_columns,)
            Place of each column's block in `out`.
        out : array of shape (n_targets, n_components, n_rows)
        """
        layout = self.layout
        kernels.add_columns(XT, kinds.columns, self.means, self.scales, self.column_normalizers, targets, out)
        if len(kinds.matrices):
            kernels.add_matrices(
                XT,
                kinds.matrices,
                layout.starts,
                layout.offsets,
                self.means,
                self.whiteners,
                self.normalizers,
                targets,
                out,
            )
        for b in kinds.others:
            rows = XT[layout.columns(b)].T
            out[targets[layout.starts[b]]] += observed_contribution(rows, self.blocks[b], self.marginals[b]).T


class Distances:
    """Minus half the squared distances to centres, which blocks contribute in k-means; a gap adds nothing."""

    def __init__(self, centres: Array):
        self.centres = centres
        self.ones, self.zeros = np.ones_like(centres), np.zeros_like(centres)
        self.columns = np.arange(centres.shape[1])

    def add(self, XT: Array, kinds: Kinds, targets: Numbers, out: Array) -> None:  # noqa: ARG002 (columns only)
        """Add a tile's; see `Densities.add`."""
        kernels.add_columns(XT, self.columns, self.centres, self.ones, self.zeros, targets, out)


class Tally:
    """Weighted sums of deviations from shifts, from which statistics follow; those of other rows can be added."""

    def __init__(self, layout: Layout, shifts: Array, densities: Densities | None = None):
        self.layout, self.shifts, self.densities = layout, shifts, densities
        self.counts, self.firsts, self.seconds = np.zeros((3, *shifts.shape))
        self.scatters = np.zeros(layout.offsets[-1])
        self.gap_entropy = np.zeros(len(layout.starts) - 1)

    def collect(self, XT: Array, kinds: Kinds, responsibilities: Array, views: Numbers) -> None:
        """Take a tile's rows in.

        Parameters
        ----------
        XT : array of shape (n_columns, n_rows)
        kinds : Kinds
        responsibilities : array of shape (n_views, n_components, n_rows)
        views : array of shape (n_columns,)
            Which view each column's block has.
        """
        layout, columns = self.layout, kinds.columns
        sums = self.counts, self.firsts, self.seconds
        kernels.collect_columns(XT, columns, self.shifts, responsibilities, views, *sums)
        if len(kinds.matrices):
            kernels.collect_matrices(
                XT,
                kinds.matrices,
                layout.starts,
                layout.offsets,
                self.shifts,
                responsibilities,
                views,
                self.counts,
                self.firsts,
                self.scatters,
            )
        for b in kinds.others:
            assert self.densities is not None, "gaps are filled in as some densities expect"
            weights = responsibilities[views[layout.starts[b]]].T
            block, marginals = self.densities.blocks[b], self.densities.marginals[b]
            self._add_statistics(b, expected_statistics(XT[layout.columns(b)].T, weights, block, marginals))

    def _add_statistics(self, b: int, statistics: Statistics) -> None:
        columns = self.layout.columns(b)
        shifts = statistics.means - self.shifts[:, columns]
        firsts = statistics.counts[:, None] * shifts
        self.firsts[:, columns] += firsts
        self.gap_entropy[b] += statistics.gap_entropy
        if self.layout.by_column[b]:
            self.counts[:, columns] += statistics.counts[:, None]
            scatters = statistics.scatters if statistics.scatters.ndim == 2 else statistics.scatters[:, :, 0]
            self.seconds[:, columns] += scatters + firsts * shifts
        else:
            self.counts[:, columns.start] += statistics.counts
            self.layout.matrices(self.scatters, b)[:] += statistics.scatters + firsts[:, :, None] * shifts[:, None, :]

    def add(self, other: Tally) -> None:
        """Take in what other rows gave."""
        for name in ("counts", "firsts", "seconds", "scatters", "gap_entropy"):
            getattr(self, name)[...] += getattr(other, name)

    def means(self) -> Array:
        """Weighted means of all columns; the shift where there are no rows. (n_components, n_columns)."""
        means: Array = self.shifts + self.firsts / self._present()
        return means

    def is_far(self) -> bool:
        """Whether some shift is so far from the mean that the squares have lost digits."""
        with np.errstate(invalid="ignore", over="ignore"):  # infinities are far
            squares = self.firsts**2 / self._present()
            # Of a matrix, the digits that tell whether it is singular must not suffer either.
            limits = np.where(np.repeat(self.layout.by_column, np.diff(self.layout.starts)), FAR, 1.0)
            near = squares <= limits * (self._squares() - squares)
        return not near[self._column_counts() > TINY_COUNT].all()

    def statistics(self) -> tuple[Statistics, ...]:
        """Each block's."""
        layout, means, present = self.layout, self.means(), self._present()
        with np.errstate(invalid="ignore", over="ignore"):  # what is too large is not finite, and collapses
            seconds = self.seconds - self.firsts**2 / present
        found = []
        for b in range(len(layout.starts) - 1):
            columns = layout.columns(b)
            counts = self.counts[:, columns.start].copy()
            if layout.by_column[b]:
                scatters = seconds[:, columns, None] if layout.is_matrix else seconds[:, columns]
            else:
                upper = np.triu(layout.matrices(self.scatters, b))
                scatters = upper + np.triu(upper, 1).transpose(0, 2, 1)
                firsts = self.firsts[:, columns]
                scatters -= firsts[:, :, None] * (firsts / present[:, columns])[:, None, :]
            found.append(Statistics(counts, means[:, columns], scatters, float(self.gap_entropy[b])))
        return tuple(found)

    def _column_counts(self) -> Array:
        """Counts of every column; a matrix block has its counts at its first."""
        layout = self.layout
        first = np.repeat(layout.starts[:-1], np.diff(layout.starts))
        by_column = np.repeat(layout.by_column, np.diff(layout.starts))
        counts: Array = np.where(by_column, self.counts, self.counts[:, first])
        return counts

    def _present(self) -> Array:
        counts = self._column_counts()
        return np.where(counts > 0, counts, 1.0)

    def _squares(self) -> Array:
        """Sums of squared deviations of every column."""
        squares: Array = self.seconds.copy()
        for b in np.flatnonzero(~self.layout.by_column).tolist():
            squares[:, self.layout.columns(b)] = np.diagonal(self.layout.matrices(self.scatters, b), axis1=1, axis2=2)
        return squares
