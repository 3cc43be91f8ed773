"""Changes of numbers in one byte each: a sign, an exponent and two bits of what comes after it; and silence.

Rounding is relative, so that what is left of a number shrinks eightfold or more whenever it is sent, at every scale.
The exponents of one message are counted from its largest. Zero means that nothing is said. As most bytes are zeros,
they are compressed (zstandard); a receiver knows their number before it makes room for them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vpem.core.compiling import PRECISE, compiled

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]

DECIDED = 25.0
"""Nats by which a component must be behind for its share of a row not to matter."""
LARGEST = 2.0**30
"""Log-ratios beyond it count as it."""
LEVEL = 1
"""Of zstandard: the fastest; higher ones take much more time for few bytes less."""
SHIFT, ROUNDING, BIAS = 50, 1 << 49, 1022
"""Where the exponent of a float ends, and two bits after it; what rounds them; what is added to an exponent."""
UNSIGNED = (1 << 63) - 1
"""All bits of a float but its sign."""
PLACES = 31
"""Exponents of one message."""
SCALE = np.dtype("<i2")
"""The largest exponent of a message, before its codes."""


@compiled(PRECISE)
def find_thresholds(total, least, thresholds):  # type: ignore[no-untyped-def]
    """How much each log-ratio must change to matter; total, thresholds (n_rows, n_ratios).

    At least `least`; in a row that is decided by a wide margin, a quarter of what is beyond that.
    """
    n_rows, n_ratios = total.shape
    for m in range(n_rows):
        best, second, winner = 0.0, -np.inf, -1  # the reference's ratio is 0
        for j in range(n_ratios):
            if total[m, j] > best:
                best, second, winner = total[m, j], best, j
            elif total[m, j] > second:
                second = total[m, j]
        for j in range(n_ratios):
            gap = best - (second if j == winner else total[m, j])
            thresholds[m, j] = max(least, (gap - DECIDED) / 4.0)


@compiled(PRECISE)
def find_changes(terms, below, sent, thresholds, reference, share, changes):  # type: ignore[no-untyped-def]
    """Changes of log-ratios that matter, rounded, 0 for others; returns the largest.

    terms (n_rows, n_components) and below (n_rows, n_ratios), or without rows; sent, thresholds like below. changes
    (n_rows, n_ratios) are whole numbers: the exponent and two bits of a float, with a sign.
    """
    n_rows, n_ratios = sent.shape
    has_term, has_below, largest = terms.shape[0] > 0, below.shape[0] > 0, 0
    change = np.empty(1)
    bits = change.view(np.int64)
    for m in range(n_rows):
        for j in range(n_ratios):
            value = below[m, j] if has_below else 0.0
            if has_term:
                value += terms[m, j + (j >= reference)] - terms[m, reference]
            value = min(max(value, -LARGEST), LARGEST) - sent[m, j]
            change[0] = value
            code = ((bits[0] & UNSIGNED) + ROUNDING) >> SHIFT
            if abs(value) < share * thresholds[m, j]:
                code = 0
            largest = max(largest, code)
            changes[m, j] = -code if value < 0.0 else code
    return largest


@compiled(PRECISE)
def encode(changes, scale, codes):  # type: ignore[no-untyped-def]
    """Codes (n,), bytes, of changes (n,) as `find_changes` has them; the largest has the exponent `scale`."""
    least = (scale + BIAS - PLACES) << 2
    for i in range(changes.shape[0]):
        size = max(abs(changes[i]) - least, 0)
        code = size if size > 3 else 0
        codes[i] = code + 128 if changes[i] < 0 and code > 0 else code


@compiled(PRECISE)
def add_decoded(codes, scale, memory, out):  # type: ignore[no-untyped-def]
    """What codes (n,) stand for, added to memory (n,), as out (n,); out may be memory."""
    table = np.zeros(256)
    for code in range(4, 128):
        table[code] = math.ldexp((4.0 + (code & 3)) / 8.0, (code >> 2) - PLACES + scale)
        table[code + 128] = -table[code]
    for i in range(codes.shape[0]):
        out[i] = memory[i] + table[codes[i]]


@compiled(PRECISE)
def mean_change(before, after):  # type: ignore[no-untyped-def]
    """Mean size of the changes of log-ratios, (n_rows, n_ratios) each, in rows that are not decided."""
    n_rows, n_ratios = after.shape
    size, count = 0.0, 0
    for m in range(n_rows):
        best, second = 0.0, -np.inf
        for j in range(n_ratios):
            if after[m, j] > best:
                best, second = after[m, j], best
            elif after[m, j] > second:
                second = after[m, j]
        if best - second < DECIDED:
            for j in range(n_ratios):
                if best - after[m, j] < DECIDED:
                    size += abs(after[m, j] - before[m, j])
                    count += 1
    return size / count if count else 0.0


def exponent_of(largest: int) -> int:
    """Scale of a message whose largest change is this one; 0 if there is none."""
    return (int(largest) >> 2) - BIAS if largest > 0 else 0


def compress(plain: bytes) -> bytes:
    """Smaller bytes, of which the length of the plain ones can be read."""
    import zstandard

    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress(plain)


def decompress(code: bytes, n_bytes: int) -> bytes:
    """The plain bytes; ValueError if they are not so many, before there is room for them."""
    import zstandard

    try:
        found = zstandard.frame_content_size(code)
        if found != n_bytes:
            raise ValueError(f"expected {n_bytes} bytes, got {found}")
        plain: bytes = zstandard.ZstdDecompressor(max_window_size=2**27).decompress(code, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"expected compressed bytes, got others ({error})") from None
    if len(plain) != n_bytes:
        raise ValueError(f"expected {n_bytes} bytes, got {len(plain)}")
    return plain


def most_compressed(n_bytes: int) -> int:
    """Bytes that so many plain ones can become at most."""
    return n_bytes + n_bytes // 128 + 1024
