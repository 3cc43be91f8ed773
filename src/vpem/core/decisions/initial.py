"""Starting points, from a shared seed alone or from a k-means whose distances the network adds.

Each party calls these functions by itself; parties that share a seed draw the same numbers. Where a draw depends on
sums of the network, which differ slightly between roots, one party draws and floods the result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HUB_TIES = 0
START = 1
FOLDS = 2
"""Purposes of the shared seed; see `shared_generator`."""

KMEANS_TOL = 1e-4
KMEANS_MAX_ITER = 300
"""Tolerance and maximum number of iterations of the k-means from which EM starts; as in scikit-learn."""

ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Movement of a centre, relative to its size and its columns' deviation, that is attributed to rounding."""

PATIENCE = 5
"""Number of iterations without a new lowest inertia after which a root votes to stop."""


def shared_generator(seed: int, *purpose: int) -> np.random.Generator:
    """Return a generator that every party can make by itself; different purposes give different numbers."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=purpose))


def shared_folds(seed: int, n_samples: int, n_folds: int) -> NDArray[np.intp]:
    """Fold of each row, (n_samples,), from 0; sizes of folds differ by at most one row, and no message is needed."""
    return (shared_generator(seed, FOLDS).permutation(n_samples) % n_folds).astype(np.intp)


def random_responsibilities(rng: np.random.Generator, n_samples: int, n_components: int) -> Array:
    """Draw responsibilities uniformly and normalize them; (n_samples, n_components)."""
    responsibilities = rng.random((n_samples, n_components))
    responsibilities /= responsibilities.sum(axis=1, keepdims=True)
    return responsibilities


def random_rows(rng: np.random.Generator, n_samples: int, n_rows: int) -> NDArray[np.intp]:
    """Draw distinct row numbers, all equally likely; (n_rows,)."""
    return rng.choice(n_samples, size=n_rows, replace=False).astype(np.intp)


def movement_limit(tol: float, variances: Array, centres: Array, n_features: int) -> float:
    """Squared movement of a block's centres that counts as zero: its share of scikit-learn's limit, or rounding.

    Parameters
    ----------
    tol : float
    variances : array of shape (n_columns,)
    centres : array of shape (n_clusters, n_columns)
    n_features : int
        Number of columns of all parties.
    """
    rounding = float((ROUNDING**2 * (variances + centres**2)).sum())
    return max(tol * float(variances.sum()) / n_features, rounding)


def lloyd_stop(settled: Any, inertia: Any, lowest: Any, since_lowest: Any) -> tuple[Any, Any, Any]:
    """Decide if a root would end Lloyd's algorithm, and update its state; for one root, or arrays of all roots.

    A root would stop if its centres have not moved, or if its inertia has reached no new minimum for `PATIENCE`
    iterations: inexact sums can make the algorithm cycle.

    Returns
    -------
    would_stop, lowest, since_lowest
    """
    since_lowest = np.where(inertia < lowest, 0, np.asarray(since_lowest) + 1)
    return settled | (since_lowest >= PATIENCE), np.minimum(lowest, inertia), since_lowest


def n_candidates(n_centres: int) -> int:
    """Number of candidate rows that k-means++ draws for each centre; as in scikit-learn."""
    return 2 + int(math.log(n_centres))


def potentials(closest: Array, distances: Array) -> Array:
    """Sum of rows' squared distances after each candidate is added (k-means++); the smallest one is chosen.

    Parameters
    ----------
    closest : array of shape (n_rows,)
        Squared distance to the nearest centre so far.
    distances : array of shape (n_rows, n_candidates)

    Returns
    -------
    array of shape (n_candidates,)
    """
    left: Array = np.minimum(distances, closest[:, None]).sum(axis=0)
    return left


def draw_candidates(rng: np.random.Generator, closest: Array, n_rows: int) -> NDArray[np.intp]:
    """Draw rows in proportion to their squared distance from the centres so far (k-means++).

    Parameters
    ----------
    rng : numpy.random.Generator
    closest : array of shape (n_samples,)
        Squared distance to the nearest centre, as computed by one root; small negative values (of an inexact sum)
        count as zero. If every row lies on a centre, all rows are equally likely.
    n_rows : int

    Returns
    -------
    array of shape (n_rows,)
    """
    cumulated = np.maximum(closest, 0.0)
    np.cumsum(cumulated, out=cumulated)
    if not cumulated[-1] > 0:
        return rng.integers(len(closest), size=n_rows).astype(np.intp)
    drawn = np.searchsorted(cumulated, rng.random(n_rows) * cumulated[-1], side="right")
    rows: NDArray[np.intp] = np.minimum(drawn, len(closest) - 1).astype(np.intp)
    return rows
