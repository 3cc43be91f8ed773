"""Starting points: from a shared seed alone, or from a k-means whose distances the network adds.

Every function here is one party's own work; parties that share a seed draw the same numbers. Where a draw depends
on sums of the network, which differ a little between roots, one party draws and floods what it drew.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def shared_generator(seed: int, *purpose: int) -> np.random.Generator:
    """Generator that every party can make by itself; other purposes, other numbers."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=purpose))


def random_responsibilities(rng: np.random.Generator, n_samples: int, n_components: int) -> Array:
    """Uniform draws, normalized; (n_samples, n_components)."""
    responsibilities = rng.random((n_samples, n_components))
    responsibilities /= responsibilities.sum(axis=1, keepdims=True)
    return responsibilities


def random_rows(rng: np.random.Generator, n_samples: int, n_rows: int) -> NDArray[np.intp]:
    """Different row numbers, all equally likely; (n_rows,)."""
    return rng.choice(n_samples, size=n_rows, replace=False).astype(np.intp)


def squared_distances(X: NDArray[np.floating], centres: Array) -> Array:
    """Squared distances within one block: what it adds to the network's sum in k-means. A gap adds nothing.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    centres : array of shape (n_centres, n_columns)

    Returns
    -------
    array of shape (n_samples, n_centres)
    """
    deviations = X - centres[:, None, :]
    deviations[np.isnan(deviations)] = 0.0
    distances: Array = np.einsum("kmd,kmd->km", deviations, deviations).T
    return distances


def centre_sums(X: NDArray[np.floating], responsibilities: Array) -> Array:
    """Of each cluster, how many values there are in each column, and their sum; sums of other rows can be added.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    responsibilities : array of shape (n_samples, n_clusters)

    Returns
    -------
    array of shape (2, n_clusters, n_columns)
    """
    there = ~np.isnan(X)
    return np.stack([responsibilities.T @ there, responsibilities.T @ np.where(there, X, 0.0)])


def nearest(distances: Array) -> tuple[Array, Array]:
    """Hard responsibilities, and the distances to the nearest centres.

    Parameters
    ----------
    distances : array of shape (..., n_centres)

    Returns
    -------
    responsibilities : array of shape (..., n_centres)
        One for the nearest centre (the first of equals), zero for the others. A row at no distance from any centre,
        as one that is missing everywhere, belongs to all alike.
    smallest : array of shape (...)
    """
    labels = distances.argmin(axis=-1)
    responsibilities = (labels[..., None] == np.arange(distances.shape[-1])).astype(np.float64)
    responsibilities[~distances.any(axis=-1)] = 1.0 / distances.shape[-1]
    return responsibilities, distances.min(axis=-1)


def n_candidates(n_centres: int) -> int:
    """How many rows k-means++ tries for each centre; as in scikit-learn."""
    return 2 + int(math.log(n_centres))


def draw_candidates(rng: np.random.Generator, closest: Array, n_rows: int) -> NDArray[np.intp]:
    """Rows drawn in proportion to their squared distance from the centres so far (k-means++).

    Parameters
    ----------
    rng : numpy.random.Generator
    closest : array of shape (n_samples,)
        Squared distance to the nearest centre, as one root sees it; small negative values (of a sum that is
        not exact) count as zero. If every row lies on a centre, all are equally likely.
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
