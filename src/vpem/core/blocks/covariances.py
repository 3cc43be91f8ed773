"""Covariances within one block: the four covariance types, and their estimation."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from vpem.core.blocks.arrays import Array
from vpem.core.blocks.weights import TINY_COUNT

ILL_POSED, WELL_POSED = 10.0, 100.0
"""Rows per column of a covariance up to which "auto" shrinks fully, and from which it does not shrink."""


class Structure(NamedTuple):
    """Meaning of a covariance type within a block."""

    is_matrix: bool
    """True for full matrices, False for variances only."""
    shared_by: Literal["components", "columns"] | None
    """Axis over which one value is shared."""


STRUCTURES: dict[str, Structure] = {
    "full": Structure(True, None),
    "tied": Structure(True, "components"),
    "diag": Structure(False, None),
    "spherical": Structure(False, "columns"),
}


def estimate_covariances(
    counts: Array,
    scatters: Array,
    covariance_type: str = "full",
    reg_covar: float = 1e-6,
    shrinkage: float | str | None = None,
) -> Array:
    """Estimate covariances from scatters; the caller checks that they are positive definite.

    Parameters
    ----------
    counts : array of shape (n_components,)
        Sums of responsibilities.
    scatters : array of shape (n_components, n_columns, n_columns) or (n_components, n_columns)
        Weighted sums of squared deviations from the means, or of their diagonals.
    covariance_type : {"full", "tied", "diag", "spherical"}
    reg_covar : float
        Added to every variance, as in scikit-learn.
    shrinkage : float, "oas", "auto" or None
        Shrinkage of covariances toward their diagonals; see `shrink`. "auto" shrinks components with few rows toward
        the common covariance of all components; see `shrink_together`.

    Returns
    -------
    array
        (n_components, n_columns, n_columns) for full, (1, n_columns, n_columns) for tied, (n_components, n_columns)
        for diag, (n_components, 1) for spherical.
    """
    structure = STRUCTURES[covariance_type]
    counts = counts + TINY_COUNT
    covariances = scatters / per_component(counts, scatters)
    if structure.is_matrix:
        covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
    else:
        covariances = np.maximum(covariances, 0.0)
    if structure.shared_by == "components":
        covariances = np.average(covariances, axis=0, weights=counts)[None]
        counts = counts.sum(keepdims=True)
    elif structure.shared_by == "columns":
        covariances = covariances.mean(axis=1, keepdims=True)
    if shrinkage == "auto":
        covariances = shrink_together(covariances, counts, reg_covar)
    if structure.is_matrix:
        if shrinkage is not None and shrinkage != "auto":
            covariances = shrink(covariances, counts, shrinkage, reg_covar)
        covariances += reg_covar * np.eye(covariances.shape[1])
    else:
        covariances += reg_covar
    return covariances


def shrink(covariances: Array, counts: Array, shrinkage: float | str, reg_covar: float = 0.0) -> Array:
    """Shrink covariances toward their diagonals: `(1 - s) S + s diag(S)`.

    "oas" uses Chen, Wiesel, Eldar and Hero's oracle approximating coefficient, as in scikit-learn, of each
    correlation matrix, with the component's sum of responsibilities as the number of rows. The correlations shrink
    toward zero; the variances do not change. Correlations are computed after `reg_covar` is added to the variances,
    so that a column that hardly varies within a component has little effect.

    Parameters
    ----------
    covariances : array of shape (n_components, n_columns, n_columns)
    counts : array of shape (n_components,)
    shrinkage : float or "oas"
    reg_covar : float, default=0.0
        Amount that the caller will add to the variances.
    """
    n_columns = covariances.shape[1]
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    if shrinkage == "oas":
        deviations = np.sqrt(np.maximum(variances, 0.0) + reg_covar)
        deviations = np.where(deviations > 0, deviations, 1.0)
        correlations = covariances / (deviations[:, :, None] * deviations[:, None, :])
        correlations[:, np.arange(n_columns), np.arange(n_columns)] = 1.0
        mean_square = np.square(correlations).mean(axis=(1, 2))
        distance = (counts + 1.0) * (mean_square - 1.0 / n_columns)
        amount = np.minimum((mean_square + 1.0) / np.where(distance > 0, distance, np.inf), 1.0)
        amount = np.where(distance > 0, amount, 1.0)[:, None, None]
    else:
        amount = np.asarray(shrinkage, dtype=np.float64)
    diagonals = variances[:, :, None] * np.eye(n_columns)
    shrunk: Array = (1.0 - amount) * covariances + amount * diagonals
    return shrunk


def shrink_together(covariances: Array, counts: Array, reg_covar: float = 0.0) -> Array:
    """Shrink covariances of components with few rows toward the common covariance of all components.

    The common covariance T is the mean over components, itself shrunk by "oas". A component with n rows and d columns
    gets `(1 - a) S + a T` with `a = p / (n + p)`, as if `p = d + 1` rows of T were added; p is 2 where there are
    variances only. The amount fades out, in the logarithm of `n / (d + 1)`, between `ILL_POSED` and `WELL_POSED`;
    above, S does not change. `experiments/shrinkage.py` shows the choice of this rule.

    Parameters
    ----------
    covariances : array of shape (n_components, n_columns, n_columns) or (n_components, n_columns)
    counts : array of shape (n_components,)
    reg_covar : float, default=0.0
        Amount that the caller will add to the variances.
    """
    is_matrix = covariances.ndim == 3
    common = np.average(covariances, axis=0, weights=counts)
    if is_matrix:
        common = shrink(common[None], counts.sum(keepdims=True), "oas", reg_covar)[0]
    ratio = counts / (covariances.shape[1] + 1 if is_matrix else 2)
    fading = np.log(WELL_POSED / np.maximum(ratio, ILL_POSED)) / np.log(WELL_POSED / ILL_POSED)
    amount = per_component(1.0 / (1.0 + ratio) * np.maximum(fading, 0.0), covariances)
    shrunk: Array = (1.0 - amount) * covariances + amount * common
    return shrunk


def per_component(values: Array, like: Array) -> Array:
    """Reshape values (n_components,) to broadcast against an array whose first axis is the components."""
    return values.reshape((-1,) + (1,) * (like.ndim - 1))


def n_covariance_parameters(n_components: int, n_columns: int, covariance_type: str) -> int:
    """Count the free parameters in one block's covariances."""
    structure = STRUCTURES[covariance_type]
    one = n_columns * (n_columns + 1) // 2 if structure.is_matrix else n_columns
    if structure.shared_by == "components":
        return one
    return n_components if structure.shared_by == "columns" else n_components * one
