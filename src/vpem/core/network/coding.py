"""Changes of numbers in one byte each: a sign, an exponent and two bits of what comes after it; and silence.

Rounding is relative, so that what is left of a number shrinks eightfold or more whenever it is sent, at every scale.
The exponents of one message are counted from its largest. Zero means that nothing is said. As most bytes are zeros,
they go as bits that tell where others are, and these; both compressed (zstandard): in half the time that the bytes
take as they are, and smaller. A receiver knows their number before it makes room for them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vpem.core import zstd
from vpem.core.compiling import PRECISE, compiled
from vpem.core.network.hubs import Position
from vpem.core.network.summation import Place, WrongMessageError

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]

DECIDED = 25.0
"""Nats by which a component must be behind for its share of a row not to matter."""
LARGEST = 2.0**60
"""Log-ratios beyond it count as it: other parties' would have to be as large to matter."""
LEVEL = 1
"""Of zstandard: the fastest; higher ones take much more time for few bytes less."""
LENGTH = np.dtype("<u4")
"""Of the compressed bits, before them."""
SHIFT, ROUNDING, BIAS = np.uint64(50), np.uint64(1 << 49), 1022
"""Where the exponent of a float ends, and two bits after it; what rounds them; what is added to an exponent."""
UNSIGNED, SIZE = (1 << 13) - 1, np.uint64((1 << 13) - 1)
"""All bits of a change but its sign: the exponent, and two."""
MOST_UNROLLED, LEAST_UNROLLED = 8, 50_000
"""Components up to which, and rows from which on, loops are compiled for the number of components."""
ENOUGH_ROWS, NEXT_ROWS = 100_000, 64
"""For a mean over rows that only has to be about right: about so many, so many of which are next to each other."""
PLACES = 31
"""Exponents of one message."""
SCALE = np.dtype("<i2")
"""The largest exponent of a message, before its codes."""


def steps_for(rows: Array) -> tuple[int, ...]:
    """A zero for each component of rows (n_rows, n_components); none if there are few rows, or many components.

    The length of a tuple is known when a loop over components is compiled: a third faster than a length that is not,
    and a few seconds of compiling for each number of components.
    """
    n_rows, n_components = rows.shape
    return (0,) * n_components if n_components <= MOST_UNROLLED and n_rows >= LEAST_UNROLLED else ()


@compiled(PRECISE)
def find_thresholds(steps, total, least, references, thresholds):  # type: ignore[no-untyped-def]
    """The leading component of each row, and how much the others must change beside it to matter.

    total (n_rows, n_components); references (n_rows,); thresholds (n_rows, n_components - 1), as codes are. A change
    matters from `least` on; of a component that is far behind, from a quarter of what it is behind beyond `DECIDED`.
    steps: see `steps_for`.
    """
    n_rows, n_components = total.shape[0], len(steps) or total.shape[1]
    for m in range(n_rows):
        leader, top = 0, total[m, 0]
        for k in range(1, n_components):
            leader = k if total[m, k] > top else leader
            top = max(top, total[m, k])
        references[m] = leader
        for j in range(n_components - 1):
            k = j + (j >= leader)
            thresholds[m, j] = max(least, (top - total[m, k] - DECIDED) / 4.0)


@compiled(PRECISE)
def find_changes(steps, terms, below, sent, thresholds, references, least, share, changes, moved):  # type: ignore[no-untyped-def]
    """Changes of log-ratios that matter, rounded, 0 for others; the largest, and the sum of the references' terms.

    terms (n_components, n_rows) and below (n_rows, n_components), or None; sent (n_rows, n_components); references
    (n_rows,): against which component each row's ratios are; thresholds (n_rows, n_components - 1). changes (n_rows,
    n_components - 1) are whole numbers: a float's sign, exponent and two bits. A change is sent from `share` of its
    threshold, or of `least`, on. moved (n_rows, n_components): sent, with the changes added. steps: see `steps_for`.
    There are no branches: which component leads, and what is silent, cannot be foreseen.
    """
    n_components = len(steps) or sent.shape[1]
    largest, level = np.uint64(0), 0.0
    for m in range(sent.shape[0]):
        r = np.int64(references[m])
        before = sent[m, r]
        moved[m, r] = before
        term, other = entry(terms, r, m), entry(below, m, r)
        level += term
        for j in range(n_components - 1):
            k = j + (j >= r)
            ratio = (entry(below, m, k) - other) + (entry(terms, k, m) - term)
            here = sent[m, k]
            code, change = round_change(ratio, here - before, share * max(thresholds[m, j], least))
            largest = max(largest, code & SIZE)
            changes[m, j] = code
            moved[m, k] = here + change
    return largest, level


