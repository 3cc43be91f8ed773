"""Moments and overall parameters that every party computes from its own columns before any message."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks import kernels
from vpem.core.blocks.arrays import Array, Block, Columns, Statistics
from vpem.core.blocks.density import Density
from vpem.core.blocks.kmeans_features import Features, FeaturesOfBlocks
from vpem.core.blocks.tiles import Tile, columns_first
from vpem.core.network.parties import Network
from vpem.core.rows import Table, row_chunks

LARGEST = 1e150
"""Largest absolute value whose squares can be added without overflow."""

TILE = 512
"""Number of rows that are transposed and added together."""


@dataclass(frozen=True, eq=False)
class Overall:
    """Moments of the whole table; each party computes those of its own columns."""

    means: Array
    """(n_features,): means of the observed values."""
    variances: Array
    """(n_features,): variances of the observed values."""
    blocks: tuple[Block, ...]
    """One component for all rows, for each block; empty without a density."""
    columns: tuple[Columns, ...]
    """Moments of each block's columns, for M-steps."""
    has_gaps: NDArray[np.bool_]
    """(n_features,): True for columns with missing values."""
    features: tuple[Features, ...] = ()
    """Features by which k-means compares each block's rows; empty: the columns themselves."""

    @cached_property
    def by_features(self) -> FeaturesOfBlocks | None:
        """Features of all blocks; None: the columns themselves."""
        return FeaturesOfBlocks(self.features) if self.features else None

    def features_of(self, hub: int) -> FeaturesOfBlocks | None:
        """Features of one block; None: the columns themselves."""
        return FeaturesOfBlocks(self.features[hub : hub + 1]) if self.features else None

    def centres(self, X: Table, numbers: NDArray[np.intp], network: Network) -> list[Array]:
        """Each block's part of the given rows, as centres of k-means; (n_rows, n_columns or n_features)."""
        found = self.rows(X, numbers, network)
        if not self.features:
            return found
        return [np.ascontiguousarray(own.make(part.T).T) for own, part in zip(self.features, found, strict=True)]

    def feature_variances(self, b: int, held: NDArray[np.intp]) -> Array:
        """Variances relative to which movements of k-means centres are measured; (n_columns or n_features,)."""
        if not self.features:
            return self.variances[held]
        widths = self.features[b].widths
        return np.repeat(1.0 / np.array(widths, dtype=np.float64), widths)

    def rows(self, X: Table, numbers: NDArray[np.intp], network: Network) -> list[Array]:
        """Each block's part of the given rows, as centres or means, (n_rows, n_columns); gaps become column means."""
        found = X[numbers].astype(np.float64)
        found = np.where(np.isnan(found), self.means, found)
        return [found[:, held] for held in network.block_columns]


def column_moments(X: Table) -> tuple[Array, Array, Array, Array]:
    """Number, mean, variance and largest absolute value of every column's values; (n_features,) each."""
    counts, sums, largest, squares = np.zeros((4, X.shape[1]))
    for rows in row_chunks(0, len(X), X.shape[1]):
        kernels.add_moments(np.ascontiguousarray(X[rows]), counts, sums, largest)
    present = np.maximum(counts, 1.0)
    means = sums / present
    for rows in row_chunks(0, len(X), X.shape[1]):
        kernels.add_squares(np.ascontiguousarray(X[rows]), means, squares)
    return counts, means, squares / present, largest


def has_too_large(X: NDArray[np.floating]) -> bool:
    """True if X has a value whose square is too large to be added."""
    return bool(kernels.count_larger(np.ascontiguousarray(X), LARGEST))


def check_sizes(network: Network, largest: Array) -> None:
    """Raise ValueError for a column whose squares are too large to be added."""
    for party, columns in zip(network.parties, network.columns, strict=True):
        for column in columns[largest[columns] > LARGEST]:
            raise too_large(largest[column], column, party)


