"""Find ids that a join does not match because two tables spell them differently."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from vpem.overlap import NearIds
from vpem.reading.taking import Part, spell

BETWEEN = "\x1f"
"""Separator of the parts of an id."""

STEPS = (
    (r"[\s_/-]+", "|"),
    (r"(^|[^\d])\|", r"\1"),
    (r"\|([^\d]|$)", r"\1"),
    (r"\.0+($|\x1f)", r"\1"),
    (r"(^|[^\d])0+(\d)", r"\1\2"),
)
"""Replacements, applied in this order, that map different spellings of an id to the same text."""

DIFFERENCES: dict[str, Callable[[str], str]] = {
    "leading zeros": lambda text: re.sub(r"(^|\D)0+(\d)", r"\1\2", text),
    "upper and lower case": str.casefold,
    "spaces": lambda text: re.sub(r"\s+", "", text),
    "a fraction of .0": lambda text: re.sub(r"\.0+$", "", text),
    "dashes": lambda text: re.sub(r"[\s_/-]+", "", text),
}


class Near(NamedTuple):
    """Ids of one party that another party spells differently, with the first pair as an example."""

    ids: NearIds
    own: str
    other: str

    @property
    def note(self) -> str:
        """Note for a user with access to both tables."""
        rows = "id is" if self.ids.count == 1 else "ids are"
        return (
            f"{self.ids.count:,} {rows} in {self.ids.other} in another spelling, such as {self.own!r}, which "
            f"is {self.other!r} there: they differ in {self.ids.difference}, and are not matched"
        )


def find_near(parts: Sequence[Part]) -> list[Near]:
    """Find ids that another party has in a different spelling only.

    Spellings that two ids of the same party share are ignored.
    """
    count = Counter(key for part in parts for key in part.keys or ())
    if all(times > 1 for times in count.values()):
        return []
    forms = [_forms(part) for part in parts]
    found: list[Near] = []
    for place, part in enumerate(parts):
        alone = [(form, key) for form, key in forms[place].items() if count[key] == 1]
        others = [number for number in range(len(parts)) if number != place]
        mates = [(key, mate) for form, key in alone if (mate := _mate(form, forms, others)) is not None]
        if not mates:
            continue
        key, number = mates[0]
        other = parts[number].party
        if any((one.ids.party, one.ids.other) == (other, part.party) for one in found):
            continue
        own, its = spell(key), spell(forms[number][next(form for form, one in alone if one == key)])
        ids = NearIds(party=part.party, other=other, count=len(mates), difference=_difference(own, its))
        found.append(Near(ids, own, its))
    return found


def _mate(form: str, forms: Sequence[dict[str, tuple[str, ...]]], others: Sequence[int]) -> int | None:
    return next((number for number in others if form in forms[number]), None)


def _forms(part: Part) -> dict[str, tuple[str, ...]]:
    """Return a party's ids by normalized spelling, without ids whose normalized spellings are equal."""
    keys = part.keys or []
    plain = (unicodedata.normalize("NFKC", BETWEEN.join(key)).casefold() for key in keys)
    texts: Any = pa.array(list(plain), pa.string())
    for pattern, replacement in STEPS:
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    found = texts.to_pylist()
    count = Counter(found)
    return {form: key for form, key in zip(found, keys, strict=True) if count[form] == 1}


def _difference(one: str, other: str) -> str:
    for name, without in DIFFERENCES.items():
        if without(one) == without(other):
            return name
    return "their spelling"
