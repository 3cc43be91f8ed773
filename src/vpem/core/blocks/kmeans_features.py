"""Features by which k-means compares rows, if columns are of different kinds.

Gaussian columns and counts are divided by their deviations, categories are one-hot encoded, and angles become cosines
and sines. Each party computes the features of its own columns during a pass; no table of features is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array
from vpem.core.blocks.tiles import Collector, ColumnTally, Contributions, Distances, Numbers, Tile, columns_first
from vpem.core.rows import Rows


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the columns of one block."""

    widths: tuple[int, ...]
    """Number of features of each column."""
    scales: Array
    """(n_features,): factors that turn centres of Gaussian columns into means; NaN for other columns."""
    make: Callable[[Array], Array]
    """Function from rows (n_columns, n_rows) to features (n_features, n_rows); a gap is NaN in all its features."""


class FeaturesOfBlocks:
    """Concatenated features of several blocks."""

    def __init__(self, parts: Sequence[Features]):
        self.parts = parts
        self.widths = [width for own in parts for width in own.widths]
        self.ends = np.cumsum([len(own.widths) for own in parts])

    def tile(self, tile: Tile) -> Tile:
        """Return a tile of features from a tile of columns."""
        columns = np.split(tile.XT, self.ends[:-1])
        made = [own.make(XT) for own, XT in zip(self.parts, columns, strict=True)]
        return Tile(np.ascontiguousarray(np.concatenate(made)), tile.rows)

    def spread(self, numbers: Numbers) -> Numbers:
        """Repeat one number per column for each feature of the column."""
        return np.repeat(numbers, self.widths)


class FeatureDistances(Contributions):
    """Minus half the squared distances to centres, (n_components, n_features)."""

    def __init__(self, centres: Array, features: FeaturesOfBlocks):
        self.distances, self.features = Distances(centres), features

    def add(self, tile: Tile, targets: Numbers, out: Array) -> None:
        """See `Contributions`."""
        self.distances.add(self.features.tile(tile), self.features.spread(targets), out)

    def add_rows(self, chunk: Rows, order: NDArray[np.intp], out: Array) -> None:
        """Add the contributions of rows, in the order of the table's columns, to (n_centres, n_rows)."""
        tile = Tile(columns_first(chunk, order), slice(0, len(chunk)))
        self.add(tile, np.zeros(len(order), dtype=np.int64), out[None])


class FeatureTally(Collector):
    """Weighted means of features."""

    def __init__(self, centres: Array, features: FeaturesOfBlocks):
        self.tally, self.features = ColumnTally(centres), features

    def collect(self, tile: Tile, responsibilities: Array, views: Numbers) -> None:
        """See `Collector`."""
        self.tally.collect(self.features.tile(tile), responsibilities, self.features.spread(views))

    def add(self, other: Self) -> None:
        """Add the sums of later rows."""
        self.tally.add(other.tally)

    def means(self) -> Array:
        """Weighted means of features; (n_components, n_features)."""
        return self.tally.means()


def parts_of_kmeans(
    centres: Array, features: FeaturesOfBlocks | None
) -> tuple[Distances | FeatureDistances, Callable[[], Any]]:
    """Return the contributions and the factory of collectors of k-means, by columns or by features."""
    if features is None:
        return Distances(centres), partial(ColumnTally, centres)
    return FeatureDistances(centres, features), partial(FeatureTally, centres, features)
