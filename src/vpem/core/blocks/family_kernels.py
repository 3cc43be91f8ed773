"""Compiled loops for discrete columns: encode values, look up log-probabilities, count rows by value."""

from __future__ import annotations

from typing import Any

from vpem.core.compiling import PRECISE, compiled


@compiled(PRECISE)
def code_values(x: Any, n_values: int, codes: Any) -> int:
    """Encode whole numbers below `n_values` as themselves, all else as `n_values`; count the latter except gaps.

    Parameters
    ----------
    x : array of shape (n_rows,)
    n_values : int
    codes : array of int64 of shape (n_rows,)
        Output, overwritten.
    """
    n_strange = 0
    for row in range(len(x)):
        value = x[row]
        if value >= 0 and value < n_values and value == int(value):
            codes[row] = int(value)
        else:
            codes[row] = n_values
            if value == value:
                n_strange += 1
    return n_strange


@compiled(PRECISE)
def add_looked_up(codes: Any, table: Any, out: Any) -> None:
    """Add the table entries of each row's code to each component.

    Parameters
    ----------
    codes : array of int64 of shape (n_rows,)
    table : array of shape (n_components, n_values + 1)
        Its last column is zero, for gaps.
    out : array of shape (n_components, n_rows)
    """
    for component in range(len(table)):
        for row in range(len(codes)):
            out[component, row] += table[component, codes[row]]


@compiled(PRECISE)
def add_counts(codes: Any, responsibilities: Any, counts: Any) -> None:
    """Add responsibilities by value; shapes as in `add_looked_up`, with gaps in the last column of `counts`."""
    for component in range(len(counts)):
        for row in range(len(codes)):
            counts[component, codes[row]] += responsibilities[component, row]


def warm_up() -> None:
    """Compile all kernels, or load them from disk, before they are needed."""
    import numpy as np

    codes = np.zeros(2, dtype=np.int64)
    code_values(np.zeros(2), 1, codes)
    add_looked_up(codes, np.zeros((1, 2)), np.zeros((1, 2)))
    add_counts(codes, np.zeros((1, 2)), np.zeros((1, 2)))
