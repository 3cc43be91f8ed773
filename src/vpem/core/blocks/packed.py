"""Parameters and statistics of all Gaussian blocks, packed into a few arrays for the compiled kernels.

Blocks of one column, and blocks with variances only, are processed column by column; others by the kernels for
matrices. For wide matrices without gaps BLAS is faster: they are processed block by block, with the functions of
`vpem.core.blocks.factors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks import family_kernels, kernels, matrix_kernels
from vpem.core.blocks.arrays import Array, Block, Statistics
from vpem.core.blocks.factors import block_statistics, log_contribution, make_block
from vpem.core.blocks.layouts import Kinds, MatrixLayout, make_layout, sort_blocks
from vpem.core.blocks.tiles import Collector, ColumnTally, Numbers, Packed, Tile, as_in_table, columns_first
from vpem.core.blocks.weights import TINY_COUNT
from vpem.core.rows import Rows

NOTHING = np.empty(0)
"""Placeholder for an array that a kernel does not use."""

FAR = 1e4
"""Squared distance of a shift from the mean, in variances, beyond which sums of squares lose too many digits."""


class Densities(Packed):
    """Log-densities of all blocks under given parameters: their contributions to the sum."""

    layout: MatrixLayout

    def __init__(self, layout: MatrixLayout, blocks: Sequence[Block]):
        self.layout, self.blocks = layout, blocks
        self.takes_rows = bool(layout.by_column.all())
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
        with np.errstate(divide="ignore"):  # scales are zero for columns that belong to a matrix
            self.column_normalizers = np.log(self.scales) - 0.5 * np.log(2 * np.pi)

    @cached_property
    def precisions(self) -> Array:
        """Inverse covariances of blocks with matrices, flat like the whiteners; used to fill in gaps."""
        precisions = np.empty_like(self.whiteners)
        for b in np.flatnonzero(~self.layout.by_column).tolist():
            whiteners = self.layout.matrices(self.whiteners, b)
            self.layout.matrices(precisions, b)[:] = whiteners @ whiteners.transpose(0, 2, 1)
        return precisions

    def look(self, XT: Array, has_gaps: NDArray[np.bool_]) -> Kinds:
        """Return the kinds of the blocks in a tile; see `Packed`."""
        if not has_gaps.any():
            return self.layout.whole
        return sort_blocks(self.layout, XT, self.layout.in_any_column(has_gaps))

    def collector(self, means: Array, variances: Array, centres: Array | None = None) -> Callable[[], Collector]:
        """Return a factory of tallies around the centres, or around the means that are not far from all rows."""
        if centres is None:
            with np.errstate(over="ignore"):
                is_near = (self.means - means) ** 2 <= FAR * variances
            centres = np.where(is_near, self.means, means)
        return partial(self.tally, centres)

    def tally(self, shifts: Array) -> Tally:
        """Return an empty tally around shifts, (n_components, n_columns)."""
        return Tally(self.layout, shifts, self)

    def add(self, tile: Tile, targets: Numbers, out: Array) -> None:
        """Add a tile's log-densities; see `Contributions`."""
        XT, kinds = tile.XT, tile.noted
        layout = self.layout
        kernels.add_columns(XT, kinds.columns, self.means, self.scales, self.column_normalizers, targets, out)
        if len(kinds.matrices):
            matrix_kernels.add_matrices(
                XT,
                kinds.matrices,
                layout.starts,
                layout.offsets,
                self.means,
                self.whiteners,
                self.precisions if len(kinds.patterns.states) else NOTHING,
                self.normalizers,
                targets,
                tuple(kinds.patterns),
                out,
            )
        for b in kinds.wide.tolist():
            out[targets[layout.starts[b]]] += log_contribution(XT[layout.columns(b)].T, self.blocks[b]).T

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
        """Do both halves of a pass, if all columns are independent of each other; see `Contributions`."""
        assert log_weights is not None, "EM's"
        assert into is None or isinstance(into, Tally), "of these blocks"
        packed = (self.means, self.scales, self.column_normalizers)
        shifts = np.empty((self.layout.n_components, 0)) if into is None else as_in_table(into.shifts, order)
        sums = np.zeros((3, *shifts.shape))
        parameters = *(as_in_table(own, order) for own in packed), log_weights[0]
        kernels.pass_columns(chunk, *parameters, shifts, *sums, counts[0], scores[0], entropies)
        if into is not None:
            into.counts, into.firsts, into.seconds = sums[:, :, order]


