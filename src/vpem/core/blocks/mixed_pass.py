"""Mixed blocks, packed for a pass over the rows: kernels process Gaussian columns, others go column by column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks import family_kernels
from vpem.core.blocks.arrays import Array, Block, Statistics
from vpem.core.blocks.families import Discrete, Family, Smooth
from vpem.core.blocks.layouts import MatrixLayout, make_layout
from vpem.core.blocks.packed import Densities
from vpem.core.blocks.structure import Structure
from vpem.core.blocks.tiles import Collector, Layout, Numbers, Packed, Tile
from vpem.core.blocks.weights import LOWEST

shared_layout = lru_cache(maxsize=32)(make_layout)
"""Cached `make_layout`: layouts of Gaussian columns do not change during a fit."""


class Place(NamedTuple):
    """One non-Gaussian column."""

    block: int
    column: int
    """Number of the column in the order of the pass."""
    family: Family
    parameters: Array
    """(n_components, n_parameters)"""


class Noted(NamedTuple):
    """Analysis of a tile, for both halves of a pass."""

    gaussian: Tile | None
    """Tile of the Gaussian columns."""
    columns: list[NDArray[np.int64] | Array]
    """Codes of the values of discrete columns, functions of the values of smooth columns."""
    strange: list[NDArray[np.intp]]
    """Rows of each column with values outside the family's support, or too large to be counted."""


class PackedMixed(Packed):
    """Blocks of Gaussian and other columns."""

    def __init__(self, layout: Layout, blocks: Sequence[Block], *, is_matrix: bool):
        self.layout, self.blocks = layout, blocks
        self.structures = [Structure.of(block) for block in blocks]
        self.places: list[Place] = []
        gaussian: list[NDArray[np.intp]] = []
        for b, (own, block) in enumerate(zip(self.structures, blocks, strict=True)):
            start = int(layout.starts[b])
            gaussian.append(start + own.gaussian)
            self.places += [
                Place(b, start + column, family, np.ascontiguousarray(block.others[:, part]))
                for column, family, part, _ in own.others
            ]
        self.gaussian_columns = np.concatenate(gaussian)
        self.with_gaussian = [b for b, own in enumerate(self.structures) if len(own.gaussian)]
        self.gaussian: Densities | None = None
        self.widths = tuple(len(self.structures[b].gaussian) for b in self.with_gaussian)
        if self.widths:
            inner: MatrixLayout = shared_layout(self.widths, layout.n_components, is_matrix=is_matrix)
            self.gaussian = Densities(inner, [blocks[b] for b in self.with_gaussian])
        self.tables = [_table(place) for place in self.places]

    def look(self, XT: Array, has_gaps: NDArray[np.bool_]) -> Noted:
        """See `Packed`."""
        tile = None
        if self.gaussian is not None:
            part = np.ascontiguousarray(XT[self.gaussian_columns])
            inner = self.gaussian.look(part, has_gaps[self.gaussian_columns])
            tile = Tile(part, slice(0, part.shape[1]), inner)
        columns: list[NDArray[np.int64] | Array] = []
        strange = []
        for place in self.places:
            x, none = XT[place.column], np.empty(0, dtype=np.intp)
            if isinstance(place.family, Discrete):
                codes = np.empty(len(x), dtype=np.int64)
                if family_kernels.code_values(x, place.family.n_values, codes):
                    none = np.flatnonzero((codes == place.family.n_values) & ~np.isnan(x))
                columns.append(codes)
            else:
                assert isinstance(place.family, Smooth), "discrete or smooth"
                columns.append(place.family.transform(x, place.parameters))
                none = np.flatnonzero(place.family.is_strange(x))
            strange.append(none)
        return Noted(tile, columns, strange)

    def add(self, tile: Tile, targets: Numbers, out: Array) -> None:
        """Add log-densities; see `Contributions`."""
        noted: Noted = tile.noted
        if self.gaussian is not None and noted.gaussian is not None:
            self.gaussian.add(noted.gaussian, targets[self.gaussian_columns], out)
        for place, table, values, strange in zip(self.places, self.tables, noted.columns, noted.strange, strict=True):
            own = out[targets[place.column]]
            if isinstance(place.family, Discrete):
                family_kernels.add_looked_up(values, table, own)
            else:
                own += table @ values
            if len(strange):
                added = own[:, strange] + place.family.log_density(tile.XT[place.column, strange], place.parameters)
                own[:, strange] = np.maximum(added, LOWEST)

    def collector(self, means: Array, variances: Array, centres: Array | None = None) -> Callable[[], Collector]:
        """See `Packed`."""
        chosen = self.gaussian_columns
        if self.gaussian is None:
            return lambda: CollectedMixed(self, None)
        middle = None if centres is None else centres[:, chosen]
        make = self.gaussian.collector(means[chosen], variances[chosen], middle)
        return lambda: CollectedMixed(self, make())


