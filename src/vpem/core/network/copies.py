"""Copies of rows that all neighbours of an agent have, and that coded changes move; and averages that go by them.

A row is a log-density for each component, of which only differences count: in copies and averages, the leading
component has 0. What is coded are changes against a component that leads: the one that led in the copy before, which
both ends know, or another one, which is told, if that has fallen far behind. So the competition of a row's best
components is never lost beside one that is far away: it is never the difference of two large numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vpem.core.compiling import PRECISE, compiled
from vpem.core.network.coding import (
    DECIDED,
    LARGEST,
    ROUNDING,
    SHIFT,
    SIZE,
    decoding_table,
    encode,
    exponent_of,
)

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Leaders = NDArray[np.uint16]

LEADER = np.dtype("<u2")
"""A component's number and one, or 0, in a message."""


@compiled(PRECISE)
def leader_of(row):  # type: ignore[no-untyped-def]
    """The first of the largest numbers; row (n_components,)."""
    leader = 0
    for k in range(1, row.shape[0]):
        if row[k] > row[leader]:
            leader = k
    return leader


@compiled(PRECISE)
def find_moves(values, copy, least, is_sparing, leaders, changes):  # type: ignore[no-untyped-def]
    """How far a copy is behind, rounded, 0 where that does not matter; returns the largest of these numbers.

    values, copy (n_rows, n_components); changes (n_rows, n_components - 1) are whole numbers: a float's sign,
    exponent and two bits. A change matters from `least` on; if `is_sparing`, that of a component that is far
    behind matters from a quarter of what it is behind beyond `DECIDED`. leaders (n_rows,): 0 where changes are
    against the component that leads in the copy; otherwise, as that has fallen far behind, one more than the number
    of the component that they are against.
    """
    n_rows, n_components = copy.shape
    largest = np.uint64(0)
    change = np.empty(1)
    bits = change.view(np.uint64)
    for m in range(n_rows):
        leader, first, j = leader_of(copy[m]), leader_of(values[m]), 0
        leaders[m] = 0
        if values[m, leader] < values[m, first] - DECIDED:
            leader = first
            leaders[m] = 1 + first
        for k in range(n_components):
            if k == leader:
                continue
            gap = copy[m, leader] - copy[m, k]
            value = min(max(values[m, k] - values[m, leader] + gap, -LARGEST), LARGEST)
            change[0] = value
            code = (bits[0] + ROUNDING) >> SHIFT
            threshold = max(least, (gap - DECIDED) / 4.0) if is_sparing else least
            if abs(value) < threshold:
                code = np.uint64(0)
            largest = max(largest, code & SIZE)
            changes[m, j] = code
            j += 1
    return largest


@compiled(PRECISE)
def move(codes, scale, leaders, copy, out):  # type: ignore[no-untyped-def]
    """A copy, moved by what codes (n_rows * (n_components - 1),) stand for; copy, out (n_rows, n_components).

    leaders (n_rows,) as in `find_moves`.
    """
    table = decoding_table(scale)
    i = 0
    for m in range(copy.shape[0]):
        leader = leaders[m] - 1 if leaders[m] > 0 else leader_of(copy[m])
        top = copy[m, leader]
        for k in range(copy.shape[1]):
            out[m, k] = copy[m, k]
            if k != leader:
                out[m, k] += table[codes[i]]
                top = max(top, out[m, k])
                i += 1
        for k in range(copy.shape[1]):
            out[m, k] -= top


@compiled(PRECISE)
def add_momentum(values, before, momentum, out):  # type: ignore[no-untyped-def]
    """What a round goes on from: `momentum` of the numbers as they are, the rest of those before; (n,) all."""
    for i in range(values.shape[0]):
        out[i] = momentum * values[i] + (1.0 - momentum) * before[i]


@compiled(PRECISE)
def pull(theirs, own, weight, out):  # type: ignore[no-untyped-def]
    """Move numbers towards a neighbour's; (n,) all. What one of two neighbours gains by it, the other loses."""
    for i in range(out.shape[0]):
        out[i] += weight * (theirs[i] - own[i])


@compiled(PRECISE)
def settle(values):  # type: ignore[no-untyped-def]
    """Let the leading component of each row have 0; values (n_rows, n_components) are changed in place."""
    for m in range(values.shape[0]):
        top = values[m, 0]
        for k in range(1, values.shape[1]):
            top = max(top, values[m, k])
        for k in range(values.shape[1]):
            values[m, k] -= top


def find_codes(values: Array, copy: Array, least: float, *, is_sparing: bool) -> tuple[int, Bytes, Leaders]:
    """The scale and the codes, (n_rows * (n_components - 1),), of what a copy lacks, and leaders that are told."""
    changes = np.empty((len(copy), max(copy.shape[1] - 1, 0)), dtype=np.uint16)
    leaders = np.empty(len(copy), dtype=LEADER)
    scale = exponent_of(find_moves(values, copy, least, is_sparing, leaders, changes))
    codes = np.empty(changes.size, dtype=np.uint8)
    encode(changes.ravel(), scale, codes)
    return scale, codes, leaders


def moved(copy: Array, scale: int, codes: Bytes, leaders: Leaders) -> Array:
    """A copy after what was sent."""
    found = np.empty_like(copy)
    move(codes, scale, leaders, copy, found)
    return found


def mixed(values: Array, before: Array, momentum: float, own: Array, others: list[tuple[float, Array]]) -> Array:
    """One round of averaging by copies, `m (z + sum_j V_ij (q_j - q_i)) + (1 - m) z_before`.

    Parameters
    ----------
    values, before : array of shape (n_rows, n_components)
        The agent's numbers, and those of a round before.
    momentum : float
    own : array of shape (n_rows, n_components)
        The copy that its neighbours have of its numbers.
    others : list of (float, array of shape (n_rows, n_components))
        For each neighbour, the weight and the copy of its numbers.
    """
    found = np.empty_like(values)
    flat, here = found.reshape(-1), own.reshape(-1)
    add_momentum(values.reshape(-1), before.reshape(-1), momentum, flat)
    for weight, theirs in others:
        pull(theirs.reshape(-1), here, momentum * weight, flat)
    settle(found)
    return found