def too_large(value: float, column: int, party: object, why: str = "; scale the column") -> ValueError:
    """Return the error for a value whose square is too large to be added."""
    if math.isinf(value):
        return ValueError(
            f"expected finite numbers or gaps (NaN), got infinity in column {column} of party {party!r}"
        )
    return ValueError(
        f"expected numbers whose squares can be added, got {value:.3g} in column {column} of party {party!r}{why}"
    )


def look_again(overall: Overall, X: Table, network: Network) -> Overall:
    """Return the moments of the first rows, with the largest values updated by more rows of a stream."""
    counts, *_, largest = column_moments(X)
    check_sizes(network, largest)
    pairs = zip(overall.columns, network.block_columns, strict=True)
    columns = tuple(replace(own, largest=np.maximum(own.largest, largest[held])) for own, held in pairs)
    return replace(overall, columns=columns, has_gaps=counts < len(X))


def describe(X: Table, network: Network, density: Density | None = None) -> Overall:
    """Compute moments of each column and, given a density, one component for each block, without any message.

    Raises
    ------
    CollapsedComponentError
        If no component could have parameters, as when a column does not vary.
    """
    counts, means, variances, largest = column_moments(X)
    for party, held in zip(network.parties, network.columns, strict=True):
        for column in held[counts[held] == 0]:
            raise ValueError(
                f"column {column} of party {party!r} holds no value at all; leave it out, "
                "or begin a stream with rows that have some"
            )
    check_sizes(network, largest)
    has_gaps = counts < len(X)
    columns = tuple(
        Columns(
            party=network.parties[hub.root],
            counts=counts[held],
            means=means[held],
            variances=variances[held],
            largest=largest[held],
            has_gaps=has_gaps[held],
            families=() if density is None else density.families_of([network.parties[m] for m in hub.members]),
        )
        for hub, held in zip(network.hubs, network.block_columns, strict=True)
    )
    blocks: Sequence[Block] = ()
    if density is not None:

        def collect(first: Sequence[Block]) -> Sequence[Statistics]:
            return shared_statistics(X, network, density, first, lambda n_rows: np.ones((n_rows, 1)), has_gaps)[1]

        blocks = density.overall(columns, collect)
    features = () if density is None else tuple(filter(None, map(density.features, blocks)))
    shared = features if len(features) == len(blocks) else ()
    return Overall(means, variances, tuple(blocks), columns, has_gaps, shared)


def shared_statistics(
    X: Table,
    network: Network,
    density: Density,
    blocks: Sequence[Block],
    respond: Callable[[int], Array],
    has_gaps: NDArray[np.bool_],
) -> tuple[Array, tuple[Statistics, ...]]:
    """Compute each block's statistics from responsibilities that all parties know without a sum.

    Parameters
    ----------
    X : Table of shape (n_samples, n_features)
    network : Network
    density : Density
    blocks : sequence of Block
        Parameters by which gaps are filled in; rows should be near the means of their components.
    respond : callable
        Function of a number of rows that returns the responsibilities of the next rows, (n_rows, n_components).
    has_gaps : array of shape (n_features,)

    Returns
    -------
    counts : array of shape (1, n_components)
    statistics : tuple of Statistics
    """
    order = np.concatenate(network.block_columns)
    centres = [density.means(block) for block in blocks]
    n_components = len(centres[0])
    layout = density.layout([len(held) for held in network.block_columns], n_components)
    packed = density.pack(blocks, layout)
    nowhere = np.zeros(len(order))
    found = packed.collector(nowhere, nowhere, np.concatenate(centres, axis=1))()
    counts, gaps, views = np.zeros((1, n_components)), has_gaps[order], np.zeros(len(order), dtype=np.int64)
    for rows in row_chunks(0, len(X), n_components * X.shape[1]):
        chunk = X[rows]
        responsibilities = respond(len(chunk))
        counts += responsibilities.sum(axis=0)
        for first in range(0, len(chunk), TILE):
            XT = columns_first(chunk[first : first + TILE], order)
            weights = np.ascontiguousarray(responsibilities[None, first : first + TILE].transpose(0, 2, 1))
            found.collect(Tile(XT, rows, packed.look(XT, gaps)), weights, views)
    return counts, found.statistics()
