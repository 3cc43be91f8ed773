"""A density with its optional methods: those with a default that suits nearly every density.

They are grouped by who asks for them. A density overrides those for which it has something better.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array, Block, Columns, Statistics
from vpem.core.blocks.density_core import OWN as OWN
from vpem.core.blocks.density_core import CollapsedComponentError as CollapsedComponentError
from vpem.core.blocks.density_core import DensityCore
from vpem.core.blocks.kmeans_features import Features
from vpem.core.blocks.tiles import Collector, Layout, Numbers, Packed, Tile, first_columns


class PartyParameters(DensityCore):
    """Parameters as users, files and `standardize` see them; they may depend on the parties of the columns."""

    def complete(self, found: Block | None, given: Mapping[str, Array]) -> Block:
        """Return a block in which given arrays replace found ones; without a found block, all arrays are given."""
        if found is None:
            return self.make(given)
        return self.make({**{name: found.arrays[name] for name in self.shapes(1, 1)}, **given}) if given else found

    def n_parameters(self, n_components: int, n_columns: int) -> int:
        """Number of free parameters of one block."""
        return sum(prod(shape) for shape in self.shapes(n_components, n_columns).values())

    def n_block_parameters(self, block: Block) -> int:
        """`n_parameters` of one block."""
        return self.n_parameters(*self.means(block).shape)

    def block_shapes(
        self, n_components: int, n_columns: int, parties: Sequence[Hashable]
    ) -> dict[str, tuple[int, ...]]:
        """`shapes` of the block of these parties' columns, for families in which they depend on the parties."""
        return self.shapes(n_components, n_columns)

    def fixed_arrays(self, shapes: Mapping[str, tuple[int, ...]], parties: Sequence[Hashable]) -> dict[str, Array]:
        """Arrays of the block of these parties that are fully determined and need not be given."""
        return {name: np.zeros(shape) for name, shape in shapes.items() if 0 in shape}

    def families_of(self, parties: Sequence[Hashable]) -> tuple[str, ...]:
        """Families of the columns of these parties; empty if all columns belong to one family."""
        return ()

    def scaled_columns(self, n_columns: int, parties: Sequence[Hashable]) -> NDArray[np.intp]:
        """Columns of the block of these parties that may be divided by their deviations before a fit."""
        return np.arange(n_columns)

    def rescale(self, block: Block, factors: Array) -> Block:
        """Return the block after its columns are multiplied by factors, (n_columns,); for `standardize`."""
        raise NotImplementedError(f"{type(self).__name__} cannot be standardized")


class ManyBlocks(DensityCore):
    """Many blocks at once: loops over blocks, which a density may replace by faster code."""

    def layout(self, widths: Sequence[int], n_components: int) -> Layout:
        """Return the layout of blocks with these numbers of columns; it is reused throughout a fit."""
        return Layout(starts=first_columns(widths), n_components=n_components)

    def pack(self, blocks: Sequence[Block], layout: Layout) -> Packed:
        """Pack blocks for a pass over the rows."""
        return PackedOneByOne(self, layout, blocks)

    def adds(self, ones: Sequence[Statistics], others: Sequence[Statistics]) -> list[Statistics]:
        """`add` of many blocks."""
        return [self.add(*pair) for pair in zip(ones, others, strict=True)]

    def m_steps(
        self, statistics: Sequence[Statistics], previous: Sequence[Block], columns: Sequence[Columns]
    ) -> tuple[list[Block], list[list[int]]]:
        """`m_step` of many blocks."""
        pairs = [self.m_step(*own) for own in zip(statistics, previous, columns, strict=True)]
        return [block for block, _ in pairs], [collapsed for _, collapsed in pairs]


