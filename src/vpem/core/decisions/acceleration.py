"""Acceleration of EM by SQUAREM (Varadhan and Roland, 2008), with one step length for all parties.

A cycle is two iterations of EM, from parameters a to b to c, and a jump to `a + 2 s (b - a) + s^2 (c - 2 b + a)`.
Every party jumps with its own parameters, as unconstrained vectors. The step length s is the ratio of the norms of
`b - a` and `c - 2 b + a`; each party contributes two numbers to it. If the cycle after a jump ends with a lower bound
than the one before it, all parties roll back to the parameters before the jump, and halve the limit of s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block
from vpem.core.blocks.density import CollapsedComponentError, Density
from vpem.core.decisions.stopping import EQUAL
from vpem.core.network.sums import Shape

Array = NDArray[np.float64]
Point = tuple[Array, ...]
"""Parameter vectors: logarithms of the weights, then each block's vector."""

FIRST_LONGEST, LONGER = 4.0, 4.0
"""Initial limit of the step length, and the factor by which the limit grows when it is reached."""

PASSES = 2
"""Number of iterations in a cycle."""

SIZES = Shape(0, 0, 2)
"""Shape of the sum before a jump; see `Cycle.sizes`."""

Decision = Array
"""Shape (3,), minima over all agents: 1 if all would stop, the bound, 1 if no component is broken."""


@dataclass(frozen=True, eq=False)
class Cycle:
    """Progress of a cycle; never changed in place."""

    points: tuple[Point, ...] = ()
    """Parameters before its first iteration and after each iteration; empty at an agent without parameters."""
    n_passes: int = 0
    longest: float = FIRST_LONGEST
    safe: Point = ()
    """Parameters to which a failed jump rolls back."""
    bound: float = -math.inf
    """Bound at the end of the last cycle."""

    @property
    def is_due(self) -> bool:
        """True if a jump is due."""
        return self.n_passes == PASSES

    def passed(self, before: Point, after: Point) -> Cycle:
        """Return the cycle after one more iteration."""
        points = (before, after) if self.n_passes == 0 else (*self.points, after)
        return replace(self, points=points, n_passes=self.n_passes + 1)

    def again(self) -> Cycle:
        """Return a new cycle from the current parameters."""
        return replace(self, points=(), n_passes=0)

    def afresh(self) -> Cycle:
        """Return a new cycle after a repair, which cannot be rolled back."""
        return Cycle(longest=self.longest)

    def sizes(self) -> Array:
        """Squared norms of the step and of its change, for each vector; (n_vectors, 2)."""
        a, b, c = self.points
        return np.array([[_size(y - x), _size(z - 2 * y + x)] for x, y, z in zip(a, b, c, strict=True)])

    def jump(self, sizes: Array, decision: Decision) -> tuple[Point | None, Cycle]:
        """Return the next parameters, or None to keep the current ones, and the next cycle.

        Parameters
        ----------
        sizes : array of shape (2,)
            Sums of `Cycle.sizes` over all parties.
        decision : array of shape (3,)
        """
        would_stop, bound, is_sound = decision.tolist()
        if would_stop or not is_sound:
            return None, self.again()
        if bound < self.bound - EQUAL * max(1.0, abs(self.bound)):
            # Sums that lag behind need some iterations to recover from a rollback: do not compare the next cycle.
            return self.safe, replace(self.again(), longest=max(1.0, self.longest / 2), bound=-math.inf)
        length = math.sqrt(sizes[0] / sizes[1]) if sizes[1] > 0 and math.isfinite(sizes[0]) else 1.0
        longest = self.longest * LONGER if length >= self.longest else self.longest
        length = min(max(length, 1.0), self.longest)
        ways = zip(*self.points, strict=True) if self.points else ()
        there = tuple(a + 2 * length * (b - a) + length**2 * (c - 2 * b + a) for a, b, c in ways)
        safe = self.points[-1] if self.points else ()
        return there, replace(self.again(), longest=longest, safe=safe, bound=bound)


def make_point(weights: Array, blocks: Sequence[Block], density: Density) -> Point:
    """Return the parameters as vectors."""
    smallest = np.finfo(np.float64).tiny
    return np.log(np.maximum(weights, smallest)), *(density.to_vector(block) for block in blocks)


def take_point(point: Point, blocks: Sequence[Block], density: Density) -> tuple[Array, tuple[Block, ...]]:
    """Return weights and blocks at a point; a block whose vector is not valid keeps its parameters."""
    logs, *vectors = point
    weights = np.exp(logs - logs.max())
    found = []
    for vector, block in zip(vectors, blocks, strict=True):
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                moved = density.from_vector(vector, block)
            is_sound = all(np.isfinite(array).all() for array in moved.arrays.values())
        except (CollapsedComponentError, ValueError, np.linalg.LinAlgError):
            is_sound = False
        found.append(moved if is_sound else block)
    return weights / weights.sum(), tuple(found)


def _size(vector: Array) -> float:
    return float(vector @ vector)
