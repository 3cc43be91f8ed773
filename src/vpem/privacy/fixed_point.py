"""Fixed-point encoding of real numbers as integers modulo a power of two, in which masks cancel exactly.

A number x is encoded as round(x / 2^exponent) in a word of 4, 8 or 16 bytes. Sums of words are exact, in any order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Words = NDArray[Any]
"""Shape (n,), uint32 or uint64, for words of 4 or 8 bytes; (n, 2), uint64, the low half first, for 16 bytes."""

WIDE = 16
WIDE_EXPONENT = -64


class Format(NamedTuple):
    """Format of encoded numbers."""

    n_bytes: int
    """Bytes of a word."""
    exponent: int
    """Exponent of the unit, a power of two."""

    def limit(self, n_terms: int) -> float:
        """Largest size of each of `n_terms` terms for which their sum stays in range."""
        bits = 8 * self.n_bytes - 2 + self.exponent - math.ceil(math.log2(max(n_terms, 1)))
        return math.ldexp(1.0, bits)


WHOLE = Format(WIDE, WIDE_EXPONENT)
"""Format with a unit of 2^-64 and a range up to 2^62, for sums of unknown size."""


def encode(values: Array, form: Format) -> Words:
    """Encode numbers within the limit as words."""
    if form.n_bytes < WIDE:
        whole = np.rint(np.ldexp(values, -form.exponent)).astype(np.int64)
        return whole.astype(np.uint32) if form.n_bytes == 4 else whole.view(np.uint64)
    sizes = np.ldexp(np.abs(values), WIDE_EXPONENT - form.exponent)
    high = np.floor(sizes)
    found = np.empty((len(values), 2), dtype=np.uint64)
    found[:, 0] = np.ldexp(sizes - high, 64)
    found[:, 1] = high
    return _with_signs(found, values < 0)


def decode(words: Words, form: Format) -> Array:
    """Decode words as signed numbers; inverse of `encode` within its range."""
    if form.n_bytes < WIDE:
        signed = words.view(np.int32 if form.n_bytes == 4 else np.int64)
        return np.ldexp(signed.astype(np.float64), form.exponent)
    is_negative = words[:, 1] >> np.uint64(63) != 0
    sizes = _with_signs(words, is_negative).astype(np.float64)
    found = np.ldexp(sizes[:, 1] + np.ldexp(sizes[:, 0], -64), form.exponent - WIDE_EXPONENT)
    return np.where(is_negative, -found, found)


def _with_signs(words: Words, is_negative: NDArray[np.bool_]) -> Words:
    """Return words of 16 bytes, negated where `is_negative`."""
    return np.where(is_negative[:, None], subtract(np.zeros_like(words), words), words)


def zeros(n: int, form: Format) -> Words:
    """Return `n` zero words."""
    if form.n_bytes == WIDE:
        return np.zeros((n, 2), dtype=np.uint64)
    return np.zeros(n, dtype=np.uint32 if form.n_bytes == 4 else np.uint64)


def read(content: NDArray[np.uint8], form: Format) -> Words:
    """Read words from little-endian bytes."""
    kind = "<u4" if form.n_bytes == 4 else "<u8"
    found = np.frombuffer(content.tobytes(), kind).astype(kind[1:], copy=False)
    return found.reshape(-1, 2) if form.n_bytes == WIDE else found


def write(words: Words) -> bytes:
    """Return words as little-endian bytes."""
    return words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes()


def add(one: Words, other: Words) -> Words:
    """Sum of words, modulo their range."""
    found = one + other
    if one.ndim == 2:
        found[:, 1] += found[:, 0] < one[:, 0]
    return found


def subtract(one: Words, other: Words) -> Words:
    """Difference of words, modulo their range."""
    found = one - other
    if one.ndim == 2:
        found[:, 1] -= one[:, 0] < other[:, 0]
    return found
