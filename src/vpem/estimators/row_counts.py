"""Row counts of a fit: rows of each party, in common and used, and gaps of each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.rows import Table, row_chunks
from vpem.overlap import RowSummary


def count_rows(
    table: Table, network: Network, summation: Summation, names: Sequence[str], source: Any = None
) -> RowSummary:
    """Count rows and gaps in one pass over a table.

    Parameters
    ----------
    table : Table of shape (n_rows, n_columns)
    network : Network
    summation : Summation
        Determines the number of blocks that must have a row for the fit to use it.
    names : sequence of str
        Column names.
    source : JoinedTable or reading.Rows, optional
        Source of `places`, the rows of each party's own table, and of `near` and `gap_words`.
    """
    parties = list(map(str, network.parties))
    places = getattr(source, "places", None) or {}
    is_joined = set(places) >= set(parties)
    tables = [_in_table(places[party], len(table)) for party in parties] if is_joined else None
    least = max(1, summation.least_holders(network))
    held, matched = np.zeros((2, len(parties)), dtype=np.intp)
    gaps = np.zeros(table.shape[1], dtype=np.intp)
    n_common = n_used = n_empty = 0
    for rows in row_chunks(0, len(table), table.shape[1]):
        is_gap = np.isnan(table[rows])
        there = _held(is_gap, network.columns)
        n_used += int((_held(is_gap, network.block_columns).sum(axis=0) >= least).sum())
        if tables is not None:
            own = np.array([one[rows] for one in tables])
            for place, columns in enumerate(network.columns):
                gaps[columns] += is_gap[np.ix_(own[place], columns)].sum(axis=0)
            there = own
        else:
            gaps += is_gap.sum(axis=0)
        n_holders = there.sum(axis=0)
        held += there.sum(axis=1)
        matched += (there & (n_holders > 1)).sum(axis=1)
        n_common += int((n_holders == len(parties)).sum())
        n_empty += int((n_holders == 0).sum())
    return RowSummary(
        n_rows=len(table),
        held=dict(zip(parties, held.tolist(), strict=True)),
        n_common=n_common,
        n_used=n_used,
        gaps={str(name): count for name, count in zip(names, gaps.tolist(), strict=True) if count},
        matched=dict(zip(parties, matched.tolist(), strict=True)),
        n_empty=n_empty,
        is_joined=is_joined,
        near=tuple(getattr(source, "near", ())),
        gap_words=dict(getattr(source, "gap_words", {})),
    )


def _in_table(places: NDArray[np.intp], n_rows: int) -> NDArray[np.bool_]:
    found = np.zeros(n_rows, dtype=np.bool_)
    found[places] = True
    return found


def _held(is_gap: NDArray[np.bool_], columns: Sequence[NDArray[np.intp]]) -> NDArray[np.bool_]:
    """Shape (n_blocks, n_rows): True if the block has a value in the row."""
    if not is_gap.any():
        return np.ones((len(columns), len(is_gap)), dtype=np.bool_)
    return np.array([~is_gap[:, own].all(axis=1) for own in columns])
