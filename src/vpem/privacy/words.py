"""Real numbers as integers modulo a power of two, in which masks cancel to the bit.

A number x stands as round(x / 2^exponent) in words of 4, 8 or 16 bytes. Sums of words are exact, in any order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Words = NDArray[Any]
"""(n,) of uint32 or uint64; (n, 2) of uint64, the low half first, for 16 bytes."""

WIDE = 16
WIDE_EXPONENT = -64


class Format(NamedTuple):
    """How numbers are written."""

    n_bytes: int
    """Of a word."""
    exponent: int
    """Of the unit, a power of two."""

    def limit(self, n_terms: int) -> float:
        """Size up to which each of so many terms may be, for their sum to be in range."""
        bits = 8 * self.n_bytes - 2 + self.exponent - math.ceil(math.log2(max(n_terms, 1)))
        return math.ldexp(1.0, bits)


WHOLE = Format(WIDE, WIDE_EXPONENT)
"""A unit of 2^-64, and room up to 2^62: for sums of which nothing is known before."""


def encode(values: Array, form: Format) -> Words:
    """Words of numbers that are within the limit."""
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
    """Numbers of words, with a sign; inverse of `encode` within its range."""
    if form.n_bytes < WIDE:
        signed = words.view(np.int32 if form.n_bytes == 4 else np.int64)
        return np.ldexp(signed.astype(np.float64), form.exponent)
    is_negative = words[:, 1] >> np.uint64(63) != 0
    sizes = _with_signs(words, is_negative).astype(np.float64)
    found = np.ldexp(sizes[:, 1] + np.ldexp(sizes[:, 0], -64), form.exponent - WIDE_EXPONENT)
    return np.where(is_negative, -found, found)


def _with_signs(words: Words, is_negative: NDArray[np.bool_]) -> Words:
    """Words of 16 bytes, some of them with the other sign."""
    return np.where(is_negative[:, None], subtract(np.zeros_like(words), words), words)


def zeros(n: int, form: Format) -> Words:
    """Words of nothing."""
    if form.n_bytes == WIDE:
        return np.zeros((n, 2), dtype=np.uint64)
    return np.zeros(n, dtype=np.uint32 if form.n_bytes == 4 else np.uint64)


def read(content: NDArray[np.uint8], form: Format) -> Words:
    """Words of their bytes, little-endian."""
    kind = "<u4" if form.n_bytes == 4 else "<u8"
    found = np.frombuffer(content.tobytes(), kind).astype(kind[1:], copy=False)
    return found.reshape(-1, 2) if form.n_bytes == WIDE else found


def write(words: Words) -> bytes:
    """Bytes of words, little-endian."""
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
