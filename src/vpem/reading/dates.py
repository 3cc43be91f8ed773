"""Convert dates and times to numbers: days since 1970, day of the week, hour of the day."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vpem.reading.column_parsing import Fault, is_text, to_arrow
from vpem.reading.date_parts import ORDERS, PARTS, check_dates
from vpem.reading.problems import TableError

Array = NDArray[np.float64]

DAY = 86_400_000_000
"""Microseconds of a day."""

TIME = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?"
)
ZONE = r"(?: ?(?:Z|UTC|[+-]\d{2}(?::?\d{2})?))?"
TEXT = re.compile(
    r"(?:(?:(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})"
    r"|(?P<first>\d{1,2})(?P<own_mark>[-/.])(?P<second_part>\d{1,2})(?P=own_mark)(?P<last>\d{4}))"
    rf"(?:(?:T|,? ){TIME}{ZONE})?|{TIME.replace('?P<', '?P<only_')})"
)


class Dated(NamedTuple):
    """A column of dates as numbers."""

    values: Array
    """Shape (n_rows,); NaN for missing values."""
    read_as: str
    """Part of the date, with the order of day and month if texts have the year last; new rows are read with it."""
    note: str
    """Note for the user: an example and its number."""


def date_numbers(values: Any, what: str) -> Array:
    """Convert dates or times to numbers, as `vpem fit --dates` does.

    Parameters
    ----------
    values : column of a data frame, Arrow array or list
        Dates, times, or texts with dates or times. Times with a zone are read as local times of that zone.
    what : {"days", "weekday", "hour"}
        Days since 1970-01-01, with a fraction where there is a time; the day of the week, 0 for Monday; or the hour
        of the day, with a fraction. For texts such as 03/05/2024, "days:dmy" or "days:mdy" gives the order of day
        and month.

    Returns
    -------
    array of shape (n_rows,)
        NaN for missing values.

    Raises
    ------
    TableError
        If the values are not dates, or are ambiguous.

    Examples
    --------
    >>> date_numbers(["2024-05-03 14:30", None], "hour")
    array([14.5,  nan])
    """
    check_dates({"what": what})
    try:
        array = to_arrow(values)
    except (pa.ArrowException, TypeError, ValueError):
        raise TableError("expected dates or times, got values of several kinds") from None
    found = read_dates(array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array]), what)
    if isinstance(found, Fault):
        where = "" if found.row is None else f"row {found.row + 1}: "
        remedy = "; say 'dmy' or 'mdy', as 'days:dmy'" if found.kind == "order" else ""
        raise TableError(f"{where}{found.text}{remedy}")
    return found.values


def read_dates(column: Any, wanted: str) -> Dated | Fault:
    """Convert dates and times to numbers.

    Times with a zone are read as local times of that zone: 14:30+02:00 is hour 14.5.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        Dates, times or texts.
    wanted : str
        "days" (since 1970-01-01; with a fraction if there is a time of day), "weekday" (Monday is 0) or "hour" (with
        a fraction). A suffix ":dmy" or ":mdy" gives the order of day and month where the texts are ambiguous.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    part, _, order = wanted.partition(":")
    if is_text(column.type):
        found = _from_texts(column, order)
        if isinstance(found, Fault):
            return found
        moments, clocks, order, example = found
    elif pa.types.is_temporal(column.type) and not pa.types.is_duration(column.type):
        moments, clocks = _from_typed(column)
        example = next((str(value) for value in column if value.is_valid), "")
    else:
        return Fault(kind="no date", text=f"expected dates or times, got values of type {column.type}")
    if not example:
        return Fault(kind="empty", text="has no value at all")
    if part == "hour" and np.isnan(clocks).all():
        return Fault(kind="no date", text=f"expected times of day for 'hour', got dates alone, such as {example!r}")
    if part != "hour" and np.isnan(moments[~np.isnan(clocks)]).any():
        text = f"expected dates for {part!r}, got times alone, such as {example!r}; try 'hour'"
        return Fault(kind="no date", text=text)
    values = _numbers(moments, clocks, part)
    first = float(values[~np.isnan(values)][0])
    note = f"has dates or times: {example!r} is read as {PARTS[part].format(f'{first:.10g}')}"
    return Dated(values, f"{part}:{order}" if order else part, note)


def _numbers(moments: Array, clocks: Array, part: str) -> Array:
    if part == "hour":  # programs write midnight as a date without a time
        return np.where(np.isnan(clocks) & ~np.isnan(moments), 0.0, clocks) / (DAY / 24)
    days = np.floor(moments / DAY)
    return (days + 3) % 7 if part == "weekday" else moments / DAY  # 1970-01-01 was a Thursday


