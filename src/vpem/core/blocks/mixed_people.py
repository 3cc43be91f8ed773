"""Predictions and reports for mixed columns: descriptions of a block of several families, by column."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array, Block
from vpem.core.blocks.density import PackedDensity
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.structure import Part, Structure


class DescribedMixed(PackedDensity):
    """The part of `Mixed` that describes blocks."""

    @property
    @abstractmethod
    def gaussian(self) -> Gaussian:
        """Density of the Gaussian columns."""

    def means(self, block: Block) -> Array:
        """See `Density`."""
        return self._by_column(block, block.means, lambda part, own: part.family.means(own))

    def deviations(self, block: Block) -> Array:
        """See `Density`."""
        inner = self.gaussian.deviations(block) if block.means.shape[1] else block.means
        return self._by_column(block, inner, lambda part, own: part.family.deviations(own))

    def _by_column(self, block: Block, gaussian: Array, find: Callable[[Part, Array], Array]) -> Array:
        structure = Structure.of(block)
        found = np.empty((len(block.others), len(structure.families)))
        found[:, structure.gaussian] = gaussian
        for part in structure.others:
            found[:, part.column] = find(part, block.others[:, part.parameters])
        return found

    def correlations(self, block: Block) -> Array | None:
        """See `Density`; zero except between Gaussian columns."""
        structure = Structure.of(block)
        inner = self.gaussian.correlations(block) if len(structure.gaussian) > 1 else None
        if inner is None:
            return None
        n_columns = len(structure.families)
        found = np.repeat(np.eye(n_columns)[None], len(inner), axis=0)
        found[:, structure.gaussian[:, None], structure.gaussian] = inner
        return found

    def conditional(self, block: Block, XT: Array) -> Array:
        """See `Density`."""
        found, chosen = super().conditional(block, XT), Structure.of(block).gaussian
        if len(chosen):
            found[:, chosen] = self.gaussian.conditional(block, XT[chosen])
        return found

    def conditional_deviations(self, block: Block, XT: Array) -> Array:
        """See `Density`."""
        found, chosen = super().conditional_deviations(block, XT), Structure.of(block).gaussian
        if len(chosen):
            found[:, chosen] = self.gaussian.conditional_deviations(block, XT[chosen])
        return found

    def values(self, block: Block, column: int) -> Array | None:
        """See `Density`."""
        family = Structure.of(block).families[column]
        return None if family is None else family.values()

    def period(self, block: Block, column: int) -> float | None:
        """See `Density`."""
        family = Structure.of(block).families[column]
        return None if family is None else family.period

    def categories(self, block: Block, column: int) -> Array | None:
        """See `Density`."""
        part = Structure.of(block).by_column.get(column)
        return None if part is None else part.family.categories(block.others[:, part.parameters])

    def log_units(self, block: Block, weights: Array, XT: Array) -> Array:
        """See `Density`."""
        found = np.zeros(XT.shape[1])
        for part in Structure.of(block).others:
            found += part.family.log_units(XT[part.column], block.others[:, part.parameters], weights)
        return found

    def point_mass(self, block: Block, column: int) -> Array | None:
        """See `Density`."""
        part = Structure.of(block).by_column.get(column)
        return None if part is None else part.family.point_mass(block.others[:, part.parameters])

    def complaint(self, block: Block, row: Array, names: Sequence[object]) -> str | None:
        """See `Density`."""
        found = Structure.of(block).complaint(row[None], names)
        return None if found is None else found[1]

    def sample(self, block: Block, labels: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """See `Density`."""
        structure = Structure.of(block)
        found = np.empty((len(labels), len(structure.families)))
        if len(structure.gaussian):
            found[:, structure.gaussian] = self.gaussian.sample(block, labels, rng)
        for part in structure.others:
            found[:, part.column] = part.family.sample(block.others[:, part.parameters], labels, rng)
        return found
