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
