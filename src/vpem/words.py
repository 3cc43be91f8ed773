"""Formatting of numbers and lists for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST_NAMES = 8
"""Largest number of names in a line."""

OWN_UNITS = "the columns in their own units"
SCALED = "columns that each party has divided by their deviations; vpem assemble gives that of the columns themselves"
"""Descriptions of the columns to which a log-likelihood refers."""


def short_number(number: float) -> str:
    """Format a number with three digits, with an exponent only if it is very small or very large.

    Examples
    --------
    >>> [short_number(number) for number in (0, 0.01234, -1.5, 12.345, 123456.7, 1.2e9)]
    ['0', '0.0123', '-1.50', '12.3', '123,457', '1.2e+09']
    """
    size = abs(number)
    if not size or not math.isfinite(size):
        return f"{number:g}"
    if not 1e-3 <= size < 1e7:
        return f"{number:.1e}"
    return f"{number:,.{max(0, 2 - math.floor(math.log10(size)))}f}"


def as_count(number: int, one: str, many: str = "") -> str:
    """Format a count with its noun, as "1 round" or "2 rounds"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def as_names(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Join names with commas, and count those beyond the first `most`.

    Examples
    --------
    >>> as_names(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    left = len(names) - most
    return ", ".join(names) if left <= 0 else f"{', '.join(names[:most])} and {left:,} more"


def as_bytes(number: float) -> str:
    """Format a number of bytes, as "12 bytes" or "3.4 MB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def as_time(seconds: float) -> str:
    """Format a duration, as "12 ms", "3.4 s" or "5.6 min".

    Examples
    --------
    >>> [as_time(seconds) for seconds in (0, 0.0123, 3.4, 336, 7200, 200_000)]
    ['0 ms', '12 ms', '3.4 s', '5.6 min', '2.0 h', '2.3 days']
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    for unit, size, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86_400:,.1f} days"
