"""Inner loops of the clustering of cells; see `vpem.core.decisions.cells`."""

from __future__ import annotations

from vpem.core.compiling import PRECISE, compiled


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
