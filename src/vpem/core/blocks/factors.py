"""Gaussian blocks as functions of arrays: factors of covariances, log-densities, statistics around the rows' means.

Parameters of a block: `means` (n_components, n_columns). `covariances` and `whiteners` (upper triangular U with
U U^T = precision, scikit-learn's precisions_cholesky_; or 1 / deviation) broadcast against the components: they are
(n_components, n_columns, n_columns) for full, (1, n_columns, n_columns) for tied, (n_components, n_columns) for diag,
(n_components, 1) for spherical. `log_normalizers` (n_components,): log of the factor before the exponential.

Statistics: `counts` (n_components,), sums of responsibilities. `means` (n_components, n_columns), weighted.
`scatters` (n_components, n_columns[, n_columns]), weighted sums of (x - mean)(x - mean)^T or of its diagonal, so that
large offsets cost no digits. `gap_entropy` (1,), the entropy of the gaps given the rest, for the free energy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array, Block, Statistics
from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.weights import EPSILON, LOWEST

SINGULAR = 64 * EPSILON
"""Smallest conditional variance of a column given the others, as a share of its variance, per column of the block.

Rounding depends on the order of sums and on the processor, by about EPSILON per column. All processors must agree on
whether a matrix is singular.
"""


def log_contribution(X: NDArray[np.floating], block: Block) -> Array:
    """Log-density of each row under each component, within one block.

    This is the block's contribution to the network's sum. It includes all constants: with the paper's
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
    contribution: Array = np.maximum(block.log_normalizers[:, None] - 0.5 * distances, LOWEST).T
    return contribution


def expected_contribution(statistics: Statistics, block: Block) -> float:
    """Expected log-density of the rows of statistics, plus the entropy of their gaps.

    The former is `-1/2 sum_k n_k (log|S_k| + tr(S_k^-1 C_k) + d log 2 pi)`.
    """
    moved = statistics.means - block.means
    if block.whiteners.ndim == 3:
        spread = ((statistics.scatters @ block.whiteners) * block.whiteners).sum(axis=(1, 2))
        distances = np.square(moved[:, None, :] @ block.whiteners).sum(axis=(1, 2))
    else:
        precisions = block.whiteners**2
        spread = (statistics.scatters * precisions).sum(axis=1)
        distances = (moved**2 * precisions).sum(axis=1)
    counts = statistics.counts
    total = counts @ block.log_normalizers - 0.5 * (spread + counts * distances).sum()
    return float(total) + float(statistics.gap_entropy[0])


