"""Incremental EM: which rows belong to which batch, and what a batch leaves behind.

The paper keeps every root's responsibilities and updates the sums of the M-step by difference. Here each batch keeps
its own *statistics* instead: they are smaller if a batch has a few times more rows than a block has columns,
they hold with gaps too (whose filling-in depends on the parameters of the time), and nothing is ever subtracted, so
that no rounding can pile up. The statistics of all batches but one are those of the batches before it, as they are
now, and of those after it, as they were at the beginning of the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block, Statistics
from vpem.core.blocks.density import Density

Array = NDArray[np.float64]


def batch_slices(n_samples: int, batch_size: int) -> list[slice]:
    """Consecutive batches of `batch_size` rows, the last one perhaps smaller.

    The rows stay in their order: every batch keeps its own statistics, so that, unlike with stochastic gradients,
    no batch has to look like the whole.
    """
    return [slice(start, min(start + batch_size, n_samples)) for start in range(0, n_samples, batch_size)]


@dataclass(frozen=True, eq=False)
class Kept:
    """What some rows leave behind."""

    counts: Array
    """(n_views, n_components): sums of each root's responsibilities."""
    entropy: Array
    """(n_views,): of the responsibilities."""
    statistics: tuple[Statistics, ...]
    """Each block's."""

    def plus(self, other: Kept | None, density: Density) -> Kept:
        """What these rows and others leave behind."""
        if other is None:
            return self
        statistics = tuple(density.adds(self.statistics, other.statistics))
        return Kept(self.counts + other.counts, self.entropy + other.entropy, statistics)

    def times(self, factor: float, density: Density) -> Kept:
        """The same rows with another weight."""
        statistics = tuple(density.scale(own, factor) for own in self.statistics)
        return Kept(factor * self.counts, factor * self.entropy, statistics)

    def densities(self, blocks: Sequence[Block], density: Density) -> Array:
        """What each block adds to the free energy of these rows; (n_blocks,)."""
        pairs = zip(self.statistics, blocks, strict=True)
        return np.array([density.expected_log_density(*pair) for pair in pairs])

    def energy(self, densities: Array, weights: Array) -> Array:
        """Free energy of these rows, as each root sees it; (n_views,).

        Parameters
        ----------
        densities : array of shape (n_views,)
            The network's sum of what the blocks add.
        weights : array of shape (n_views, n_components)
        """
        energy: Array = densities + (self.counts * np.log(weights)).sum(axis=1) + self.entropy
        return energy


def suffixes(kept: Sequence[Kept | None], density: Density) -> list[Kept | None]:
    """For each batch, what it and all after it left behind; None at the end."""
    found: list[Kept | None] = [None]
    for own in reversed(kept):
        found.append(own if own is None else own.plus(found[-1], density))
    return found[::-1]
