"""When to stop: on the log-likelihood that falls out of the E-step, so that watching it costs no message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.summation import Summation

EQUAL = 1e-9
"""Relative difference of bounds below which runs count as equal."""

LAGGING, DIFFERING = 2, 4
"""Small changes, one after the other, that end a run whose sums lag behind; and whose roots differ too, until what is
left of their differences has shrunk as well."""

RECENT = 10
"""Iterations of a run that has not converged of which a fall counts against it."""


def comparable_bound(bounds: Sequence[float], converged: bool) -> float:
    """What a run counts for when the best of several is chosen.

    The last bound. If the run has not converged and its bound has fallen in the last few iterations, the lowest to
    which it fell: with shrinkage or inexact sums a run can go up and down for ever, and must not win by the peak at
    which it happens to end.

    Parameters
    ----------
    bounds : sequence of float
        Of each iteration, the smallest that any root sees.
    converged : bool
    """
    if not bounds:
        return -math.inf
    last = bounds[-RECENT - 1 :]
    falls = [] if converged else [new for old, new in pairwise(last) if new < old]
    return min([bounds[-1], *falls])


def is_better(bound: float, best: float) -> bool:
    """Whether a run beats the best one so far, by more than rounding.

    Starts often end in the same optimum, with the components in another order. Of those the first counts, on every
    machine.
    """
    return bound > best if math.isinf(best) else bound > best + EQUAL * max(1.0, abs(best))


def n_small_changes(summation: Summation) -> int:
    """How many changes must be small, one after the other, for a run to end."""
    if not summation.is_lossy:
        return 1
    return LAGGING if summation.is_common else DIFFERING


def has_converged(history: Sequence[NDArray[np.float64]], tol: float, n_small: int = 1) -> NDArray[np.bool_]:
    """Whether each root sees a log-likelihood per row that changes by less than `tol`.

    The absolute change: between roots that agree only approximately the likelihood may fall. One root must not
    act on its own answer, as others may see another; all stop once the network's AND of the answers is true.

    Parameters
    ----------
    history : sequence of arrays of shape (n_views,)
        Log-likelihood per row of each iteration so far, as each root sees it.
    tol : float
    n_small : int, default=1
        So many changes must be small, one after the other; see `n_small_changes`.

    Returns
    -------
    array of bool of shape (n_views,)
    """
    if len(history) <= n_small:
        return np.zeros(np.shape(history[-1]) if history else 1, dtype=bool)
    small = [np.abs(new - old) < tol for old, new in pairwise(history[-n_small - 1 :])]
    return np.asarray(np.all(np.broadcast_arrays(*small), axis=0))
