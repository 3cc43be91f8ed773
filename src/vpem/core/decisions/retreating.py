"""When all parties go back: sums that lag behind the terms have misled them, and the likelihood falls.

With exact sums EM's likelihood does not fall, but for what `reg_covar` and shrinkage take. Where sums go on from
earlier ones (`Summation.is_guarded`), terms that change fast leave them behind. Then an M-step follows from wrong
responsibilities, and the next bound shows it. All go back to the parameters of two iterations before, the last ones
whose bound was higher, drop what they carry, and take more rounds from then on. The bounds are the smallest of all
roots, which all agents know.
"""

from __future__ import annotations

from collections.abc import Sequence

from vpem.core.network.summation import MOST_RETREATS

LARGEST_FALL = 0.01
"""Of the log-likelihood per row."""

ITERATIONS_BACK = 2
"""A bound is that of the parameters before an iteration; that it has fallen is agreed on after the next one."""


def must_retreat(agreed: Sequence[float], n_earlier: int, n_retreats: int) -> bool:
    """Whether to go back.

    Parameters
    ----------
    agreed : sequence of float
        Smallest bounds of the last iterations.
    n_earlier : int
        How many iterations back there are parameters to go to.
    n_retreats : int
        How often this run went back before. After a few times it goes on: the bound falls for another reason.
    """
    can_retreat = len(agreed) > 1 and n_earlier == ITERATIONS_BACK and n_retreats < MOST_RETREATS
    return can_retreat and agreed[-1] < agreed[-2] - LARGEST_FALL
