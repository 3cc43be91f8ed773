"""Convert columns of Arrow tables to numbers or ids, or return the fault that prevents it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Array = NDArray[np.float64]

A_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(inf|infinity|Inf|INF|Infinity)$"
MONTHS = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATES = re.compile(
    r"\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})([T ].*)?"
    r"|\d{1,2}:\d{2}(:\d{2}.*)?( ?[AaPp][Mm])?"
    rf"|(\d{{1,2}}[ .-]+)?{MONTHS}[ .-]+(\d{{1,2}},? )?\d{{2,4}}( .*)?",
    re.IGNORECASE,
)
FEW_WORDS = 50
"""Maximum number of distinct words in a column of categories; above it, the column is free text."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Reason why a column cannot be read as numbers."""

    kind: str
    """Identifier of the fault, shared by columns with the same fault."""
    text: str
    row: int | None = None
    """First row with the fault, counted from 0."""
    may_be_id: bool = False
    is_ignorable: bool = True
    remedy: str = ""


def is_text(kind: Any) -> bool:
    """True for Arrow's string types."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def to_arrow(values: Any) -> Any:
    """Convert the values of a column to an Arrow array; NaN and NaT become null."""
    array = values if isinstance(values, pa.ChunkedArray | pa.Array) else pa.array(values, from_pandas=True)
    if not (pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type)):
        return array
    # Arrow cannot decode the categories of polars by a cast.
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    decoded = [chunk.dictionary.cast(pa.string()).take(chunk.indices) for chunk in chunks]
    return pa.chunked_array(decoded, pa.string())


def to_numbers(column: Any) -> Array | Fault:
    """Convert a pyarrow.ChunkedArray to float64, with NaN for missing values, or return a fault."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_null(kind) or (column.null_count == len(column) and len(column)):
        return Fault(kind="empty", text="has no value at all")
    if pa.types.is_temporal(kind):
        row = _first(pc.is_valid(column))
        return Fault(kind="date", row=row, text=f"expected a number or nothing, got a date or time, {column[row]}")
    if is_text(kind):
        return _from_texts(column.cast(pa.string()))
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        return Fault(kind=str(kind), text=f"expected a number or nothing, got values of type {kind}")
    return _finite(column)


def _finite(column: Any) -> Array | Fault:
    values = np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    infinite = np.isinf(values)
    if infinite.any():
        many = f" in {infinite.sum():,} rows" if infinite.sum() > 1 else ""
        text = f"expected a finite number, got infinity{many}"
        return Fault(kind="infinite", row=int(infinite.argmax()), text=text, remedy="leave infinite values empty")
    if np.isnan(values).all():
        return Fault(kind="empty", text="has no value at all")
    return values


def _from_texts(column: Any) -> Array | Fault:
    texts = pc.utf8_trim_whitespace(column)
    if texts.null_count == len(texts):
        return Fault(kind="empty", text="has no value at all")
    wrong = pc.invert(pc.match_substring_regex(texts, A_NUMBER))
    if not pc.any(wrong).as_py():
        return _finite(texts.cast(pa.float64()))
    return _no_numbers(texts, pc.fill_null(wrong, False))


def _no_numbers(texts: Any, wrong: Any) -> Fault:
    """Return the fault of a column of texts: dates, some invalid values, names, words or free text."""
    row = _first(wrong)
    value = texts[row].as_py()
    shown = value if len(value) <= 40 else f"{value[:40]}..."
    n_values, n_wrong = len(texts) - texts.null_count, pc.sum(wrong).as_py()
    expected = f"expected a number or nothing, got {shown!r}"
    if dates := _dates_of(texts, value):
        return Fault(kind="date", row=row, text=f"{expected}, {dates}")
    if 2 * n_wrong < n_values:
        remedy = "correct or empty single values that are no numbers; if all are codes, say that it is categorical"
        return Fault(
            kind="some", row=row, remedy=remedy, text=f"{expected}; {n_wrong:,} of {n_values:,} values are no numbers"
        )
    n_different = pc.count_distinct(texts, mode="only_valid").as_py()
    if n_different == n_values and n_values > 1:
        return Fault(kind="names", row=row, text=f"{expected}: words, all of them different", may_be_id=True)
    if n_different <= FEW_WORDS:
        return Fault(kind="words", row=row, text=f"{expected}: {_how_many(n_different)}")
    return Fault(kind="texts", row=row, text=f"{expected}: free text")


def _dates_of(texts: Any, first: str) -> str:
    """Describe the dates among texts if the first text that is not a number is a date, or most texts are; else ""."""
    if DATES.fullmatch(first):
        return "a date or time"
    different = pc.unique(texts.drop_null())[:FEW_WORDS].to_pylist()
    dates = [text for text in different if DATES.fullmatch(text)]
    return f"among dates or times, such as {dates[0]!r}" if 2 * len(dates) > len(different) else ""


def _how_many(n_different: int) -> str:
    return "always the same word" if n_different == 1 else f"words, {n_different} different ones"


def counts_rows(values: Array) -> bool:
    """True if the values are 0, 1, 2, ... or 1, 2, 3, ...: an index, as pandas and R write it."""
    return len(values) > 0 and values[0] in (0, 1) and bool((values == values[0] + np.arange(len(values))).all())


def to_texts(column: Any, *, are_ids: bool = True) -> list[str | None] | str:
    """Convert the values of a column to text, None for missing values; return the type's name if that fails.

    Whole numbers are written without a fraction. With `are_ids`, so are texts: `7.0` and `7` are the same id.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        whole = column.cast(pa.int64(), safe=False)
        nan_free = pc.if_else(pc.is_nan(column), None, column)
        if pc.all(pc.equal(whole.cast(column.type), nan_free)).as_py():
            column = pc.if_else(pc.is_valid(nan_free), whole, None)
    try:
        texts = column.cast(pa.string())
    except pa.ArrowException:
        return str(column.type)
    texts = pc.utf8_trim_whitespace(texts)
    if are_ids and pc.all(pc.match_substring_regex(texts, r"^[+-]?\d+\.0+$")).as_py():
        texts = pc.replace_substring_regex(texts, r"\.0+$", "")
    found: list[str | None] = texts.to_pylist()
    return found


def _first(mask: Any) -> int:
    return int(pc.index(mask, True).as_py())
