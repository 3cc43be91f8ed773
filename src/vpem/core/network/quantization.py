"""Quantization of changes to one byte each: a sign, an exponent and two bits of the mantissa.

Rounding is relative: whenever a number is sent, its remaining error shrinks eightfold or more, at every scale. The
exponents of one message are relative to its largest one. Zero stands for an entry that is not sent. As most bytes are
zeros, a message contains a bit for each byte (1 if it is not zero) and the bytes that are not zero, both compressed
(zstandard). This takes half the time of compressing the bytes themselves, and the result is smaller. A receiver knows
the number of bytes before it allocates memory for them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vpem.core import zstd
from vpem.core.compiling import PRECISE, compiled
from vpem.core.network.hubs import Position
from vpem.core.network.sums import Place, WrongMessageError

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]

DECIDED = 25.0
"""Nats by which a component must be behind the leader for its responsibility to be negligible."""
LARGEST = 2.0**60
"""Bound to which log-ratios are clipped: beyond it, those of other parties would have to be as large to matter."""
LEVEL = 1
"""Compression level of zstandard: the fastest. Higher levels take much more time and save few bytes."""
LENGTH = np.dtype("<u4")
"""Type of the length of the compressed bits, which precedes them."""
SHIFT, ROUNDING, BIAS = np.uint64(50), np.uint64(1 << 49), 1022
"""Bits of a float below its exponent and the first two of its mantissa; half a unit of these; offset of exponents."""
UNSIGNED, SIZE = (1 << 13) - 1, np.uint64((1 << 13) - 1)
"""Mask of all bits of a change except its sign: the exponent and two bits of the mantissa."""
MOST_UNROLLED, LEAST_UNROLLED = 8, 50_000
"""Maximum components and minimum rows for loops that are compiled for a given number of components."""
ENOUGH_ROWS, NEXT_ROWS = 100_000, 64
"""Approximate number of rows in a mean that may be approximate, and number of consecutive rows in each group."""
PLACES = 31
"""Number of different exponents in one message."""
MOST_SILENT = 0.1
"""Maximum threshold of a change in nats, where the row is not decided."""
ROUNDING_ERROR = 1e-12
"""Nats below which a change is due to rounding."""
MOST_LEVEL = 2.0**20
"""Bound on the mean log-density that is added to ratios: a larger one would cost digits of the ratios."""
SCALE = np.dtype("<i2")
"""Type of the largest exponent of a message, which precedes its codes."""


def steps_for(rows: Array) -> tuple[int, ...]:
    """Return a zero for each component of rows (n_rows, n_components); () for few rows or many components.

    The length of a tuple is a constant when a loop over components is compiled. Such a loop is a third faster, and is
    compiled in a few seconds for each number of components.
    """
    n_rows, n_components = rows.shape
    return (0,) * n_components if n_components <= MOST_UNROLLED and n_rows >= LEAST_UNROLLED else ()


@compiled(PRECISE)
def find_thresholds(steps, total, least, references, thresholds):  # type: ignore[no-untyped-def]
    """Find the leading component of each row, and the smallest changes of the other components that are sent.

    total (n_rows, n_components); references (n_rows,); thresholds (n_rows, n_components - 1), in the order of codes.
    The threshold is `least` or, for a component that is far behind the leader, a quarter of the distance beyond
    `DECIDED`. steps: see `steps_for`.
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
    """Round the changes of log-ratios, 0 below a threshold; return the largest and the sum of the references' terms.

    terms (n_components, n_rows) and below (n_rows, n_components), or None; sent (n_rows, n_components); references
    (n_rows,): component in the denominator of each row's ratios; thresholds (n_rows, n_components - 1). changes
    (n_rows, n_components - 1) are integers: the sign, the exponent and two bits of the mantissa of a float. A change
    is sent if it is at least `share` times the larger of its threshold and `least`. moved (n_rows, n_components):
    sent plus the rounded changes. steps: see `steps_for`. The loop has no branches, because the leader and the
    entries that are not sent are unpredictable.
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
    """Return an entry of a table, or 0 if the table is None."""
    if values is None:
        return 0.0
    return values[i, j]


@compiled(PRECISE)
def round_change(ratio, sent, least):  # type: ignore[no-untyped-def]
    """Round the change of a log-ratio, 0 if below `least`; return sign, exponent and two bits, and the number."""
    value = min(max(ratio, -LARGEST), LARGEST) - sent
    value = 0.0 if abs(value) < least else value
    code = (np.float64(value).view(np.uint64) + ROUNDING) >> SHIFT
    return code, np.uint64(code << SHIFT).view(np.float64)


@compiled(PRECISE)
def encode(changes, scale, codes):  # type: ignore[no-untyped-def]
    """Write the codes (n,), bytes, of changes (n,) from `find_changes`; `scale` is the exponent of the largest.

    Returns the number of changes that are dropped because their exponent is below the smallest one of a code.
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
    """Value of each code; shape (256,)."""
    table = np.zeros(256)
    for code in range(4, 128):
        table[code] = math.ldexp((4.0 + (code & 3)) / 8.0, (code >> 2) - PLACES + scale)
        table[code + 128] = -table[code]
    return table


