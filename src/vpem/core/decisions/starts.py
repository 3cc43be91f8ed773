"""Starts from the shared seed alone or from labels that all parties have, and starts given by users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block
from vpem.core.blocks.density import Density
from vpem.core.blocks.overall import Overall, shared_statistics
from vpem.core.blocks.tiles import ColumnTally, Tile, columns_first
from vpem.core.blocks.weights import make_weights
from vpem.core.decisions.initial import random_responsibilities, random_rows
from vpem.core.network.parties import Network
from vpem.core.rows import Table, row_chunks

Array = NDArray[np.float64]


class Given(NamedTuple):
    """A start that a user gave to a root for its own block, or parts of it."""

    weights: Array | None = None
    arrays: Mapping[str, Array] = {}
    """Parameters, by the names that the density gives them."""

    def is_complete(self, density: Density) -> bool:
        """True if all parameters are given, so that no start has to be found."""
        return self.weights is not None and set(density.shapes(1, 1)) <= set(self.arrays)

    def complete(self, weights: Array | None, block: Block | None, density: Density) -> tuple[Array | None, Block]:
        """Return weights and a block in which given parameters replace found ones, if any were found."""
        return weights if self.weights is None else self.weights, density.complete(block, self.arrays)


def around(centres: Sequence[Array], overall: Overall, density: Density) -> tuple[Block, ...]:
    """Start each block around given centres, (n_components, n_columns); other parameters are those of all rows."""
    return tuple(density.start(part, block) for part, block in zip(centres, overall.blocks, strict=True))


def start_from_seed(
    kind: str,
    X: Table,
    network: Network,
    overall: Overall,
    density: Density,
    n_components: int,
    rng: np.random.Generator,
) -> tuple[Array, Sequence[Block], list[list[int]]]:
    """Find a start of EM without a message, for all blocks of a network or for the one block of an agent.

    Parameters
    ----------
    kind : {"random", "random_from_data"}
        "random": M-step from random responsibilities. "random_from_data": random rows as centres, equal weights.
    X : Table of shape (n_samples, n_features)
    network : Network
    overall : Overall
    density : Density
    n_components : int
    rng : numpy.random.Generator
        Shared by all parties.

    Returns
    -------
    weights : array of shape (n_components,)
    blocks : sequence of Block
    collapsed : list of lists of int
        Components of each block that start with the parameters of all rows, because their own rows do not determine
        parameters.
    """
    if kind == "random_from_data":
        centres = overall.rows(X, random_rows(rng, len(X), n_components), network)
        weights = np.full(n_components, 1.0 / n_components)
        return weights, around(centres, overall, density), [[] for _ in network.hubs]
    # Gaps are filled in by the parameters of one component for all rows.
    centres = [np.repeat(density.means(block), n_components, axis=0) for block in overall.blocks]
    before = around(centres, overall, density)
    counts, statistics = shared_statistics(
        X,
        network,
        density,
        before,
        lambda n_rows: random_responsibilities(rng, n_rows, n_components),
        overall.has_gaps,
    )
    return make_weights(counts[0]), *density.m_steps(statistics, before, overall.columns)


def start_from_labels(
    X: Table, network: Network, overall: Overall, density: Density, n_components: int, labels: Array
) -> tuple[Array, Sequence[Block], list[list[int]]]:
    """Start from one label for each row, (n_samples,), negative for no label, by an M-step; see `start_from_seed`."""
    order = np.concatenate(network.block_columns)
    tally = ColumnTally(np.repeat(overall.means[order][None], n_components, axis=0))
    for rows in row_chunks(0, len(X), n_components * X.shape[1]):
        shares = _one_hot(labels[rows], n_components)
        tile, views = Tile(columns_first(X[rows], order), rows), np.zeros(len(order), dtype=np.int64)
        tally.collect(tile, np.ascontiguousarray(shares.T[None]), views)
    ends = np.cumsum([len(held) for held in network.block_columns])
    before = around(np.split(tally.means(), ends[:-1], axis=1), overall, density)
    n_taken = 0

    def respond(n_rows: int) -> Array:
        nonlocal n_taken
        n_taken += n_rows
        return _one_hot(labels[n_taken - n_rows : n_taken], n_components)

    counts, statistics = shared_statistics(X, network, density, before, respond, overall.has_gaps)
    return make_weights(counts[0]), *density.m_steps(statistics, before, overall.columns)


def _one_hot(labels: Array, n_components: int) -> Array:
    """Responsibilities (n_rows, n_components); zeros for a row without a label."""
    found: Array = (labels[:, None] == np.arange(n_components)).astype(np.float64)
    return found
