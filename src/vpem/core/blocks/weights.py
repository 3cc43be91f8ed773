"""Responsibilities, weights of components, scores of rows: the part of EM that does not depend on the density."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EPSILON = float(np.finfo(np.float64).eps)

TINY_COUNT = 10 * EPSILON
"""Added to every count, as in scikit-learn, to avoid division by zero for an empty component."""

LOWEST = -1e300
"""Lower bound of a row's contribution: minus infinity would become NaN where a network multiplies it by zero."""


N_WORST = 16
"""Number of rows with the lowest scores that a pass keeps."""

EQUAL = 1e-9
"""Relative difference of scores below which rows count as equal."""


def normalize(log_joint: Array) -> tuple[Array, Array]:
    """Responsibilities and log-likelihoods of rows (equation 4), by the log-sum-exp method.

    Parameters
    ----------
    log_joint : array of shape (..., n_components)
        Logarithms of weight times density.

    Returns
    -------
    responsibilities : array of shape (..., n_components)
    log_likelihoods : array of shape (...)
    """
    largest = log_joint.max(axis=-1)
    joint = np.exp(log_joint - largest[..., None])
    total = joint.sum(axis=-1)
    joint /= total[..., None]
    return joint, np.log(total) + largest


def n_present(counts: Array) -> Array:
    """Number of rows that at least one party has, from sums of responsibilities; (..., n_components) to (...).

    Responsibilities of such a row add up to one; those of other rows add up to zero.
    """
    found: Array = np.maximum(np.rint(counts.sum(axis=-1)), 1.0)
    return found


def make_weights(counts: Array) -> Array:
    """Component weights from sums of responsibilities (equation 5a); (..., n_components) to the same shape."""
    counts = counts + TINY_COUNT
    weights: Array = counts / counts.sum(axis=-1, keepdims=True)
    return weights


def lowest(scores: Array, rows: NDArray[np.intp]) -> tuple[Array, NDArray[np.intp]]:
    """Return the lowest finite scores in ascending order, and their rows; one row of those with equal scores.

    Equal rows have equal scores up to rounding, which depends on a row's place in a vector register. Of scores that
    are equal up to rounding, only the first row is kept.
    """
    is_finite = np.isfinite(scores)
    scores, rows = scores[is_finite], rows[is_finite]
    if len(scores) > 8 * N_WORST:
        few = np.argpartition(scores, 8 * N_WORST)[: 8 * N_WORST]
        scores, rows = scores[few], rows[few]
    order = np.argsort(scores)
    scores, rows = scores[order], rows[order]
    starts = np.flatnonzero(np.diff(scores, prepend=-np.inf) > EQUAL * np.abs(scores))
    firsts: NDArray[np.intp] = np.minimum.reduceat(rows, starts) if len(starts) else rows
    return scores[starts][:N_WORST], firsts[:N_WORST]
