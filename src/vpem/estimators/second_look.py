"""Checks of a fit on a sample of its rows: the number of components, agreement of the starts, odd columns.

The checks take longer than a small fit, so the estimator stores the sample and runs them when `verdict_` is first
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.families import GAUSSIAN
from vpem.core.blocks.overall import describe
from vpem.core.blocks.sweep import em_pass
from vpem.core.blocks.weights import normalize
from vpem.core.decisions.starts import start_from_labels
from vpem.core.network.parties import Network
from vpem.core.network.star import ExactSum
from vpem.core.settings import Settings
from vpem.estimators.odd_columns import check_columns, standardize
from vpem.estimators.relations import find_relations, find_relations_in_sums
from vpem.simulation.channel import Channel
from vpem.simulation.fit import em
from vpem.simulation.model import Mixture, MixtureFit, Problem
from vpem.simulation.threads import one_blas_thread

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

MOST_ROWS = 4000
"""Largest number of rows in a sample."""
FEWEST_ROWS = 40
"""Smallest number of rows in a sample for the checks of the number of components."""
ITERATIONS = 5
"""EM iterations for each number of components. Few suffice, because the initial labels are nearly right."""
SURE = 2.0
"""Standard errors by which the log-density of held-out rows must increase to prefer more components."""
LUMPED = 0.82
"""Threshold on the between-halves share of a component's variance along its longest direction. The share is 0.64 for
a Gaussian, 0.75 for a uniform distribution and 0.8 for two equal groups that are four deviations apart."""
FEWEST_LUMPED, SMALLEST_HALF = 50, 0.1
"""Smallest number of rows of a component that is tested for two halves, and smallest share of rows in each half."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows of a fit, in the units of the fit, and the model that each start reached."""

    X: Array
    """(n_rows, n_features)"""
    n_rows: int
    """Number of rows of the whole table in which some party has a value, estimated from the sample."""
    network: Network
    mixture: Mixture
    ends: Sequence[Mixture]
    """Mixture that each start reached."""
    first_rows: Array
    """(n_first, n_features): consecutive rows, in the units of the table."""
    scale: Array | None = None
    """(n_features,): scales that divided the columns for the fit."""


class Sizes(NamedTuple):
    """Findings of a sample about the number of components."""

    by_bic: int | None = None
    """Smaller number of components that BIC prefers and that held-out rows do not contradict."""
    by_icl: int | None = None
    """Smaller number of components that ICL prefers."""
    lumped: tuple[int, ...] = ()
    """Components whose rows form two groups."""


class _Trial(NamedTuple):
    """Fit of a given number of components to a sample."""

    responsibilities: Array
    entropy: float
    """Mean entropy of a row's responsibilities."""
    bic: float
    icl: float
    held_out: Array
    """Log-density of each row of one half of the sample, under a model fitted to the other half."""


def take_sample(problem: Problem, result: MixtureFit, scale: Array | None) -> Sample:
    """Copy a sample of the rows of a fit.

    Parameters
    ----------
    problem : Problem
    result : MixtureFit
    scale : array of shape (n_features,), optional
        Scales that divided the columns for the fit.
    """
    n_rows = len(problem.X)
    X = np.array(problem.X[some_rows(n_rows)], dtype=np.float64)
    is_there = ~np.isnan(X).all(axis=1)
    X, n_rows = X[is_there], round(n_rows * float(is_there.mean()))
    first = np.array(problem.X[slice(0, MOST_ROWS)], dtype=np.float64) * (1.0 if scale is None else scale)
    return Sample(X, n_rows, problem.network, result.mixture, result.start_ends, first, scale)


def some_rows(n_rows: int) -> Any:
    """Row numbers of a sample, or a slice of all rows if the table is small."""
    if n_rows <= MOST_ROWS:
        return slice(None)
    return np.sort(np.random.default_rng(0).choice(n_rows, MOST_ROWS, replace=False))


def check_sample(sample: Sample) -> dict[str, Any]:
    """Return the facts that the checks find, by the field names of `Facts`."""
    with one_blas_thread():
        sizes = _check_sizes(sample)
        responsibilities = _respond(sample.X, sample.network, sample.mixture)[0]
        labels = responsibilities.argmax(axis=1)
        heaps = _find_heaps(sample)
        relations = find_relations(sample.X, sample.network, responsibilities, heaps)
        ends = [_respond(sample.X, sample.network, one)[0].argmax(axis=1) for one in sample.ends]
    X = sample.X if sample.scale is None else sample.X * sample.scale
    return {
        **check_columns(X, sample.first_rows, sample.network.block_columns, _families(sample)),
        "fewer_by_bic": sizes.by_bic,
        "fewer_by_icl": sizes.by_icl,
        "lumped": sizes.lumped,
        "start_agreement": tuple(float(adjusted_rand_score(labels, own)) for own in ends),
        **relations._asdict(),
    }


