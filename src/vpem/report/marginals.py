"""What a fitted mixture says about one feature, and about two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def component_deviations(blocks: Sequence[Array], columns: Sequence[Sequence[int]], shape: tuple[int, int]) -> Array:
    """Standard deviations of the components in every feature.

    Parameters
    ----------
    blocks : sequence of arrays
        Each block's covariances, (n_components or 1, n_columns, n_columns), or variances, (n_components, n_columns or
        1), as `as_matrices` returns them.
    columns : sequence of sequences of int
        Each block's column numbers.
    shape : (n_components, n_features)

    Returns
    -------
    array of shape (n_components, n_features)
    """
    deviations = np.empty(shape)
    for held, block in zip(columns, blocks, strict=True):
        variances = np.diagonal(block, axis1=1, axis2=2) if block.ndim == 3 else block
        deviations[:, list(held)] = np.sqrt(variances)
    return deviations


def component_correlations(block: Array) -> Array | None:
    """Correlations of a block of matrices, of the same shape; None for variances, or for a single column."""
    if block.ndim != 3 or block.shape[-1] == 1:
        return None
    deviations = np.sqrt(np.diagonal(block, axis1=1, axis2=2))
    correlations: Array = block / deviations[:, :, None] / deviations[:, None, :]
    return correlations


def as_matrices(covariances: Array, n_columns: int, covariance_type: str) -> Array:
    """A block's covariances in scikit-learn's shape, as matrices (3-dimensional) or variances (2-dimensional)."""
    covariances = np.asarray(covariances, dtype=np.float64)
    if covariances.ndim == 1:
        return covariances[:, None]
    if covariances.shape == (n_columns, n_columns) and covariance_type != "diag":
        return covariances[None]
    return covariances


def component_differences(weights: Array, means: Array, deviations: Array) -> Array:
    """How much of each feature's variance lies between the components.

    Parameters
    ----------
    weights : array of shape (n_components,)
    means, deviations : arrays of shape (n_components, n_features)

    Returns
    -------
    array of shape (n_features,)
        From 0, where all have the same mean, to 1.
    """
    between = weights @ (means - weights @ means) ** 2
    differences: Array = between / (between + weights @ deviations**2)
    return differences
