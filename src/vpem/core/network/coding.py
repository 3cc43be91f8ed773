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
SCALE = np.dtype("<i2")
"""The largest exponent of a message, before its codes."""


@compiled(PRECISE)
def find_changes(terms, below, sent, total, reference, least, share, changes):  # type: ignore[no-untyped-def]
    """Changes of log-ratios that are worth sending, 0 for others; returns the largest size.

    terms (n_rows, n_components) and below (n_rows, n_components - 1), or without rows; sent, total and
    changes like below.
    An entry is silent while its change is smaller than `share` of what it takes to matter: `least` or, in a row
    that is decided by a wide margin, a quarter of the margin.
    """
    n_rows, n_ratios = sent.shape
    has_term, has_below, largest = terms.shape[0] > 0, below.shape[0] > 0, 0.0
    for m in range(n_rows):
        best, second, winner = 0.0, -np.inf, -1  # the reference's ratio is 0
        for j in range(n_ratios):
            if total[m, j] > best:
                best, second, winner = total[m, j], best, j
            elif total[m, j] > second:
                second = total[m, j]
        for j in range(n_ratios):
            value = below[m, j] if has_below else 0.0
            if has_term:
                value += terms[m, j + (j >= reference)] - terms[m, reference]
            value = min(max(value, -LARGEST), LARGEST)
            gap = best - (second if j == winner else total[m, j])
            threshold = share * max(least, (gap - DECIDED) / 4.0)
            change = value - sent[m, j]
            size = abs(change)
            if size < threshold:
                changes[m, j] = 0.0
            else:
                changes[m, j] = change
                largest = max(largest, size)
    return largest


@compiled(PRECISE)
def encode(changes, scale, codes):  # type: ignore[no-untyped-def]
    """Codes (n,), bytes, of changes (n,); the largest has the exponent `scale`."""
    for i in range(changes.shape[0]):
        size = abs(changes[i])
        code = 0
        if size > 0.0:
            mantissa, exponent = math.frexp(size)
            quarters = int(mantissa * 8.0 + 0.5) - 4  # size is (4 + quarters) / 8 times a power of two
            if quarters == 4:
                quarters = 0
                exponent += 1
            place = exponent - scale + 31
            if place > 31:
                place, quarters = 31, 3
            if place > 0:
                code = (place << 2) | quarters
                if changes[i] < 0.0:
                    code |= 128
        codes[i] = code


@compiled(PRECISE)
def add_decoded(codes, scale, memory, out):  # type: ignore[no-untyped-def]
    """What codes (n,) stand for, added to memory (n,), as out (n,); out may be memory."""
    table = np.zeros(256)
    for code in range(4, 128):
        table[code] = math.ldexp((4.0 + (code & 3)) / 8.0, (code >> 2) - 31 + scale)
        table[code + 128] = -table[code]
    for i in range(codes.shape[0]):
        out[i] = memory[i] + table[codes[i]]


@compiled(PRECISE)
def move_total(codes, scale, total, out):  # type: ignore[no-untyped-def]
    """`add_decoded` of (n_rows, n_ratios); returns the mean size of changes in rows that are not decided."""
    n_rows, n_ratios = total.shape
    size, count = 0.0, 0
    add_decoded(codes, scale, total.ravel(), out.ravel())
    for m in range(n_rows):
        best, second = 0.0, -np.inf
        for j in range(n_ratios):
            if out[m, j] > best:
                best, second = out[m, j], best
            elif out[m, j] > second:
                second = out[m, j]
        if best - second < DECIDED:
            for j in range(n_ratios):
                if best - out[m, j] < DECIDED:
                    size += abs(out[m, j] - total[m, j])
                    count += 1
    return size / count if count else 0.0


def exponent_of(largest: float) -> int:
    """Scale of a message whose largest change is this one; 0 if there is none."""
    return math.frexp(largest)[1] if largest > 0 else 0


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
