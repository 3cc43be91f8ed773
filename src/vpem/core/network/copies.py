"""Copies of rows that all neighbours of an agent have, and that coded changes move; and averages that go by them.

A row is a log-density for each component, of which only differences count: in copies and averages, the leading
component has 0. What is coded are changes against the component that led in the copy before, which both ends know. So
the competition of a row's best components is never lost beside one that is far away.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vpem.core.compiling import PRECISE, compiled
from vpem.core.network.coding import DECIDED, LARGEST, PLACES, ROUNDING, SHIFT, UNSIGNED, encode, exponent_of

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]


@compiled(PRECISE)
def find_moves(values, copy, least, is_sparing, changes):  # type: ignore[no-untyped-def]
    """How far a copy is behind, rounded, 0 where that does not matter; returns the largest of these numbers.

    values, copy (n_rows, n_components); changes (n_rows, n_components - 1) are whole numbers: the exponent and two
    bits of a float, with a sign. A change matters from `least` on; if `is_sparing`, that of a component that is far
    behind matters from a quarter of what it is behind beyond `DECIDED`.
    """
    n_rows, n_components = copy.shape
    largest = 0
    change = np.empty(1)
    bits = change.view(np.int64)
    for m in range(n_rows):
        leader, j = 0, 0
        for k in range(1, n_components):
            if copy[m, k] > copy[m, leader]:
                leader = k
        for k in range(n_components):
            if k == leader:
                continue
            gap = copy[m, leader] - copy[m, k]
            value = min(max(values[m, k] - values[m, leader] + gap, -LARGEST), LARGEST)
            change[0] = value
            code = ((bits[0] & UNSIGNED) + ROUNDING) >> SHIFT
            threshold = max(least, (gap - DECIDED) / 4.0) if is_sparing else least
            if abs(value) < threshold:
                code = 0
            largest = max(largest, code)
            changes[m, j] = -code if value < 0.0 else code
            j += 1
    return largest


@compiled(PRECISE)
def move(codes, scale, copy, out):  # type: ignore[no-untyped-def]
    """A copy, moved by what codes (n_rows * (n_components - 1),) stand for; copy, out (n_rows, n_components)."""
    table = np.zeros(256)
    for code in range(4, 128):
        table[code] = math.ldexp((4.0 + (code & 3)) / 8.0, (code >> 2) - PLACES + scale)
        table[code + 128] = -table[code]
    i = 0
    for m in range(copy.shape[0]):
        leader = 0
        for k in range(1, copy.shape[1]):
            if copy[m, k] > copy[m, leader]:
                leader = k
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


def find_codes(values: Array, copy: Array, least: float, *, is_sparing: bool) -> tuple[int, Bytes]:
    """The scale and the codes, (n_rows * (n_components - 1),), of what a copy lacks."""
    changes = np.empty((len(copy), max(copy.shape[1] - 1, 0)), dtype=np.int16)
    scale = exponent_of(find_moves(values, copy, least, is_sparing, changes))
    codes = np.empty(changes.size, dtype=np.uint8)
    encode(changes.ravel(), scale, codes)
    return scale, codes


def moved(copy: Array, scale: int, codes: Bytes) -> Array:
    """A copy after what was sent."""
    found = np.empty_like(copy)
    move(codes, scale, copy, found)
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
