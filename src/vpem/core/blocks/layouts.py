"""Positions of Gaussian blocks in the packed arrays, and which code processes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array
from vpem.core.blocks.matrix_kernels import Patterns, find_patterns
from vpem.core.blocks.tiles import Layout, Numbers, first_columns

WIDEST_MATRIX = 128
"""Number of columns of a block up to which the kernel is faster than BLAS; measured by `benchmarks/crossover.py`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MatrixLayout(Layout):
    """Positions of the blocks in the packed arrays; made by `make_layout`."""

    offsets: Numbers
    """(n_blocks + 1,): start of each block's matrices, of all components, in the flat array of matrices."""
    is_matrix: bool
    """True if covariances are full matrices."""
    by_column: NDArray[np.bool_]
    """(n_blocks,): True for blocks whose columns are independent of each other."""

    @cached_property
    def column_by_column(self) -> NDArray[np.bool_]:
        """True for columns of blocks whose columns are independent of each other; (n_columns,)."""
        return np.repeat(self.by_column, self.widths)

    @cached_property
    def counted_at(self) -> Numbers:
        """Column at which each column's counts are stored, (n_columns,): for a matrix block, its first column."""
        return np.where(
            self.column_by_column, np.arange(self.n_columns), np.repeat(self.starts[:-1], self.widths)
        ).astype(np.int64)

    @cached_property
    def whole(self) -> Kinds:
        """Kinds of the blocks in tiles without gaps."""
        return sort_blocks(self, np.empty((self.n_columns, 0)), np.zeros(len(self.by_column), dtype=bool))

    def in_any_column(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """True for blocks with a flagged column, (n_blocks,); flags are in the order of the blocks."""
        return np.logical_or.reduceat(flags, self.starts[:-1])

    def matrices(self, flat: Array, b: int) -> Array:
        """Return a view of a block's part of a flat array of matrices; (n_components, width, width)."""
        width = int(self.starts[b + 1] - self.starts[b])
        return flat[self.offsets[b] : self.offsets[b + 1]].reshape(self.n_components, width, width)


def make_layout(widths: Sequence[int], n_components: int, *, is_matrix: bool) -> MatrixLayout:
    """Return the layout of blocks with these numbers of columns."""
    sizes = np.array(widths, dtype=np.int64)
    by_column = np.array([width == 1 or not is_matrix for width in widths])
    return MatrixLayout(
        starts=first_columns(widths),
        n_components=n_components,
        offsets=first_columns(np.where(by_column, 0, n_components * sizes**2).tolist()),
        is_matrix=is_matrix,
        by_column=by_column,
    )


@dataclass(frozen=True, eq=False)
class Kinds:
    """Blocks and columns of one tile, by the code that processes them."""

    columns: Numbers
    """Columns of blocks that are processed column by column."""
    gappy: Numbers
    """Blocks among them that have several columns and may have gaps."""
    matrices: Numbers
    """Blocks that are processed by the kernels for matrices."""
    wide: Numbers
    """Blocks that are processed by BLAS."""
    patterns: Patterns
    """Patterns of gaps in the blocks with matrices."""


def sort_blocks(layout: MatrixLayout, XT: Array, may_have_gaps: NDArray[np.bool_]) -> Kinds:
    """Classify the blocks of a tile, (n_columns, n_rows); may_have_gaps (n_blocks,)."""
    is_matrix = ~layout.by_column
    is_wide = is_matrix & (layout.widths > WIDEST_MATRIX) & ~may_have_gaps
    patterns = find_patterns(XT, layout.starts, np.flatnonzero(is_matrix & may_have_gaps))
    return Kinds(
        columns=np.flatnonzero(layout.column_by_column),
        gappy=np.flatnonzero(layout.by_column & (layout.widths > 1) & may_have_gaps),
        matrices=np.flatnonzero(is_matrix & ~is_wide),
        wide=np.flatnonzero(is_wide),
        patterns=patterns,
    )
