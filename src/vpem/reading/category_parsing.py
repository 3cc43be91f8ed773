"""Encode words as codes: the index of each row's word among the column's categories in alphabetical order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vpem.reading.column_parsing import Fault, to_numbers, to_texts

Array = NDArray[np.float64]

MOST_CATEGORIES = 4096
"""Maximum number of distinct words in an encoded column."""

CODABLE = ("words", "texts")
"""Kinds of faults of columns that can be encoded as categories."""

SAYABLE = (*CODABLE, "some", "names", "date")
"""Kinds of faults of columns that can be encoded if the user declares them categorical."""

A_NAME = r"^[+-]?0\d|^\+|\.\d*0$|\.$|[eE]|\d{16}"
"""Texts that change when parsed as a number and written back: 01, +1, 1.10, 1., 1E3, or 16 digits and more."""

BESIDE_GAPS = r"^-?(0|[1-9]\d{0,14})\.0$"
"""Whole numbers, as programs write them in a column with gaps: 7.0."""


class Coded(NamedTuple):
    """One column as numbers."""

    values: Array
    """Shape (n_rows,); NaN for missing values."""
    words: list[str] | None = None
    """Words with the codes 0, 1, ...; None for a numeric column."""
    read_as: str = ""
    """%, a currency or the part of a date if the column is written so, else ""."""
    note: str = ""
    """Note for the user on how the column was read; empty for plain values."""


class Said(NamedTuple):
    """Encode words in every column; used before a fit."""

    categories: frozenset[str] | None = frozenset()
    """Columns or parties that the user declared categorical, even if they look like numbers; None: all."""


Codes = bool | frozenset[str] | Said
"""True to encode words; or the names of the columns that have words in a fit, where all others are numeric."""


def in_fit(codes: Codes, party: str, name: str) -> bool | None:
    """True if a column has words in the fit; None before a fit."""
    return bool(codes & {name, f"{party}.{name}"}) if isinstance(codes, frozenset) else None


def is_said(codes: Codes, party: str, name: str) -> bool:
    """True if the user declared a column categorical."""
    if not isinstance(codes, Said):
        return False
    return codes.categories is None or bool(codes.categories & {name, party, f"{party}.{name}"})


def has_texts(codes: Codes, party: str, name: str) -> bool:
    """True if the values of a column are compared as texts, so that 01 is not 1."""
    return in_fit(codes, party, name) is True or is_said(codes, party, name)


def to_codes(column: Any, *, has_words: bool | None = None, said: bool = False) -> Coded | Fault:
    """Return the numbers of a column or the codes of its words, or a fault.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    has_words : bool, optional
        True if a fit has words in this column. The checks for a whole table are then skipped, because there may be
        few rows. None before a fit.
    said : bool
        True if the user declared the column categorical. Its values may then look like numbers, ids or free text.
    """
    if pa.types.is_boolean(column.type) and (has_words is not None or column.null_count < len(column)):
        return Coded(np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64), ["false", "true"])
    if has_words and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        has_words = False  # sampled rows hold codes
    fault = Fault(kind="kinds", text="expected words, got values of another kind")
    if not has_words:
        found = to_numbers(column)
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
    plain = pa.array(texts, pa.string())
    words = sorted(word for word in pc.unique(plain).to_pylist() if word is not None)
    if not words:
        return Coded(np.full(len(column), np.nan))
    if len(words) > MOST_CATEGORIES:
        return fault
    codes = pc.index_in(plain, value_set=pa.array(words, pa.string()))
    return Coded(np.array(codes.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64), words)


def _has_names(column: Any) -> bool:
    """True if a column has texts that look like numbers but are names, such as 01."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return False
    texts = pc.utf8_trim_whitespace(pc.unique(column.cast(pa.string())))
    texts = texts.filter(pc.invert(pc.is_null(texts)))
    if pc.all(pc.match_substring_regex(texts, BESIDE_GAPS)).as_py():
        return False
    return bool(pc.any(pc.match_substring_regex(texts, A_NAME)).as_py())


def true_or_false(column: Any) -> Any:
    """Convert texts to booleans if all are true or false; return other columns unchanged."""
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(column))
    are = pc.is_in(texts, value_set=pa.array(["true", "false", None], pa.string()))
    return pc.equal(texts, "true") if pc.all(are).as_py() and column.null_count < len(column) else column