class Starts(ManyBlocks):
    """Parameters before EM, by k-means and after a restart."""

    def forget(self, statistics: Statistics, components: Sequence[int], weights: Array, block: Block) -> Statistics:
        """Replace the statistics of restarted components by those of their new parameters; by default, by zeros.

        Parameters
        ----------
        statistics : Statistics
            Statistics of a stream, per row.
        components : sequence of int
        weights : array of shape (n_components,)
        block : Block
            Parameters after the restart.
        """
        found = {name: array.copy() for name, array in statistics.arrays.items()}
        for array in found.values():
            array[components] = 0.0
        return Statistics(**found)

    def overall(
        self, columns: Sequence[Columns], collect: Callable[[Sequence[Block]], Sequence[Statistics]]
    ) -> list[Block]:
        """Return a block of one component for all rows, for each block.

        Parameters
        ----------
        columns : sequence of Columns
            Columns of each block.
        collect : callable
            Function that takes one pass over all rows and returns each block's statistics. It fills in gaps by their
            expectation under the given blocks.

        Raises
        ------
        CollapsedComponentError
            If no component could have parameters.
        """
        first = [self.first(own) for own in columns]
        found, collapsed = self.m_steps(collect(first), first, columns)
        for own, broken in zip(columns, collapsed, strict=True):
            if broken:
                raise CollapsedComponentError(None, own.party, lacking="parameters")
        return found

    def restart(self, block: Block, components: Sequence[int], rows: Array, everything: Block) -> Block:
        """Re-initialize components at the given rows, (len(components), n_columns), without gaps; see `start`."""
        fresh, found = self.start(rows, everything), {name: array.copy() for name, array in block.arrays.items()}
        for name, array in found.items():
            array[components] = fresh.arrays[name]
        return Block(**found)

    def features(self, everything: Block) -> Features | None:
        """Features by which k-means compares rows before EM; None: the columns themselves.

        `everything` is the block's part of `overall`, which every holder of the block's columns knows.
        """
        return None

    def around(self, centres: Array, everything: Block) -> Block:
        """`start` around centres of k-means, (n_components, n_features); see `features`."""
        return self.start(centres, everything)


class Reports(DensityCore):
    """What predictions and reports show of columns."""

    def correlations(self, block: Block) -> Array | None:
        """Correlations within components, (n_components or 1, n_columns, n_columns); None: independent columns."""
        return None

    def marginal(self, block: Block, column: int, points: Array) -> Array:
        """Log-density of one column at the given points; (n_components, n_points)."""
        XT = np.full((self.means(block).shape[1], len(points)), np.nan)
        XT[column] = points
        return self.log_density(XT, block)

    def conditional(self, block: Block, XT: Array) -> Array:
        """Fill in the gaps of rows (n_columns, n_rows) by conditional means; (n_components, n_columns, n_rows).

        By default columns are independent within a component, and a gap is replaced by the component's mean.
        """
        return np.where(np.isnan(XT), self.means(block)[:, :, None], XT)

    def conditional_deviations(self, block: Block, XT: Array) -> Array:
        """Standard deviations of gaps within each component, 0 elsewhere; shapes and default as of `conditional`."""
        return np.where(np.isnan(XT), self.deviations(block)[:, :, None], 0.0)

    def values(self, block: Block, column: int) -> Array | None:
        """Possible values of one column except very unlikely ones, (n_values,); None if the column is continuous."""
        return None

    def period(self, block: Block, column: int) -> float | None:
        """Period of one column's values, such as angles or hours; None if the values are not periodic."""
        return None

    def categories(self, block: Block, column: int) -> Array | None:
        """Probabilities of one column's categories, (n_components, n_categories); None if the column is numeric."""
        return None

    def point_mass(self, block: Block, column: int) -> Array | None:
        """Shares of values that are exactly zero, (n_components,), in a column that is continuous elsewhere."""
        return None

    def measure(self, block: Block, column: int) -> str:
        """Kind of one column's log-densities: "density", which depends on the unit, "probability", or both."""
        if self.point_mass(block, column) is not None:
            return "density, and a probability of zero"
        return "density" if self.values(block, column) is None else "probability"

    def log_units(self, block: Block, weights: Array, XT: Array) -> Array:
        """Logarithms of the units of rows' densities, (n_rows,), for columns with probabilities and densities.

        A column that has probabilities at some values and densities at others has no common unit: relative to each
        other, they depend on the column's unit. A log-density plus this correction does not.

        Parameters
        ----------
        block : Block
        weights : array of shape (n_components,)
        XT : array of shape (n_columns, n_rows)
        """
        return np.zeros(XT.shape[1])

    def complaint(self, block: Block, row: Array, names: Sequence[object]) -> str | None:
        """Describe the value of a row, (n_columns,), that is outside its family's support; None if all are valid."""
        return None


