"""Lower bound on the gain from pooling two parties' columns, from the contributions that they send anyway.

A mixture of blocks assumes that parties' columns are independent given the component. It leaves out their mutual
information given the component. Contributions are functions of the columns, so their mutual information is at most
that of the columns. If two numbers are both normally distributed with correlation r, their mutual information is at
least `-log(1 - r^2) / 2` nats, whatever their joint distribution. So numbers are computed from the contributions and
mapped to normal scores by their ranks. The correlation of these scores within components gives a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from vpem.core.blocks.arrays import Array

FEWEST_ROWS = 50
"""Smallest effective number of rows of a component for which correlations are computed."""

SEED = 0


def pooling_gains(contributions: Sequence[Array], responsibilities: Array) -> dict[tuple[int, int], float]:
    """Lower bounds on the mutual information between blocks given the component, in nats per row.

    Parameters
    ----------
    contributions : sequence of arrays of shape (n_rows, n_components)
        Contributions of each block. A row that a block lacks is 0, and is left out.
    responsibilities : array of shape (n_rows, n_components)

    Returns
    -------
    dict
        Pair of blocks to the bound, which is the mean over the components, weighted by their weights.
    """
    rng = np.random.default_rng(SEED)
    half = rng.random(len(responsibilities)) < 0.5
    noise = [rng.random(len(responsibilities)) for _ in contributions]
    numbers = [_numbers(own) for own in contributions]
    there = [(own != 0).any(axis=1) for own in contributions]
    found = {}
    for one, other in combinations(range(len(contributions)), 2):
        both, total = there[one] & there[other], 0.0
        for k in range(responsibilities.shape[1]):
            weights = np.where(both, responsibilities[:, k], 0.0)
            if min(_effective(weights[half]), _effective(weights[~half])) < FEWEST_ROWS:
                continue
            parts = (numbers[one], noise[one]), (numbers[other], noise[other])
            # The pair of numbers is chosen on one half of the rows, and its correlation measured on the other.
            first, second = (_scores(own, ties, weights, half) for own, ties in parts)
            table = np.abs(_correlations(first, second, weights[half]))
            best = np.unravel_index(int(table.argmax()), table.shape)
            first, second = (
                _scores(own[:, [place]], ties, weights, ~half) for (own, ties), place in zip(parts, best, strict=True)
            )
            rho = float(_correlations(first, second, weights[~half])[0, 0])
            chance = 1.0 / _effective(weights[~half])  # expected r^2 without any correlation
            squared = min(max(rho**2 - chance, 0.0), 1 - 1e-12)
            total -= responsibilities[both, k].sum() / max(both.sum(), 1) * 0.5 * np.log1p(-squared)
        found[one, other] = float(total)
    return found


def _numbers(contributions: Array) -> Array:
    """Contributions and their differences; shape (n_rows, n_numbers)."""
    n_components = contributions.shape[1]
    pairs = [contributions[:, k] - contributions[:, j] for k, j in combinations(range(n_components), 2)]
    return np.column_stack([contributions, *pairs])


def _scores(numbers: Array, ties: Array, weights: Array, rows: NDArray[np.bool_]) -> Array:
    """Normal scores of the numbers' ranks in a component, ties broken at random; shape (n_rows, n_numbers)."""
    own = weights[rows]
    found = np.empty((len(own), numbers.shape[1]))
    for place in range(numbers.shape[1]):
        order = np.lexsort((ties[rows], np.round(numbers[rows, place], 9)))
        ranks = np.cumsum(own[order]) - own[order] / 2
        found[order, place] = ndtri(np.clip(ranks / own.sum(), 1e-12, 1 - 1e-12))
    return found


def _correlations(one: Array, other: Array, weights: Array) -> Array:
    """Weighted correlations; shape (n_numbers, n_numbers)."""
    shares = weights / weights.sum()
    first, second = (own - shares @ own for own in (one, other))
    spread = [np.sqrt(np.maximum(shares @ own**2, 1e-300)) for own in (first, second)]
    found: Array = (first * shares[:, None]).T @ second / spread[0][:, None] / spread[1]
    return found


def _effective(weights: Array) -> float:
    """Effective number of rows of these weights."""
    total = weights.sum()
    return float(total**2 / max((weights**2).sum(), 1e-300))
