"""Words as codes: the categories of a column, in alphabetical order, and the number of each row's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vpem.reading.columns import Fault, to_numbers, to_texts
from vpem.reading.dialect import MISSING

Array = NDArray[np.float64]

MOST_CATEGORIES = 4096
"""Different words that can be coded."""

CODABLE = ("words", "texts")
"""Faults of columns of words that are still categories."""

SAYABLE = (*CODABLE, "some", "names", "marks", "date")
"""The same, if the user says so."""

A_NAME = r"^[+-]?0\d|^\+|\.\d*0$|\.$|[eE]|\d{16}"
"""A text from which a number would lose something: 01, +1, 1.10, 1., 1E3, or more digits than a number has."""

BESIDE_GAPS = r"^-?(0|[1-9]\d{0,14})\.0$"
"""Whole numbers, as programs write them if the column has gaps."""


class Coded(NamedTuple):
    """One column as numbers."""

    values: Array
    """(n_rows,); NaN where missing."""
    words: list[str] | None = None
    """What the numbers 0, 1, ... stand for; None: they are numbers."""


class Said(NamedTuple):
    """Words are coded, wherever they are; before a fit."""

    categories: frozenset[str] | None = frozenset()
    """Columns, or parties, that are categories because the user says so, though they look like numbers; None: all."""


Codes = bool | frozenset[str] | Said
"""Whether words are coded; or names of the columns in which a fit has words, and others have numbers."""


def in_fit(codes: Codes, party: str, name: str) -> bool | None:
    """Whether a fit has words in a column; None if there is no fit yet."""
    return bool(codes & {name, f"{party}.{name}"}) if isinstance(codes, frozenset) else None


def is_said(codes: Codes, party: str, name: str) -> bool:
    """Whether the user says that a column is categories."""
    if not isinstance(codes, Said):
        return False
    return codes.categories is None or bool(codes.categories & {name, party, f"{party}.{name}"})


def has_texts(codes: Codes, party: str, name: str) -> bool:
    """Whether the texts of a column's values count, as they are in a file: 01 is not 1."""
    return in_fit(codes, party, name) is True or is_said(codes, party, name)


def to_codes(
    column: Any, *, may_have_commas: bool = False, has_words: bool | None = None, said: bool = False
) -> Coded | Fault:
    """Numbers of a column, or codes of its words; or why it has neither.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    may_have_commas : bool
        See `to_numbers`.
    has_words : bool, optional
        Whether a fit has words in this column: then few rows need not look like a whole table. None: no fit yet.
    said : bool
        Whether the user says that these are categories: then they may look like numbers, ids or free text.
    """
    if pa.types.is_boolean(column.type) and (has_words is not None or column.null_count < len(column)):
        return Coded(np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64), ["false", "true"])
    if has_words and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        has_words = False  # codes, as samples have them
    fault = Fault(kind="kinds", text="expected words, got values of another kind")
    if not has_words:
        found = to_numbers(column, may_have_commas=may_have_commas)
        if not isinstance(found, Fault):
            if not (said and _has_names(column)):
                return Coded(found)
            found = Fault(kind="words", text="expected words, got numbers")
        if has_words is not None and found.kind == "empty":
            return Coded(np.full(len(column), np.nan))
        if found.kind not in (SAYABLE if said else CODABLE):
            return found
        fault = found
    texts = to_texts(column, are_ids=False)
    if isinstance(texts, str):
        return fault
    plain = pc.if_else(pc.is_in(pa.array(texts, pa.string()), value_set=pa.array(MISSING)), None, pa.array(texts))
    words = sorted(word for word in pc.unique(plain).to_pylist() if word is not None)
    if not words:
        return Coded(np.full(len(column), np.nan))
    if len(words) > MOST_CATEGORIES:
        return fault
    codes = pc.index_in(plain, value_set=pa.array(words, pa.string()))
    return Coded(np.array(codes.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64), words)


def _has_names(column: Any) -> bool:
    """Whether texts that are names, though they are numbers too, are in a column."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return False
    texts = pc.utf8_trim_whitespace(pc.unique(column.cast(pa.string())))
    texts = texts.filter(pc.invert(pc.is_in(texts, value_set=pa.array([*MISSING, None], pa.string()))))
    if pc.all(pc.match_substring_regex(texts, BESIDE_GAPS)).as_py():
        return False
    return bool(pc.any(pc.match_substring_regex(texts, A_NAME)).as_py())


def true_or_false(column: Any) -> Any:
    """A column of texts as truth values if it has no others; as it is, otherwise."""
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(column))
    are = pc.is_in(texts, value_set=pa.array(["true", "false", None], pa.string()))
    return pc.equal(texts, "true") if pc.all(are).as_py() and column.null_count < len(column) else column
