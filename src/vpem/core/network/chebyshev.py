"""Averaging with momentum: the fastest polynomial of the weights that an agent can know of from their eigenvalues.

After S rounds of `z <- W z` what is left of a difference is `W ** S`. Agents that also remember the round before can
apply another polynomial for the same messages: Chebyshev's, which is 1 at the eigenvalue 1, that of averages, and as
small as can be between the smallest eigenvalue and the second largest. It needs about the square root of the rounds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EQUAL_EIGENVALUES = 1e-9
"""Width of an interval that counts as one point, as on a complete graph: one round averages to rounding."""


class Averaging(NamedTuple):
    """How one round goes: `z <- m (V z) + (1 - m) (z of the round before)`, with the momentum m of the round."""

    weights: Array
    """(n_agents, n_agents): V; its rows add up to one."""
    reach: float = math.inf
    """Where the eigenvalue 1 is if all others are between -1 and 1: the farther away, the faster. Infinity: one round
    is all that it takes."""

    def momenta(self, n_rounds: int) -> list[float]:
        """Of each round; 1 in the first, which has none before it."""
        found, ratio = [1.0], 1.0 / self.reach
        while len(found) < n_rounds:
            ratio = 1.0 / (2.0 * self.reach - ratio) if math.isfinite(self.reach) else 0.0
            found.append(2.0 * self.reach * ratio if ratio else 1.0)
        return found

    def error_factor(self, n_rounds: int) -> float:
        """What so many rounds leave of a difference, at most: one over Chebyshev's polynomial of the reach."""
        exponent = n_rounds * math.acosh(self.reach)
        return 2.0 * math.exp(-exponent) / (1.0 + math.exp(-2.0 * exponent))

    def rounds_needed(self, factor: float) -> int:
        """Rounds that leave at most this factor."""
        # A little less than a whole number is that number: processors differ in the last digits of eigenvalues.
        return max(1, math.ceil(math.acosh(max(1.0, 1.0 / factor)) / math.acosh(self.reach) - 1e-6))


def accelerate(W: Array, margin: float = 0.0) -> Averaging:
    """Chebyshev's rounds for symmetric weights of a connected graph, (n_agents, n_agents).

    With a margin, as if eigenvalues went so much further down, as a share of their range. That takes a few more
    rounds. But momentum hardly amplifies what rounding adds to messages: most of that is where the small ones are.
    """
    if len(W) == 1:
        return Averaging(W)
    eigenvalues = np.linalg.eigvalsh(W)
    low, high = float(eigenvalues[0]), float(eigenvalues[-2])
    is_point = high - low < EQUAL_EIGENVALUES
    low -= margin * (high - low)
    middle = (low + high) / 2
    weights = (W - middle * np.eye(len(W))) / (1.0 - middle)
    return Averaging(weights, math.inf if is_point else (1.0 - middle) / ((high - low) / 2))
