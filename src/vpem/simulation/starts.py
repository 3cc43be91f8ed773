"""Where a simulated run of EM begins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from vpem.core.initial import random_responsibilities, random_rows
from vpem.core.mixture import Statistics, add_statistics, block_statistics, make_block
from vpem.core.network import Network
from vpem.core.summation import Summation
from vpem.core.traffic import FLOAT_BYTES, Traffic, make_traffic
from vpem.simulation.em import Mixture, Settings, m_steps
from vpem.simulation.kmeans import kmeans, rows_of
from vpem.simulation.sweep import Table, row_chunks

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
    # All roots begin with the same weights: those that the root of the first hub sees, flooded where roots differ.
    adder, traffic = summation.adder(network), result.traffic
    if adder.n_views > 1:
        traffic += summation.flood_traffic(network, FLOAT_BYTES * settings.n_components)
    counts = result.assignment.counts[[adder.view_of_hub[0]]]
    return m_steps(network, counts, result.assignment.statistics, settings), traffic


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


def _shared_statistics(
    X: Table, network: Network, responsibilities: Array, *, is_matrix: bool
) -> list[Statistics]:
    """Each block's statistics from responsibilities that all roots share."""
    found = []
    for columns in network.block_columns:
        parts = (
            block_statistics(X[rows][:, columns], responsibilities[rows], is_matrix=is_matrix)
            for rows in row_chunks(len(X), responsibilities.shape[1] * len(columns))
        )
        found.append(reduce(add_statistics, parts))
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
