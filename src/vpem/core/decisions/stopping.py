"""Stopping criteria, on the log-likelihood that the E-step computes anyway, so that they need no message."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.summation import Summation

EQUAL = 1e-9
"""Relative difference of bounds below which runs count as equal."""

LAGGING, DIFFERING = 2, 4
"""Numbers of consecutive small changes that end a run: if sums lag behind; and if roots differ as well, whose
differences have to shrink too."""

RECENT = 10
"""Number of last iterations in which a falling bound counts against a run that has not converged."""


def comparable_bound(bounds: Sequence[float], converged: bool) -> float:
    """Bound of a run for the comparison of several runs.

    This is the last bound. If the run has not converged and its bound has fallen in the last few iterations, it is
    the lowest bound after such a fall. With shrinkage or inexact sums, the bound of a run can oscillate for ever; the
    run must not win because it happens to end at a peak.

    Parameters
    ----------
    bounds : sequence of float
        Smallest bound of all roots in each iteration.
    converged : bool
    """
    if not bounds:
        return -math.inf
    last = bounds[-RECENT - 1 :]
    falls = [] if converged else [new for old, new in pairwise(last) if new < old]
    return min([bounds[-1], *falls])


def is_better(bound: float, best: float) -> bool:
    """True if a run beats the best one so far by more than rounding.

    Starts often end in the same optimum, with the components in a different order. Of those the first one is kept, on
    every machine.
    """
    return bound > best if math.isinf(best) else bound > best + EQUAL * max(1.0, abs(best))


def n_small_changes(summation: Summation) -> int:
    """Number of consecutive small changes after which a run ends."""
    if not summation.is_lossy:
        return 1
    return LAGGING if summation.is_common else DIFFERING


def is_sharp(blurs: Iterable[float], tol: float) -> bool:
    """True if the rounding of sums cannot hide a change of `tol`, so that a run with small changes may end.

    Errors of at most b in the log-ratios of a row cost at most b^2 / 2 of its free energy: with all errors in
    [-b, b], their variance under any responsibilities is at most b^2, which is the second derivative of the loss.

    Parameters
    ----------
    blurs : iterable of float
        Bound on the rounding of each series of sums; see `Summation.blur`.
    tol : float
    """
    return all(blur * blur / 2.0 <= tol for blur in blurs)


def has_converged(history: Sequence[NDArray[np.float64]], tol: float, n_small: int = 1) -> NDArray[np.bool_]:
    """True for each root whose log-likelihood per row changes by less than `tol`.

    The change is absolute, because the likelihood may fall if roots agree only approximately. A root must not act on
    its own result, as other roots may have a different one; all stop once the network's AND of the results is true.

    Parameters
    ----------
    history : sequence of arrays of shape (n_views,)
        Log-likelihood per row of each iteration so far, as each root sees it.
    tol : float
    n_small : int, default=1
        Number of consecutive changes that must be small; see `n_small_changes`.

    Returns
    -------
    array of bool of shape (n_views,)
    """
    if len(history) <= n_small:
        return np.zeros(np.shape(history[-1]) if history else 1, dtype=bool)
    small = [np.abs(new - old) < tol for old, new in pairwise(history[-n_small - 1 :])]
    return np.asarray(np.all(np.broadcast_arrays(*small), axis=0))