class Tally(ColumnTally):
    """Weighted sums of deviations from shifts, from which statistics follow; tallies of other rows can be added."""

    def __init__(self, layout: MatrixLayout, shifts: Array, densities: Densities | None = None):
        super().__init__(shifts)
        self.layout, self.densities = layout, densities
        self.takes_rows = bool(layout.by_column.all())
        self.scatters = np.zeros(layout.offsets[-1])
        self.gap_entropy = np.zeros(len(layout.starts) - 1)

    def collect(self, tile: Tile, responsibilities: Array, views: Numbers) -> None:
        """Add a tile's rows; see `Collector`."""
        layout, XT, kinds = self.layout, tile.XT, tile.noted
        self.collect_columns(XT, kinds.columns, responsibilities, views)
        filling = self.densities
        if len(kinds.gappy):
            assert filling is not None, "gaps are filled in as some densities expect"
            kernels.fill_columns(
                XT,
                kinds.gappy,
                layout.starts,
                filling.means,
                filling.scales,
                self.shifts,
                responsibilities,
                views,
                self.counts,
                self.firsts,
                self.seconds,
                self.gap_entropy,
            )
        if len(kinds.matrices):
            has_gaps = len(kinds.patterns.states) > 0
            assert filling is not None or not has_gaps, "gaps are filled in as some densities expect"
            matrix_kernels.collect_matrices(
                XT,
                kinds.matrices,
                layout.starts,
                layout.offsets,
                self.shifts if filling is None else filling.means,
                filling.precisions if filling is not None and has_gaps else NOTHING,
                self.shifts,
                responsibilities,
                views,
                tuple(kinds.patterns),
                self.counts,
                self.firsts,
                self.scatters,
                self.gap_entropy,
            )
        for b in kinds.wide.tolist():
            weights = responsibilities[views[layout.starts[b]]].T
            self._add_statistics(b, block_statistics(XT[layout.columns(b)].T, weights, is_matrix=True))

    def _add_statistics(self, b: int, statistics: Statistics) -> None:
        """Add statistics around the rows' own means, of a block with matrices."""
        columns = self.layout.columns(b)
        shifts = statistics.means - self.shifts[:, columns]
        firsts = statistics.counts[:, None] * shifts
        self.firsts[:, columns] += firsts
        self.counts[:, columns.start] += statistics.counts
        whole = statistics.scatters + firsts[:, :, None] * shifts[:, None, :]
        self.layout.matrices(self.scatters, b)[:] += np.triu(whole)

    def add(self, other: Self) -> None:
        """Add the sums of later rows."""
        super().add(other)
        self.scatters += other.scatters
        self.gap_entropy += other.gap_entropy

    def again(self) -> Callable[[], Collector] | None:
        """Return a factory of tallies around the means found if squares have lost digits, otherwise None."""
        return partial(Tally, self.layout, self.means(), self.densities) if self.is_far() else None

    def column_counts(self) -> Array:
        """Counts of every column; a matrix block stores its counts at its first column."""
        counts: Array = self.counts[:, self.layout.counted_at]
        return counts

    def is_far(self) -> bool:
        """True if a shift is so far from the mean that the squares have lost digits."""
        with np.errstate(invalid="ignore", over="ignore"):  # overflow gives inf, which counts as far
            counts = self.column_counts()
            squares = self.firsts**2 / np.where(counts > 0, counts, 1.0)
            left = self._squares() - squares
            counted = counts > TINY_COUNT
            is_doubtful = counted & ~(squares <= left)
            if not is_doubtful.any():
                return False
            if not (squares <= FAR * left)[counted].all():
                return True
            distances = np.where(is_doubtful, squares / np.where(left > 0, left, TINY_COUNT), 0.0)
        doubtful = np.flatnonzero(~self.layout.by_column & self.layout.in_any_column(is_doubtful.any(axis=0)))
        return any(self._is_far(b, distances[:, self.layout.columns(b)].max(axis=1)) for b in doubtful.tolist())

    def _is_far(self, b: int, distances: Array) -> bool:
        """True if a matrix has lost digits in its narrowest direction; distances (n_components,), in variances."""
        scatters = self.statistics_of([b])[0].scatters
        for scatter, distance in zip(scatters, distances, strict=True):
            if distance > 1.0:
                variances = np.diagonal(scatter)
                if not (variances > 0).all():
                    return True
                deviations = np.sqrt(variances)  # divide twice: products of tiny variances would underflow
                correlations = scatter / deviations[:, None] / deviations
                if not distance <= FAR * np.linalg.eigvalsh(correlations)[0]:
                    return True
        return False

    def statistics(self) -> tuple[Statistics, ...]:
        """Statistics of each block."""
        return self.statistics_of(range(len(self.layout.starts) - 1))

    def statistics_of(self, blocks: Iterable[int]) -> tuple[Statistics, ...]:
        """Statistics of the given blocks."""
        with np.errstate(invalid="ignore", over="ignore"):  # overflow gives inf, which is handled as a collapse
            return tuple(map(self._statistics_of, blocks))

    def _statistics_of(self, b: int) -> Statistics:
        layout, columns = self.layout, self.layout.columns(b)
        counts, firsts = self.counts[:, columns.start].copy(), self.firsts[:, columns]
        if layout.by_column[b]:
            own = self.counts[:, columns]
            shares = firsts / np.where(own > 0, own, 1.0)
            scatters = self.seconds[:, columns] - firsts * shares
            scatters = scatters[:, :, None] if layout.is_matrix else scatters
        else:
            shares = firsts / np.where(counts > 0, counts, 1.0)[:, None]
            upper = layout.matrices(self.scatters, b)
            scatters = upper + upper.transpose(0, 2, 1)
            diagonal = np.arange(upper.shape[1])
            scatters[:, diagonal, diagonal] *= 0.5
            scatters -= firsts[:, :, None] * shares[:, None, :]
        return Statistics(
            counts=counts,
            means=self.shifts[:, columns] + shares,
            scatters=scatters,
            gap_entropy=self.gap_entropy[b : b + 1].copy(),
        )

    def _squares(self) -> Array:
        """Sums of squared deviations of every column."""
        squares: Array = self.seconds.copy()
        for b in np.flatnonzero(~self.layout.by_column).tolist():
            squares[:, self.layout.columns(b)] = np.diagonal(self.layout.matrices(self.scatters, b), axis1=1, axis2=2)
        return squares


