"""Normalization of row ids to bytes, so that every party encodes the same id as the same bytes.

A study chooses one of the rules. `text` is for names and codes, `number` for numbers that may have leading zeros,
`exact` for ids that differ only in letter case or in blanks.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

RULES = {
    "text": "no blanks around, one blank within, one case, one Unicode form; 1, 1.0 and '1' are the same",
    "number": "whole numbers; '01', ' 1 ' and 1.0 are 1",
    "exact": "as it is written; 1 and '1' are '1', '01' and 'a' and 'A' are others",
}
"""Rules of normalization, by name, with the ids that each treats as equal."""


class IdError(ValueError):
    """Ids that cannot be matched."""


class Ids(NamedTuple):
    """A party's ids, row by row."""

    spelled: list[bytes]
    notes: tuple[str, ...]
    """Readable notes about the changes made to the ids."""


def spell(keys: Sequence[tuple[Any, ...]], rule: str = "text") -> Ids:
    """Normalize ids to bytes.

    Parameters
    ----------
    keys : sequence of tuples
        One or several values for each row.
    rule : str, default="text"
        One of `RULES`.

    Raises
    ------
    IdError
        If ids are empty or occur twice (with counts), or are not numbers under the rule `number`.
    """
    if rule not in RULES:
        raise IdError(f"expected a rule for ids out of {', '.join(RULES)}, got {rule!r}")
    parts = [tuple(_written(part) for part in key) for key in keys]
    empty = [row for row, key in enumerate(parts) if any(not part.strip() for part in key)]
    if empty:
        raise IdError(f"expected an id in every row, got {len(empty):,} rows without one (first: row {empty[0] + 1})")
    spelled = [tuple(_SPELLERS[rule](part) for part in key) for key in parts]
    found = [b"".join(len(raw := part.encode()).to_bytes(4, "big") + raw for part in key) for key in spelled]
    twice = [name for name, count in Counter(found).items() if count > 1]
    if twice:
        n_rows = sum(1 for name in found if name in set(twice))
        row = next(place for place, name in enumerate(found) if name in set(twice))
        raise IdError(
            f"expected every id once, got {len(twice):,} ids in {n_rows:,} rows after spelling by the rule {rule!r} "
            f"({RULES[rule]}); first: row {row + 1}"
        )
    n_changed = sum(one != other for one, other in zip(parts, spelled, strict=True))
    notes = (f"{n_changed:,} of {len(parts):,} ids are spelled otherwise for matching ({RULES[rule]})",)
    return Ids(found, notes if n_changed else ())


def _written(part: Any) -> str:
    """Convert a value to text; a missing value gives an empty string."""
    if part is None or part != part:
        return ""
    if isinstance(part, bool):
        return str(part)
    if isinstance(part, float) and part.is_integer():
        return str(int(part))
    return str(part.item() if hasattr(part, "item") else part)


def _text(part: str) -> str:
    text = unicodedata.normalize("NFKC", " ".join(part.split())).casefold()
    text = unicodedata.normalize("NFKC", text)
    whole, point, rest = text.partition(".")
    return whole if point and whole.lstrip("+-").isdecimal() and rest and not rest.strip("0") else text


def _number(part: str) -> str:
    try:
        text = _text(part)
        return str(int(text))
    except ValueError:
        raise IdError(f"expected whole numbers as ids by the rule 'number', got {part!r}; try 'text'") from None


_SPELLERS: dict[str, Callable[[str], str]] = {"text": _text, "number": _number, "exact": lambda part: part}