def _from_typed(column: Any) -> tuple[Array, Array]:
    """Return microseconds since 1970 and since midnight; NaN without a date or without a time."""
    kind = column.type
    if pa.types.is_time(kind):
        clocks = _floats(column.cast(pa.time64("us"), safe=False).cast(pa.int64()))
        return np.full(len(column), np.nan), clocks
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = pc.local_timestamp(column)
    moments = _floats(column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()))
    clocks = np.mod(moments, DAY)
    return moments, clocks if pa.types.is_timestamp(kind) else np.full(len(column), np.nan)


def _floats(column: Any) -> Array:
    return np.array(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _from_texts(column: Any, told: str) -> tuple[Array, Array, str, str] | Fault:
    """Parse texts; return microseconds since 1970 and since midnight, the order of day and month, and the first text.

    The order is "" if no text has the year last.
    """
    coded = pc.utf8_trim_whitespace(column.cast(pa.string())).combine_chunks().dictionary_encode()
    texts = coded.dictionary.to_pylist()
    found = {text: TEXT.fullmatch(text) for text in texts if text}

    def fault(kind: str, text: str, message: str, remedy: str = "") -> Fault:
        row = pc.index(coded.indices, coded.dictionary.index(pa.scalar(text, coded.dictionary.type))).as_py()
        return Fault(kind=kind, row=int(row), text=message, remedy=remedy)

    orders = set(ORDERS) if not told else {told}
    parsed: dict[str, dict[str, tuple[float, float]]] = {}
    for text, match in found.items():
        own = {} if match is None else _readings(match)
        if not own:
            message = f"expected a date as 2024-12-31 or 31.12.2024, or a time as 14:30, got {text!r}"
            return fault("no date", text, message)
        parsed[text] = own
        if set(own) <= set(ORDERS):
            if not orders & set(own):
                message = f"expected dates written in one way, got {text!r} where others have {_spoken(orders)}"
                return fault("no date", text, message)
            orders &= set(own)
    last = [text for text, own in parsed.items() if set(own) <= set(ORDERS)]
    unlike = [text for text in last if len(set(parsed[text].values())) > 1]
    if len(orders) > 1 and unlike:
        message = f"expected dates that can be read in one way, got {unlike[0]!r}: which is the month?"
        return fault("order", unlike[0], message)
    order = sorted(orders)[0]
    pairs = [
        parsed[text].get(order, parsed[text].get("", (0, 0))) if text in parsed else (np.nan, np.nan)
        for text in texts
    ]
    every = np.array([*pairs, (np.nan, np.nan)])
    places = np.where(coded.indices.is_null(), -1, coded.indices.fill_null(0).to_numpy())
    moments, clocks = every[places].T
    return moments, clocks, order if last else "", next(iter(parsed), "")


def _spoken(orders: set[str]) -> str:
    return " or ".join({"dmy": "day, month, year", "mdy": "month, day, year"}[one] for one in sorted(orders))


def _readings(match: re.Match[str]) -> dict[str, tuple[float, float]]:
    """Return microseconds since 1970 and since midnight, by order of day and month; "" if only one order exists."""
    part = match.groupdict()
    if part["only_hour"] is not None:
        clock = _clock({name: part[f"only_{name}"] for name in ("hour", "minute", "second", "fraction", "half")})
        return {} if clock is None else {"": (np.nan, clock)}
    clock = np.nan if part["hour"] is None else _clock(part)
    if clock is None:
        return {}
    if part["year"] is not None:
        dates = {"": (part["year"], part["month"], part["day"])}
    else:
        one, other, last = part["first"], part["second_part"], part["last"]
        dates = {"dmy": (last, other, one), "mdy": (last, one, other)}
        if part["own_mark"] == ".":
            del dates["mdy"]
    found = {}
    for order, numbers in dates.items():
        try:
            year, month, day = map(int, numbers)
            n_days = date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()
        except ValueError:
            continue
        found[order] = (n_days * DAY + (0 if np.isnan(clock) else clock), clock)
    return found


def _clock(part: Mapping[str, str | None]) -> float | None:
    """Return microseconds since midnight; None for an invalid time."""
    hour, minute, second = (int(part[name] or 0) for name in ("hour", "minute", "second"))
    if part["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if part["half"] in "pP" else 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return (hour * 3600 + minute * 60 + second) * 1e6 + float(f"0.{part['fraction'] or 0}") * 1e6
