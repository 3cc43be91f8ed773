"""The carry of a summation from one sum of a series to the next, as stored in checkpoints.

A carry may be large and its changes small. A checkpoint therefore contains the carry of some sums ago and the changes
since then. An agent that rolls back applies them again, to the bit. Each agent decides by itself when to store a
whole carry again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from vpem.core.network.summation import Summation, lasting
from vpem.core.network.sums import NO_MEMORY, Memory

MOST_CHANGES = 32
"""Maximum number of sums whose changes an agent applies again after a rollback."""
SHARE = 2
"""Minimum ratio of the size of a carry to that of its changes; below it, a whole carry is stored again."""


@dataclass(frozen=True, eq=False)
class Carried:
    """Carry of one series."""

    before: Memory
    """Carry of some sums ago."""
    changes: tuple[Memory, ...] = ()
    """Changes of each sum since then."""
    now: Memory | None = None
    """Current carry; None if it must be computed from the other fields. It is not part of a checkpoint."""

    def recall(self, summation: Summation) -> Memory:
        """Return the current carry."""
        if self.now is not None:
            return self.now
        carry = self.before
        for changes in self.changes:
            carry = lasting(summation, summation.redo(carry, changes))
        return carry

    def with_arrays(self, find: Callable[[NDArray[Any]], NDArray[Any]]) -> Carried:
        """Apply `find` to the arrays that are stored in checkpoints, not to the current carry."""
        before, *changes = (
            {name: find(array) for name, array in one.items()} for one in (self.before, *self.changes)
        )
        return replace(self, before=before, changes=tuple(changes))

    def without_now(self) -> Carried:
        """Return the part that is stored in checkpoints."""
        return self if self.now is None else replace(self, now=None)


NOTHING = Carried(NO_MEMORY)


def carry_on(summation: Summation, last: Carried, now: Memory, changes: Memory) -> Carried:
    """Return the carry after one more sum; changes are empty if the summation does not know them."""
    since = (*last.changes, lasting(summation, changes))
    is_small = SHARE * sum(map(_n_bytes, since)) <= _n_bytes(now) and len(since) <= MOST_CHANGES
    if changes and last.before and is_small:
        return Carried(last.before, since, now)
    return Carried(now, (), now)


def _n_bytes(memory: Memory) -> int:
    return sum(array.nbytes for array in memory.values())
