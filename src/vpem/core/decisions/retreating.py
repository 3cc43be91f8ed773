"""Rollback of all parties when the likelihood falls because sums lag behind the terms.

With exact sums EM's likelihood does not fall, except for the effects of `reg_covar` and shrinkage. Where sums
continue from earlier ones (`Summation.is_guarded`), they lag behind terms that change fast. Then an M-step uses wrong
responsibilities, and the next bound falls. All parties roll back to the parameters of two iterations before, the last
ones with a higher bound. They discard the carry of their sums, and use more rounds from then on. The bounds are
minima over all roots, which all agents know.
"""

from __future__ import annotations

from collections.abc import Sequence

from vpem.core.network.sums import MOST_RETREATS

LARGEST_FALL = 0.01
"""Largest fall of the log-likelihood per row that does not cause a rollback."""

ITERATIONS_BACK = 2
"""Iterations to roll back: a bound belongs to the parameters before an iteration, and is agreed on after the next."""


def must_retreat(agreed: Sequence[float], n_earlier: int, n_retreats: int) -> bool:
    """True if all parties must roll back.

    Parameters
    ----------
    agreed : sequence of float
        Smallest bounds of the last iterations.
    n_earlier : int
        Number of earlier iterations whose parameters are kept.
    n_retreats : int
        Number of earlier rollbacks in this run. After `MOST_RETREATS` the run continues, because the bound falls for
        another reason.
    """
    can_retreat = len(agreed) > 1 and n_earlier == ITERATIONS_BACK and n_retreats < MOST_RETREATS
    return can_retreat and agreed[-1] < agreed[-2] - LARGEST_FALL
