"""Dependence between parties' columns: none at all, or more than the components explain.

A mixture assumes that the columns of different parties are independent, given the component. If they are not, the
model omits the dependence. If they are independent altogether, the parties' rows may be in different orders, or
belong to different people.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import chi2, norm, rankdata
from sklearn.mixture import GaussianMixture

from vpem.core.blocks.weights import normalize
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
INFORMED = 0.25
"""Smallest share of the information about the component for which the other parties' columns count as structured."""
DIGITS = 2
"""Decimal places of contributions, which are in nats."""
FAINT = 1e-3
"""Ridge on correlations of contributions: along directions of a smaller variance, an inexact sum shows itself."""
RIDGE = 1e-6
"""Ridge on the diagonal of correlation matrices, so that columns that repeat each other do not make them singular."""


_Scale = Callable[[Array, Array], Array]
"""Columns and weights of the rows to columns on the scale of a component."""


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
    dependence = _residual_dependence(X, columns, responsibilities, _scaled, _information)
    return Relations(dependence, tuple(names[b] for b in alone), both)


def find_relations_in_sums(
    X: Array, own: Array, totals: Array, weights: Array, *, has_heaps: bool, name: str, is_lossy: bool = False
) -> Relations:
    """Measure relations of one party's columns to the others' contributions: sums without the party's own terms.

    Contributions are functions of the others' columns, one number for each component. If the columns of parties are
    independent given the component, or altogether, so are they. What is found is a part of what the columns have:

    - A dependence shows if it changes the others' sum. It fades with the number of columns in that sum, so that a
      copy of one column among many is missed.
    - Rows in another order show if this party has some structure, and the others' contributions tell components
      apart. With one component they never do. If the components follow this party's columns alone, then the others
      find it.
    - Which party or column it is does not show, nor do relations between two other parties.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        The party's columns, or those of its hub.
    own, totals : arrays of shape (n_rows, n_components)
        Contributions of these columns, and the sums of all parties' contributions.
    weights : array of shape (n_components,)
    has_heaps : bool
        True if the rows form two groups in the party's columns.
    name : str
        The party's name.
    is_lossy : bool
        True for sums of rounded changes. Then only differences between components are right, to about a nat.
    """
    others = totals - own
    # A row that a party lacks has a contribution of 0.
    both = ~np.isnan(X).all(axis=1) & (np.abs(others) > RIDGE * (1 + np.abs(totals))).any(axis=1)
    X, own, totals, others = (part[both] for part in (X, own, totals, others))
    theirs = _numbers(others, is_lossy)
    if len(X) < FEWEST_ROWS or not theirs.shape[1]:
        return Relations()
    responsibilities = normalize(totals + np.log(weights))[0]
    whole = ~np.isnan(X).any(axis=1)  # gaps change contributions, and parties may have them in the same rows
    dependence = None
    if whole.sum() >= FEWEST_ROWS:
        numbers = np.hstack([X[:, :: _step(X.shape[1])], _numbers(own, is_lossy)])
        joined, columns = _beside(numbers[whole], theirs[whole])
        dependence = _residual_dependence(joined, columns, responsibilities[whole], _scores, _strongest)
    if dependence is not None:
        dependence = DependenceFacts(dependence.nats, float(np.sqrt(-np.expm1(-2 * dependence.nats))))
    joined, columns = _beside(X[:, :: _step(X.shape[1])], theirs)
    is_alone, is_structured = _compare_ranks(joined, columns)
    n_clusters = min(max(len(weights), 3), MOST_CLUSTERS)
    if (
        _information_about(normalize(others + np.log(weights))[0], weights) < INFORMED
        or not is_alone[0]
        or _shares_clusters(joined, columns, 0, n_clusters)
        or not (has_heaps or is_structured[0] or _has_clusters(X))
    ):
        return Relations(dependence)
    return Relations(dependence, (name,), is_structured=True)


def _beside(own: Array, others: Array) -> tuple[Array, _Columns]:
    """Columns of two blocks beside each other."""
    sizes = own.shape[1], others.shape[1]
    return np.hstack([own, others]), _Columns(np.arange(sum(sizes)), np.repeat([0, 1], sizes))


def _information_about(responsibilities: Array, weights: Array) -> float:
    """Information in these responsibilities about the component, as a share of all of it."""
    entropy = -(responsibilities * np.log(np.maximum(responsibilities, 1e-300))).sum(axis=1).mean()
    whole = -float((weights * np.log(np.maximum(weights, 1e-300))).sum())
    return 1 - float(entropy) / whole if whole > 0 else 0.0


