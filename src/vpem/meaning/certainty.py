"""Certainty of labels under a model, confusion of components, and rows that the model does not describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array, Block
from vpem.core.blocks.density import Density
from vpem.core.blocks.weights import normalize
from vpem.meaning.information import SEED

EDGES = np.linspace(0.0, 1.0, 21)
"""Edges of the bins of the largest responsibility."""
SURE = 0.95
"""Probability above which the model is sure of a label."""
N_REFERENCE = 2000
"""Number of rows drawn from the model as a reference for log-densities."""
MOST_KEPT = 2**24
"""Largest number of cached log-densities of drawn rows, which other rows with the same gaps use again: 128 MiB."""


@dataclass(frozen=True, eq=False)
class Certainty:
    """Certainty of the labels of some rows under a model. It identifies no row, unless there are very few rows.

    All values are probabilities under the model. A model that does not describe the data can be sure and wrong.
    """

    n_rows: int
    """Number of rows with some value."""
    counts: NDArray[np.int64]
    """Shape (n_components, n_bins): number of rows labelled with each component whose largest responsibility is in
    the bin."""
    edges: Array
    """Shape (n_bins + 1,): edges of the bins."""
    confusion: Array
    """Shape (n_components, n_components): expected share of the rows of component i that are labelled with j."""
    mean_largest: float
    """Mean of the largest responsibility: the expected share of correct labels, if the model is correct."""
    sure_share: float
    """Share of rows in which one component has a probability above 0.95 under the model. It does not show
    whether the model is right: see `verdict_`."""

    def confused_pairs(self, most: int = 5, least: float = 0.01) -> list[tuple[int, int, float]]:
        """Return components i and j with the expected share of rows of i that are labelled with j, largest first."""
        off = self.confusion - np.diag(np.diag(self.confusion))
        order = np.argsort(-off, axis=None, kind="stable")[:most]
        pairs = [(int(place) // len(off), int(place) % len(off)) for place in order]
        return [(i, j, float(off[i, j])) for i, j in pairs if off[i, j] >= least]


def make_certainty(responsibilities: Array) -> Certainty:
    """Compute the certainty of the labels of rows.

    Parameters
    ----------
    responsibilities : array of shape (n_rows, n_components)
        Responsibilities of the rows with some value.
    """
    n_components = responsibilities.shape[1]
    labels, largest = responsibilities.argmax(axis=1), responsibilities.max(axis=1)
    bins = np.clip(np.searchsorted(EDGES, largest, side="right") - 1, 0, len(EDGES) - 2)
    counts = np.zeros((n_components, len(EDGES) - 1), dtype=np.int64)
    np.add.at(counts, (labels, bins), 1)
    taken = np.zeros((n_components, n_components))
    for k in range(n_components):
        taken[:, k] = responsibilities[labels == k].sum(axis=0)
    totals = taken.sum(axis=1, keepdims=True)
    confusion = np.divide(taken, totals, out=np.eye(n_components), where=totals > 0)
    return Certainty(len(labels), counts, EDGES, confusion, float(largest.mean()), float((largest > SURE).mean()))


def typicality(
    weights: Array,
    density: Density,
    blocks: Sequence[Block],
    columns: Sequence[Sequence[int]],
    X: Array,
    log_densities: Array,
    *,
    n_draws: int = N_REFERENCE,
    seed: int = SEED,
) -> tuple[Array, Array]:
    """Compare the log-density of each row with those of rows drawn from the model with the same gaps.

    A log-density depends on the number of columns that a row has. The reference rows lack the same columns, so that
    rows with different gaps are comparable. Zeros have probabilities and amounts have densities. Densities are taken
    per standard deviation of all amounts, so that units have no effect.

    Parameters
    ----------
    weights : array of shape (n_components,)
    density : Density
    blocks : sequence of Block
    columns : sequence of sequences of int
        Each block's column numbers.
    X : array of shape (n_rows, n_features)
    log_densities : array of shape (n_rows,)
        Log-density of the values that each row has.
    n_draws : int
    seed : int

    Returns
    -------
    tails : array of shape (n_rows,)
        Probability that a row drawn from the model has the same or a lower log-density; at least
        ``1 / (n_draws + 1)``, and 1 for a row without any value.
    scores : array of shape (n_rows,)
        Log-density less its mean over the drawn rows, in standard deviations. It orders rows beyond all drawn ones.
    """
    reference = _Reference(weights, density, blocks, columns, n_draws, seed)
    pairs = zip(blocks, columns, strict=True)
    log_densities = log_densities + sum(density.log_units(block, weights, X[:, own].T) for block, own in pairs)
    tails, scores = np.ones(len(X)), np.zeros(len(X))
    patterns, numbers = np.unique(np.isnan(X), axis=0, return_inverse=True)
    order = np.argsort(numbers.ravel(), kind="stable")
    starts = np.searchsorted(numbers.ravel()[order], np.arange(len(patterns) + 1))
    for number, gone in enumerate(patterns):
        if gone.all():
            continue
        rows, drawn = order[starts[number] : starts[number + 1]], reference.log_densities(gone)
        tails[rows] = (1 + np.searchsorted(drawn, log_densities[rows], side="right")) / (n_draws + 1)
        scores[rows] = (log_densities[rows] - drawn.mean()) / max(float(drawn.std()), 1e-300)
    return np.minimum(tails, 1.0), scores


class _Reference:
    """Rows drawn from the model, from which any columns can be left out."""

    def __init__(
        self,
        weights: Array,
        density: Density,
        blocks: Sequence[Block],
        columns: Sequence[Sequence[int]],
        n_draws: int,
        seed: int,
    ):
        rng = np.random.default_rng(seed)
        labels = rng.choice(len(weights), size=n_draws, p=weights)
        self.weights, self.log_weights, self.density = weights, np.log(weights), density
        self.blocks, self.columns = blocks, [np.asarray(own) for own in columns]
        self.drawn = [density.sample(block, labels, rng).T for block in blocks]
        # Rows have many patterns of gaps, but few within one block: a block's log-densities are cached by pattern.
        self.kept: dict[tuple[int, bytes], Array] = {}

    def log_densities(self, gone: NDArray[np.bool_]) -> Array:
        """Log-densities of the drawn rows without some columns, in ascending order; shape (n_draws,)."""
        total: Array = np.zeros((len(self.log_weights), self.drawn[0].shape[1]))
        for number, own in enumerate(self.columns):
            if not gone[own].all():
                total += self._of_block(number, gone[own])
        return np.sort(normalize((total + self.log_weights[:, None]).T)[1])

    def _of_block(self, number: int, gone: NDArray[np.bool_]) -> Array:
        key = number, gone.tobytes()
        if key not in self.kept:
            XT = self.drawn[number].copy()
            XT[gone] = np.nan
            block = self.blocks[number]
            found = self.density.log_density(XT, block) + self.density.log_units(block, self.weights, XT)
            if (len(self.kept) + 1) * found.size > MOST_KEPT:
                self.kept.clear()
            self.kept[key] = found
        return self.kept[key]
