"""What every party knows of its columns before it has spoken to anybody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks import kernels
from vpem.core.blocks.covariances import EPSILON, STRUCTURES, CovarianceRule
from vpem.core.blocks.gaussian import Block, CollapsedComponentError, Statistics, m_step, make_block
from vpem.core.blocks.packed import Densities, Tally, columns_first, make_layout, sort_blocks
from vpem.core.network.parties import Network
from vpem.core.rows import Table, row_chunks

Array = NDArray[np.float64]

LARGEST = 1e150
"""Values up to this size have squares that can be added."""

TILE = 512
"""Rows that are turned and added together."""


@dataclass(frozen=True, eq=False)
class Overall:
    """Moments of the whole table, each party's by itself."""

    means: Array
    """(n_features,): of the values that are there."""
    variances: Array
    """(n_features,): likewise."""
    blocks: tuple[Block, ...]
    """One Gaussian for all rows of each block; gaps are filled in with means. Empty without a rule."""
    smallest_variances: tuple[Array, ...]
    """Each block's (n_columns,): what rounding alone would leave of a variance."""
    has_gaps: NDArray[np.bool_]
    """(n_features,): whether some value is missing."""

    def rows(self, X: Table, numbers: NDArray[np.intp], network: Network) -> list[Array]:
        """Each block's part of some rows, as centres or means; (n_rows, n_columns). Gaps become column means."""
        found = X[numbers].astype(np.float64)
        found = np.where(np.isnan(found), self.means, found)
        return [found[:, held] for held in network.block_columns]


def column_moments(X: Table) -> tuple[Array, Array, Array, Array]:
    """Number, mean, variance and largest size of every column's values; (n_features,) each."""
    counts, sums, largest, squares = np.zeros((4, X.shape[1]))
    for rows in row_chunks(0, len(X), X.shape[1]):
        kernels.add_moments(np.ascontiguousarray(X[rows]), counts, sums, largest)
    present = np.maximum(counts, 1.0)
    means = sums / present
    for rows in row_chunks(0, len(X), X.shape[1]):
        kernels.add_squares(np.ascontiguousarray(X[rows]), means, squares)
    return counts, means, squares / present, largest


def has_too_large(X: NDArray[np.floating]) -> bool:
    """Whether X has a value whose square cannot be added."""
    return bool(kernels.count_larger(np.ascontiguousarray(X), LARGEST))


def check_sizes(network: Network, largest: Array) -> None:
    """Raise ValueError for a column whose squares cannot be added."""
    for party, columns in zip(network.parties, network.columns, strict=True):
        for column in columns[largest[columns] > LARGEST]:
            raise too_large(largest[column], column, party)


def too_large(value: float, column: int, party: object, why: str = "; scale the column") -> ValueError:
    """What to raise for a value whose square cannot be added."""
    return ValueError(
        f"expected numbers whose squares can be added, got {value:.3g} in column {column} of party {party!r}{why}"
    )


def rounding_noise(largest: Array) -> Array:
    """What rounding alone would leave of variances: deviations from a mean are rounded like the values."""
    noise: Array = np.square(16 * EPSILON * largest)
    return noise


def look_again(overall: Overall, X: Table, network: Network) -> Overall:
    """The first rows' moments, with the sizes of more rows of a stream."""
    counts, *_, largest = column_moments(X)
    check_sizes(network, largest)
    noise = rounding_noise(largest)
    pairs = zip(overall.smallest_variances, network.block_columns, strict=True)
    smallest = tuple(np.maximum(own, noise[held]) for own, held in pairs)
    return replace(overall, smallest_variances=smallest, has_gaps=counts < len(X))


