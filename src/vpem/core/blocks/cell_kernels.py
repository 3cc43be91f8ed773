"""Inner loops of the clustering of cells; see `vpem.core.decisions.cells`."""

from __future__ import annotations

from vpem.core.compiling import PRECISE, compiled


@compiled(PRECISE)
def look_up(codes, tables, out):  # type: ignore[no-untyped-def]
    """Add up what tables (n_hubs, n_codes, n) say of each cell's codes (n_cells, n_hubs), in out (n_cells, n)."""
    n_cells, n_hubs = codes.shape
    n = tables.shape[2]
    for m in range(n_cells):
        for b in range(n_hubs):
            code = codes[m, b]
            for k in range(n):
                out[m, k] += tables[b, code, k]


@compiled(PRECISE)
def count_codes(codes, shares, out):  # type: ignore[no-untyped-def]
    """Add the shares (n_cells, n) of cells to their codes' places in out (n_hubs, n_codes, n)."""
    n_cells, n_hubs = codes.shape
    n = shares.shape[1]
    for m in range(n_cells):
        for b in range(n_hubs):
            code = codes[m, b]
            for k in range(n):
                out[b, code, k] += shares[m, k]
