"""Words that stand for gaps in text files.

Data frames, Parquet and Arrow mark gaps themselves, so every word in them is a value. In a text file, an empty cell
is always a gap. Unless the user lists the words that are gaps, this depends on the column: words in `CERTAIN` are
gaps in every column, words in `DOUBTFUL` only among numbers or dates. Among words, "none" is a category.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vpem.reading.problems import TableError, unknown

CERTAIN = (
    *("NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-nan", "-NaN", "NAN"),
    *("null", "NULL", "Null", r"\N"),
)
"""Gaps in every column."""

DOUBTFUL = ("?", "-", "--", ".", "na", "None", "none")
"""Gaps among numbers and dates, categories among other words."""

MISSING = ("", *CERTAIN, *DOUBTFUL)

OTHERS = "*"
"""Key for all columns that are not named."""

GapWords = Mapping[str, tuple[str, ...]]
"""Column to the words that are gaps in it; `OTHERS` stands for all other columns."""


def check_gaps(given: Any) -> GapWords | None:
    """Validate words for gaps: a list for all columns, a mapping from column to list, or None if none are given."""
    if given is None:
        return None
    told = given if isinstance(given, Mapping) else {OTHERS: given}
    found = {}
    for name, words in told.items():
        own = [words] if isinstance(words, str) else list(words) if isinstance(words, Iterable) else [None]
        if any(isinstance(word, bool) or not isinstance(word, str | int | float) for word in own):
            raise TableError(f"expected gaps as a list of words, such as ['NA', '?'], got {words!r}")
        found[str(name)] = tuple(str(word).strip() for word in own)
    return found


def parse_gaps(given: Sequence[str]) -> GapWords | None:
    """Parse --gaps: `NA,?` applies to all columns, `country=NA` or `country=` to one.

    Examples
    --------
    >>> parse_gaps(["NA,-999", "country="])
    {'*': ('NA', '-999'), 'country': ()}
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, equals, words = text.rpartition("=")
        split = next(csv.reader([words], skipinitialspace=True), [])
        column = name.strip() if equals else OTHERS
        found[column] = (*found.get(column, ()), *(word.strip() for word in split if word.strip()))
    return found or None


def words_of(told: GapWords | None, party: str, name: str) -> tuple[str, ...] | None:
    """Return the words given for one column; None if none were given."""
    for key in (f"{party}.{name}", name, OTHERS):
        if told is not None and key in told:
            return told[key]
    return None


def unknown_columns(told: GapWords | None, known: Sequence[str], what: str) -> list[str]:
    """Return an error message for each column that has words for gaps but is in no table."""
    found = [unknown(name, known, f"{what}: column") for name in told or () if name != OTHERS]
    return [text for text in found if text is not None]