def describe(X: Table, network: Network, rule: CovarianceRule | None = None) -> Overall:
    """Moments of each column and, given a rule for covariances, of each block; nothing is sent.

    Raises
    ------
    CollapsedComponentError
        If a column does not vary, so that no component could have a covariance.
    """
    counts, means, variances, largest = column_moments(X)
    for party, held in zip(network.parties, network.columns, strict=True):
        for column in held[counts[held] == 0]:
            raise ValueError(
                f"column {column} of party {party!r} holds no value at all; leave it out, "
                "or begin a stream with rows that have some"
            )
    check_sizes(network, largest)
    noise = rounding_noise(largest)
    columns = network.block_columns
    smallest = tuple(noise[held] for held in columns)
    if rule is None:
        return Overall(means, variances, (), smallest, counts < len(X))
    # Gaps of a column that does not vary must not be filled in with a variance from nowhere.
    varies = variances > noise
    own = STRUCTURES[rule.covariance_type].shared_by != "columns"
    plain = []
    for hub, held in zip(network.hubs, columns, strict=True):
        if not (varies[held].all() if own else varies[held].any()) and rule.reg_covar == 0:
            raise CollapsedComponentError(None, network.parties[hub.root])
        else_variance = rule.reg_covar or variances[held].mean()
        diagonal = np.where(varies[held], variances[held], else_variance)
        covariance = np.diag(diagonal)[None] if rule.is_matrix else diagonal[None]
        plain.append(make_block(means[held][None], covariance))
    has_gaps = counts < len(X)
    if all(len(held) == 1 or not (rule.is_matrix or has_gaps[held].any()) for held in columns):
        # Columns that are independent have been looked at already.
        scatters = (variances * counts)[:, None] if rule.is_matrix else variances * counts
        statistics = tuple(Statistics(counts[held[:1]], means[held][None], scatters[held][None]) for held in columns)
    else:
        _, statistics = shared_statistics(X, network, plain, lambda n_rows: np.ones((n_rows, 1)), has_gaps)
    blocks = []
    for hub, held, found, diagonal_block in zip(network.hubs, columns, statistics, plain, strict=True):
        try:
            block = m_step(found, rule)
        except CollapsedComponentError:
            # Components can have covariances where all rows together have none: clusters that are far apart.
            block = diagonal_block
        diagonal = np.diagonal(block.covariances[0]) if rule.is_matrix else block.covariances[0]
        if (diagonal <= noise[held]).any():
            raise CollapsedComponentError(None, network.parties[hub.root])
        blocks.append(block)
    return Overall(means, variances, tuple(blocks), smallest, counts < len(X))


def shared_statistics(
    X: Table,
    network: Network,
    blocks: Sequence[Block],
    respond: Callable[[int], Array],
    has_gaps: NDArray[np.bool_],
) -> tuple[Array, tuple[Statistics, ...]]:
    """Each block's statistics from responsibilities that all parties know without a sum.

    Parameters
    ----------
    X : Table of shape (n_samples, n_features)
    network : Network
    blocks : sequence of Block
        How gaps are filled in, and around which means the statistics are collected: near them, if not at them.
    respond : callable
        Number of rows to responsibilities of the next rows, (n_rows, n_components).
    has_gaps : array of shape (n_features,)

    Returns
    -------
    counts : array of shape (1, n_components)
    statistics : tuple of Statistics
    """
    n_components, order = len(blocks[0].means), np.concatenate(network.block_columns)
    widths = [len(held) for held in network.block_columns]
    layout = make_layout(widths, n_components, is_matrix=blocks[0].covariances.ndim == 3)
    densities = Densities(layout, blocks)
    tally = Tally(layout, densities.means, densities)
    counts, gaps = np.zeros((1, n_components)), layout.in_any_column(has_gaps[order])
    for rows in row_chunks(0, len(X), n_components * X.shape[1]):
        chunk = X[rows]
        responsibilities = respond(len(chunk))
        counts += responsibilities.sum(axis=0)
        for first in range(0, len(chunk), TILE):
            XT = columns_first(chunk[first : first + TILE], order)
            weights = np.ascontiguousarray(responsibilities[None, first : first + TILE].transpose(0, 2, 1))
            tally.collect(XT, sort_blocks(layout, XT, gaps), weights, np.zeros(len(order), dtype=np.int64))
    return counts, tally.statistics()