def warm_up() -> None:
    """Compile all kernels for double precision, or load them from disk, before they are needed."""
    codes = np.zeros(2, dtype=np.int64)
    family_kernels.code_values(np.zeros(2), 1, codes)
    family_kernels.add_looked_up(codes, np.zeros((1, 2)), np.zeros((1, 2)))
    family_kernels.add_counts(codes, np.zeros((1, 2)), np.zeros((1, 2)))
    X, one = np.zeros((2, 4)), np.ones((1, 1, 2))
    X[1, 1] = X[1, 3] = np.nan
    XT, zeros = columns_first(X, np.arange(4)), np.zeros(4, dtype=np.int64)
    kernels.count_larger(X, 1.0)
    kernels.add_moments(X, *np.zeros((3, 4)))
    kernels.add_squares(X, *np.zeros((2, 4)))
    kernels.add_row_distances(X, np.zeros((1, 4)), one[0].copy())
    kernels.collect_rows(X, np.zeros((1, 4)), one[0], *np.zeros((3, 1, 4)))
    kernels.respond(one.copy(), np.zeros((1, 1)), np.zeros((1, 2)), np.zeros((1, 1)), np.zeros(1), True)
    kernels.respond_nearest(one.copy(), np.zeros((1, 2)), np.zeros((1, 1)))
    kernels.find_largest(np.zeros((1, 1)), np.zeros(1, dtype=np.uint8), np.zeros(1))
    packed = np.zeros((1, 4)), np.ones((1, 4)), np.zeros((1, 4)), np.zeros(1)
    kernels.pass_columns(X, *packed, *np.zeros((4, 1, 4)), np.zeros(1), np.zeros(2), np.zeros(1))
    for is_matrix in (True, False):
        layout = make_layout([1, 3], 1, is_matrix=is_matrix)
        covariances = [np.eye(width)[None] if is_matrix else np.ones((1, width)) for width in (1, 3)]
        pairs = zip((1, 3), covariances, strict=True)
        densities = Densities(layout, [make_block(np.zeros((1, width)), own) for width, own in pairs])
        tally = Tally(layout, densities.means, densities)
        tile = Tile(XT, slice(0, 2), sort_blocks(layout, XT, np.array([False, True])))
        densities.add(tile, zeros, np.zeros((1, 1, 2)))
        tally.collect(tile, one, zeros)