def _step(n_columns: int) -> int:
    """Step between the columns that are compared."""
    return -(-n_columns // MOST_COLUMNS)


def _chosen(network: Network) -> _Columns:
    held = network.block_columns
    numbers, blocks = np.concatenate(held), np.repeat(np.arange(len(held)), list(map(len, held)))
    step = _step(len(numbers))
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


def _residual_dependence(
    X: Array, columns: _Columns, responsibilities: Array, scale: _Scale, measure: Callable[[Array, _Columns], float]
) -> DependenceFacts | None:
    """Largest correlation between blocks within components, and the information between the blocks.

    The estimate of the information, by `measure`, is positive even for independent blocks. This bias is measured on
    rows that are permuted within components, for each block separately, and subtracted. None if the information is
    not larger than the bias.
    """
    own = standardize(X[:, columns.numbers])
    correlations = _within(own, responsibilities, scale)
    if correlations is None:
        return None
    rng, labels = np.random.default_rng(0), responsibilities.argmax(axis=1)
    exchanged = own.copy()
    for block in np.unique(columns.blocks)[1:]:
        mine = np.flatnonzero(columns.blocks == block)
        for k in np.unique(labels):
            rows = np.flatnonzero(labels == k)
            exchanged[np.ix_(rows, mine)] = own[np.ix_(rng.permutation(rows), mine)]
    by_chance = _within(exchanged, responsibilities, scale)
    assert by_chance is not None, "the components are the same"
    chance = measure(by_chance, columns)
    nats = measure(correlations, columns) - chance
    if nats <= chance:
        return None
    # Columns that repeat each other have correlations of 1 up to rounding: the first pair, whatever the processor.
    between = np.round(np.abs(correlations), 6) * columns.is_between
    one, other = sorted(map(int, np.unravel_index(between.argmax(), between.shape)))
    pair = str(columns.numbers[one]), str(columns.numbers[other])
    return DependenceFacts(nats, float(correlations[one, other]), *pair)


def _within(X: Array, responsibilities: Array, scale: _Scale) -> Array | None:
    """Correlations of columns within components, averaged over components; None if all components are small."""
    total, n_rows = np.zeros((X.shape[1], X.shape[1])), 0.0
    for weights in responsibilities.T:
        size = float(weights.sum())
        if size < FEWEST_OF_COMPONENT:
            continue
        scaled = scale(X, weights)
        total += (scaled * weights[:, None]).T @ scaled
        n_rows += size
    if not n_rows:
        return None
    total /= n_rows
    np.fill_diagonal(total, 1.0)
    return total


def _scaled(X: Array, weights: Array) -> Array:
    """Columns with mean 0 and deviation 1 in a component."""
    moved = X - weights @ X / weights.sum()
    spread = np.sqrt(weights @ np.square(moved) / weights.sum())
    return np.where(spread > RIDGE, moved / np.where(spread > RIDGE, spread, 1.0), 0.0)


def _scores(X: Array, weights: Array) -> Array:
    """Normal scores of the columns' ranks in a component, so that far values do not decide."""
    found = np.empty_like(X)
    for place, column in enumerate(X.T):
        values, which = np.unique(column, return_inverse=True)
        counts = np.bincount(which, weights, len(values))
        found[:, place] = ndtri(np.clip((np.cumsum(counts) - counts / 2) / counts.sum(), RIDGE, 1 - RIDGE))[which]
    return _scaled(found, weights)


def _numbers(contributions: Array, is_lossy: bool) -> Array:
    """Differences between successive components' contributions, and contributions themselves unless sums are lossy.

    They are rounded, so that errors of sums do not order equal ones.
    """
    changes = np.diff(contributions, axis=1)
    numbers = changes if is_lossy else np.hstack([contributions, changes])
    return np.round(numbers, 0 if is_lossy else DIGITS)


def _information(correlations: Array, columns: _Columns) -> float:
    """Information between blocks of Gaussian columns, `(sum_b log det R_bb - log det R) / 2`, in nats."""
    whole = correlations + RIDGE * np.eye(len(correlations))
    parts = [np.flatnonzero(columns.blocks == block) for block in np.unique(columns.blocks)]
    inside = sum(float(np.linalg.slogdet(whole[np.ix_(part, part)])[1]) for part in parts)
    return max(0.5 * (inside - float(np.linalg.slogdet(whole)[1])), 0.0)


def _strongest(correlations: Array, columns: _Columns) -> float:
    """Information of the strongest canonical correlation between two blocks, in nats.

    The others are left out: contributions are quadratic functions, and count the same dependence several times.
    """
    whole = correlations + FAINT * np.eye(len(correlations))
    one, other = (np.flatnonzero(columns.blocks == block) for block in (0, 1))
    factors = [np.linalg.cholesky(whole[np.ix_(part, part)]) for part in (one, other)]
    left = np.linalg.solve(factors[0], whole[np.ix_(one, other)])
    largest = float(np.linalg.norm(np.linalg.solve(factors[1], left.T), ord=2))
    return -0.5 * float(np.log1p(-min(largest**2, 1 - RIDGE)))
