"""What a summation carries from one sum of a series to the next, as checkpoints have it.

A carry may be large, and what changes it small: so a checkpoint has the carry as it was some sums ago, and the
changes since. An agent that goes back makes them again, to the bit. When a whole carry is kept anew is each agent's
own affair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from vpem.core.network.summation import NO_MEMORY, Memory, Summation, lasting

MOST_CHANGES = 32
"""Sums that an agent which goes back has to make again, at most."""
SHARE = 2
"""A whole carry is kept anew when changes are larger than this part of it."""


@dataclass(frozen=True, eq=False)
class Carried:
    """Of one series."""

    before: Memory
    """What was carried some sums ago."""
    changes: tuple[Memory, ...] = ()
    """What each sum since has changed."""
    now: Memory | None = None
    """What is carried; None if it has to be found from the others. It is not part of a checkpoint."""

    def recall(self, summation: Summation) -> Memory:
        """What is carried now."""
        if self.now is not None:
            return self.now
        carry = self.before
        for changes in self.changes:
            carry = lasting(summation, summation.redo(carry, changes))
        return carry

    def with_arrays(self, find: Callable[[NDArray[Any]], NDArray[Any]]) -> Carried:
        """The same with what is found for the arrays that checkpoints have; not for what is carried now."""
        before, *changes = (
            {name: find(array) for name, array in one.items()} for one in (self.before, *self.changes)
        )
        return replace(self, before=before, changes=tuple(changes))

    def without_now(self) -> Carried:
        """The same, as checkpoints have it."""
        return self if self.now is None else replace(self, now=None)


NOTHING = Carried(NO_MEMORY)


def carry_on(summation: Summation, last: Carried, now: Memory, changes: Memory) -> Carried:
    """What is carried after one more sum, of which the summation knows what it has changed, or nothing."""
    since = (*last.changes, lasting(summation, changes))
    is_small = SHARE * sum(map(_n_bytes, since)) <= _n_bytes(now) and len(since) <= MOST_CHANGES
    if changes and last.before and is_small:
        return Carried(last.before, since, now)
    return Carried(now, (), now)


def _n_bytes(memory: Memory) -> int:
    return sum(array.nbytes for array in memory.values())