@compiled(PRECISE)
def entry(values, i, j):  # type: ignore[no-untyped-def]
    """Of a table, or 0 if there is none."""
    if values is None:
        return 0.0
    return values[i, j]


@compiled(PRECISE)
def round_change(ratio, sent, least):  # type: ignore[no-untyped-def]
    """The change of a log-ratio, 0 if below `least`: its sign, exponent and two bits; and the rounded number."""
    value = min(max(ratio, -LARGEST), LARGEST) - sent
    value = 0.0 if abs(value) < least else value
    code = (np.float64(value).view(np.uint64) + ROUNDING) >> SHIFT
    return code, np.uint64(code << SHIFT).view(np.float64)


@compiled(PRECISE)
def encode(changes, scale, codes):  # type: ignore[no-untyped-def]
    """Codes (n,), bytes, of changes (n,) as `find_changes` has them; the largest has the exponent `scale`.

    Returns how many changes are so much smaller than the largest that there is no code for them.
    """
    least, n_dropped = (scale + BIAS - PLACES) << 2, 0
    for i in range(changes.shape[0]):
        change = np.int64(changes[i])
        size = change & UNSIGNED
        code = size - least if size > 0 else 0
        code = code if code > 3 else 0
        n_dropped += 1 if code == 0 and size > 0 else 0
        codes[i] = code + 128 if change > size and code > 0 else code
    return n_dropped


@compiled(PRECISE)
def decoding_table(scale):  # type: ignore[no-untyped-def]
    """What each code stands for; (256,)."""
    table = np.zeros(256)
    for code in range(4, 128):
        table[code] = math.ldexp((4.0 + (code & 3)) / 8.0, (code >> 2) - PLACES + scale)
        table[code + 128] = -table[code]
    return table


@compiled(PRECISE)
def add_decoded(steps, codes, scales, references, memory, out):  # type: ignore[no-untyped-def]
    """What codes (n_layers, n_rows * (n_components - 1)) stand for, added to memory, as out, layer by layer.

    scales (n_layers,); memory and out (n_rows, n_components). steps: see `steps_for`.
    """
    n_layers, n_components = codes.shape[0], len(steps) or memory.shape[1]
    tables = np.empty((n_layers, 256))
    for layer in range(n_layers):
        tables[layer] = decoding_table(scales[layer])
    first, firsts = tables[0], codes[0]
    for m in range(memory.shape[0]):
        r, i = np.int64(references[m]), m * (n_components - 1)
        out[m, r] = memory[m, r]
        for j in range(n_components - 1):
            k = j + (j >= r)
            value = memory[m, k] + first[firsts[i + j]]
            for layer in range(1, n_layers):
                value += tables[layer, codes[layer, i + j]]
            out[m, k] = value


@compiled(PRECISE)
def find_sums(total, references, present, level, values):  # type: ignore[no-untyped-def]
    """Log-ratios of the rows that there are, and a level; zeros for other rows.

    total (n_rows, n_components); references and present (n_rows,); values (n_components, n_rows).
    """
    n_rows, n_components = total.shape
    for m in range(n_rows):
        reference, is_there = total[m, references[m]], present[m]
        for k in range(n_components):
            values[k, m] = (total[m, k] - reference) + level if is_there else 0.0


