"""Checks of a fit on a sample of its rows: the number of components, whether starts agree, odd columns.

They take longer than a small fit, so the estimator keeps the sample and runs them when `verdict_` is first read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr
from sklearn.metrics import adjusted_rand_score

from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.overall import describe
from vpem.core.blocks.sweep import em_pass
from vpem.core.blocks.weights import normalize
from vpem.core.decisions.starts import start_from_labels
from vpem.core.network.parties import Network
from vpem.core.network.star import ExactSum
from vpem.core.settings import Settings
from vpem.simulation.channel import Channel
from vpem.simulation.em import MixtureFit, em
from vpem.simulation.model import Mixture, Problem
from vpem.simulation.threads import one_blas_thread

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

MOST_ROWS = 4000
"""Rows of a sample."""
FEWEST_ROWS = 40
"""Rows below which a sample tells too little."""
ITERATIONS = 5
"""Iterations of EM for each number of components, from labels that are nearly right."""
SURE = 2.0
"""Standard errors by which held-out rows must prefer more components."""
LUMPED = 0.82
"""Share of a component's variance, along its longest direction, between two halves: 0.64 for a Gaussian, 0.75 for a
uniform distribution, 0.8 for two equal groups that are four deviations apart."""
FEWEST_LUMPED, SMALLEST_HALF = 50, 0.1
"""Rows of a component in which halves are looked for, and the share that each must have."""
TWINS = 1 - 1e-9
"""Correlation from which on a column repeats another one."""
MOST_PAIRS = 200
"""Pairs of columns of a block that are compared value by value."""
EVEN = 1.0
"""Distance from a uniform distribution, times the root of the number of values (Kolmogorov and Smirnov's test)."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows of a fit, in the units of the fit, with what each start came to."""

    X: Array
    """(n_rows, n_features)"""
    n_rows: int
    """Of the whole table."""
    network: Network
    mixture: Mixture
    ends: Sequence[Mixture]
    """What each start came to."""
    first_rows: Array
    """(n_first, n_features): rows next to each other, in the units of the table."""


class Sizes(NamedTuple):
    """What a sample says of the number of components."""

    by_bic: int | None = None
    """A smaller number that BIC prefers, and held-out rows do not contradict."""
    by_icl: int | None = None
    """A smaller number that ICL prefers."""
    lumped: tuple[int, ...] = ()
    """Components whose rows fall into two heaps."""


class _Trial(NamedTuple):
    """A number of components, fitted to a sample."""

    responsibilities: Array
    bic: float
    icl: float
    held_out: Array
    """Log-density of each row of one half of the sample, fitted to the other."""


def take_sample(problem: Problem, result: MixtureFit, scale: Array | None) -> Sample:
    """Copy some rows that a fit has seen.

    Parameters
    ----------
    problem : Problem
    result : MixtureFit
    scale : array of shape (n_features,), optional
        By which the columns were divided for the fit.
    """
    n_rows = len(problem.X)
    rows: Any = slice(None)
    if n_rows > MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(n_rows, MOST_ROWS, replace=False))
    X = np.array(problem.X[rows], dtype=np.float64)
    X = X[~np.isnan(X).all(axis=1)]
    first = np.array(problem.X[slice(0, MOST_ROWS)], dtype=np.float64) * (1.0 if scale is None else scale)
    return Sample(X, n_rows, problem.network, result.mixture, result.start_ends, first)


def check_sample(sample: Sample) -> dict[str, Any]:
    """Return facts, by the names of `Facts`."""
    with one_blas_thread():
        sizes = _check_sizes(sample)
        labels = _respond(sample.X, sample.network, sample.mixture)[0].argmax(axis=1)
        ends = [_respond(sample.X, sample.network, one)[0].argmax(axis=1) for one in sample.ends]
    return {
        "fewer_by_bic": sizes.by_bic,
        "fewer_by_icl": sizes.by_icl,
        "lumped": sizes.lumped,
        "start_agreement": tuple(float(adjusted_rand_score(labels, own)) for own in ends),
        "row_names": tuple(str(c) for c in range(sample.X.shape[1]) if _names_rows(sample.first_rows[:, c])),
        "twins": _twins(sample),
    }


# The number of components


