"""Size of the table itself, for a comparison with sending all columns to one place."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FLOAT_BYTES = 8
SAMPLE_ROWS = 10_000
"""Maximum number of rows that are compressed; the window of gzip is much shorter."""
N_PLACES = 5
"""Number of pieces of the table from which these rows are sampled."""


class TableSize(NamedTuple):
    """Size of all columns of all parties, sent once to one place."""

    bytes: int
    """Bytes in double precision."""
    gzipped: int | None
    """Bytes after gzip, estimated from some rows; None without rows."""


def table_size(n_rows: int, n_columns: int, rows: NDArray[np.float64] | None = None) -> TableSize:
    """Compute the size of a table.

    Parameters
    ----------
    n_rows : int
    n_columns : int
    rows : array of shape (n_rows, n_columns), optional
        The table, or some rows of it.
    """
    whole = FLOAT_BYTES * n_rows * n_columns
    share = None if rows is None or not rows.size else gzipped_share(rows)
    return TableSize(whole, None if share is None else round(whole * share))


def gzipped_share(rows: NDArray[np.float64]) -> float:
    """Gzipped bytes per byte in double precision, estimated from up to 10,000 rows.

    The smaller of two common formats counts: CSV, or eight bytes per number, column by column.
    """
    piece = SAMPLE_ROWS // N_PLACES
    if len(rows) > SAMPLE_ROWS:
        starts = np.linspace(0, len(rows) - piece, N_PLACES).astype(int)
        rows = np.concatenate([rows[start : start + piece] for start in starts])
    rows = np.asarray(rows, dtype=np.float64)
    text = "\n".join(",".join(map(_written, row)) for row in rows.tolist())
    packed = (zlib.compress(text.encode()), zlib.compress(rows.tobytes(order="F")))
    return min(map(len, packed)) / (FLOAT_BYTES * rows.size)


def _written(number: float) -> str:
    """Format a number as briefly as possible without loss; a gap is an empty cell."""
    return "" if number != number else repr(number).removesuffix(".0")
