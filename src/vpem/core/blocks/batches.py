"""Incremental EM: the rows of each batch, and the sums kept for each batch.

The paper keeps every root's responsibilities and updates the sums of the M-step by difference. Here each batch keeps
its own *statistics* instead. They are smaller if a batch has a few times more rows than a block has columns. They
remain valid with gaps, whose filling-in depends on the parameters at the time of the visit. Nothing is ever
subtracted, so that rounding errors do not accumulate. The statistics of all batches but one are the current ones of
the batches before it, plus those of the batches after it from the beginning of the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vpem.core.blocks.arrays import Array, Block, Statistics
from vpem.core.blocks.density import Density


def batch_slices(n_samples: int, batch_size: int) -> list[slice]:
    """Consecutive batches of `batch_size` rows; the last one may be smaller.

    The rows are not shuffled. Every batch keeps its own statistics, so that, unlike with stochastic gradients, a
    batch need not be representative of all rows.
    """
    return [slice(start, min(start + batch_size, n_samples)) for start in range(0, n_samples, batch_size)]


@dataclass(frozen=True, eq=False)
class Kept:
    """Sums over the rows of one or several batches."""

    counts: Array
    """(n_views, n_components): sums of each root's responsibilities."""
    entropy: Array
    """(n_views,): entropies of the responsibilities."""
    statistics: tuple[Statistics, ...]
    """Statistics of each block."""

    def plus(self, other: Kept | None, density: Density) -> Kept:
        """Return the sums over the rows of both."""
        if other is None:
            return self
        statistics = tuple(density.adds(self.statistics, other.statistics))
        return Kept(self.counts + other.counts, self.entropy + other.entropy, statistics)

    def times(self, factor: float, density: Density) -> Kept:
        """Return the sums with the weights of the rows multiplied by a factor."""
        statistics = tuple(density.scale(own, factor) for own in self.statistics)
        return Kept(factor * self.counts, factor * self.entropy, statistics)

    def densities(self, blocks: Sequence[Block], density: Density) -> Array:
        """Term of each block in the free energy of these rows; (n_blocks,)."""
        pairs = zip(self.statistics, blocks, strict=True)
        return np.array([density.expected_log_density(*pair) for pair in pairs])

    def energy(self, densities: Array, weights: Array) -> Array:
        """Free energy of these rows, as each root computes it; (n_views,).

        Parameters
        ----------
        densities : array of shape (n_views,)
            The network's sum of the blocks' `densities`.
        weights : array of shape (n_views, n_components)
        """
        energy: Array = densities + (self.counts * np.log(weights)).sum(axis=1) + self.entropy
        return energy


def suffixes(kept: Sequence[Kept | None], density: Density) -> list[Kept | None]:
    """Sums over each batch and all batches after it; None at the end."""
    found: list[Kept | None] = [None]
    for own in reversed(kept):
        found.append(own if own is None else own.plus(found[-1], density))
    return found[::-1]
