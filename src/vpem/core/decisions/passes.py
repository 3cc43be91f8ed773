"""One pass over all rows in batches: the order of its updates, and its free energy.

With one batch, a pass is an iteration of EM. With several (Neal and Hinton's incremental EM), an M-step follows each
batch. It uses the sums of this batch and the earlier ones from this pass, and those of the later ones from the last
pass. A fresh pass (the first one, and one after a repair) visits all batches with the same parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block
from vpem.core.blocks.batches import Kept, suffixes
from vpem.core.blocks.density import Density
from vpem.core.blocks.sweep import Sums
from vpem.core.blocks.weights import lowest, n_present

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BatchPass:
    """Progress of a pass; never changed in place."""

    kept: tuple[Kept | None, ...]
    """Sums of each batch from its last visit."""
    later: tuple[Kept | None, ...] = ()
    """Sums of each batch and all after it, from before this pass."""
    fresh: bool = True
    """True if all batches are visited with the same parameters."""
    lossy: bool = False
    """True if sums lag behind: then the free energy is that of all rows at their last visit."""
    number: int = 0
    """Number of the batch that is visited next."""
    earlier: Kept | None = None
    """Sums of the batches visited in this pass."""
    energy: Array = field(default_factory=lambda: np.zeros(1))
    """(n_views,): free energy so far."""
    worst_scores: Array = field(default_factory=lambda: np.empty(0))
    worst_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Rows with the lowest scores, in ascending order, and their scores."""

    @property
    def is_last(self) -> bool:
        """True if the next batch is the last one."""
        return self.number == len(self.kept) - 1

    @property
    def is_over(self) -> bool:
        """True if all batches were visited."""
        return self.number == len(self.kept)

    @property
    def lower_bounds(self) -> Array:
        """Free energy per row at the end of the pass; (n_views,)."""
        assert self.earlier is not None, "a table has rows"
        bounds: Array = self.energy / n_present(self.earlier.counts)
        return bounds

    def densities(self, blocks: Sequence[Block], density: Density) -> Array:
        """Scalar that each block adds to a sum for the free energy, in addition to its rows; (n_blocks,)."""
        visited = self.later[0] if self.lossy and self.later else self.earlier
        if self.fresh or visited is None or self.is_over:
            return np.zeros(len(blocks))
        return visited.densities(blocks, density)

    def has_energy(self, batched: bool) -> bool:
        """True if `densities` are part of the next batch's sum: the first one if sums lag behind, else the last one.

        Without batches and without lag there is nothing to add.
        """
        return self.number == 0 if self.lossy else batched and self.is_last

    def ahead(self, density: Density) -> BatchPass:
        """Return the start of the next pass, before the agents agree on whether it is a fresh one."""
        if self.lossy and None not in self.kept:
            return begin_pass(self.kept, density, fresh=False, lossy=True)
        return replace(self, number=0, earlier=None)

    def skip(self) -> BatchPass:
        """Advance to the next batch without collecting anything here."""
        return replace(self, number=self.number + 1)

    def take(self, result: Sums, densities: Array, weights: Array, density: Density) -> tuple[BatchPass, Kept | None]:
        """Add the batch that was visited.

        Parameters
        ----------
        result : Sums
        densities : array of shape (n_views,)
            The network's sum of the blocks' `densities`.
        weights : array of shape (n_views, n_components)
        density : Density
            Adds statistics.

        Returns
        -------
        visited : BatchPass
        total : Kept or None
            Sums for the M-step, or None if no M-step follows.
        """
        new, is_last = Kept(result.counts, result.entropies, result.statistics()), self.is_last
        energy, before = self.energy, self.later[0] if self.later else None
        if self.fresh:
            energy = energy + result.scores
        elif self.lossy:
            if self.number == 0 and before is not None:
                energy = before.energy(densities, weights)
        elif is_last:
            energy = result.scores
            if self.earlier is not None:
                energy = energy + self.earlier.energy(densities, weights)
        earlier = new.plus(self.earlier, density)
        total = None
        if is_last or not self.fresh:
            total = earlier if self.fresh else earlier.plus(self.later[self.number + 1], density)
        scores = np.concatenate([self.worst_scores, result.worst[0]])
        scores, rows = lowest(scores, np.concatenate([self.worst_rows, result.worst[1]]).astype(np.intp))
        visited = replace(
            self,
            kept=(*self.kept[: self.number], new, *self.kept[self.number + 1 :]),
            number=self.number + 1,
            earlier=earlier,
            energy=energy,
            worst_scores=scores,
            worst_rows=rows.astype(np.int64),
        )
        return visited, total


def begin_pass(
    kept: Sequence[Kept | None], density: Density, n_views: int = 1, *, fresh: bool = True, lossy: bool = False
) -> BatchPass:
    """Begin a pass over batches; `kept` holds their sums from the last visit, None before the first pass."""
    return BatchPass(tuple(kept), tuple(suffixes(kept, density)), fresh, lossy, energy=np.zeros(n_views))
