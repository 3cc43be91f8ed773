"""Copies of an agent's rows at its neighbours, updated by coded changes, and averages computed from these copies.

A row has a log-density for each component, and only differences within a row matter: in copies and averages, the
leading component is 0. Changes are relative to a leading component: the leader of the last copy, which both ends know
or, if that has fallen far behind, another one, which the message contains. The differences between a row's best
components thus keep their precision, as they are never the difference of two large numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vpem.core.compiling import PRECISE, compiled
from vpem.core.network.quantization import (
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
"""Type of a leader in a message: the number of a component plus one, or 0."""
SPARING = 16.0
"""Divisor of the threshold for a component that is far behind: changes below its distance to the leader beyond
`DECIDED`, divided by this number, are not sent. Copies that are not updated still pull the averages, which are wrong
by about five thresholds (measured). With a divisor of four, as on a tree, agents on a path of thirty mistook
components that were far behind for leading ones."""


@compiled(PRECISE)
def find_moves(steps, values, copy, least, is_sparing, leaders, changes):  # type: ignore[no-untyped-def]
    """Round the changes from a copy to the values, 0 below a threshold; return the largest rounded change.

    values, copy (n_rows, n_components); changes (n_rows, n_components - 1) are integers: the sign, the exponent and
    two bits of the mantissa of a float. The threshold is `least` or, if `is_sparing`, the distance of the component
    to the leader beyond `DECIDED`, divided by `SPARING`, if that is larger. leaders (n_rows,): 0 if changes are
    relative to the leader of the copy; if that has fallen far behind, the number of the component to which they are
    relative, plus one. The loop has hardly any branches, because the leader and the entries that are not sent are
    unpredictable. steps: see `steps_for`.
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
    """Add the values of codes (n_rows * (n_components - 1),) to copy, and write to out; both (n_rows, n_components).

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
    """Write `momentum * values + (1 - momentum) * before` to out, from which a round starts; all of shape (n,)."""
    for i in range(values.shape[0]):
        out[i] = momentum * values[i] + (1.0 - momentum) * before[i]


@compiled(PRECISE)
def pull(theirs, own, weight, out):  # type: ignore[no-untyped-def]
    """Move numbers towards a neighbour's; all of shape (n,). One of two neighbours gains what the other loses."""
    for i in range(out.shape[0]):
        out[i] += weight * (theirs[i] - own[i])


@compiled(PRECISE)
def settle(values):  # type: ignore[no-untyped-def]
    """Shift each row in place so that its leading component is 0; values (n_rows, n_components)."""
    for m in range(values.shape[0]):
        top = values[m, 0]
        for k in range(1, values.shape[1]):
            top = max(top, values[m, k])
        for k in range(values.shape[1]):
            values[m, k] -= top


def find_codes(values: Array, copy: Array, least: float, *, is_sparing: bool) -> tuple[int, Bytes, Leaders]:
    """Return scale and codes, (n_rows * (n_components - 1),), of the changes of a copy, and the leaders to send."""
    changes = np.empty((len(copy), max(copy.shape[1] - 1, 0)), dtype=np.uint16)
    leaders = np.zeros(len(copy), dtype=LEADER)
    scale = exponent_of(find_moves(steps_for(copy), values, copy, least, is_sparing, leaders, changes))
    codes = np.empty(changes.size, dtype=np.uint8)
    encode(changes.ravel(), scale, codes)
    return scale, codes, leaders


def moved(copy: Array, scale: int, codes: Bytes, leaders: Leaders) -> Array:
    """Return a copy after the changes of a message."""
    found = np.empty_like(copy)
    move(steps_for(copy), codes, scale, leaders, copy, found)
    return found


def mixed(values: Array, before: Array, momentum: float, own: Array, others: list[tuple[float, Array]]) -> Array:
    """Compute one round of averaging from copies, `m (z + sum_j V_ij (q_j - q_i)) + (1 - m) z_before`.

    Parameters
    ----------
    values, before : array of shape (n_rows, n_components)
        Numbers of the agent, and those of the round before.
    momentum : float
    own : array of shape (n_rows, n_components)
        Copy of its numbers at its neighbours.
    others : list of (float, array of shape (n_rows, n_components))
        Weight of each neighbour, and the copy of its numbers.
    """
    found = np.empty_like(values)
    flat, here = found.reshape(-1), own.reshape(-1)
    add_momentum(values.reshape(-1), before.reshape(-1), momentum, flat)
    for weight, theirs in others:
        pull(theirs.reshape(-1), here, momentum * weight, flat)
    settle(found)
    return found
