"""Where a simulated run of EM begins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vpem.core.initial import random_responsibilities, random_rows
from vpem.core.mixture import Block, Statistics, add_statistics, block_statistics, make_block
from vpem.core.network import Network
from vpem.core.summation import Summation
from vpem.core.traffic import Traffic, make_traffic
from vpem.simulation.em import Mixture, Settings, m_steps
from vpem.simulation.kmeans import kmeans, rows_of
from vpem.simulation.sweep import Table, column_means, row_chunks

Array = NDArray[np.float64]

STARTS = ("kmeans", "k-means++", "random", "random_from_data")


def make_start(
    X: Table, network: Network, summation: Summation, settings: Settings, kind: str, rng: np.random.Generator
) -> tuple[Mixture, Traffic]:
    """Common starting point, and what agreeing on it costs.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    network : Network
    summation : Summation
    settings : Settings
    kind : {"kmeans", "k-means++", "random", "random_from_data"}
        - "kmeans": M-step from the labels of a vertical k-means.
        - "k-means++": the same from its first centres, without moving them.
        - "random": M-step from random responsibilities; a shared seed is enough.
        - "random_from_data": random rows as means, each party's overall covariance, equal weights; likewise.
    rng : numpy.random.Generator
        Shared by all parties.
    """
    free = make_traffic(network.agents)
    if kind == "random":
        responsibilities = random_responsibilities(rng, len(X), settings.n_components)
        statistics = _shared_statistics(X, network, responsibilities, is_matrix=settings.is_matrix)
        return m_steps(network, responsibilities.sum(axis=0, keepdims=True), statistics, settings), free
    if kind == "random_from_data":
        rows = random_rows(rng, len(X), settings.n_components)
        return _from_rows(X, network, settings, rows), free
    max_iter = 300 if kind == "kmeans" else 0
    result = kmeans(
        X,
        network,
        summation,
        settings.n_components,
        "k-means++",
        rng,
        max_iter=max_iter,
        is_matrix=settings.is_matrix,
    )
    assignment = result.assignment
    return m_steps(network, assignment.counts, assignment.statistics, settings), result.traffic


def make_mixture(network: Network, weights: Array, means: Array, covariances: Sequence[Array]) -> Mixture:
    """Mixture of given parameters, cut into blocks.

    Parameters
    ----------
    network : Network
    weights : array of shape (n_views, n_components) or (n_components,)
    means : array of shape (n_components, n_features)
    covariances : sequence of arrays
        One for each block, in the shapes of `vpem.core.mixture.Block`.
    """
    parts = [means[:, columns] for columns in network.block_columns]
    return Mixture(np.atleast_2d(weights), tuple(map(make_block, parts, covariances)))


def assemble_means(network: Network, blocks: Sequence[Block]) -> Array:
    """Means of all blocks, in the order of the table's columns; (n_components, n_features)."""
    means = np.empty((len(blocks[0].means), sum(map(len, network.block_columns))))
    for columns, block in zip(network.block_columns, blocks, strict=True):
        means[:, columns] = block.means
    return means


def _shared_statistics(
    X: Table, network: Network, responsibilities: Array, *, is_matrix: bool
) -> list[Statistics]:
    """Each block's statistics from responsibilities that all roots share, around the column means."""
    means = column_means(X)
    n_components = responsibilities.shape[1]
    found = []
    for columns in network.block_columns:
        pivots = np.tile(means[columns], (n_components, 1))
        total: Statistics | None = None
        for rows in row_chunks(len(X), n_components * len(columns)):
            new = block_statistics(X[rows][:, columns], responsibilities[rows], pivots, is_matrix=is_matrix)
            total = new if total is None else add_statistics(total, new)
        assert total is not None, "a table has rows"
        found.append(total)
    return found


def _from_rows(X: Table, network: Network, settings: Settings, rows: NDArray[np.intp]) -> Mixture:
    n_components = settings.n_components
    everything = np.ones((len(X), 1))
    statistics = _shared_statistics(X, network, everything, is_matrix=settings.is_matrix)
    overall = m_steps(network, np.ones((1, 1)), statistics, settings).blocks
    blocks = []
    for columns, block in zip(network.block_columns, overall, strict=True):
        shared = settings.covariance_type == "tied"
        covariances = block.covariances if shared else np.repeat(block.covariances, n_components, axis=0)
        blocks.append(make_block(rows_of(X, rows, columns), covariances))
    return Mixture(np.full((1, n_components), 1.0 / n_components), tuple(blocks))
