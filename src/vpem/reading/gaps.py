"""Replace words that stand for gaps in columns of text files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vpem.reading.category_parsing import true_or_false
from vpem.reading.column_parsing import A_NUMBER
from vpem.reading.gap_words import CERTAIN, DOUBTFUL
from vpem.words import as_names

NUMBER_LIKE = (
    r"^[+-]?[€$£¥]?\s*[+-]?[\d.,' ]*\d[\d.,' ]*([eE][+-]?\d+)?\s*[%€$£¥]?$"
    r"|^\d{1,4}[-/.]\d{1,2}([-/.]\d{2,4}|[-/.]\d{1,2}[T ].*)?$|^\d{1,2}:\d{2}(:\d{2}.*)?$"
)
"""Numbers with or without units, dates and times."""


@dataclass(frozen=True, eq=False)
class Cleaned:
    """A column without the words that stand for gaps."""

    column: Any
    """pyarrow.ChunkedArray with null for gaps."""
    gaps: dict[str, int] = field(default_factory=dict)
    """Number of gaps by word."""
    kept: dict[str, int] = field(default_factory=dict)
    """Number of values by doubtful word that was kept as a category."""


def clean(
    column: Any, words: tuple[str, ...] | None, *, decimal: str = ".", as_text: bool = False, has_words: bool = False
) -> Cleaned:
    """Replace words that stand for gaps by nulls.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        Column of a text file; empty cells are null.
    words : tuple of str or None
        Words that the user listed as gaps; None to decide by the other values of the column.
    decimal : str
        Decimal mark.
    as_text : bool
        True to keep numbers as texts.
    has_words : bool
        True if the column is known to have words; doubtful words are then not gaps.
    """
    if not pa.types.is_string(column.type):
        return _clean_numbers(column, words)
    texts = pc.utf8_trim_whitespace(column)
    gaps = _count(texts, CERTAIN if words is None else words)
    plain, kept = _without(texts, ["", *gaps]), dict[str, int]()
    if words is None and (doubtful := _count(plain, DOUBTFUL)):
        others = _without(plain, list(doubtful))
        if not has_words and _are_numbers(others):
            plain, gaps = others, {**gaps, **doubtful}
        else:
            kept = doubtful
    if plain.null_count == column.null_count:
        return Cleaned(column, kept=kept)
    numbers = None if as_text else _numbers(plain, decimal)
    if numbers is None:
        return Cleaned(plain, gaps, kept)
    found = _clean_numbers(numbers, words)
    return Cleaned(found.column, {**gaps, **found.gaps}, kept)


def tell_words(found: Mapping[str, Mapping[str, int]]) -> str:
    """Describe each word with its columns and counts, from the counts by column and word.

    Examples
    --------
    >>> tell_words({"age": {"NA": 3}, "income": {"NA": 12, "-": 1}})
    "'NA' in age (3), income (12); '-' in income (1)"
    """
    words = dict.fromkeys(word for own in found.values() for word in own)
    places = {word: [f"{name} ({own[word]:,})" for name, own in found.items() if word in own] for word in words}
    return "; ".join(f"{word!r} in {as_names(own)}" for word, own in places.items())


def _clean_numbers(column: Any, words: tuple[str, ...] | None) -> Cleaned:
    """Replace gaps in a numeric column: NaN, and words that are numbers, such as -999."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return Cleaned(column)
    gaps: dict[str, int] = {}
    if pa.types.is_floating(column.type):
        n_nans = int(pc.sum(pc.is_nan(column)).as_py() or 0)
        gaps = {"NaN": n_nans} if n_nans else {}
    for word in words or ():
        try:
            are = pc.fill_null(pc.equal(column, pa.scalar(float(word))), False)
        except ValueError:
            continue
        if many := int(pc.sum(are).as_py() or 0):
            gaps[word] = many
            column = pc.if_else(are, None, column)
    return Cleaned(column, gaps)


def _count(texts: Any, words: Sequence[str]) -> dict[str, int]:
    """Count the words that occur, in the order of `words`."""
    there = texts.filter(pc.is_in(texts, value_set=pa.array(words, pa.string())))
    found = {one["values"]: one["counts"] for one in pc.value_counts(there).to_pylist()}
    return {word: found[word] for word in words if word in found}


def _without(texts: Any, words: Sequence[str]) -> Any:
    return pc.if_else(pc.is_in(texts, value_set=pa.array(words, pa.string())), None, texts)


def _are_numbers(texts: Any) -> bool:
    """True if at least half of the values look like numbers or dates, or there are no values."""
    n_like = int(pc.sum(pc.match_substring_regex(texts, NUMBER_LIKE)).as_py() or 0)
    return 2 * n_like >= int(pc.count(texts).as_py())


def _numbers(texts: Any, decimal: str) -> Any:
    """Convert texts to booleans or float64 if all values allow it, else return None."""
    if texts.null_count == len(texts):
        return None
    truths = true_or_false(texts)
    if pa.types.is_boolean(truths.type):
        return truths
    plain = pc.replace_substring(texts, ",", ".") if decimal == "," else texts
    if decimal == "," and pc.any(pc.match_substring(texts, ".")).as_py():
        return None
    return plain.cast(pa.float64()) if pc.all(pc.match_substring_regex(plain, A_NUMBER)).as_py() else None
