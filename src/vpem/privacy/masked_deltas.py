"""Changes of log-ratios, quantized to integers of one unit that all parties know, with error feedback.

The unit is a power of two, 2^-8 of the median change in the last total, and at most 2^-5 / N nats. A party's number
has 24 bits: 16 around the unit, and 8 to spare for rows that change much more than others. With the bits that a sum
of N parties needs, that is a word of 4 bytes up to 256 parties, and a word of 8 bytes beyond.

No total overflows, so no epoch has to end for want of a larger unit: each of N numbers is clipped to 2^23 - 1, and
their sum is at most N (2^23 - 1) < 2^(23 + ceil(log2 N)), which fits a signed word of 24 + ceil(log2 N) bits. The
clipped remainder is sent with the next sum, which is wide: words of 8 bytes with a unit of 2^-24. (A larger unit in 4
bytes would round the changes of all other rows to zero, and EM would seem to have converged.) If a value does not fit
a wide sum, the next sum has a larger unit. Terms beyond 2^100 are clipped to 2^100, which bounds the unit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.memo import Memo
from vpem.core.network.parties import Network
from vpem.core.network.quantization import DECIDED, compress, decompress, mean_level
from vpem.core.network.sums import NO_MEMORY, Memory

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

KEPT = ("sent", "total", "exponent", "present", "blurs")
"""Names in the carry: what the party itself has sent, and, shared by all, the total, unit, present rows and blurs."""
MOST = 2**23 - 1
"""Largest number of one party in a sum that is not wide."""
BELOW = 8
"""Bits by which the unit is smaller than the median change."""
FINER = 4
"""Bits by which the unit shrinks after a sum without changes."""
SMALLEST, COARSEST = -80, -5
"""Smallest exponent of a unit, and largest exponent of the sum of N parties' units."""
WIDE_EXPONENT, WIDER, WIDEST_EXPONENT = -24, 16, 60
"""Exponent of the unit of a wide sum, its increase if a value does not fit the wide sum, and its maximum."""
FAR = 2.0**100
"""Largest term of a party; differences of such terms fit a word with the largest unit."""
N_BLURS = 3
"""Number of sums whose blurs are kept: those of the last two changes of the likelihood, and the current one."""


def word_bytes(network: Network, carry: Memory = NO_MEMORY) -> int:
    """Bytes of a word that can hold the sum of all parties' numbers."""
    return 4 if 24 + _bits(len(network.hubs)) <= 32 and not is_wide(carry) else 8


def is_wide(carry: Memory) -> bool:
    """True if the next sum is wide, because a relevant change did not fit the last one."""
    return "blurs" in carry and math.isinf(carry["blurs"][-1])


def most(carry: Memory, n_blocks: int) -> int:
    """Largest number of one party in the next sum."""
    return int(2 ** (62 - _bits(n_blocks))) if is_wide(carry) else MOST


def blur(n_blocks: int, exponent: int) -> float:
    """Bound on the rounding error of a log-ratio of the total: half a unit for each block."""
    return math.ldexp(n_blocks, exponent - 1)


def find(terms: Array, carry: Memory, n_blocks: int, memo: Memo | None = None) -> tuple[Integers, Array, Array]:
    """Quantize the changes of a party's terms since the last sum.

    Returns
    -------
    numbers : array of shape (n_rows * (n_components - 1),)
    sent : array of shape (n_rows, n_components)
        Everything that the party has sent, including these numbers.
    extra : array of shape (2,)
        Sum of the terms of the reference components, and number of relevant entries that did not fit.
    """
    total, sent, unit = carry["total"], carry["sent"], math.ldexp(1.0, int(carry["exponent"][0]))
    references, others, least = _frame(memo, total)
    terms = np.clip(terms, -FAR, FAR)
    own = np.take_along_axis(terms, references, axis=1)
    change = np.take_along_axis(terms, others, axis=1) - own
    change -= np.take_along_axis(sent, others, axis=1) - np.take_along_axis(sent, references, axis=1)
    largest = most(carry, n_blocks)
    numbers = np.clip(np.rint(change / unit), -largest, largest)
    moved = numbers * unit
    n_clipped = np.count_nonzero(np.abs(change - moved) > np.maximum(least, unit))
    after = sent.copy()
    np.put_along_axis(after, others, np.take_along_axis(sent, others, axis=1) + moved, axis=1)
    return numbers.astype(np.int64).ravel(), after, np.array([own.sum(), float(n_clipped)])


