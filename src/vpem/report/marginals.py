"""Density curves of the components in one feature."""

from __future__ import annotations

import numpy as np

from vpem.core.blocks.arrays import Array, Block
from vpem.core.blocks.density import Density

N_POINTS = 101
"""Number of points of a curve."""


def component_curves(density: Density, block: Block, column: int, limits: Array) -> Array | None:
    """Density of one column under each component at points between the limits, shape (n_components, N_POINTS).

    None if the curves are normal, because they then follow from the components' means and deviations.
    """
    points = np.linspace(limits[0], limits[1], N_POINTS)
    step = (limits[1] - limits[0]) / (N_POINTS - 1)
    if density.values(block, column) is not None:  # a step for each whole number
        found: Array = np.exp(density.marginal(block, column, np.maximum(np.rint(points), 0.0)))
        return np.where(points < -0.5, 0.0, found)
    means, deviations = (part(block)[:, [column]] for part in (density.means, density.deviations))
    normal = np.exp(-0.5 * np.square((points - means) / deviations)) / (np.sqrt(2 * np.pi) * deviations)
    curves: Array = np.exp(density.marginal(block, column, points))
    masses = density.point_mass(block, column)
    if masses is not None:  # a spike at zero whose area is the share of zeros
        curves = np.exp(density.marginal(block, column, np.where(points == 0, step / 2, points)))
        curves[:, points < 0] = 0.0
        nearest = int(np.abs(points).argmin())
        if abs(points[nearest]) <= step:
            curves[:, nearest] += masses / step
        return curves
    return None if np.allclose(curves, normal, rtol=1e-6, atol=1e-9 * normal.max()) else curves
