"""Dependence between parties' columns: none at all, or more than the components explain.

A mixture assumes that the columns of different parties are independent, given the component. If they are not, the
model omits the dependence. If they are independent altogether, the parties' rows may be in different orders, or
belong to different people.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import chi2, norm, rankdata
from sklearn.mixture import GaussianMixture

from vpem.core.network.parties import Network
from vpem.estimators.odd_columns import standardize
from vpem.verdict import DependenceFacts

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

FEWEST_ROWS = 100
"""Smallest number of rows for the tests: with fewer, a relation is easily missed."""
FEWEST_OF_COMPONENT = 20
"""Smallest number of rows of a component whose correlations are measured."""
MOST_COLUMNS = 1000
"""Largest number of columns that are compared; of wider tables, equally spaced columns."""
MOST_OF_BLOCK, MOST_ROWS = 20, 1500
"""Largest numbers of columns and rows of a block that is tested for clusters."""
MOST_BLOCKS = 30
"""Largest number of blocks that are tested individually."""
MOST_CLUSTERS, ITERATIONS = 10, 10
"""Largest number of clusters, and number of iterations, of k-means."""
CHANCE = 0.01
"""Significance level of the tests of independence."""
STRUCTURE = 0.3
"""Smallest correlation within a party for which its columns count as structured."""
RIDGE = 1e-6
"""Ridge on the diagonal of correlation matrices, so that columns that repeat each other do not make them singular."""


class Relations(NamedTuple):
    """Relations between the parties' columns in a sample."""

    dependence: DependenceFacts | None = None
    unrelated: tuple[str, ...] = ()
    """Parties whose columns are independent of those of all other parties."""
    is_structured: bool = False
    """True if one of the unrelated parties, and another party, have structure within their own columns."""


class _Columns(NamedTuple):
    """Columns to compare, and the block of each."""

    numbers: NDArray[np.intp]
    blocks: NDArray[np.intp]

    @property
    def is_between(self) -> NDArray[np.bool_]:
        """Shape (n_columns, n_columns): True for pairs of columns of different blocks."""
        return np.asarray(self.blocks[:, None] != self.blocks)


def find_relations(X: Array, network: Network, responsibilities: Array, has_heaps: NDArray[np.bool_]) -> Relations:
    """Measure relations between the blocks of a fitted mixture in some rows.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    network : Network
    responsibilities : array of shape (n_rows, n_components)
    has_heaps : array of bool of shape (n_blocks,)
        True if the rows form two groups in the block's columns.
    """
    if len(network.block_columns) < 2 or len(X) < FEWEST_ROWS:
        return Relations()
    columns = _chosen(network)
    names = [str(hub.root) for hub in network.named_hubs()]
    is_alone, is_structured = _compare_ranks(X, columns)
    n_clusters = min(max(responsibilities.shape[1], 3), MOST_CLUSTERS)
    alone = [
        int(b) for b in np.flatnonzero(is_alone)[:MOST_BLOCKS] if not _shares_clusters(X, columns, b, n_clusters)
    ]
    is_structured |= has_heaps
    if alone:
        for block in np.flatnonzero(~is_structured)[:MOST_BLOCKS]:
            is_structured[block] = _has_clusters(X[:, network.block_columns[block]])
    both = bool(is_structured[alone].any() and is_structured.sum() > 1)
    return Relations(_residual_dependence(X, columns, responsibilities), tuple(names[b] for b in alone), both)


