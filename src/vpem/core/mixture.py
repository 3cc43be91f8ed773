"""One block of a Gaussian mixture: what its rows add to the network's sum, its statistics, its M-step.

A block is the part of every component's mean and covariance that belongs to one hub's columns. Blocks never
look at each other: all that they share is the sum of their contributions (equation 12 of the paper), from
which every root computes the responsibilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.float64]
CovarianceType = Literal["full", "tied", "diag", "spherical"]


class Structure(NamedTuple):
    """What a covariance type means within a block."""

    is_matrix: bool
    """Whole matrices; otherwise variances only."""
    shared_by: Literal["components", "columns"] | None
    """Over which axis one value is shared."""


STRUCTURES: dict[str, Structure] = {
    "full": Structure(True, None),
    "tied": Structure(True, "components"),
    "diag": Structure(False, None),
    "spherical": Structure(False, "columns"),
}

TINY_COUNT = 10 * np.finfo(np.float64).eps
"""Added to every count, as scikit-learn does, so that an empty component divides by something."""


class CollapsedComponentError(ValueError):
    """A component's covariance within one block is not positive definite."""

    def __init__(self, component: int, party: object = None):
        self.component = component
        self.party = party
        where = "" if party is None else f" at party {party!r}"
        super().__init__(
            f"component {component} has collapsed{where}: expected a positive definite covariance, got one that "
            "is singular or not finite (too few distinct rows for the component, or columns that are constant or "
            "multiples of each other); try fewer components, a larger reg_covar, another covariance_type, or "
            "scaling the columns"
        )


@dataclass(frozen=True, eq=False)
class Block:
    """The parameters of one block; made by `make_block`.

    `covariances` and `whiteners` broadcast against the components: (n_components, n_columns, n_columns) for
    full, (1, n_columns, n_columns) for tied, (n_components, n_columns) for diag, (n_components, 1) for spherical.
    """

    means: Array
    """(n_components, n_columns)"""
    covariances: Array
    whiteners: Array
    """Upper triangular U with U U^T = precision (scikit-learn: precisions_cholesky_), or 1 / deviation."""
    log_normalizers: Array
    """(n_components,): log of the density's factor in front of the exponential."""


class Statistics(NamedTuple):
    """Sufficient statistics of a block's rows, around their own means, so that large offsets cost no digits."""

    counts: Array
    """(n_components,): sum of responsibilities."""
    means: Array
    """(n_components, n_columns): weighted means."""
    scatters: Array
    """(n_components, n_columns[, n_columns]): weighted sum of (x - mean)(x - mean)^T, or of its diagonal."""


def log_contribution(X: NDArray[np.floating], block: Block) -> Array:
    """Log-density of each row under each component, within one block.

    This is what the block adds to the network's sum. It holds all constants: with the paper's
    `Q = log|S| + |x - mu|^2_S` it is `-(Q + n_columns log 2 pi) / 2`. (The supplement drops `-N/2 log 2 pi`,
    N being the number of agents; the exponent is a slip for the number d of columns.)

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    block : Block

    Returns
    -------
    array of shape (n_samples, n_components)
    """
    deviations = X - block.means[:, None, :]
    with np.errstate(over="ignore"):  # beyond 1e154 deviations the density is zero
        if block.whiteners.ndim == 3:
            whitened = deviations @ block.whiteners
        else:
            whitened = deviations * block.whiteners[:, None, :]
        distances = np.einsum("kmd,kmd->km", whitened, whitened)
    contribution: Array = (block.log_normalizers[:, None] - 0.5 * distances).T
    return contribution


def normalize(log_joint: Array) -> tuple[Array, Array]:
    """Responsibilities and log-likelihoods of rows (equation 4), without leaving log space too early.

    Parameters
    ----------
    log_joint : array of shape (..., n_components)
        Log of weight times density.

    Returns
    -------
    responsibilities : array of shape (..., n_components)
    log_likelihoods : array of shape (...)
    """
    largest = log_joint.max(axis=-1)
    nowhere = np.isneginf(largest)
    if nowhere.any():  # so far away that every density is zero: all components are equally absurd
        log_joint = np.where(nowhere[..., None], 0.0, log_joint)
        responsibilities, log_likelihoods = normalize(log_joint)
        return responsibilities, np.where(nowhere, -np.inf, log_likelihoods)
    joint = np.exp(log_joint - largest[..., None])
    total = joint.sum(axis=-1)
    joint /= total[..., None]
    return joint, np.log(total) + largest


