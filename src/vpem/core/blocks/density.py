"""Protocol of a family of densities: the distribution of a block's columns within a component.

A family is one class. It defines the parameters of a block (`Block`), the contribution of a block to the network's
sum, the statistics that an M-step needs (`Statistics`), and the M-step. Blocks do not depend on each other directly:
they share only the sum of their contributions (equation 12 of the paper). The rest of the package treats blocks and
statistics as opaque.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array, Block, Columns, Statistics
from vpem.core.blocks.features import Features
from vpem.core.blocks.tiles import Collector, Layout, Numbers, Packed, Tile, first_columns

OWN = "own"
"""Metadata key of a field of which each agent has its own part; agents do not compare such fields."""


class CollapsedComponentError(ValueError):
    """Error for a component whose rows do not determine its parameters, such as a singular covariance.

    Parameters
    ----------
    component : int or None
        None: the block's columns do not determine any parameters, whatever the component.
    party : object
    repairs : int
        Number of earlier repairs of the component.
    lacking : str
        What no component can have, for the message.
    """

    def __init__(self, component: int | None, party: object = None, repairs: int = 0, lacking: str = "a covariance"):
        self.component = component
        self.party = party
        where = "" if party is None else f" at party {party!r}"
        what = f"no component can have {lacking}" if component is None else f"component {component} has collapsed"
        again = f" ({repairs} repairs did not help)" if repairs else ""
        super().__init__(
            f"{what}{where}{again}: expected rows that determine the parameters of a component (of a Gaussian, a "
            "positive definite covariance), got too few distinct rows, or columns that are constant, multiples of "
            "each other or too large; try fewer components, a larger reg_covar, another covariance_type, "
            "shrinkage='oas', or scaling or leaving out columns"
        )


class Density(ABC):
    """A family of densities of the columns of one block, within each component.

    A family is a frozen dataclass. Its fields are hashable plain values: settings that all parties share and agree
    on, unless they are marked with `OWN`. The first axis of the arrays of a `Block` and of `Statistics` is the
    components; a family for which this does not hold overrides `restart` and `forget` too.
    """

    # Parameters

    @abstractmethod
    def shapes(self, n_components: int, n_columns: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the arrays from which `make` makes a block; a file stores these arrays."""

    @abstractmethod
    def make(self, arrays: Mapping[str, Array]) -> Block:
        """Make a block from arrays of these shapes, and derive its other arrays.

        Raises
        ------
        ValueError
            If the arrays are not valid parameters.
        """

    def complete(self, found: Block | None, given: Mapping[str, Array]) -> Block:
        """Return a block in which given arrays replace found ones; without a found block, all arrays are given."""
        if found is None:
            return self.make(given)
        return self.make({**{name: found.arrays[name] for name in self.shapes(1, 1)}, **given}) if given else found

    def n_parameters(self, n_components: int, n_columns: int) -> int:
        """Number of free parameters of one block."""
        return sum(prod(shape) for shape in self.shapes(n_components, n_columns).values())

    def families_of(self, parties: Sequence[Hashable]) -> tuple[str, ...]:
        """Families of the columns of these parties; empty if all columns belong to one family."""
        del parties
        return ()

    def block_shapes(
        self, n_components: int, n_columns: int, parties: Sequence[Hashable]
    ) -> dict[str, tuple[int, ...]]:
        """`shapes` of the block of these parties' columns, for families in which they depend on the parties."""
        del parties
        return self.shapes(n_components, n_columns)

    def fixed_arrays(self, shapes: Mapping[str, tuple[int, ...]], parties: Sequence[Hashable]) -> dict[str, Array]:
        """Arrays of the block of these parties that are fully determined and need not be given."""
        del parties
        return {name: np.zeros(shape) for name, shape in shapes.items() if 0 in shape}

    def n_block_parameters(self, block: Block) -> int:
        """`n_parameters` of one block."""
        return self.n_parameters(*self.means(block).shape)

    def scaled_columns(self, n_columns: int, parties: Sequence[Hashable]) -> NDArray[np.intp]:
        """Columns of the block of these parties that may be divided by their deviations before a fit."""
        del parties
        return np.arange(n_columns)

    def rescale(self, block: Block, factors: Array) -> Block:
        """Return the block after its columns are multiplied by factors, (n_columns,); for `standardize`."""
        raise NotImplementedError(f"{type(self).__name__} cannot be standardized")

    @abstractmethod
    def to_vector(self, block: Block) -> Array:
        """Return the parameters as one unconstrained vector: every nearby vector gives valid parameters."""

    @abstractmethod
    def from_vector(self, vector: Array, like: Block) -> Block:
        """Inverse of `to_vector`, for a block of the same shapes."""

    # EM

    @abstractmethod
    def log_density(self, XT: Array, block: Block) -> Array:
        """Log-density of each row under each component, with all constants.

        Parameters
        ----------
        XT : array of shape (n_columns, n_rows)
            Gaps (NaN) are marginalized; a row of gaps has log-density 0.
        block : Block

        Returns
        -------
        array of shape (n_components, n_rows)
            Finite: at least `LOWEST`.
        """

    @abstractmethod
    def collect(self, XT: Array, responsibilities: Array, block: Block) -> Statistics:
        """Compute statistics of rows; gaps are filled in by their expectation under `block`, rows of gaps left out.

        Parameters
        ----------
        XT : array of shape (n_columns, n_rows)
        responsibilities : array of shape (n_components, n_rows)
        block : Block

        Raises
        ------
        ValueError
            If a value is outside the family's support.
        """

    def add(self, one: Statistics, other: Statistics) -> Statistics:
        """Return the statistics of the rows of both."""
        return Statistics(**{name: array + other.arrays[name] for name, array in one.arrays.items()})

    def scale(self, statistics: Statistics, factor: float) -> Statistics:
        """Return the statistics of the same rows with their weights multiplied by a factor."""
        return Statistics(**{name: factor * array for name, array in statistics.arrays.items()})

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
        del weights, block
        found = {name: array.copy() for name, array in statistics.arrays.items()}
        for array in found.values():
            array[components] = 0.0
        return Statistics(**found)

    @abstractmethod
    def m_step(self, statistics: Statistics, previous: Block, columns: Columns) -> tuple[Block, list[int]]:
        """Compute parameters from statistics (equations 9 and 11).

        A component that would collapse keeps its previous parameters. So does a component without rows. It does not
        count as collapsed, because no row depends on it.

        Returns
        -------
        block : Block
        collapsed : list of int
        """

    @abstractmethod
    def expected_log_density(self, statistics: Statistics, block: Block) -> float:
        """Expected log-density of the rows that the statistics stand for, plus the entropy of their gaps.

        This is the block's term of the free energy.
        """

    # Initialization

    @abstractmethod
    def first(self, columns: Columns) -> Block:
        """Return a block of one component, from the moments of the columns alone."""

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

    @abstractmethod
    def start(self, centres: Array, everything: Block) -> Block:
        """Return components around centres, (n_components, n_columns).

        All other parameters are those of `everything`, the block's part of `overall`.
        """

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
        del everything
        return None

    def around(self, centres: Array, everything: Block) -> Block:
        """`start` around centres of k-means, (n_components, n_features); see `features`."""
        return self.start(centres, everything)

    # Predictions and reports

    @abstractmethod
    def means(self, block: Block) -> Array:
        """Expected values; (n_components, n_columns)."""

    @abstractmethod
    def deviations(self, block: Block) -> Array:
        """Standard deviations; (n_components, n_columns)."""

    def correlations(self, block: Block) -> Array | None:
        """Correlations within components, (n_components or 1, n_columns, n_columns); None: independent columns."""
        del block
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
        del block, column
        return None

    def period(self, block: Block, column: int) -> float | None:
        """Period of one column's values, such as angles or hours; None if the values are not periodic."""
        del block, column
        return None

    def categories(self, block: Block, column: int) -> Array | None:
        """Probabilities of one column's categories, (n_components, n_categories); None if the column is numeric."""
        del block, column
        return None

    def measure(self, block: Block, column: int) -> str:
        """Kind of one column's log-densities: "density", which depends on the unit, "probability", or both."""
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
        del block, weights
        return np.zeros(XT.shape[1])

    def point_mass(self, block: Block, column: int) -> Array | None:
        """Shares of values that are exactly zero, (n_components,), in a column that is continuous elsewhere."""
        del block, column
        return None

    def complaint(self, block: Block, row: Array, names: Sequence[object]) -> str | None:
        """Describe the value of a row, (n_columns,), that is outside its family's support; None if all are valid."""
        del block, row, names
        return None

    @abstractmethod
    def sample(self, block: Block, labels: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """Draw one row from the component of each label; (n_rows, n_columns)."""

    # Many blocks at once: loops, which a family may replace by faster code

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


class PackedOneByOne(Packed):
    """Packed blocks that are evaluated one at a time."""

    def __init__(self, density: Density, layout: Layout, blocks: Sequence[Block]):
        self.density, self.layout, self.blocks = density, layout, blocks

    def add(self, tile: Tile, targets: Numbers, out: Array) -> None:
        """Add log-densities; see `Contributions`."""
        for b, block in enumerate(self.blocks):
            own = self.layout.columns(b)
            out[targets[own.start]] += self.density.log_density(tile.XT[own], block)

    def collector(
        self,
        means: Array,  # noqa: ARG002 (statistics are what they are, wherever the rows are)
        variances: Array,  # noqa: ARG002
        centres: Array | None = None,  # noqa: ARG002
    ) -> Callable[[], Collector]:
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
        self._add(own)

    def add(self, other: Self) -> None:
        """Add the statistics of later rows."""
        self._add(other.found)

    def _add(self, new: list[Statistics]) -> None:
        pairs = zip(self.found, new, strict=True) if self.found else ()
        self.found = [self.packed.density.add(*pair) for pair in pairs] or new

    def statistics(self) -> tuple[Statistics, ...]:
        """Statistics of each block."""
        return tuple(self.found)