def _check_sizes(sample: Sample) -> Sizes:
    n_components = sample.mixture.weights.shape[1]
    if len(sample.X) < FEWEST_ROWS:
        return Sizes()
    responsibilities, _ = _respond(sample.X, sample.network, sample.mixture)
    labels = responsibilities.argmax(axis=1)
    lumped = tuple(k for k in range(n_components) if _is_lumped(sample, labels == k))
    if n_components == 1:
        return Sizes(lumped=lumped)
    by_bic, by_icl = _merge(sample, labels)
    return Sizes(by_bic, by_icl, lumped)


def _merge(sample: Sample, labels: Labels) -> tuple[int | None, int | None]:
    """Merge the two components that overlap most, again and again, while BIC or ICL improves.

    A merged model is fitted from its labels in a few iterations, so its criteria can only be worse than the best
    ones of that size: what is found to be better is better. BIC counts shrunk covariances as free; therefore it
    counts only where held-out rows do not clearly prefer the larger model.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    trials: list[_Trial] = []
    by_bic = by_icl = None
    is_bic_better = True
    for size in range(labels.max() + 1, 0, -1):
        try:
            trials.append(_try(sample, labels, size))
        except CollapsedComponentError:
            break
        if len(trials) > 1:
            larger, smaller = trials[-2:]
            is_bic_better = is_bic_better and smaller.bic < larger.bic and not _is_surely_better(larger, smaller)
            is_icl_better = smaller.icl < min(one.icl for one in trials[:-1])
            by_bic = size if is_bic_better else by_bic
            by_icl = size if is_icl_better else by_icl
            if not is_bic_better and by_icl is None:
                break
        labels = _merged(trials[-1].responsibilities)
    if by_icl is None and trials:  # merging two at a time may get stuck
        whole = _try(sample, np.zeros(len(labels), dtype=np.intp), 1)
        by_icl = 1 if whole.icl < trials[0].icl else None
    return by_bic, by_icl


def _try(sample: Sample, labels: Labels, n_components: int) -> _Trial:
    network, X, n_rows = sample.network, sample.X, sample.n_rows
    mixture = _fit(X, sample, labels, n_components)
    responsibilities, log_densities = _respond(X, network, mixture)
    entropy = -float((responsibilities * np.log(np.maximum(responsibilities, 1e-300))).sum()) / len(X)
    n_parameters = n_components - 1 + sum(map(mixture.density.n_block_parameters, mixture.blocks))
    bic = -2 * float(log_densities.mean()) * n_rows + n_parameters * np.log(n_rows)
    is_first = np.random.default_rng(0).permutation(len(X)) < len(X) // 2
    half = _fit(X[is_first], sample, labels[is_first], n_components)
    return _Trial(responsibilities, bic, bic + 2 * entropy * n_rows, _respond(X[~is_first], network, half)[1])


def _fit(X: Array, sample: Sample, labels: Labels, n_components: int) -> Mixture:
    """Fit to some rows, from their labels."""
    density, network = sample.mixture.density, sample.network
    overall = describe(X, network, density)
    weights, blocks, _ = start_from_labels(X, network, overall, density, n_components, labels.astype(np.float64))
    start = Mixture(density, weights[None], tuple(blocks))
    settings = Settings(n_components=n_components, density=density, tol=1e-4, max_iter=ITERATIONS)
    return em(Problem(X, network, ExactSum(), overall), Channel(ExactSum(), network), start, settings).mixture


def _is_surely_better(larger: _Trial, smaller: _Trial) -> bool:
    """Whether the larger model describes held-out rows better, by more than chance."""
    gains = larger.held_out - smaller.held_out
    return bool(gains.mean() > SURE * gains.std() / np.sqrt(len(gains)))


def _merged(responsibilities: Array) -> Labels:
    """Labels of the rows after the two components that overlap most have become one."""
    sums = responsibilities.sum(axis=0)
    overlap = responsibilities.T @ responsibilities / np.maximum(np.minimum.outer(sums, sums), 1e-300)
    np.fill_diagonal(overlap, -1.0)
    kept, gone = sorted(np.unravel_index(overlap.argmax(), overlap.shape))
    labels: Labels = responsibilities.argmax(axis=1)
    labels[labels == gone] = kept
    labels[labels > gone] -= 1
    return labels


def _is_lumped(sample: Sample, rows: NDArray[np.bool_]) -> bool:
    """Whether the rows of a component fall into two heaps along the direction in which they vary most."""
    columns = _gaussian_columns(sample)
    if rows.sum() < FEWEST_LUMPED or not columns:
        return False
    found = _standardize(sample.X[:, columns])[rows]
    found -= found.mean(axis=0)
    direction: Any = np.random.default_rng(0).normal(size=found.shape[1])
    for _ in range(50):
        moved = found.T @ (found @ direction)
        direction = moved / max(float(np.linalg.norm(moved)), 1e-300)
    ordered = np.sort(found @ direction)
    n_rows, below = len(ordered), np.arange(1, len(ordered))
    sums = np.cumsum(ordered)
    means = sums[:-1] / below, (sums[-1] - sums[:-1]) / (n_rows - below)
    between = below * (n_rows - below) / n_rows**2 * (means[0] - means[1]) ** 2
    is_half = np.minimum(below, n_rows - below) >= SMALLEST_HALF * n_rows
    return bool(between[is_half].max() > LUMPED * ordered.var())


def _gaussian_columns(sample: Sample) -> list[int]:
    density, network = sample.mixture.density, sample.network
    return [
        int(column)
        for hub, held in zip(network.named_hubs(), network.block_columns, strict=True)
        for column in held[density.scaled_columns(len(held), hub.members)]
    ]


def _respond(X: Array, network: Network, mixture: Mixture) -> tuple[Array, Array]:
    """Responsibilities and log-densities of rows under the assembled model."""
    weights, columns, density = mixture.weights.mean(axis=0), network.block_columns, mixture.density
    packed = density.pack(mixture.blocks, density.layout(list(map(len, columns)), len(weights)))
    views = np.zeros(len(columns), dtype=np.int64)
    halves = em_pass(packed, np.concatenate(columns), None, np.log(weights)[None], views)
    sums = np.concatenate([halves.contribute(tile)[0].T for tile in halves.tiles(X, 0)])
    return normalize(sums + np.log(weights))


# Odd columns


def _names_rows(values: Array) -> bool:
    """Whether a column's values, in the order of the rows, look like names of the rows: ids, or their numbers."""
    values = values[~np.isnan(values)]
    whole = np.round(values)
    if len(values) < FEWEST_ROWS or (np.abs(values - whole) > 1e-9 * np.maximum(np.abs(whole), 1.0)).any():
        return False
    ordered = np.sort(whole)
    steps = np.diff(ordered)
    if (steps <= 0).any():
        return False
    even = (ordered - ordered[0]) / (ordered[-1] - ordered[0])
    distance = np.abs(even - np.linspace(0.0, 1.0, len(even))).max()
    return bool((steps == steps[0]).all() or distance < EVEN / np.sqrt(len(even)))