class Density(PartyParameters, Starts, Reports):
    """A family of densities of the columns of one block, within each component.

    A density is a frozen dataclass. Its fields are hashable plain values: settings that all parties share and agree
    on, unless they are marked with `OWN`. The first axis of the arrays of a `Block` and of `Statistics` is the
    components; a density for which this does not hold overrides `restart` and `forget` too.

    A density must define the abstract methods, which are those of `DensityCore`. All others have defaults.
    """


class PackedDensity(Density):
    """A density with its own `pack`, whose code evaluates single blocks too."""

    def log_density(self, XT: Array, block: Block) -> Array:
        """See `Density`."""
        packed, tile = self._alone(XT, block)
        out = np.zeros((1, packed.layout.n_components, XT.shape[1]))
        packed.add(tile, np.zeros(len(XT), dtype=np.int64), out)
        found: Array = out[0]
        return found

    def collect(self, XT: Array, responsibilities: Array, block: Block) -> Statistics:
        """See `Density`."""
        packed, tile = self._alone(XT, block)
        nowhere = np.zeros(len(XT))
        found = packed.collector(nowhere, nowhere, self.means(block))()
        found.collect(tile, np.ascontiguousarray(responsibilities)[None], np.zeros(len(XT), dtype=np.int64))
        return found.statistics()[0]

    def _alone(self, XT: Array, block: Block) -> tuple[Packed, Tile]:
        """Pack one block and rows for a pass."""
        packed = self.pack([block], self.layout([len(XT)], len(self.means(block))))
        XT = np.ascontiguousarray(XT, dtype=np.float64)
        return packed, Tile(XT, slice(0, XT.shape[1]), packed.look(XT, np.asarray(np.isnan(XT).any(axis=1))))


class PackedOneByOne(Packed):
    """Packed blocks that are evaluated one at a time."""

    def __init__(self, density: ManyBlocks, layout: Layout, blocks: Sequence[Block]):
        self.density, self.layout, self.blocks = density, layout, blocks

    def add(self, tile: Tile, targets: Numbers, out: Array) -> None:
        """Add log-densities; see `Contributions`."""
        for b, block in enumerate(self.blocks):
            own = self.layout.columns(b)
            out[targets[own.start]] += self.density.log_density(tile.XT[own], block)

    def collector(self, means: Array, variances: Array, centres: Array | None = None) -> Callable[[], Collector]:
        """See `Packed`."""
        return partial(CollectedOneByOne, self)


class CollectedOneByOne(Collector):
    """Each block's statistics, added tile by tile."""

    def __init__(self, packed: PackedOneByOne):
        self.packed = packed
        self.found: list[Statistics] = []

    def collect(self, tile: Tile, responsibilities: Array, views: Numbers) -> None:
        """See `Collector`."""
        density, layout = self.packed.density, self.packed.layout
        own = [
            density.collect(tile.XT[layout.columns(b)], responsibilities[views[layout.starts[b]]], block)
            for b, block in enumerate(self.packed.blocks)
        ]
        self.found = density.adds(self.found, own) if self.found else own

    def add(self, other: Self) -> None:
        """Add the statistics of later rows."""
        self.found = self.packed.density.adds(self.found, other.found) if self.found else other.found

    def statistics(self) -> tuple[Statistics, ...]:
        """Statistics of each block."""
        return tuple(self.found)
