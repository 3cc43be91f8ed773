"""Responsibilities and weights of components: the part of EM that does not depend on the density."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EPSILON = float(np.finfo(np.float64).eps)

TINY_COUNT = 10 * EPSILON
"""Added to every count, as in scikit-learn, to avoid division by zero for an empty component."""

LOWEST = -1e300
"""Lower bound of a row's contribution: minus infinity would become NaN where a network multiplies it by zero."""


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