def block_statistics(X: NDArray[np.floating], responsibilities: Array, *, is_matrix: bool) -> Statistics:
    """Sufficient statistics of rows within one block; statistics of other rows can be added.

    For accuracy, the function makes two passes over rows that are in the cache, the second with a correction.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    responsibilities : array of shape (n_samples, n_components)
    is_matrix : bool
        True for full scatter matrices, False for their diagonals.
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
    return make_statistics(counts, rough + shifts, scatters)


def add_statistics(first: Statistics, second: Statistics) -> Statistics:
    """Statistics of the union of two sets of rows (Chan, Golub and LeVeque's update)."""
    counts = first.counts + second.counts
    share = second.counts / (counts + (counts == 0))
    gaps = second.means - first.means
    means = first.means + share[:, None] * gaps
    if first.scatters.ndim == 3:
        between = (first.counts * share)[:, None, None] * (gaps[:, :, None] * gaps[:, None, :])
    else:
        between = (first.counts * share)[:, None] * gaps**2
    scatters = first.scatters + second.scatters + between
    gap_entropy = first.gap_entropy + second.gap_entropy
    return Statistics(counts=counts, means=means, scatters=scatters, gap_entropy=gap_entropy)


def scale_statistics(statistics: Statistics, factor: float) -> Statistics:
    """Statistics of the same rows with their weights multiplied by a factor."""
    return make_statistics(
        factor * statistics.counts, statistics.means, factor * statistics.scatters, factor * statistics.gap_entropy
    )


def make_block(means: Array, covariances: Array) -> Block:
    """Make a block with the factors that its densities need.

    Parameters
    ----------
    means : array of shape (n_components, n_columns)
    covariances : array
        Covariances in the shape of one of the four types.

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
        # C order in memory: matrix products of an agent must round the same way after it is saved and restored.
        whiteners: Array = np.ascontiguousarray(np.linalg.inv(_factors(covariances)).transpose(0, 2, 1))
        log_determinants = np.log(np.diagonal(whiteners, axis1=1, axis2=2)).sum(axis=1)
    else:
        positive = (covariances > 0).all(axis=1)
        if not positive.all():
            raise CollapsedComponentError(int(np.argmin(positive)))
        whiteners = 1.0 / np.sqrt(covariances)
        log_determinants = np.log(np.broadcast_to(whiteners, means.shape)).sum(axis=1)
    log_normalizers = np.broadcast_to(log_determinants, n_components) - 0.5 * n_columns * np.log(2 * np.pi)
    return Block(means=means, covariances=covariances, whiteners=whiteners, log_normalizers=log_normalizers)


def _factors(covariances: Array) -> Array:
    """Lower Cholesky factors of (n_matrices, n_columns, n_columns)."""
    try:
        factors = np.asarray(np.linalg.cholesky(covariances), dtype=np.float64)
    except np.linalg.LinAlgError:
        # Find the matrix that failed, with the same function, so that no other component is reported.
        for component, covariance in enumerate(covariances):
            try:
                np.linalg.cholesky(covariance)
            except np.linalg.LinAlgError:
                raise CollapsedComponentError(component) from None
        raise
    # A column's conditional variance given the others must be well above the rounding of its own variance.
    left, whole = (np.diagonal(part, axis1=1, axis2=2) for part in (factors, covariances))
    sound = (left**2 > SINGULAR * covariances.shape[1] * whole).all(axis=1)
    if not sound.all():
        raise CollapsedComponentError(int(np.argmin(sound)))
    return factors


def make_statistics(counts: Array, means: Array, scatters: Array, gap_entropy: float | Array = 0.0) -> Statistics:
    """Make the statistics of one block."""
    entropy = np.reshape(gap_entropy, 1)
    return Statistics(counts=counts, means=means, scatters=scatters, gap_entropy=entropy)


def variances(covariances: Array) -> Array:
    """Variances of covariances of any type; they broadcast against (n_components, n_columns)."""
    found: Array = np.diagonal(covariances, axis1=1, axis2=2) if covariances.ndim == 3 else covariances
    return found


def rescaled(name: str, array: Array, factors: Array) -> Array:
    """Return means or covariances after the columns are multiplied by factors, (n_columns,)."""
    if name == "means":
        return array * factors
    return array * (np.outer(factors, factors) if array.ndim == 3 else factors**2)


def regressions(covariances: Array, XT: Array) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.intp], Array]]:
    """Yield each pattern of gaps, its rows, and the slopes of the regression of missing columns on observed ones.

    Slopes have the shape (n_components or 1, n_columns observed, n_columns missing). Rows without gaps, and rows of
    gaps only, are left out.
    """
    patterns, numbers = np.unique(np.isnan(XT), axis=1, return_inverse=True)
    for number, gone in enumerate(patterns.T):
        if gone.any() and not gone.all():
            seen = covariances[:, ~gone]
            slopes = np.linalg.solve(seen[:, :, ~gone], seen[:, :, gone])
            yield gone, np.flatnonzero(numbers.ravel() == number), np.asarray(slopes, dtype=np.float64)


def parameter_vector(block: Block) -> Array:
    """Means, then log-variances, or the log-diagonals and the lower triangles of Cholesky factors."""
    if block.covariances.ndim != 3:
        return np.concatenate([block.means.ravel(), np.log(block.covariances).ravel()])
    factors = np.linalg.cholesky(block.covariances)
    rows, columns = np.tril_indices(factors.shape[1], -1)
    logs = np.log(np.diagonal(factors, axis1=1, axis2=2))
    return np.concatenate([block.means.ravel(), logs.ravel(), factors[:, rows, columns].ravel()])


def block_of_vector(vector: Array, like: Block) -> Block:
    """Inverse of `parameter_vector`, for a block of the same shapes."""
    n_means, shape = like.means.size, like.covariances.shape
    means, rest = vector[:n_means].reshape(like.means.shape), vector[n_means:]
    if len(shape) != 3:
        return make_block(means, np.exp(rest).reshape(shape))
    n_matrices, width, _ = shape
    diagonal, (rows, columns) = np.arange(width), np.tril_indices(width, -1)
    factors = np.zeros(shape)
    factors[:, diagonal, diagonal] = np.exp(rest[: n_matrices * width]).reshape(n_matrices, width)
    factors[:, rows, columns] = rest[n_matrices * width :].reshape(n_matrices, -1)
    return make_block(means, factors @ factors.transpose(0, 2, 1))
