"""Rows of a fit: numbers of rows of each party, in common and used, and missing values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vpem.words import MOST_NAMES, as_names

MOST_TOLD = 3
"""Number of columns that are named, those with most gaps, if many columns have gaps."""


@dataclass(frozen=True, kw_only=True)
class NearIds:
    """Number of ids of one party that another party spells differently. The ids themselves are not stored."""

    party: str
    other: str
    count: int
    difference: str
    """Difference in the spelling, such as "leading zeros"."""


@dataclass(frozen=True, kw_only=True)
class RowSummary:
    """Row counts of a fit.

    Attributes
    ----------
    n_rows : int
        Number of distinct rows.
    held : dict
        Party to its number of rows: those of its table or, for a single table, those in which it has a value.
    n_common : int or None
        Number of rows that all parties have; None if a party of a study cannot know it.
    n_used : int
        Number of rows that the fit used.
    gaps : dict
        Column to its number of missing values; without the rows that its party lacks, if tables were joined.
    matched : dict
        Party to the number of its rows that another party has too; empty if unknown.
    n_empty : int
        Number of rows in which no party has a value.
    is_joined : bool
        True if rows were matched by ids.
    is_private : bool
        True if the ids of other parties are unknown, as in a study.
    near : tuple of NearIds
        Ids that differ only in their spelling.
    gap_words : dict
        Column to the words in its file that count as gaps, and their numbers of occurrences.
    """

    n_rows: int
    held: Mapping[str, int]
    n_common: int | None
    n_used: int
    gaps: Mapping[str, int] = field(default_factory=dict)
    matched: Mapping[str, int] = field(default_factory=dict)
    n_empty: int = 0
    is_joined: bool = False
    is_private: bool = False
    near: tuple[NearIds, ...] = ()
    gap_words: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def shares(self) -> dict[str, float]:
        """Party to its number of rows in common with others, divided by the largest possible number.

        If all rows of a small table are in a large one, the large table has a share of 1 too.
        """
        n_held, found = self.n_rows - self.n_empty, {}
        for party, n_matched in self.matched.items():
            n_others = n_held - (self.held[party] - n_matched)
            found[party] = n_matched / max(min(self.held[party], n_others), 1)
        return found

    def share(self) -> float | None:
        """Share of rows in common, for all parties together, from their numbers of rows; None for one party."""
        if len(self.held) < 2:
            return None
        if self.n_common is not None:
            return self.n_common / max(min(self.held.values()), 1)
        n_all, largest = sum(self.held.values()), max(self.held.values())
        return (n_all - (self.n_rows - self.n_empty)) / max(n_all - largest, 1)

    def describe(self) -> str:
        """Describe the rows in a line, as "398 (200 of bank, 200 of shop), 2 in common; all used"."""
        counts = [f"{count:,} of {party}" for party, count in self.held.items()]
        is_same = all(count == self.n_rows for count in self.held.values())
        if len(counts) < 2:
            found = f"{self.n_rows:,}"
        elif is_same and self.n_common == self.n_rows:
            found = f"{self.n_rows:,}, which all parties have"
        elif self.is_private and self.n_common == self.n_rows:
            found = f"{self.n_rows:,} in common, from {as_names(counts)}"
        else:
            found = f"{self.n_rows:,}"
            if self.is_joined or len(counts) <= MOST_NAMES:
                found += f" ({as_names(counts)})"
            found += "" if self.n_common is None else f", {self.n_common:,} in common"
        return f"{found}; {'all' if self.n_used == self.n_rows else format(self.n_used, ',')} used"

    def describe_gaps(self) -> str:
        """Describe the gaps in a line, as "income 12, visits 7" or "none"; of many columns, name those with most."""
        found = {name: count for name, count in self.gaps.items() if count}
        if len(found) <= MOST_NAMES:
            return ", ".join(f"{name} {count:,}" for name, count in found.items()) or "none"
        most = sorted(found, key=lambda name: -found[name])[:MOST_TOLD]
        shown = ", ".join(f"{name} {found[name]:,}" for name in most)
        return f"{sum(found.values()):,} in {len(found):,} columns; most in {shown}"
