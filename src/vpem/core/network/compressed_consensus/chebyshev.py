"""Averaging with momentum: Chebyshev polynomials of the weights, the fastest for their extreme eigenvalues.

S rounds of `z <- W z` multiply differences by `W ** S`. Agents that also remember the round before can apply another
polynomial of W with the same messages: Chebyshev's, which is 1 at the eigenvalue 1, that of averages, and as small as
possible between the smallest and the second largest eigenvalue. It needs about the square root of the rounds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EQUAL_EIGENVALUES = 1e-9
"""Width below which the other eigenvalues count as equal, as on a complete graph: one round then averages exactly
up to rounding."""


class Averaging(NamedTuple):
    """Rounds `z <- m (V z) + (1 - m) (z of the round before)`, with the momentum m of the round."""

    weights: Array
    """Shape (n_agents, n_agents): V, whose rows add up to one."""
    reach: float = math.inf
    """Position of the eigenvalue 1 if all others are scaled to [-1, 1]; averaging is faster with a larger reach. With
    infinity, one round is enough."""

    def momenta(self, n_rounds: int) -> list[float]:
        """Momentum of each round; 1 in the first, as no round precedes it."""
        found, ratio = [1.0], 1.0 / self.reach
        while len(found) < n_rounds:
            ratio = 1.0 / (2.0 * self.reach - ratio) if math.isfinite(self.reach) else 0.0
            found.append(2.0 * self.reach * ratio if ratio else 1.0)
        return found

    def error_factor(self, n_rounds: int) -> float:
        """Bound on the factor by which `n_rounds` shrink a difference: 1 / (Chebyshev's polynomial at the reach)."""
        exponent = n_rounds * math.acosh(self.reach)
        return 2.0 * math.exp(-exponent) / (1.0 + math.exp(-2.0 * exponent))

    def rounds_needed(self, factor: float) -> int:
        """Number of rounds for an error factor of at most `factor`."""
        # Processors differ in the last digits of eigenvalues: round up only if the excess is larger than that.
        return max(1, math.ceil(math.acosh(max(1.0, 1.0 / factor)) / math.acosh(self.reach) - 1e-6))


def accelerate(W: Array, margin: float = 0.0) -> Averaging:
    """Return Chebyshev's rounds for the symmetric weights of a connected graph, (n_agents, n_agents).

    A margin extends the interval of eigenvalues downwards by this share of its width. It costs a few more rounds, but
    momentum then hardly amplifies the rounding errors of messages, most of which belong to small eigenvalues.
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