def take(
    numbers: Integers,
    level: float,
    clipped: float,
    scalars: Array,
    carry: Memory,
    n_blocks: int,
    memo: Memo | None = None,
) -> tuple[Array, ...]:
    """Return the sum, the new total, the exponent of the next unit, the present rows and the blurs."""
    before, exponent = carry["total"], int(carry["exponent"][0])
    references, others, _ = _frame(memo, before)
    moved = np.ldexp(numbers.astype(np.float64), exponent).reshape(others.shape)
    total = before.copy()
    np.put_along_axis(total, others, np.take_along_axis(before, others, axis=1) + moved, axis=1)
    following = next_exponent(before, total, n_blocks, exponent, memo)
    latest = blur(n_blocks, exponent)
    if clipped > 0:
        wider = min(exponent + WIDER, WIDEST_EXPONENT) if is_wide(carry) else WIDE_EXPONENT
        following, latest = np.array([float(wider)]), math.inf
    blurs = np.append(carry.get("blurs", np.zeros(N_BLURS))[1:], latest)
    present = carry["present"]
    is_there = present.astype(bool)
    mean = mean_level(level, int(is_there.sum()))
    values = total - np.take_along_axis(total, references, axis=1)
    values += mean or np.finfo(float).tiny  # zeros would mean that the row is absent
    values[~is_there] = 0.0
    return np.append(values.T, scalars), total, following, present, blurs


def next_exponent(
    before: Array, after: Array, n_blocks: int, last: int | None = None, memo: Memo | None = None
) -> Array:
    """Exponent of the next unit, (1,), from the change of the total in components close to the leading one."""
    references, others, least = _frame(memo, after)

    def ratios(values: Array) -> Array:
        return np.take_along_axis(values, others, axis=1) - np.take_along_axis(values, references, axis=1)

    sizes = np.abs(ratios(after) - ratios(before))[least <= 0.0]
    sizes = sizes[sizes > 0]
    found = -BELOW if last is None else last - FINER
    if len(sizes):
        found = math.frexp(float(np.median(sizes)))[1] - BELOW
    return np.array([float(max(min(found, COARSEST - _bits(n_blocks)), SMALLEST))])


def known_exponent(largest: float, n_blocks: int) -> Array:
    """Exponent of the unit of later sums of a series, (1,), from the largest number of its first sum.

    Words have 8 bytes, with room for numbers 64 times as large.
    """
    bits = math.frexp(largest)[1] + 6 + _bits(n_blocks)
    return np.array([float(max(bits - 62, -1000))])


def pack(numbers: NDArray[Any]) -> bytes:
    """Compress integers byte plane by byte plane, the lowest first; the high planes are nearly constant."""
    turned = (numbers.astype(np.int64) << 1) ^ (numbers.astype(np.int64) >> 63)  # zigzag: small values of both signs
    kind = "<u4" if numbers.dtype.itemsize == 4 else "<u8"
    planes = turned.astype(np.uint64).astype(kind).view(np.uint8).reshape(len(numbers), int(kind[2])).T
    return compress(np.ascontiguousarray(planes).ravel())


def unpack(content: bytes, n_numbers: int, n_bytes: int) -> Integers:
    """Inverse of `pack`; raise ValueError if the bytes are invalid."""
    planes = decompress(content, n_numbers * n_bytes).reshape(n_bytes, n_numbers)
    kind = "<u4" if n_bytes == 4 else "<u8"
    turned = np.ascontiguousarray(planes.T).view(kind).ravel().astype(np.int64)
    return (turned >> 1) ^ -(turned & 1)


def _bits(n_blocks: int) -> int:
    """Bits that a sum of N numbers needs in addition to those of one."""
    return math.ceil(math.log2(max(n_blocks, 2)))


def _frame(memo: Memo | None, total: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Return the leading component of each row, (n_rows, 1), the others, and their smallest relevant changes."""

    def find_them() -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        references = total.argmax(axis=1)[:, None]
        others = np.arange(max(total.shape[1] - 1, 0))[None, :]
        others = others + (others >= references)
        behind = np.take_along_axis(total, references, axis=1) - np.take_along_axis(total, others, axis=1)
        return references, others, np.maximum((behind - DECIDED) / 4.0, 0.0)

    references, others, least = (memo or Memo()).once(f"frame {total.shape}", [total], find_them)
    return references, others, least
