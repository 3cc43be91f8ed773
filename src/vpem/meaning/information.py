"""Information about the component of a row in a column, or in a party's columns.

It is the mutual information of columns and component under the fitted model, in nats. It is at most the entropy of
the weights, which it reaches if the columns determine the component. It depends on variances as much as on means. A
party computes it from its own block and the weights, without data or messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, xlogy

from vpem.core.blocks.arrays import Array, Block
from vpem.core.blocks.density import Density

N_DRAWS = 20_000
"""Number of rows drawn for an expectation that is not an integral over one column."""
FEWEST_DRAWS = 200
"""Smallest number of rows drawn from each component."""
SEED = 20_230_917
"""Fixed, so that parties get the same result from the same computation."""
TAILS = np.array([0.0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 13, 17, 22, 30, 40])
"""Ends of the integral's panels, in deviations from a component's mean; far out, as families may have long tails."""
N_NODES = 8
"""Number of Gauss-Legendre nodes in each panel."""
MASS_ERROR = 1e-3
"""Largest error of a density's integral. Beyond it, the column is not continuous, and rows are drawn instead."""


class Information(NamedTuple):
    """Mutual information with the component."""

    nats: float
    error: float
    """Standard error; 0 if no rows were drawn."""


def entropy(weights: Array) -> float:
    """Entropy of the component of a row, in nats."""
    return float(-xlogy(weights, weights).sum())


def column_information(weights: Array, density: Density, block: Block) -> list[Information]:
    """Information of each single column of a block about the component.

    It is the integral of `sum_k w_k p_k(x) log(p_k(x) / p(x))`, with the column's densities `p_k` within the
    components and `p` of all rows.

    Parameters
    ----------
    weights : array of shape (n_components,)
    density : Density
    block : Block

    Returns
    -------
    list of Information
        One for each column. The error is 0, except for columns whose values cannot be integrated over or listed:
        for these, rows are drawn.
    """
    return [_of_column(weights, density, block, column) for column in range(density.means(block).shape[1])]


def _of_column(weights: Array, density: Density, block: Block, column: int) -> Information:
    points = density.values(block, column)
    if points is None:
        points, steps = _panels(density.means(block)[:, column], density.deviations(block)[:, column])
    else:
        steps = np.ones(len(points))
    log_densities = density.marginal(block, column, points)
    masses = np.exp(log_densities) * steps
    if (np.abs(masses.sum(axis=1) - 1) > MASS_ERROR).any():
        return block_information(weights, density, block, [column])
    log_all = logsumexp(log_densities + np.log(weights)[:, None], axis=0)
    nats = float(weights @ (masses * (log_densities - log_all)).sum(axis=1))
    return Information(min(max(nats, 0.0), entropy(weights)), 0.0)


def _panels(means: Array, deviations: Array) -> tuple[Array, Array]:
    """Points and weights, each (n_points,), of an integral that is exact for smooth densities with these moments."""
    ends = np.unique(means[:, None] + deviations[:, None] * np.concatenate([-TAILS[:0:-1], TAILS]))
    nodes, shares = np.polynomial.legendre.leggauss(N_NODES)
    half = np.diff(ends)[:, None] / 2
    return (ends[:-1, None] + half * (1 + nodes)).ravel(), (half * shares).ravel()


def block_information(
    weights: Array,
    density: Density,
    block: Block,
    columns: Sequence[int] | None = None,
    *,
    n_draws: int = N_DRAWS,
    seed: int = SEED,
) -> Information:
    """Joint information of some columns of a block about the component, estimated on rows drawn from the model.

    Parameters
    ----------
    weights : array of shape (n_components,)
    density : Density
    block : Block
    columns : sequence of int, optional
        Positions within the block; by default all. The other columns are marginalized.
    n_draws : int
        Number of rows. The standard error is inversely proportional to its square root.
    seed : int
    """
    labels, rng = _draw_labels(weights, n_draws), np.random.default_rng(seed)
    XT = density.sample(block, labels, rng).T
    if columns is not None:
        kept = XT[list(columns)]
        XT = np.full_like(XT, np.nan)
        XT[list(columns)] = kept
    return _from_draws(weights, labels, density.log_density(XT, block))


def whole_information(
    weights: Array, density: Density, blocks: Sequence[Block], *, n_draws: int = N_DRAWS, seed: int = SEED
) -> Information:
    """Joint information of all columns about the component; see `block_information`."""
    labels, rng = _draw_labels(weights, n_draws), np.random.default_rng(seed)
    log_densities = np.zeros((len(weights), len(labels)))
    for block in blocks:
        log_densities += density.log_density(density.sample(block, labels, rng).T, block)
    return _from_draws(weights, labels, log_densities)


def _draw_labels(weights: Array, n_draws: int) -> NDArray[np.intp]:
    """Return labels in proportion to the weights, with at least `FEWEST_DRAWS` of each component."""
    return np.repeat(np.arange(len(weights)), np.maximum(np.round(weights * n_draws), FEWEST_DRAWS).astype(int))


def _from_draws(weights: Array, labels: NDArray[np.intp], log_densities: Array) -> Information:
    """Entropy of the component less its conditional entropy given the columns.

    The mean of entropies has a smaller error than that of log-ratios, because entropies are bounded.

    Parameters
    ----------
    weights : array of shape (n_components,)
    labels : array of shape (n_draws,)
        Component from which each row was drawn.
    log_densities : array of shape (n_components, n_draws)
    """
    joint = log_densities + np.log(weights)[:, None]
    log_responsibilities = joint - logsumexp(joint, axis=0)
    left = -(np.exp(log_responsibilities) * log_responsibilities).sum(axis=0)
    nats, variance = entropy(weights), 0.0
    for k, weight in enumerate(weights):
        own = left[labels == k]
        nats -= weight * own.mean()
        variance += weight**2 * own.var(ddof=1) / len(own)
    return Information(float(min(max(nats, 0.0), entropy(weights))), float(np.sqrt(variance)))