class CollectedMixed(Collector):
    """Statistics of mixed blocks."""

    def __init__(self, packed: PackedMixed, gaussian: Collector | None):
        self.packed, self.gaussian = packed, gaussian
        k = packed.layout.n_components
        self.sums = [
            np.zeros((k, place.family.n_statistics + isinstance(place.family, Discrete))) for place in packed.places
        ]

    def collect(self, tile: Tile, responsibilities: Array, views: Numbers) -> None:
        """See `Collector`."""
        noted: Noted = tile.noted
        if self.gaussian is not None and noted.gaussian is not None:
            self.gaussian.collect(noted.gaussian, responsibilities, views[self.packed.gaussian_columns])
        parts = zip(self.packed.places, noted.columns, noted.strange, self.sums, strict=True)
        for place, values, strange, sums in parts:
            if len(strange):
                raise _no_value(place.family, float(tile.XT[place.column, strange[0]]))
            own = responsibilities[views[place.column]]
            if isinstance(place.family, Discrete):
                family_kernels.add_counts(values, own, sums)
            else:
                sums += own @ values.T

    def add(self, other: Self) -> None:
        """Add the sums of later rows."""
        if self.gaussian is not None and other.gaussian is not None:
            self.gaussian.add(other.gaussian)
        for own, new in zip(self.sums, other.sums, strict=True):
            own += new

    def again(self) -> Callable[[], Collector] | None:
        """Return a factory of collectors if the sums of the Gaussian columns have lost digits, otherwise None."""
        make = None if self.gaussian is None else self.gaussian.again()
        return None if make is None else lambda: CollectedMixed(self.packed, make())

    def statistics(self) -> tuple[Statistics, ...]:
        """Statistics of each block."""
        packed = self.packed
        inner = () if self.gaussian is None else self.gaussian.statistics()
        gaussian = dict(zip(packed.with_gaussian, inner, strict=True))
        sums: list[list[Array]] = [[] for _ in packed.blocks]
        for place, own in zip(packed.places, self.sums, strict=True):
            sums[place.block].append(own[:, : place.family.n_statistics])
        k = packed.layout.n_components
        return tuple(
            join_statistics(gaussian.get(b), np.concatenate([np.empty((k, 0)), *own], axis=1))
            for b, own in enumerate(sums)
        )


def join_statistics(gaussian: Statistics | None, others: Array) -> Statistics:
    """Join the statistics of a block's Gaussian and other columns; None: no Gaussian columns."""
    if gaussian is not None:
        return Statistics(**gaussian.arrays, others=others)
    k = len(others)
    return Statistics(
        counts=np.zeros(k), means=np.zeros((k, 0)), scatters=np.zeros((k, 0)), gap_entropy=np.zeros(1), others=others
    )


def _table(place: Place) -> Array:
    """Table of log-probabilities that a pass looks up, or coefficients that it multiplies with."""
    if isinstance(place.family, Discrete):
        table = place.family.log_table(place.parameters)
        return np.concatenate([table, np.zeros((len(table), 1))], axis=1)
    assert isinstance(place.family, Smooth), "discrete or smooth"
    return place.family.natural(place.parameters)


def _no_value(family: Family, value: float) -> ValueError:
    where = f"in a column of the family {family}"
    if isinstance(family, Discrete) and not family.is_strange(np.array([value]))[0]:
        return ValueError(f"expected whole numbers from 0 to {family.n_values - 1} {where}, got {value:g}")
    return ValueError(family.refusal(where, value))
