"""Row counts of a study as one party knows them: its own rows, the common rows and the rows that the fit used."""

from __future__ import annotations

import numpy as np

from vpem.core.agent.machine import Agent
from vpem.overlap import RowSummary
from vpem.studies.columns import Local
from vpem.studies.shared import Study


def count_own_rows(study: Study, agent: Agent, local: Local) -> RowSummary:
    """Count rows and the gaps of the party's own columns.

    Parties send each other their numbers of rows, but no ids. Where rows are matched with "outer", the number of
    common rows is known only between two parties, or if the holders of each row are counted, as under masks.
    """
    network, rows, holders = agent.roles.network, local.rows, agent.state.progress.holders
    parties, n_rows = list(map(str, network.parties)), len(local.rows)
    held = {party: int(rows.counts.get(party, n_rows)) for party in parties}
    n_common: int | None = n_rows
    matched: dict[str, int] = {}
    is_own = rows.order >= 0
    if study.match == "outer":
        n_common = sum(held.values()) - n_rows if len(parties) == 2 else None
        if holders is not None:
            n_common = int((holders == len(network.hubs)).sum())
            matched = {agent.name: int((holders[is_own] > 1).sum())}
    least = max(1, agent.identity.agreement.summation.least_holders(network))
    gaps = np.isnan(rows.values[is_own]).sum(axis=0).tolist()
    return RowSummary(
        n_rows=n_rows,
        held=held,
        n_common=n_common,
        n_used=n_rows if holders is None else int((holders >= least).sum()),
        gaps={name: count for name, count in zip(rows.names, gaps, strict=True) if count},
        matched=matched,
        is_joined=True,
        is_private=True,
        gap_words=rows.gap_words,
    )


def describe_own(rows: RowSummary, party: str) -> str:
    """Describe how many of a party's rows other parties have too; empty if that is not known."""
    n_own = rows.held[party]
    n_matched = rows.matched.get(party, rows.n_common)
    if n_matched is None:
        return ""
    return f"{n_matched:,} of the {n_own:,} rows of {party} are matched ({n_matched / max(n_own, 1):.0%})"
