"""Tables that are read in chunks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.floating]

CHUNK_VALUES = 2**20
"""Values of one array in a chunk: 8 MiB, small compared with the table, and large enough to hide the interpreter's
overhead."""


CHUNK_ROWS = 2**15
"""Maximum rows in a chunk, so that a narrow table has enough chunks for several threads."""

MOST_SAMPLED = 4000
"""Maximum rows in a sample."""


class Table(Protocol):
    """Rows that can be read in chunks: an array, a memory map, or a table on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> Rows:
        """Return rows by slice or by number, as an array of shape (n_rows, n_features)."""


def row_chunks(start: int, stop: int, values_per_row: int) -> Iterator[slice]:
    """Iterate over consecutive slices of rows whose arrays fit the cache."""
    size = min(max(64, CHUNK_VALUES // values_per_row), CHUNK_ROWS)
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


class Holders(NamedTuple):
    """Number of blocks that have each row, for summations in which a sum of few terms would reveal too much."""

    counts: NDArray[Any]
    """Shape (n_rows,): number of blocks that have each row."""
    least: int
    """Minimum number of blocks that must have a row for it to be used."""

    @property
    def used(self) -> NDArray[np.bool_]:
        """True for rows that are used; shape (n_rows,)."""
        return np.asarray(self.counts >= self.least)

    @property
    def n_left_out(self) -> int:
        """Number of rows that at least one block has, but too few blocks have."""
        return int(((self.counts > 0) & ~self.used).sum())

    @property
    def n_held(self) -> int:
        """Number of rows that at least one block has."""
        return int((self.counts > 0).sum())


class WithoutRows:
    """A table in which some rows are replaced by gaps (NaN).

    Parameters
    ----------
    table : Table
    left_out : array of bool of shape (n_rows,)
    """

    is_in_memory = False

    def __init__(self, table: Table, left_out: NDArray[np.bool_]):
        self.table, self.left_out = table, left_out

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns of the whole table."""
        return self.table.shape

    def __len__(self) -> int:
        return len(self.left_out)

    def __getitem__(self, rows: Any) -> Rows:
        found = np.array(self.table[rows])
        found[self.left_out[rows]] = np.nan
        return found


def sampled_rows(rows: slice, n_rows: int) -> slice:
    """Return the rows of a sample of the whole table that are among some consecutive rows, counted from the first.

    Parameters
    ----------
    rows : slice
    n_rows : int
        Number of rows of the whole table.
    """
    step = max(-(-n_rows // MOST_SAMPLED), 1)
    return slice(-rows.start % step, rows.stop - rows.start, step)


def rows_held(table: Table, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return 1 for rows with a value in at least one of the columns, 0 for others; shape (n_rows,)."""
    held = np.empty(len(table))
    for rows in row_chunks(0, len(table), table.shape[1]):
        held[rows] = ~np.isnan(table[rows][:, columns]).all(axis=1)
    return held


def without_rows(table: Table, holders: Holders) -> Table:
    """Replace rows that too few blocks have by gaps; return the table itself if it has no such rows."""
    left_out = ~holders.used
    return WithoutRows(table, left_out) if left_out.any() else table
