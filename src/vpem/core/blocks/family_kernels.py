"""Compiled loops over codes: of the values of discrete columns, and of cells (see `vpem.core.decisions.cells`)."""

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


@compiled(PRECISE)
def look_up(codes, tables, out):  # type: ignore[no-untyped-def]
    """Add the entries of tables (n_hubs, n_codes, n) at each cell's codes (n_cells, n_hubs) to out (n_cells, n).

    Four cells are interleaved, because consecutive additions to the same cell depend on each other.
    """
    n_cells, n_hubs = codes.shape
    last = n_cells - 1
    for one in range(0, n_cells, 4):
        two, three, four = min(one + 1, last), min(one + 2, last), min(one + 3, last)
        for k in range(tables.shape[2]):
            first, second, third, fourth = out[one, k], out[two, k], out[three, k], out[four, k]
            for b in range(n_hubs):
                first += tables[b, codes[one, b], k]
                second += tables[b, codes[two, b], k]
                third += tables[b, codes[three, b], k]
                fourth += tables[b, codes[four, b], k]
            out[one, k], out[two, k], out[three, k], out[four, k] = first, second, third, fourth


@compiled(PRECISE)
def count_codes(codes, shares, out):  # type: ignore[no-untyped-def]
    """Add the shares (n_cells, n) of cells to the entries of their codes in out (n_hubs, n_codes, n)."""
    n_cells, n_hubs = codes.shape
    n = shares.shape[1]
    for m in range(n_cells):
        for b in range(n_hubs):
            code = codes[m, b]
            for k in range(n):
                out[b, code, k] += shares[m, k]
