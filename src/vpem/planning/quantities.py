"""Parsing of quantities with units and of ranges: 100Mbit, 20ms, 20..100."""

from __future__ import annotations

import math
import re

PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
BITS = ("bit", "bits", "bps")
BYTES = ("B", "byte", "bytes")
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0}


def parse_bandwidth(text: str) -> float:
    """Return a bandwidth in bytes per second.

    Examples
    --------
    >>> parse_bandwidth("100Mbit"), parse_bandwidth("12.5 MB/s")
    (12500000.0, 12500000.0)
    """
    number, unit = _split(text)
    per_second = unit.removesuffix("/s")
    for prefix, factor in PREFIXES.items():
        rest = per_second.removeprefix(prefix)
        if per_second.startswith(prefix) and rest in (*BITS, *BYTES) and _is_positive(number):
            return number * factor / (8 if rest in BITS else 1)
    raise ValueError(
        f"expected a bandwidth above 0 in bits or bytes a second, as 100Mbit, 1Gbit or 12.5MB/s, got {text!r}"
    )


def parse_latency(text: str) -> float:
    """Return a latency in seconds.

    Examples
    --------
    >>> parse_latency("20ms"), parse_latency("0")
    (0.02, 0.0)
    """
    number, unit = _split(text)
    if number == 0 and not unit:
        return 0.0
    if unit not in SECONDS or not (number == 0 or _is_positive(number)):
        raise ValueError(f"expected a latency with its unit, s, ms or us, as 20ms or 0.5s, got {text!r}")
    return number * SECONDS[unit]


def parse_range(text: str, name: str, least: int = 0) -> tuple[int, int]:
    """Return the two ends of a range, which are equal for a single number.

    Examples
    --------
    >>> parse_range("20..100", "iterations"), parse_range("30", "iterations")
    ((20, 100), (30, 30))
    """
    first, dots, last = text.partition("..")
    try:
        low, high = int(first), int(last if dots else first)
    except ValueError:
        low, high = -1, -1
    if not least <= low <= high:
        raise ValueError(f"expected {name} as 20..100 or as one number, {least} or more, got {text!r}")
    return low, high


def _split(text: str) -> tuple[float, str]:
    """Split a text into a number, NaN if it is missing, and the unit after it."""
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-zµ/]*)\s*", text)
    return (float(found[1]), found[2]) if found else (math.nan, text)


def _is_positive(number: float) -> bool:
    return 0 < number < math.inf