def check_totals(sample: Sample, totals: Array, *, is_lossy: bool) -> dict[str, Any]:
    """Return the facts that a party of a study finds in its block and the sums; see `find_relations_in_sums`.

    Parameters
    ----------
    sample : Sample
        The party's block as the only one.
    totals : array of shape (n_rows, n_components)
        Sums of all parties' contributions in these rows.
    is_lossy : bool
        True for sums of rounded changes.
    """
    with one_blas_thread():
        own, weights = _contribute(sample.X, sample.network, sample.mixture), sample.mixture.weights.mean(axis=0)
        name, has_heaps = str(sample.network.parties[0]), bool(_find_heaps(sample)[0])
        about: Any = {"has_heaps": has_heaps, "name": name, "is_lossy": is_lossy}
        relations = find_relations_in_sums(sample.X, own, totals, weights, **about)
    return relations._asdict()


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
    """Repeatedly merge the two components that overlap most, while BIC or ICL improves.

    A merged model is fitted from its labels in a few iterations, so its criteria are at best those of the optimal
    model of that size: an improvement that is found is real. Both count shrunk covariances as free parameters. So a
    smaller model is accepted by BIC only if held-out rows do not clearly prefer the larger one, and by ICL only if
    they do not, or if they prefer it by less than its components overlap.
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
            is_icl_better = all(_is_clearer(smaller, one) for one in trials[:-1])
            by_bic = size if is_bic_better else by_bic
            by_icl = size if is_icl_better else by_icl
            if not is_bic_better and by_icl is None:
                break
        labels = _merged(trials[-1].responsibilities)
    if by_icl is None and trials:  # merging pairs can stop at a local optimum
        whole = _try(sample, np.zeros(len(labels), dtype=np.intp), 1)
        by_icl = 1 if _is_clearer(whole, trials[0]) else None
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
    held_out = _respond(X[~is_first], network, half)[1]
    return _Trial(responsibilities, entropy, bic, bic + 2 * entropy * n_rows, held_out)


def _fit(X: Array, sample: Sample, labels: Labels, n_components: int) -> Mixture:
    """Fit a mixture to some rows, initialized from their labels."""
    density, network = sample.mixture.density, sample.network
    overall = describe(X, network, density)
    weights, blocks, _ = start_from_labels(X, network, overall, density, n_components, labels.astype(np.float64))
    start = Mixture(density, weights[None], tuple(blocks))
    settings = Settings(n_components=n_components, density=density, tol=1e-4, max_iter=ITERATIONS)
    return em(Problem(X, network, ExactSum(), overall), Channel(ExactSum(), network), start, settings).mixture


def _is_surely_better(larger: _Trial, smaller: _Trial) -> bool:
    """True if the larger model gives held-out rows a significantly higher log-density."""
    gains = larger.held_out - smaller.held_out
    return bool(gains.mean() > SURE * gains.std() / np.sqrt(len(gains)))


def _is_clearer(smaller: _Trial, larger: _Trial) -> bool:
    """True if ICL prefers the smaller model, and held-out rows not the larger one by more than its overlap."""
    overlap, gain = larger.entropy - smaller.entropy, (larger.held_out - smaller.held_out).mean()
    return smaller.icl < larger.icl and (overlap > gain or not _is_surely_better(larger, smaller))


def _merged(responsibilities: Array) -> Labels:
    """Labels of the rows after the two components that overlap most are merged."""
    sums = responsibilities.sum(axis=0)
    overlap = responsibilities.T @ responsibilities / np.maximum(np.minimum.outer(sums, sums), 1e-300)
    np.fill_diagonal(overlap, -1.0)
    kept, gone = sorted(np.unravel_index(overlap.argmax(), overlap.shape))
    labels: Labels = responsibilities.argmax(axis=1)
    labels[labels == gone] = kept
    labels[labels > gone] -= 1
    return labels


def _is_lumped(sample: Sample, rows: NDArray[np.bool_]) -> bool:
    """True if the rows of a component form two groups along their direction of largest variance."""
    return _falls_apart(standardize(sample.X[:, _gaussian_columns(sample)])[rows])


def _find_heaps(sample: Sample) -> NDArray[np.bool_]:
    """Shape (n_blocks,): True if the rows form two groups in the columns of the block."""
    chosen, X = _gaussian_columns(sample), standardize(sample.X)
    return np.array([_falls_apart(X[:, np.intersect1d(held, chosen)]) for held in sample.network.block_columns])


def _falls_apart(found: Array) -> bool:
    """True if rows form two groups along their direction of largest variance."""
    if len(found) < FEWEST_LUMPED or not found.shape[1]:
        return False
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


def _gaussian_columns(sample: Sample) -> NDArray[np.intp]:
    density, network = sample.mixture.density, sample.network
    return np.concatenate(
        [
            held[density.scaled_columns(len(held), hub.members)]
            for hub, held in zip(network.named_hubs(), network.block_columns, strict=True)
        ]
    )


def _families(sample: Sample) -> list[str]:
    """Family of each column of the table."""
    density, network = sample.mixture.density, sample.network
    found = [GAUSSIAN] * sample.X.shape[1]
    for hub, held in zip(network.named_hubs(), network.block_columns, strict=True):
        for column, family in zip(held, density.families_of(hub.members), strict=False):  # empty: all are Gaussian
            found[column] = family
    return found


def _respond(X: Array, network: Network, mixture: Mixture) -> tuple[Array, Array]:
    """Responsibilities and log-densities of rows under the assembled model."""
    return normalize(_contribute(X, network, mixture) + np.log(mixture.weights.mean(axis=0)))


def _contribute(X: Array, network: Network, mixture: Mixture) -> Array:
    """Sums of the blocks' contributions; shape (n_rows, n_components)."""
    weights, columns, density = mixture.weights.mean(axis=0), network.block_columns, mixture.density
    packed = density.pack(mixture.blocks, density.layout(list(map(len, columns)), len(weights)))
    views = np.zeros(len(columns), dtype=np.int64)
    halves = em_pass(packed, np.concatenate(columns), None, np.log(weights)[None], views)
    return np.concatenate([halves.contribute(tile)[0].T for tile in halves.tiles(X, 0)])
