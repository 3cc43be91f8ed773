"""Changes of log-ratios as integers of one unit, which all parties know; what does not fit goes with the next sum.

The unit is a power of two, 2^-8 of the median change that the last total has shown. A party's number has 24 bits: 16
around the unit, and 8 to spare for rows that move much more than others. With the bits that a sum of N parties needs,
that is a word of 4 bytes up to 256 parties, and one of 8 beyond.

No total leaves its range, so that no epoch has to end with a larger unit: each of N numbers is clipped to 2^23 - 1,
and their sum is at most N (2^23 - 1) < 2^(23 + ceil(log2 N)), which a signed word of 24 + ceil(log2 N) bits holds.
What was clipped goes with the next sum, whose unit is larger.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.coding import DECIDED, compress, decompress
from vpem.core.network.differences import MOST_LEVEL
from vpem.core.network.parties import Network
from vpem.core.network.sharing import once
from vpem.core.network.summation import Memory

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

KEPT = ("sent", "total", "exponent", "present")
"""What a sum leaves for the next: to the party alone; and to all, the total, the unit and which rows there are."""
MOST = 2**23 - 1
"""Largest number of one party."""
BELOW = 8
"""Bits of the median change that a unit leaves."""
GROWTH = 4
"""Bits by which a unit grows after a sum in which something that matters did not fit."""
SMALLEST, LARGEST = -80, 60
"""Exponents of units."""


def word_bytes(network: Network) -> int:
    """Bytes of a word: the sum of all parties' numbers fits."""
    return 4 if 24 + math.ceil(math.log2(max(len(network.hubs), 2))) <= 32 else 8


def find(terms: Array, carry: Memory) -> tuple[Integers, Array, Array]:
    """A party's numbers, (n_rows * (n_components - 1),), and what it has sent then, (n_rows, n_components).

    Beside them, (2,): the sum of the references' terms, and how many entries that matter did not fit.
    """
    total, sent, unit = carry["total"], carry["sent"], math.ldexp(1.0, int(carry["exponent"][0]))
    references, others, least = _frame(total)
    own = np.take_along_axis(terms, references, axis=1)
    change = np.take_along_axis(terms, others, axis=1) - own
    change -= np.take_along_axis(sent, others, axis=1) - np.take_along_axis(sent, references, axis=1)
    numbers = np.clip(np.rint(change / unit), -MOST, MOST)
    moved = numbers * unit
    n_clipped = np.count_nonzero(np.abs(change - moved) > np.maximum(least, unit))
    after = sent.copy()
    np.put_along_axis(after, others, np.take_along_axis(sent, others, axis=1) + moved, axis=1)
    return numbers.astype(np.int64).ravel(), after, np.array([own.sum(), float(n_clipped)])


def take(numbers: Integers, level: float, clipped: float, scalars: Array, carry: Memory) -> tuple[Array, ...]:
    """What a total of numbers brings: the sum, the total, the next unit, and which rows there are."""
    before, exponent = carry["total"], int(carry["exponent"][0])
    references, others, _ = _frame(before)
    moved = np.ldexp(numbers.astype(np.float64), exponent).reshape(others.shape)
    total = before.copy()
    np.put_along_axis(total, others, np.take_along_axis(before, others, axis=1) + moved, axis=1)
    following = next_exponent(before, total, exponent)
    if clipped > 0:
        following = np.maximum(following, min(exponent + GROWTH, LARGEST))
    present = carry["present"]
    is_there = present.astype(bool)
    mean = min(max(level / max(1, int(is_there.sum())), -MOST_LEVEL), MOST_LEVEL)
    values = total - np.take_along_axis(total, references, axis=1)
    values += mean or np.finfo(float).tiny  # zeros would mean that there is no such row
    values[~is_there] = 0.0
    return np.append(values.T, scalars), total, following, present


def next_exponent(before: Array, after: Array, last: int | None = None) -> Array:
    """Exponent of the next sum's unit, (1,), from the change of the total in components that are not far behind."""
    references, others, least = _frame(after)

    def ratios(values: Array) -> Array:
        return np.take_along_axis(values, others, axis=1) - np.take_along_axis(values, references, axis=1)

    sizes = np.abs(ratios(after) - ratios(before))[least <= 0.0]
    sizes = sizes[sizes > 0]
    if len(sizes):
        found = math.frexp(float(np.median(sizes)))[1] - BELOW
    else:
        found = -BELOW if last is None else last - GROWTH
    return np.array([float(min(max(found, SMALLEST), LARGEST))])


def known_exponent(largest: float, n_blocks: int) -> Array:
    """Exponent of the unit of later sums of a series, of 8 bytes, when the first has shown how large they are; (1,).

    There is room for numbers that are 64 times as large.
    """
    bits = math.frexp(largest)[1] + 6 + math.ceil(math.log2(max(n_blocks, 2)))
    return np.array([float(max(bits - 62, -1000))])


def pack(numbers: NDArray[Any]) -> bytes:
    """Compressed bytes of numbers: the lowest of all, then the next; the high ones are nearly always the same."""
    turned = (numbers.astype(np.int64) << 1) ^ (numbers.astype(np.int64) >> 63)  # the sign last: small ones are small
    kind = "<u4" if numbers.dtype.itemsize == 4 else "<u8"
    planes = turned.astype(np.uint64).astype(kind).view(np.uint8).reshape(len(numbers), int(kind[2])).T
    return compress(np.ascontiguousarray(planes).ravel())


def unpack(content: bytes, n_numbers: int, n_bytes: int) -> Integers:
    """Inverse of `pack`; ValueError if these are no such bytes."""
    planes = decompress(content, n_numbers * n_bytes).reshape(n_bytes, n_numbers)
    kind = "<u4" if n_bytes == 4 else "<u8"
    turned = np.ascontiguousarray(planes.T).view(kind).ravel().astype(np.int64)
    return (turned >> 1) ^ -(turned & 1)


def _frame(total: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """The leading component of each row, (n_rows, 1), the others, and by how much they must change to matter."""

    def find_them() -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        references = total.argmax(axis=1)[:, None]
        others = np.arange(max(total.shape[1] - 1, 0))[None, :]
        others = others + (others >= references)
        behind = np.take_along_axis(total, references, axis=1) - np.take_along_axis(total, others, axis=1)
        return references, others, np.maximum((behind - DECIDED) / 4.0, 0.0)

    references, others, least = once(f"frame {total.shape}", [total], find_them)
    return references, others, least
