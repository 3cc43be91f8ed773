"""What a fitted mixture says about one feature."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpem.core.blocks.arrays import Array, Block
from vpem.core.blocks.density import Density

N_POINTS = 101
"""Points of a curve."""


def component_deviations(density: Density, blocks: Sequence[Block], columns: Sequence[Sequence[int]]) -> Array:
    """Standard deviations of the components in every feature; (n_components, n_features).

    Parameters
    ----------
    density : Density
    blocks : sequence of Block
    columns : sequence of sequences of int
        Each block's column numbers.
    """
    found = np.concatenate([density.deviations(block) for block in blocks], axis=1)
    return found[:, np.argsort(np.concatenate(columns))]


def component_curves(density: Density, block: Block, column: int, limits: Array) -> Array | None:
    """Densities of one column's components at points from limit to limit; (n_components, N_POINTS).

    None if they are the normal curves of the components' means and deviations, which need no points.
    """
    points = np.linspace(limits[0], limits[1], N_POINTS)
    means, deviations = (part(block)[:, [column]] for part in (density.means, density.deviations))
    normal = np.exp(-0.5 * np.square((points - means) / deviations)) / (np.sqrt(2 * np.pi) * deviations)
    curves: Array = np.exp(density.marginal(block, column, points))
    return None if np.allclose(curves, normal, rtol=1e-6, atol=1e-9 * normal.max()) else curves


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
