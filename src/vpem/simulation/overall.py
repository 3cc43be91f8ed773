"""What every party knows of its columns before it has spoken to anybody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.covariances import EPSILON, CovarianceRule
from vpem.core.gaps import expected_statistics
from vpem.core.mixture import Block, CollapsedComponentError, Statistics, add_statistics, m_step, make_block
from vpem.core.network import Network
from vpem.simulation.sweep import Table, row_chunks

Array = NDArray[np.float64]


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

    def rows(self, X: Table, numbers: NDArray[np.intp], network: Network) -> list[Array]:
        """Each block's part of some rows, as centres or means; (n_rows, n_columns). Gaps become column means."""
        found = X[numbers].astype(np.float64)
        found = np.where(np.isnan(found), self.means, found)
        return [found[:, held] for held in network.block_columns]


def column_moments(X: Table, network: Network) -> tuple[Array, Array, Array]:
    """Mean, variance and largest size of every column's values; (n_features,) each."""
    counts, sums, largest = np.zeros((3, X.shape[1]))
    for rows in row_chunks(0, len(X), X.shape[1]):
        chunk = X[rows]
        there = ~np.isnan(chunk)
        counts += there.sum(axis=0)
        sums += np.where(there, chunk, 0.0).sum(axis=0, dtype=np.float64)
        largest = np.maximum(largest, np.abs(np.where(there, chunk, 0.0)).max(axis=0))
    for party, columns in zip(network.parties, network.columns, strict=True):
        for column in columns:
            if counts[column] == 0:
                raise ValueError(
                    f"column {column} of party {party!r} holds no value at all; leave it out, "
                    "or begin a stream with rows that have some"
                )
            if largest[column] > 1e150:
                raise ValueError(
                    f"expected numbers whose squares can be added, got {largest[column]:.3g} in column {column} "
                    f"of party {party!r}; scale the column"
                )
    means, squares = sums / counts, np.zeros(X.shape[1])
    for rows in row_chunks(0, len(X), X.shape[1]):
        squares += np.nansum(np.square(X[rows] - means), axis=0)
    return means, squares / counts, largest


def describe(X: Table, network: Network, rule: CovarianceRule | None = None) -> Overall:
    """Moments of each column and, given a rule for covariances, of each block; nothing is sent.

    Raises
    ------
    CollapsedComponentError
        If a block's columns have a singular covariance, so that no component could have another.
    """
    means, variances, largest = column_moments(X, network)
    # Deviations from a mean are rounded like the values themselves.
    noise = np.square(16 * EPSILON * largest)
    columns = network.block_columns
    smallest = tuple(noise[held] for held in columns)
    if rule is None:
        return Overall(means, variances, (), smallest)
    plain = []
    for held in columns:
        diagonal = np.where(variances[held] > 0, variances[held], 1.0)
        covariance = np.diag(diagonal)[None] if rule.is_matrix else diagonal[None]
        plain.append(make_block(means[held][None], covariance))
    statistics: list[Statistics] = []
    for rows in row_chunks(0, len(X), X.shape[1]):
        chunk = X[rows]
        new = [
            expected_statistics(chunk[:, held], np.ones((len(chunk), 1)), block)
            for held, block in zip(columns, plain, strict=True)
        ]
        statistics = list(map(add_statistics, statistics, new)) if statistics else new
    blocks = []
    for hub, held, found in zip(network.hubs, columns, statistics, strict=True):
        try:
            block = m_step(found, rule)
        except CollapsedComponentError:
            raise CollapsedComponentError(None, network.parties[hub.root]) from None
        diagonal = np.diagonal(block.covariances[0]) if rule.is_matrix else block.covariances[0]
        if (diagonal <= noise[held]).any():
            raise CollapsedComponentError(None, network.parties[hub.root])
        blocks.append(block)
    return Overall(means, variances, tuple(blocks), smallest)
