"""Numbers with thousands separators, a currency or a percent sign."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vpem.reading.column_parsing import Fault, is_text

SPACES = " \u00a0\u202f\u2009"
"""Spaces that programs write between thousands or before a unit."""

QUOTES = "'\u2019"
"""Thousands separators used in Switzerland."""

MINUS = "\u2212-"

FIRST = 1000
"""Number of distinct texts checked first; the others are parsed only if more than half of these are numbers."""

CODES = "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HUF|INR|JPY|KRW|MXN|NOK|NZD|PLN|RON|RUB|SEK|SGD|TRY|USD|ZAR"
CURRENCY = rf"[A-Z]{{0,3}}[$€£¥₹₽₩₺₪₫₴₦฿]|{CODES}|kr\.?|zł|Kč|Ft|Fr\.|lei"
AMOUNT = re.compile(
    rf"(?P<sign>[+{MINUS}]?)(?:(?P<before>{CURRENCY})[{SPACES}]*)?(?P<sign_after>[+{MINUS}]?)"
    rf"(?P<number>[\d.,][\d.,{QUOTES}{SPACES}]*?(?:[eE][+-]?\d+)?)[{SPACES}]*(?P<after>%|{CURRENCY})?"
)
GROUPED = {
    ".": re.compile(rf"[1-9]\d{{0,2}}([,{QUOTES}{SPACES}])\d{{3}}(?:\1\d{{3}})*(?:\.\d*)?"),
    ",": re.compile(rf"[1-9]\d{{0,2}}([.{QUOTES}{SPACES}])\d{{3}}(?:\1\d{{3}})*(?:,\d*)?"),
}
UNGROUPED = {
    ".": re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"),
    ",": re.compile(r"(?:\d+,?\d*|,\d+)(?:[eE][+-]?\d+)?"),
}
ONE_WAY = "expected numbers written in one way, got"


class Marks(NamedTuple):
    """Decimal mark of a file, as given and as detected."""

    told: str | None = None
    """Decimal mark that the user gave, or None."""
    found: str = "."
    """Decimal mark that most numbers of the file use."""
    comma_separates: bool = False
    """True if commas separate the values of the file; a quoted 1,5 may then be a list of two numbers."""


class Amounts(NamedTuple):
    """A column of texts that has a single interpretation as numbers."""

    column: Any
    """pyarrow.ChunkedArray of float64."""
    unit: str
    """%, a currency, or ""."""
    note: str
    """Description of the notation with an example; empty for plain numbers."""


class _Parts(NamedTuple):
    """Sign, number and unit of one text."""

    is_negative: bool
    number: str
    unit: str
    decimals: frozenset[str]
    """Decimal marks under which the number can be parsed; not empty."""


def read_amounts(column: Any, marks: Marks) -> Amounts | Fault | None:
    """Parse texts as numbers if they all have the same unit and a single interpretation.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    marks : Marks
        Decimal mark of the file.

    Returns
    -------
    Amounts, Fault or None
        None for other texts and for plain numbers with decimal points; a fault for ambiguous numbers.
    """
    if not is_text(column.type):
        return None
    coded = pc.utf8_trim_whitespace(column.cast(pa.string())).combine_chunks().dictionary_encode()
    texts = [text for text in coded.dictionary.to_pylist() if text]
    if not _are_mostly_numbers(texts):
        return None
    parts = {text: _divide(text) for text in texts}

    def row_of(text: str) -> int:
        return int(pc.index(coded.indices, coded.dictionary.index(pa.scalar(text, coded.dictionary.type))).as_py())

    read = {text: own for text, own in parts.items() if own is not None}
    is_plain = marks.found == "." and not any(own.unit or "." not in own.decimals for own in read.values())
    if len(read) == len(parts):
        found = _in_one_way(read, marks, row_of)
        if isinstance(found, Fault):
            return found
        values = np.array([found.values.get(text, np.nan) for text in coded.dictionary.to_pylist()])
        if not found.note and is_plain:
            return None
        taken = pa.array(values, from_pandas=True).take(coded.indices)
        return Amounts(pa.chunked_array([taken]), found.unit, found.note)
    if is_plain and all(UNGROUPED["."].fullmatch(own.number) for own in read.values()):
        return None
    return _some(coded, [text for text in parts if text not in read], row_of)


def refuse_amounts(column: Any) -> Fault | None:
    """Return a fault if the texts of a data frame are amounts, else None."""
    found = read_amounts(column, Marks())
    if not isinstance(found, Amounts):
        return found
    text = f"expected numbers or words, got texts that are amounts; in a file the column {found.note}"
    return Fault(kind="amounts", text=text, remedy="turn such texts into numbers; for categories, say 'categorical'")


class _Reading(NamedTuple):
    values: dict[str, float]
    unit: str
    note: str


def _in_one_way(read: dict[str, _Parts], marks: Marks, row_of: Callable[[str], int]) -> _Reading | Fault:
    """Return the number of each text, or a fault if units or decimal marks are mixed or ambiguous."""
    units: dict[str, str] = {}
    for text, own in read.items():
        units.setdefault(own.unit, text)
    if len(units) > 1:
        seen = " and ".join(map(repr, islice(units.values(), 2)))
        row = max(map(row_of, islice(units.values(), 2)))
        return Fault(kind="units", row=row, text=f"{ONE_WAY} {seen}", remedy="write all values in the same unit")
    unit = next(iter(units))
    decimals = frozenset(".,") if marks.told is None else frozenset(marks.told)
    for text, own in read.items():
        if not decimals & own.decimals:
            other = next((one for one, its in read.items() if not its.decimals & own.decimals), None)
            seen = f"{text!r} with --decimal {marks.told}" if other is None else f"{other!r} and {text!r}"
            return Fault(kind="marks", row=row_of(text), text=f"{ONE_WAY} {seen}", remedy="write one decimal mark")
        decimals &= own.decimals
    with_marks = [text for text, own in read.items() if set(own.number) & set(".,")]
    is_ungrouped = all(UNGROUPED[marks.found].fullmatch(own.number) for own in read.values())
    decimal = marks.found if len(decimals) == 2 else next(iter(decimals))
    is_doubted = len(decimals) == 2 and with_marks and (unit or not is_ungrouped)
    may_be_lists = marks.comma_separates and not unit and marks.told is None and decimal == ","
    if is_doubted or (may_be_lists and all(UNGROUPED[","].fullmatch(own.number) for own in read.values())):
        mark = "comma" if "," in with_marks[0] else "point"
        text = f"{ONE_WAY} {with_marks[0]!r}: is the {mark} a decimal mark?"
        return Fault(kind="doubt", row=row_of(with_marks[0]), text=text)
    values = {text: _value(own, decimal) for text, own in read.items()}
    return _Reading(values, unit, _note(read, values, unit, decimal, marks.found))


def _note(read: dict[str, _Parts], values: dict[str, float], unit: str, decimal: str, found: str) -> str:
    """Describe the notation of the texts with an example; "" for plain numbers."""
    grouped = [text for text, own in read.items() if not UNGROUPED[decimal].fullmatch(own.number)]
    pointed = [text for text, own in read.items() if decimal in own.number]
    if unit == "%":
        what, example = "has percentages", next(iter(read))
    elif unit:
        what, example = f"has amounts in {unit}", (grouped or pointed or list(read))[0]
    elif grouped:
        what, example = "has marks between thousands", grouped[0]
    elif decimal != found and pointed:
        what, example = f"has decimal {'commas' if decimal == ',' else 'points'}", pointed[0]
    else:
        return ""
    return f"{what}: {example!r} is read as {values[example]:.15g}"


def _divide(text: str) -> _Parts | None:
    """Split a text into sign, number and unit; None if it is not a number."""
    found = AMOUNT.fullmatch(text)
    if found is None or (found["before"] and found["after"]) or (found["sign"] and found["sign_after"]):
        return None
    number = found["number"]
    decimals = frozenset(one for one in ".," if GROUPED[one].fullmatch(number) or UNGROUPED[one].fullmatch(number))
    sign = found["sign"] or found["sign_after"]
    unit = found["before"] or found["after"] or ""
    return _Parts(bool(sign) and sign in MINUS, number, unit, decimals) if decimals else None


def _value(parts: _Parts, decimal: str) -> float:
    digits = "".join(
        "." if one == decimal else one for one in parts.number if one.isalnum() or one in (decimal, *"+-")
    )
    value = float(digits) / (100 if parts.unit == "%" else 1)
    return -value if parts.is_negative else value


def _are_mostly_numbers(texts: list[str]) -> bool:
    first = texts[:FIRST]
    return 2 * sum(_divide(text) is not None for text in first) > len(first)


def _some(coded: Any, others: list[str], row_of: Callable[[str], int]) -> Fault:
    """Return the fault for texts among numbers."""
    n_values = len(coded) - coded.null_count
    n_wrong = pc.sum(pc.is_in(coded.dictionary, value_set=pa.array(others)).take(coded.indices)).as_py()
    text = f"expected a number or nothing, got {others[0]!r}; {n_wrong:,} of {n_values:,} values are no numbers"
    remedy = "correct or empty single values that are no numbers; if all are codes, say that it is categorical"
    return Fault(kind="some", row=row_of(others[0]), text=text, remedy=remedy)
