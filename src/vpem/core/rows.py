"""Tables that are read some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.floating]

CHUNK_VALUES = 2**20
"""Values of one array in a chunk: 8 MiB, small beside the table, large beside the interpreter's overhead."""


CHUNK_ROWS = 2**15
"""Rows in a chunk of a narrow table: threads have something to share out."""


class Table(Protocol):
    """Rows that can be read some at a time: an array, a memory map, or a table on disk."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> Rows:
        """Rows by slice or by number, as an array of shape (n_rows, n_features)."""


def row_chunks(start: int, stop: int, values_per_row: int) -> Iterator[slice]:
    """Consecutive slices of rows whose arrays fit the cache."""
    size = min(max(64, CHUNK_VALUES // values_per_row), CHUNK_ROWS)
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


class WithoutRows:
    """A table of which some rows count as gaps.

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
        """Of the whole table."""
        return self.table.shape

    def __len__(self) -> int:
        return len(self.left_out)

    def __getitem__(self, rows: Any) -> Rows:
        found = np.array(self.table[rows])
        found[self.left_out[rows]] = np.nan
        return found


def rows_held(table: Table, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    """1 for rows of which some of the columns have a value, 0 for others; (n_rows,)."""
    held = np.empty(len(table))
    for rows in row_chunks(0, len(table), table.shape[1]):
        held[rows] = ~np.isnan(table[rows][:, columns]).all(axis=1)
    return held


def without_rows(table: Table, holders: NDArray[Any], least: int) -> Table:
    """The table without rows that fewer than `least` blocks have; the table itself if there are none."""
    left_out = holders < least
    return WithoutRows(table, left_out) if left_out.any() else table
