"""What each component looks like, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vpem.core.blocks.arrays import Array, Block
from vpem.core.blocks.density import Density


@dataclass(frozen=True, eq=False)
class Profile:
    """Components and everyone, in the units of the columns."""

    shares: Array
    """(n_components,): the weights."""
    means: Array
    """(n_components, n_features)"""
    deviations: Array
    """(n_components, n_features): standard deviations."""
    overall_means: Array
    """(n_features,): of all components together."""
    overall_deviations: Array
    """(n_features,): of all components together; they include what lies between the means."""

    @property
    def distances(self) -> Array:
        """How far each mean is from everyone's, in overall deviations, with a sign; (n_components, n_features)."""
        distances: Array = (self.means - self.overall_means) / self.overall_deviations
        return distances


def make_profile(
    weights: Array, density: Density, blocks: Sequence[Block], columns: Sequence[Sequence[int]]
) -> Profile:
    """Profile of a mixture.

    Parameters
    ----------
    weights : array of shape (n_components,)
    density : Density
    blocks : sequence of Block
    columns : sequence of sequences of int
        Each block's column numbers.
    """
    order = np.argsort(np.concatenate([np.asarray(own) for own in columns]))
    means = np.concatenate([density.means(block) for block in blocks], axis=1)[:, order]
    deviations = np.concatenate([density.deviations(block) for block in blocks], axis=1)[:, order]
    overall = weights @ means
    spread = np.sqrt(weights @ (deviations**2 + (means - overall) ** 2))
    return Profile(np.asarray(weights), means, deviations, overall, spread)
