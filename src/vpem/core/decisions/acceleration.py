"""Fewer iterations: SQUAREM (Varadhan and Roland, 2008), with one step length for all parties.

A cycle is two iterations of EM, from parameters a to b to c, and a jump to `a + 2 s (b - a) + s^2 (c - 2 b + a)`.
Every party jumps with its own parameters, as unconstrained vectors. The step length s, the ratio of the sizes of
`b - a` and of `c - 2 b + a`, takes two numbers from each of them. If the cycle after a jump ends lower than the one
before it, all go back to where they were, and jump less far.
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
from vpem.core.network.summation import Shape

Array = NDArray[np.float64]
Point = tuple[Array, ...]
"""Parameters as vectors: logarithms of the weights, then each block's."""

FIRST_LONGEST, LONGER = 4.0, 4.0
"""Limit of the step length at first, and by what it grows when it is reached."""

PASSES = 2
"""Iterations in a cycle."""

SIZES = Shape(0, 0, 2)
"""What all add before a jump, see `Cycle.sizes`."""

Decision = Array
"""Of a jump, as the smallest of all agents': whether all would stop, the bound, whether nothing is broken."""
N_DECISIONS = 3


@dataclass(frozen=True, eq=False)
class Cycle:
    """How far a cycle is; never changed in place."""

    points: tuple[Point, ...] = ()
    """Parameters before its first iteration, and after each; nothing at an agent without parameters."""
    n_passes: int = 0
    longest: float = FIRST_LONGEST
    safe: Point = ()
    """Where to go back to."""
    bound: float = -math.inf
    """What the last cycle came to."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to jump."""
        return self.n_passes == PASSES

    def passed(self, before: Point, after: Point) -> Cycle:
        """An iteration later."""
        points = (before, after) if self.n_passes == 0 else (*self.points, after)
        return replace(self, points=points, n_passes=self.n_passes + 1)

    def again(self) -> Cycle:
        """Begin anew, from where the parameters are."""
        return replace(self, points=(), n_passes=0)

    def afresh(self) -> Cycle:
        """Begin anew after a repair: there is no way back to before it."""
        return Cycle(longest=self.longest)

    def sizes(self) -> Array:
        """Squared sizes of the step, and of its change, of each vector; (n_vectors, 2)."""
        a, b, c = self.points
        return np.array([[_size(y - x), _size(z - 2 * y + x)] for x, y, z in zip(a, b, c, strict=True)])

    def jump(self, sizes: Array, decision: Decision) -> tuple[Point | None, Cycle]:
        """Where to go on from, None if from where the parameters are; and the next cycle.

        Parameters
        ----------
        sizes : array of shape (2,)
            Sums over all parties.
        decision : array of shape (3,)
        """
        would_stop, bound, is_sound = decision.tolist()
        if would_stop or not is_sound:
            return None, self.again()
        if bound < self.bound - EQUAL * max(1.0, abs(self.bound)):
            # Sums that lag behind need a while after the way back, so that the next cycle is not compared.
            return self.safe, replace(self.again(), longest=max(1.0, self.longest / 2), bound=-math.inf)
        length = math.sqrt(sizes[0] / sizes[1]) if sizes[1] > 0 and math.isfinite(sizes[0]) else 1.0
        longest = self.longest * LONGER if length >= self.longest else self.longest
        length = min(max(length, 1.0), self.longest)
        ways = zip(*self.points, strict=True) if self.points else ()
        there = tuple(a + 2 * length * (b - a) + length**2 * (c - 2 * b + a) for a, b, c in ways)
        safe = self.points[-1] if self.points else ()
        return there, replace(self.again(), longest=longest, safe=safe, bound=bound)


def n_jumps(iterations: int) -> int:
    """Exchanges of sizes in a run of so many iterations, if no more are allowed and nothing is repaired."""
    return max(0, iterations - 1) // PASSES


def make_point(weights: Array, blocks: Sequence[Block], density: Density) -> Point:
    """Parameters as vectors."""
    smallest = np.finfo(np.float64).tiny
    return np.log(np.maximum(weights, smallest)), *(density.to_vector(block) for block in blocks)


def take_point(point: Point, blocks: Sequence[Block], density: Density) -> tuple[Array, tuple[Block, ...]]:
    """Weights and blocks at a point; a block that cannot be there stays where it is."""
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