@compiled(PRECISE)
def mean_change(steps, before, after):  # type: ignore[no-untyped-def]
    """Mean size of the changes of log-ratios against each row's leader, of components that are not far behind it.

    before and after (n_rows, n_components), of which some rows will do if there are many; steps: see `steps_for`.
    """
    n_rows, n_components = after.shape[0], len(steps) or after.shape[1]
    size, count = 0.0, 0
    for first in range(0, n_rows, NEXT_ROWS * max(1, n_rows // ENOUGH_ROWS)):
        for m in range(first, min(first + NEXT_ROWS, n_rows)):
            leader, top = 0, after[m, 0]
            for k in range(1, n_components):
                leader = k if after[m, k] > top else leader
                top = max(top, after[m, k])
            for k in range(n_components):
                gap = top - after[m, k]
                change = abs(before[m, leader] - before[m, k] - gap)
                counts = (k != leader) & (gap < DECIDED)
                size += change if counts else 0.0
                count += counts
    return size / count if count else 0.0


def exponent_of(largest: int) -> int:
    """Scale of a message whose largest change is this one; 0 if there is none."""
    return (int(largest) >> 2) - BIAS if largest > 0 else 0


@compiled(PRECISE)
def drop_zeros(plain, others):  # type: ignore[no-untyped-def]
    """Bytes (n,) that are not zero, as others (n + 1,); their number."""
    count = 0
    for i in range(plain.shape[0]):
        others[count] = plain[i]
        count += plain[i] != 0
    return count


@compiled(PRECISE)
def count_ones(bits):  # type: ignore[no-untyped-def]
    """How many of the bits are ones; bits (n,), bytes."""
    count = 0
    for place in range(bits.shape[0]):
        byte = bits[place]
        for i in range(8):
            count += (byte >> i) & 1
    return count


@compiled(PRECISE)
def join_zeros(bits, others, plain):  # type: ignore[no-untyped-def]
    """The bytes (n,) that are zero where bits are, else others; there is one more of these than is used."""
    count = 0
    for i in range(plain.shape[0]):
        is_there = (bits[i >> 3] >> (i & 7)) & 1
        plain[i] = others[count] * is_there
        count += is_there


def compress(plain: Bytes) -> bytes:
    """Smaller bytes."""
    bits, others = np.packbits(plain != 0, bitorder="little"), np.empty(len(plain) + 1, np.uint8)
    others = others[: drop_zeros(plain, others)]
    first, second = (zstd.compress(part.data, LEVEL) for part in (bits, others))
    return np.array([len(first)], LENGTH).tobytes() + first + second


def decompress(code: bytes, n_bytes: int) -> NDArray[np.uint8]:
    """The plain bytes, (n_bytes,); ValueError if they are not so many, before there is room for them."""
    if len(code) < LENGTH.itemsize:
        raise ValueError(f"expected at least {LENGTH.itemsize} bytes, got {len(code)}")
    end = LENGTH.itemsize + int(np.frombuffer(code[: LENGTH.itemsize], LENGTH)[0])
    n_bits = (n_bytes + 7) // 8
    bits = np.frombuffer(zstd.decompress(code[LENGTH.itemsize : end], n_bits, n_bits), np.uint8)
    count = int(count_ones(bits))
    others = np.frombuffer(zstd.decompress(code[end:], min(count, n_bytes), n_bytes) + b"\0", np.uint8)
    if count != len(others) - 1:
        raise ValueError(f"expected {count} bytes that are not zero, got {len(others) - 1}")
    plain = np.empty(n_bytes, np.uint8)
    join_zeros(bits, others, plain)
    return plain


def most_compressed(n_bytes: int) -> int:
    """Bytes that so many plain ones can become at most."""
    return n_bytes + n_bytes // 8 + n_bytes // 128 + 2048


def whole_numbers(place: Place, sender: Position, values: Bytes) -> Array:
    """Numbers of a sum that is sent whole, where others are sent in codes; WrongMessageError if there are too few."""
    if len(values) != 8 * place.shape.n_values:
        raise WrongMessageError(sender, f"expected {8 * place.shape.n_values} bytes, got {len(values)}")
    return np.ascontiguousarray(values).view(np.float64)
