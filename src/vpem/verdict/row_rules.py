"""Findings about rows: few common rows, and ids that nearly match."""

from __future__ import annotations

from vpem.overlap import RowSummary
from vpem.verdict.facts import Facts
from vpem.verdict.findings import Finding, Severity

IN_COMMON = {"red": 0.05, "amber": 0.5}
"""Largest share of the possible common rows that counts as few."""
MANY_NEAR = 0.01
"""Smallest share of a party's ids that nearly match for an amber finding."""

UNSEEN = "No party sees the ids of others, so that their spelling cannot be compared here."


def few_in_common(facts: Facts) -> list[Finding]:
    """Find tables with few common rows, which hardly tie the parties' components together."""
    rows = facts.rows
    if rows is None or len(rows.held) < 2:
        return []
    party, share = min(rows.shares().items(), key=lambda one: one[1], default=("", rows.share() or 0.0))
    severity: Severity
    if share <= IN_COMMON["red"]:
        severity = "red"
    elif share <= IN_COMMON["amber"]:
        severity = "amber"
    else:
        return []
    sentence = f"{_how_many(rows, party)}: few rows tie the parties' components together."
    if rows.is_private:
        remedy = "compare with the other parties how ids are written, such as zeros before them, or [rows] spelling"
        return [Finding("few_in_common", severity, f"{sentence} {UNSEEN}", remedy)]
    remedy = "compare how the tables write their ids" if rows.is_joined else "parties that have the same rows"
    return [Finding("few_in_common", severity, sentence, remedy)]


def _how_many(rows: RowSummary, party: str) -> str:
    if party:
        others = "another table has" if rows.is_joined else "another party has"
        return f"Of the {rows.held[party]:,} rows of {party!r}, {others} {rows.matched[party]:,}"
    counts = ", ".join(f"{count:,} of {one}" for one, count in rows.held.items())
    common = f"{rows.n_rows:,} different ones" if rows.n_common is None else f"{rows.n_common:,} in common"
    return f"The parties have {common}, from {counts}"


def near_ids(facts: Facts) -> list[Finding]:
    """Find ids that would match in another spelling."""
    found: list[Finding] = []
    if facts.rows is None:
        return found
    for near in facts.rows.near:
        n_rows = facts.rows.held.get(near.party, 0)
        sentence = (
            f"{near.count:,} of {n_rows:,} ids of {near.party!r} are those of {near.other!r} in another spelling. "
            f"They differ in {near.difference}, and count as other rows."
        )
        severity: Severity = "amber" if near.count >= MANY_NEAR * n_rows else "note"
        found.append(Finding("near_ids", severity, sentence, "write ids in the same way in all tables"))
    return found
