"""Which columns make the clusters: what a column, or a party's columns, tell about the component of a row.

The information is the mutual information of columns and component under the fitted model, in nats. It is at most the
entropy of the weights, which would be reached if the columns told the component for sure. It depends on variances as
much as on means. A party needs its own block and the weights for it: no data, and no message.
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
"""Rows that are drawn for an expectation which is not an integral over one column."""
FEWEST_DRAWS = 200
"""Of each component."""
SEED = 20_230_917
"""Fixed: parties that compute the same thing get the same number."""
TAILS = np.array([0.0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 13, 17, 22, 30, 40])
"""Where panels of the integral end, in deviations from a component's mean: families may have long tails."""
N_NODES = 8
"""Of Gauss and Legendre's rule, in each panel."""
MASS_ERROR = 1e-3
"""If the densities do not integrate to 1 within this, the column is no continuous one, and rows are drawn."""


class Information(NamedTuple):
    """Mutual information with the component."""

    nats: float
    error: float
    """Standard error; 0 if no rows were drawn."""


def entropy(weights: Array) -> float:
    """What there is to tell about the component of a row, in nats."""
    return float(-xlogy(weights, weights).sum())


def column_information(weights: Array, density: Density, block: Block) -> list[Information]:
    """What each column of a block tells about the component by itself.

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
        One for each column. The error is 0 but for columns whose values cannot be integrated over or listed: for
        these, rows are drawn.
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
    """Points and weights of an integral that is exact for smooth densities with these moments; (n_points,) each."""
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
    """What some columns of a block tell about the component together; by drawing rows from the model.

    Parameters
    ----------
    weights : array of shape (n_components,)
    density : Density
    block : Block
    columns : sequence of int, optional
        Places within the block; by default all of them. The others are marginalized.
    n_draws : int
        The standard error falls with its square root.
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
    """What all columns together tell about the component; see `block_information`."""
    labels, rng = _draw_labels(weights, n_draws), np.random.default_rng(seed)
    log_densities = np.zeros((len(weights), len(labels)))
    for block in blocks:
        log_densities += density.log_density(density.sample(block, labels, rng).T, block)
    return _from_draws(weights, labels, log_densities)


def _draw_labels(weights: Array, n_draws: int) -> NDArray[np.intp]:
    """As many of each component as it has of the rows, with enough of each."""
    return np.repeat(np.arange(len(weights)), np.maximum(np.round(weights * n_draws), FEWEST_DRAWS).astype(int))


def _from_draws(weights: Array, labels: NDArray[np.intp], log_densities: Array) -> Information:
    """Entropy of the component, less what is left of it after a look at the columns.

    The mean of entropies has a smaller error than that of log-ratios: they are bounded.

    Parameters
    ----------
    weights : array of shape (n_components,)
    labels : array of shape (n_draws,)
        From which component each row was drawn.
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