@compiled(PRECISE)
def add_decoded(steps, codes, scales, references, memory, out):  # type: ignore[no-untyped-def]
    """Add the values of codes (n_layers, n_rows * (n_components - 1)) to memory, layer by layer, and write to out.

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
    """Write the log-ratios of present rows plus a level to values, and zeros for other rows.

    total (n_rows, n_components); references and present (n_rows,); values (n_components, n_rows).
    """
    n_rows, n_components = total.shape
    for m in range(n_rows):
        reference, is_there = total[m, references[m]], present[m]
        for k in range(n_components):
            values[k, m] = (total[m, k] - reference) + level if is_there else 0.0


@compiled(PRECISE)
def mean_change(steps, before, after):  # type: ignore[no-untyped-def]
    """Mean absolute change of the log-ratios to each row's leader, over components that are not far behind it.

    before and after (n_rows, n_components); a sample of the rows is used if there are many. steps: see `steps_for`.
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


def least_change(silence: float, pace: Array) -> float:
    """Smallest change that is sent in an undecided row, from the mean change of the last total; shape (1,)."""
    return max(min(silence * float(pace[0]), MOST_SILENT), ROUNDING_ERROR)


def mean_level(level: float, n_rows: int) -> float:
    """Mean log-density per row, within bounds."""
    return min(max(level / max(1, n_rows), -MOST_LEVEL), MOST_LEVEL)


def exponent_of(largest: int) -> int:
    """Scale of a message from its largest change; 0 if nothing has changed."""
    return (int(largest) >> 2) - BIAS if largest > 0 else 0


@compiled(PRECISE)
def drop_zeros(plain, others):  # type: ignore[no-untyped-def]
    """Copy the bytes of plain (n,) that are not zero to others (n + 1,); return their number."""
    count = 0
    for i in range(plain.shape[0]):
        others[count] = plain[i]
        count += plain[i] != 0
    return count


@compiled(PRECISE)
def count_ones(bits):  # type: ignore[no-untyped-def]
    """Count the ones in bits, (n,) bytes."""
    count = 0
    for place in range(bits.shape[0]):
        byte = bits[place]
        for i in range(8):
            count += (byte >> i) & 1
    return count


@compiled(PRECISE)
def join_zeros(bits, others, plain):  # type: ignore[no-untyped-def]
    """Inverse of `drop_zeros`: write plain (n,), zero where bits are zero; others has one unused byte at its end."""
    count = 0
    for i in range(plain.shape[0]):
        is_there = (bits[i >> 3] >> (i & 7)) & 1
        plain[i] = others[count] * is_there
        count += is_there


def compress(plain: Bytes) -> bytes:
    """Compress codes; see the module."""
    bits, others = np.packbits(plain != 0, bitorder="little"), np.empty(len(plain) + 1, np.uint8)
    others = others[: drop_zeros(plain, others)]
    first, second = (zstd.compress(part.data, LEVEL) for part in (bits, others))
    return np.array([len(first)], LENGTH).tobytes() + first + second


def decompress(code: bytes, n_bytes: int) -> NDArray[np.uint8]:
    """Return the plain bytes, (n_bytes,); raise ValueError for another number, before memory is allocated."""
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
    """Maximum length of `n_bytes` plain bytes after compression."""
    return n_bytes + n_bytes // 8 + n_bytes // 128 + 2048


def whole_numbers(place: Place, sender: Position, values: Bytes) -> Array:
    """Decode a sum that is sent as whole numbers; raise WrongMessageError for a wrong length."""
    if len(values) != 8 * place.shape.n_values:
        raise WrongMessageError(sender, f"expected {8 * place.shape.n_values} bytes, got {len(values)}")
    return np.ascontiguousarray(values).view(np.float64)
