"""One pass over all rows in batches: in which order it updates, and what its free energy is.

With one batch this is an iteration of EM. With several (Neal and Hinton's incremental EM) there is an M-step after
each of them, from what this batch and the earlier ones have just left behind and what the later ones left in the last
pass. A fresh pass, the first one and one after a repair, visits all batches with the same parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block
from vpem.core.blocks.batches import Kept, suffixes
from vpem.core.blocks.density import Density
from vpem.core.blocks.sweep import Sums, lowest
from vpem.core.blocks.weights import n_present

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BatchPass:
    """How far a pass is; never changed in place."""

    kept: tuple[Kept | None, ...]
    """What each batch left behind when it was last visited."""
    later: tuple[Kept | None, ...] = ()
    """What each batch and all after it had left behind before this pass."""
    fresh: bool = True
    """Whether all batches are visited with the same parameters."""
    lossy: bool = False
    """Whether sums lag behind: then the free energy is that of all rows as they were last visited."""
    number: int = 0
    """The batch that is visited next."""
    earlier: Kept | None = None
    """What the batches of this pass have left behind."""
    energy: Array = field(default_factory=lambda: np.zeros(1))
    """(n_views,): free energy so far."""
    worst_scores: Array = field(default_factory=lambda: np.empty(0))
    worst_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Rows that are explained badly, the worst first, and their scores."""

    @property
    def is_last(self) -> bool:
        """Whether no batch comes after the next one."""
        return self.number == len(self.kept) - 1

    @property
    def is_over(self) -> bool:
        """Whether all batches were visited."""
        return self.number == len(self.kept)

    @property
    def lower_bounds(self) -> Array:
        """Free energy per row at the end of the pass; (n_views,)."""
        assert self.earlier is not None, "a table has rows"
        bounds: Array = self.energy / n_present(self.earlier.counts)
        return bounds

    def densities(self, blocks: Sequence[Block], density: Density) -> Array:
        """What each block adds to a sum beside its rows, for the free energy; (n_blocks,)."""
        visited = self.later[0] if self.lossy and self.later else self.earlier
        if self.fresh or visited is None or self.is_over:
            return np.zeros(len(blocks))
        return visited.densities(blocks, density)

    def has_energy(self, batched: bool) -> bool:
        """Whether `densities` ride on the next batch's sum: on the first, if sums lag behind; else on the last.

        Without batches, nothing is left to add.
        """
        return self.number == 0 if self.lossy else batched and self.is_last

    def ahead(self, density: Density) -> BatchPass:
        """The beginning of the pass after this one, before it is agreed on whether it is a fresh one."""
        if self.lossy and None not in self.kept:
            return begin_pass(self.kept, density, fresh=False, lossy=True)
        return replace(self, number=0, earlier=None)

    def skip(self) -> BatchPass:
        """Go on to the next batch, of which nothing is collected here."""
        return replace(self, number=self.number + 1)

    def take(self, result: Sums, densities: Array, weights: Array, density: Density) -> tuple[BatchPass, Kept | None]:
        """Take in the batch that was visited.

        Parameters
        ----------
        result : Sums
        densities : array of shape (n_views,)
            The network's sum of what the blocks added beside their rows.
        weights : array of shape (n_views, n_components)
        density : Density
            Says how statistics add.

        Returns
        -------
        visited : BatchPass
        total : Kept or None
            What the M-step follows from, if there is one now.
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
    """A pass over batches that have left this behind; nothing before the first pass."""
    return BatchPass(tuple(kept), tuple(suffixes(kept, density)), fresh, lossy, energy=np.zeros(n_views))
