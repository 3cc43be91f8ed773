"""All blocks' parameters and statistics in a few arrays, as the compiled kernels like them.

A tile of rows is held with columns before rows, in the order of the blocks. Blocks of one column, and those with
variances only, are worked on column by column; matrices of moderate width by the kernels for matrices. What neither
can do (wide matrices, where BLAS is faster; rows of which a block of several columns has only some values) is done
block by block with the functions of `vpem.core.gaps`, which define what all of this computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vpem.core import kernels
from vpem.core.covariances import TINY_COUNT
from vpem.core.gaps import Marginals, expected_statistics, observed_contribution
from vpem.core.mixture import Block, Statistics
from vpem.core.rows import Rows

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

    @cached_property
    def widths(self) -> Numbers:
        """(n_blocks,): numbers of columns."""
        return np.diff(self.starts)

    @cached_property
    def column_by_column(self) -> NDArray[np.bool_]:
        """(n_columns,): whether its block's columns are independent of each other."""
        return np.repeat(self.by_column, self.widths)

    @cached_property
    def counted_at(self) -> Numbers:
        """(n_columns,): where a column's counts are; a matrix block has one at its first column."""
        return np.where(
            self.column_by_column, np.arange(self.n_columns), np.repeat(self.starts[:-1], self.widths)
        ).astype(np.int64)

    def columns(self, b: int) -> slice:
        """A block's columns."""
        return slice(int(self.starts[b]), int(self.starts[b + 1]))

    def in_any_column(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether a flag of the columns, in the order of the blocks, is set in each block; (n_blocks,)."""
        return np.logical_or.reduceat(flags, self.starts[:-1])

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


def columns_first(rows: Rows, order: NDArray[np.intp]) -> Array:
    """Some rows as the kernels like them, in double precision; (n_columns, n_rows), the columns in a given order."""
    XT = np.empty((len(order), len(rows)))
    in_order = len(order) == rows.shape[1] and bool((order == np.arange(len(order))).all())
    np.copyto(XT, rows.T if in_order else rows.T[order])
    return XT


@dataclass(frozen=True, eq=False)
class Kinds:
    """Which way each block goes, for one tile."""

    columns: Numbers
    """Columns of blocks that go column by column."""
    matrices: Numbers
    """Blocks that go through the kernel for matrices."""
    apart: list[tuple[int, slice | Numbers, Array]]
    """Blocks, rows and their values (n_rows, width) that go by themselves."""


def sort_blocks(layout: Layout, XT: Array, may_have_gaps: NDArray[np.bool_]) -> Kinds:
    """Look at a tile. Rows of which a block has only some values are set apart: in XT they become gaps altogether."""
    widths = layout.widths
    is_wide = ~layout.by_column & (widths > WIDEST_MATRIX)
    apart: list[tuple[int, slice | Numbers, Array]] = [
        (b, slice(None), XT[layout.columns(b)].T) for b in np.flatnonzero(is_wide).tolist()
    ]
    for b in np.flatnonzero(may_have_gaps & (widths > 1) & ~is_wide).tolist():
        values = XT[layout.columns(b)]
        gaps = np.isnan(values)
        rows = np.flatnonzero(gaps.any(axis=0) & ~gaps.all(axis=0))
        if len(rows):
            apart.append((b, rows, values[:, rows].T))
            values[:, rows] = np.nan
    columns = np.flatnonzero(layout.column_by_column)
    return Kinds(columns, np.flatnonzero(~layout.by_column & ~is_wide), apart)


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
        for b, rows, values in kinds.apart:
            contribution = observed_contribution(values, self.blocks[b], self.marginals[b])
            out[targets[layout.starts[b]]][:, rows] += contribution.T


class Distances:
    """Minus half the squared distances to centres, which blocks contribute in k-means; a gap adds nothing."""

    def __init__(self, centres: Array):
        self.centres = np.ascontiguousarray(centres)
        self.ones, self.zeros = np.ones(centres.shape), np.zeros(centres.shape)
        self.columns = np.arange(centres.shape[1])

    def add(self, XT: Array, targets: Numbers, out: Array) -> None:
        """Add a tile's, of which no rows are set apart; see `Densities.add`."""
        kernels.add_columns(XT, self.columns, self.centres, self.ones, self.zeros, targets, out)


class Tally:
    """Weighted sums of deviations from shifts, from which statistics follow; those of other rows can be added."""

    def __init__(self, layout: Layout, shifts: Array, densities: Densities | None = None):
        self.layout, self.shifts, self.densities = layout, np.ascontiguousarray(shifts), densities
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
        for b, rows, values in kinds.apart:
            assert self.densities is not None, "gaps are filled in as some densities expect"
            weights = responsibilities[views[layout.starts[b]]][:, rows].T
            block, marginals = self.densities.blocks[b], self.densities.marginals[b]
            self._add_statistics(b, expected_statistics(values, weights, block, marginals))

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
            whole = statistics.scatters + firsts[:, :, None] * shifts[:, None, :]
            self.layout.matrices(self.scatters, b)[:] += np.triu(whole)

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
            left = self._squares() - squares
            counted = self._column_counts() > TINY_COUNT
            is_doubtful = counted & ~(squares <= left)
            if not is_doubtful.any():
                return False
            if not (squares <= FAR * left)[counted].all():
                return True
            distances = np.where(is_doubtful, squares / np.where(left > 0, left, TINY_COUNT), 0.0)
        doubtful = np.flatnonzero(~self.layout.by_column & self.layout.in_any_column(is_doubtful.any(axis=0)))
        return any(self._is_far(b, distances[:, self.layout.columns(b)].max(axis=1)) for b in doubtful.tolist())

    def _is_far(self, b: int, distances: Array) -> bool:
        """Whether a matrix has lost digits in its narrowest direction; distances (n_components,), in variances."""
        scatters = self.statistics_of(b).scatters
        for scatter, distance in zip(scatters, distances, strict=True):
            if distance > 1.0:
                variances = np.diagonal(scatter)
                if not (variances > 0).all():
                    return True
                correlations = scatter / np.sqrt(np.outer(variances, variances))
                if not distance <= FAR * np.linalg.eigvalsh(correlations)[0]:
                    return True
        return False

    def statistics(self) -> tuple[Statistics, ...]:
        """Each block's."""
        return tuple(self.statistics_of(b) for b in range(len(self.layout.starts) - 1))

    def statistics_of(self, b: int) -> Statistics:
        """One block's."""
        layout, columns = self.layout, self.layout.columns(b)
        counts, firsts = self.counts[:, columns.start].copy(), self.firsts[:, columns]
        if layout.by_column[b]:
            own = self.counts[:, columns]
            shares = firsts / np.where(own > 0, own, 1.0)
            with np.errstate(invalid="ignore", over="ignore"):  # what is too large is not finite, and collapses
                scatters = self.seconds[:, columns] - firsts * shares
            scatters = scatters[:, :, None] if layout.is_matrix else scatters
        else:
            shares = firsts / np.where(counts > 0, counts, 1.0)[:, None]
            upper = layout.matrices(self.scatters, b)
            scatters = upper + upper.transpose(0, 2, 1)
            diagonal = np.arange(upper.shape[1])
            scatters[:, diagonal, diagonal] *= 0.5
            scatters -= firsts[:, :, None] * shares[:, None, :]
        return Statistics(counts, self.shifts[:, columns] + shares, scatters, float(self.gap_entropy[b]))

    def _column_counts(self) -> Array:
        """Counts of every column."""
        counts: Array = self.counts[:, self.layout.counted_at]
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
