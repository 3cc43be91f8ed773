"""Numbers that dates can be converted to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vpem.reading.problems import TableError

PARTS = {
    "days": "{} days since 1970-01-01",
    "weekday": "weekday {} (0 is Monday, 6 is Sunday)",
    "hour": "hour {}",
}
"""Part of a date to the format of an example."""

FAMILIES = {"days": "gaussian", "weekday": "angles:7", "hour": "angles:24"}
"""Part of a date to the family of its numbers."""

ORDERS = ("dmy", "mdy")
"""Orders of day and month in texts with the year last."""


def is_part(text: str) -> bool:
    """True if a text names a part of a date, such as `days` or `hour:dmy`."""
    part, colon, order = text.partition(":")
    return part in PARTS and (order in ORDERS or not colon)


def check_dates(given: Any) -> dict[str, str]:
    """Return the part of each column of dates, by name; raise TableError for an unknown part."""
    if not isinstance(given, Mapping):
        raise TableError(f"expected dates as a dict, such as {{'visited': 'days'}}, got {given!r}")
    wrong = {str(name): text for name, text in given.items() if not is_part(str(text))}
    if wrong:
        shown = ", ".join(f"{text!r} for {name!r}" for name, text in wrong.items())
        raise TableError(
            f"expected dates to become days, weekday or hour, with :dmy or :mdy behind it if day and month can be "
            f"mistaken, got {shown}"
        )
    return {str(name): str(text) for name, text in given.items()}


def dates_of(read_as: Mapping[str, str]) -> dict[str, str]:
    """Select the columns of dates from the columns that were not written as plain numbers."""
    return {name: text for name, text in read_as.items() if is_part(text)}


def part_families(dates: Mapping[str, str]) -> dict[str, str]:
    """Return the families of columns of dates, by name."""
    return {name: FAMILIES[text.partition(":")[0]] for name, text in dates.items()}