def _chosen(network: Network) -> _Columns:
    held = network.block_columns
    numbers, blocks = np.concatenate(held), np.repeat(np.arange(len(held)), list(map(len, held)))
    step = -(-len(numbers) // MOST_COLUMNS)
    return _Columns(numbers[::step], blocks[::step])


# No relation at all


def _compare_ranks(X: Array, columns: _Columns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of blocks without a rank correlation with any other block, and of blocks with one inside.

    Each has shape (n_blocks,).
    """
    own = X[:, columns.numbers]
    is_there = (~np.isnan(own)).astype(np.float64)
    ranks = standardize(rankdata(own, axis=0, nan_policy="omit"))
    both = np.maximum(is_there.T @ is_there, 1.0)
    correlations = np.abs(ranks.T @ ranks) / both
    chances = 2 * norm.sf(correlations * np.sqrt(both))
    n_blocks = int(columns.blocks[-1]) + 1
    is_between = columns.is_between
    is_inside = ~is_between & ~np.eye(len(is_between), dtype=np.bool_)
    is_alone, is_structured = np.zeros((2, n_blocks), dtype=np.bool_)
    for block in np.unique(columns.blocks):
        mine = columns.blocks == block
        others, inside = is_between[mine], is_inside[mine]
        if (both[mine][others]).max() >= FEWEST_ROWS:
            is_alone[block] = chances[mine][others].min() * others.sum() > CHANCE
        if inside.any():
            is_sure = chances[mine] * inside.sum() < CHANCE
            is_structured[block] = bool((inside & is_sure & (correlations[mine] > STRUCTURE)).any())
    return is_alone, is_structured


def _shares_clusters(X: Array, columns: _Columns, block: int, n_clusters: int) -> bool:
    """True if clusters of a block's columns depend on clusters of all other columns.

    Each part is clustered separately. The labels of the mixture cannot be used: it was fitted to both parts.
    """
    parts = [X[:, columns.numbers[chosen]] for chosen in (columns.blocks == block, columns.blocks != block)]
    rows = ~np.isnan(parts[0]).all(axis=1) & ~np.isnan(parts[1]).all(axis=1)
    one, other = (_cluster(standardize(part[rows]), n_clusters) for part in parts)
    return _chance(one, other) < CHANCE


def _cluster(X: Array, n_clusters: int) -> Labels:
    """Labels of a few iterations of k-means."""
    rng = np.random.default_rng(0)
    centres = X[rng.choice(len(X), n_clusters, replace=False)]
    for _ in range(ITERATIONS):
        labels: Labels = (np.square(centres).sum(axis=1) - 2 * X @ centres.T).argmin(axis=1)
        members = np.eye(n_clusters)[labels]
        sizes = members.sum(axis=0)[:, None]
        centres = np.where(sizes > 0, members.T @ X / np.maximum(sizes, 1.0), centres)
    return labels


def _has_clusters(X: Array) -> bool:
    """True if BIC prefers two components to one, after each column is transformed to normal scores."""
    X = X[~np.isnan(X).all(axis=1)][:MOST_ROWS]
    if len(X) < FEWEST_ROWS:
        return False
    ranks = rankdata(X, axis=0, nan_policy="omit")
    scores = standardize(ndtri((ranks - 0.5) / np.maximum((~np.isnan(X)).sum(axis=0), 1)))
    scores = scores[:, scores.any(axis=0)][:, :MOST_OF_BLOCK]
    if scores.shape[1] < 2:
        return False
    labels = _cluster(scores, 2)
    means = [[scores.mean(axis=0)], [scores[labels == k].mean(axis=0) for k in (0, 1)]]
    start: Any = {"reg_covar": 1e-3, "init_params": "random_from_data", "random_state": 0}
    one, two = (GaussianMixture(len(own), means_init=own, **start).fit(scores).bic(scores) for own in means)
    return bool(two < one)


def _chance(one: Labels, other: Labels) -> float:
    """P-value of Pearson's chi-square test of independence of two labellings."""
    table = np.zeros((one.max(initial=0) + 1, other.max(initial=0) + 1))
    np.add.at(table, (one, other), 1.0)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    if freedom <= 0:
        return 1.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return float(chi2.sf((np.square(table - expected) / expected).sum(), freedom))


# More than the components explain


def _residual_dependence(X: Array, columns: _Columns, responsibilities: Array) -> DependenceFacts | None:
    """Largest correlation between blocks within components, and the information between the blocks.

    For Gaussian columns the information between blocks is `(sum_b log det R_bb - log det R) / 2`. Its estimate is
    positive even for independent blocks. This bias is measured on rows that are permuted within components, for each
    block separately, and subtracted. None if the information is not larger than the bias.
    """
    own = standardize(X[:, columns.numbers])
    correlations = _within(own, responsibilities)
    if correlations is None:
        return None
    rng, labels = np.random.default_rng(0), responsibilities.argmax(axis=1)
    exchanged = own.copy()
    for block in np.unique(columns.blocks)[1:]:
        mine = np.flatnonzero(columns.blocks == block)
        for k in np.unique(labels):
            rows = np.flatnonzero(labels == k)
            exchanged[np.ix_(rows, mine)] = own[np.ix_(rng.permutation(rows), mine)]
    by_chance = _within(exchanged, responsibilities)
    assert by_chance is not None, "the components are the same"
    chance = _information(by_chance, columns)
    nats = _information(correlations, columns) - chance
    if nats <= chance:
        return None
    between = np.abs(correlations) * columns.is_between
    one, other = sorted(map(int, np.unravel_index(between.argmax(), between.shape)))
    pair = str(columns.numbers[one]), str(columns.numbers[other])
    return DependenceFacts(nats, float(correlations[one, other]), *pair)


def _within(X: Array, responsibilities: Array) -> Array | None:
    """Correlations of columns within components, averaged over components; None if all components are small."""
    total, n_rows = np.zeros((X.shape[1], X.shape[1])), 0.0
    for weights in responsibilities.T:
        size = float(weights.sum())
        if size < FEWEST_OF_COMPONENT:
            continue
        moved = X - weights @ X / size
        spread = np.sqrt(weights @ np.square(moved) / size)
        scaled = np.where(spread > RIDGE, moved / np.where(spread > RIDGE, spread, 1.0), 0.0)
        total += (scaled * weights[:, None]).T @ scaled
        n_rows += size
    if not n_rows:
        return None
    total /= n_rows
    np.fill_diagonal(total, 1.0)
    return total


def _information(correlations: Array, columns: _Columns) -> float:
    """Information between blocks of Gaussian columns, in nats."""
    whole = correlations + RIDGE * np.eye(len(correlations))
    parts = [np.flatnonzero(columns.blocks == block) for block in np.unique(columns.blocks)]
    inside = sum(float(np.linalg.slogdet(whole[np.ix_(part, part)])[1]) for part in parts)
    return max(0.5 * (inside - float(np.linalg.slogdet(whole)[1])), 0.0)