def _twins(sample: Sample) -> tuple[tuple[str, str], ...]:
    """Pairs of columns of one block of which one is a multiple of the other, plus a constant."""
    found: list[tuple[str, str]] = []
    for held in sample.network.block_columns:
        part = _standardize(sample.X[:, held])
        correlations = np.triu(np.abs(part.T @ part) / len(part), 1)
        least = 0.5 if np.isnan(sample.X[:, held]).any() else TWINS - 1e-6  # gaps, filled with means, lower it
        pairs = np.argwhere(correlations > least)
        for one, other in pairs[np.argsort(-correlations[tuple(pairs.T)])][:MOST_PAIRS]:
            pair = sample.X[:, held[[one, other]]]
            pair = pair[~np.isnan(pair).any(axis=1)]
            if len(pair) >= FEWEST_ROWS and pair.std(axis=0).all() and abs(pearsonr(*pair.T).statistic) > TWINS:
                found.append((str(held[one]), str(held[other])))
    return tuple(found)


def _standardize(X: Array) -> Array:
    """Columns with mean 0 and deviation 1; gaps become means."""
    is_there = ~np.isnan(X)
    counts = np.maximum(is_there.sum(axis=0), 1)
    moved = np.where(is_there, X - np.where(is_there, X, 0.0).sum(axis=0) / counts, 0.0)
    spread = np.sqrt(np.square(moved).sum(axis=0) / counts)
    scaled: Array = moved / np.where(spread > 0, spread, 1.0)
    return scaled