def block_statistics(X: NDArray[np.floating], responsibilities: Array, *, is_matrix: bool) -> Statistics:
    """Sufficient statistics of some rows within one block; those of other rows can be added to them.

    Two passes over rows that are in the cache, the second with a correction: as accurate as can be.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    responsibilities : array of shape (n_samples, n_components)
    is_matrix : bool
        Whole scatter matrices; otherwise their diagonals.
    """
    counts = responsibilities.sum(axis=0)
    present = np.where(counts > 0, counts, 1.0)
    rough = responsibilities.T @ X / present[:, None]
    deviations = X - rough[:, None, :]
    weighted = deviations * responsibilities.T[:, :, None]
    sums = weighted.sum(axis=1)
    shifts = sums / present[:, None]
    if is_matrix:
        scatters = weighted.transpose(0, 2, 1) @ deviations - sums[:, :, None] * shifts[:, None, :]
    else:
        scatters = np.einsum("kmd,kmd->kd", weighted, deviations) - sums * shifts
    return Statistics(counts, rough + shifts, scatters)


def add_statistics(first: Statistics, second: Statistics) -> Statistics:
    """Statistics of the union of two sets of rows (Chan, Golub and LeVeque's update)."""
    counts = first.counts + second.counts
    share = second.counts / np.where(counts > 0, counts, 1.0)
    gaps = second.means - first.means
    means = first.means + share[:, None] * gaps
    outer = gaps[:, :, None] * gaps[:, None, :] if first.scatters.ndim == 3 else gaps**2
    scatters = first.scatters + second.scatters + _per_component(first.counts * share, outer) * outer
    return Statistics(counts, means, scatters)


def m_step(statistics: Statistics, covariance_type: str, reg_covar: float) -> Block:
    """Means and covariances of one block from its statistics (equations 9 and 11).

    `reg_covar` is added to every variance, as in scikit-learn.
    """
    structure = STRUCTURES[covariance_type]
    counts = statistics.counts + TINY_COUNT
    covariances = statistics.scatters / _per_component(counts, statistics.scatters)
    if structure.is_matrix:
        covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
    else:
        covariances = np.maximum(covariances, 0.0)
    if structure.shared_by == "components":
        covariances = np.average(covariances, axis=0, weights=counts)[None]
    elif structure.shared_by == "columns":
        covariances = covariances.mean(axis=1, keepdims=True)
    covariances += reg_covar * np.eye(covariances.shape[1]) if structure.is_matrix else reg_covar
    return make_block(statistics.means, covariances)


def make_weights(counts: Array) -> Array:
    """Component weights from sums of responsibilities (equation 5a); (..., n_components) to the same shape."""
    counts = counts + TINY_COUNT
    weights: Array = counts / counts.sum(axis=-1, keepdims=True)
    return weights


def make_block(means: Array, covariances: Array) -> Block:
    """Block with the factors that its densities need.

    Parameters
    ----------
    means : array of shape (n_components, n_columns)
    covariances : array
        In the broadcastable shapes of `Block`.

    Raises
    ------
    CollapsedComponentError
        If a covariance is not positive definite.
    """
    n_components, n_columns = means.shape
    finite = np.isfinite(covariances).reshape(len(covariances), -1).all(axis=1)
    if not finite.all():
        raise CollapsedComponentError(int(np.argmin(finite)))
    if covariances.ndim == 3:
        whiteners = np.stack([_whitener(matrix, k) for k, matrix in enumerate(covariances)])
        log_determinants = np.log(np.diagonal(whiteners, axis1=1, axis2=2)).sum(axis=1)
    else:
        positive = (covariances > 0).all(axis=1)
        if not positive.all():
            raise CollapsedComponentError(int(np.argmin(positive)))
        whiteners = 1.0 / np.sqrt(covariances)
        log_determinants = np.log(np.broadcast_to(whiteners, means.shape)).sum(axis=1)
    log_normalizers = np.broadcast_to(log_determinants, n_components) - 0.5 * n_columns * np.log(2 * np.pi)
    return Block(means, covariances, whiteners, log_normalizers)


def _per_component(values: Array, like: Array) -> Array:
    """Values (n_components,) in a shape that broadcasts against an array whose first axis is the components."""
    return values.reshape((-1,) + (1,) * (like.ndim - 1))


def _whitener(covariance: Array, component: int) -> Array:
    try:
        factor = linalg.cholesky(covariance, lower=True, check_finite=False)
    except linalg.LinAlgError:
        raise CollapsedComponentError(component) from None
    identity = np.eye(len(covariance))
    whitener: Array = linalg.solve_triangular(factor, identity, lower=True, check_finite=False).T
    return whitener


def n_covariance_parameters(n_components: int, n_columns: int, covariance_type: str) -> int:
    """Count the free numbers in one block's covariances."""
    structure = STRUCTURES[covariance_type]
    one = n_columns * (n_columns + 1) // 2 if structure.is_matrix else n_columns
    if structure.shared_by == "components":
        return one
    return n_components if structure.shared_by == "columns" else n_components * one
