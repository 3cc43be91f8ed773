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
    steps_for,
)

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Leaders = NDArray[np.uint16]

LEADER = np.dtype("<u2")
"""A component's number and one, or 0, in a message."""
SPARING = 16.0
"""Of what a component is behind beyond `DECIDED`, this part may be silent. Copies that are not moved pull on, so
that averages are wrong by about five such parts (measured): with a quarter, as on a tree, agents on a path of thirty
took components that were far behind for leading ones."""


@compiled(PRECISE)
def find_moves(steps, values, copy, least, is_sparing, leaders, changes):  # type: ignore[no-untyped-def]
    """How far a copy is behind, rounded, 0 where that does not matter; returns the largest of these numbers.

    values, copy (n_rows, n_components); changes (n_rows, n_components - 1) are whole numbers: a float's sign,
    exponent and two bits. A change matters from `least` on; if `is_sparing`, that of a component that is far
    behind matters from some part of what it is behind beyond `DECIDED`. leaders (n_rows,): 0 where changes are
    against the component that leads in the copy; otherwise, as that has fallen far behind, one more than the number
    of the component that they are against. There are hardly any branches: which component leads, and what is silent,
    cannot be foreseen. steps: see `steps_for`.
    """
    n_rows, n_components = copy.shape[0] if copy.size else 0, len(steps) or copy.shape[1]
    largest = np.uint64(0)
    for m in range(n_rows):
        leader, top, first, best = 0, copy[m, 0], 0, values[m, 0]
        for k in range(1, n_components):
            leader = k if copy[m, k] > top else leader
            top = max(top, copy[m, k])
            first = k if values[m, k] > best else first
            best = max(best, values[m, k])
        has_fallen = values[m, leader] < best - DECIDED
        leaders[m] = 1 + first if has_fallen else 0
        leader = first if has_fallen else leader
        here, before = values[m, leader], copy[m, leader]
        for j in range(n_components - 1):
            k = j + (j >= leader)
            gap = before - copy[m, k]
            threshold = max(least, (gap - DECIDED) / SPARING) if is_sparing else least
            value = min(max(values[m, k] - here + gap, -LARGEST), LARGEST)
            value = 0.0 if abs(value) < threshold else value
            code = (np.float64(value).view(np.uint64) + ROUNDING) >> SHIFT
            largest = max(largest, code & SIZE)
            changes[m, j] = code
    return largest


@compiled(PRECISE)
def move(steps, codes, scale, leaders, copy, out):  # type: ignore[no-untyped-def]
    """A copy, moved by what codes (n_rows * (n_components - 1),) stand for; copy, out (n_rows, n_components).

    leaders (n_rows,) as in `find_moves`; steps: see `steps_for`.
    """
    table = decoding_table(scale)
    n_rows, n_components = copy.shape[0] if copy.size else 0, len(steps) or copy.shape[1]
    for m in range(n_rows):
        leader, top, i = 0, copy[m, 0], m * (n_components - 1)
        for k in range(1, n_components):
            leader = k if copy[m, k] > top else leader
            top = max(top, copy[m, k])
        leader = int(leaders[m]) - 1 if leaders[m] > 0 else leader
        top = copy[m, leader]
        out[m, leader] = top
        for j in range(n_components - 1):
            k = j + (j >= leader)
            value = copy[m, k] + table[codes[i + j]]
            out[m, k] = value
            top = max(top, value)
        for k in range(n_components):
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
    leaders = np.zeros(len(copy), dtype=LEADER)
    scale = exponent_of(find_moves(steps_for(copy), values, copy, least, is_sparing, leaders, changes))
    codes = np.empty(changes.size, dtype=np.uint8)
    encode(changes.ravel(), scale, codes)
    return scale, codes, leaders


def moved(copy: Array, scale: int, codes: Bytes, leaders: Leaders) -> Array:
    """A copy after what was sent."""
    found = np.empty_like(copy)
    move(steps_for(copy), codes, scale, leaders, copy, found)
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
