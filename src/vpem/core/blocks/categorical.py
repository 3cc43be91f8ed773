"""Categorical columns: words, booleans and numbers with few values, coded 0, 1, 2, ... by their party."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array
from vpem.core.blocks.families import MOST_VALUES, SMALLEST, TINY_ROWS, Discrete, Facts

FEW_VALUES = 10
"""Largest number of distinct whole numbers in a column that is taken as categorical."""


@dataclass(frozen=True)
class Categorical(Discrete):
    """Categorical distribution; its parameters are the categories' probabilities, (n_components, n_categories)."""

    kind = "categorical"
    takes_words = True
    may_have_codes = False

    @classmethod
    def suits(cls, facts: Facts) -> bool:
        """True for two values, or a few whole numbers."""
        n_different = np.inf if facts.distinct is None else len(facts.distinct)
        return n_different == 2 or (facts.is_whole and n_different <= FEW_VALUES)

    @classmethod
    def choose(cls, text: str, facts: Facts) -> str:
        """See `Family`."""
        if facts.distinct is None:
            raise ValueError(f"has more than {MOST_VALUES} different values, too many for categories")
        return f"{text}:{len(facts.distinct)}"

    @property
    def n_parameters(self) -> int:
        """Number of probabilities."""
        return self.n_values

    @property
    def n_free(self) -> int:
        """Number of free probabilities: one less, as they add up to 1."""
        return self.n_values - 1

    def check(self, parameters: Array) -> None:
        """See `Family`."""
        if not ((parameters >= 0).all() and np.allclose(parameters.sum(axis=1), 1.0)):
            raise ValueError("expected probabilities of categories that add up to 1, got others")

    def to_vector(self, parameters: Array) -> Array:
        """Square roots of the probabilities: unlike logarithms, they stay bounded if a probability goes to zero."""
        return np.sqrt(parameters)

    def from_vector(self, vector: Array, like: Array) -> Array:
        """Normalized squares."""
        found = np.square(vector)
        probabilities: Array = found / found.sum(axis=1, keepdims=True)
        return probabilities

    def categories(self, parameters: Array) -> Array | None:
        """All parameters."""
        return parameters

    def log_table(self, parameters: Array) -> Array:
        """See `Discrete`."""
        return np.log(np.maximum(parameters, SMALLEST))

    def is_strange(self, x: Array) -> NDArray[np.bool_]:
        """True for values that are not the number of a category."""
        return super().is_strange(x) | (x >= self.n_values)

    @property
    def expects(self) -> str:
        """See `Family`."""
        return f"categories, or their numbers from 0 to {self.n_values - 1}"

    def log_density(self, x: Array, parameters: Array) -> Array:
        """See `Family`."""
        is_value = (x >= 0) & (x < self.n_values) & (x == np.floor(x))
        codes = np.where(is_value, x, 0).astype(np.intp)
        return np.where(is_value, self.log_table(parameters)[:, codes], -np.inf)

    def m_step(self, statistics: Array, previous: Array, smoothing: float) -> Array:
        """Compute shares, as if `smoothing` more rows had all categories equally often."""
        counts = statistics.sum(axis=1, keepdims=True)
        total = counts + smoothing
        shares = (statistics + smoothing / self.n_values) / np.where(total > 0, total, 1.0)
        found: Array = np.where(counts > TINY_ROWS, shares, previous)
        return found

    def first(self, mean: float, variance: float) -> Array:
        """Equal probabilities of all categories."""
        return np.full((1, self.n_values), 1.0 / self.n_values)

    def start(self, values: Array, everything: Array) -> Array:
        """Average the overall probabilities with the given category; values that are no category have no effect."""
        hits = (values[:, None] == np.arange(self.n_values)).astype(np.float64)
        return np.where(hits.any(axis=1, keepdims=True), 0.5 * (hits + everything), everything)

    @property
    def n_features(self) -> int:
        """Number of features: one for each category."""
        return self.n_values

    def features(self, x: Array, everything: Array) -> Array:
        """One-hot encoding of the values; NaN for gaps."""
        found: Array = (x == np.arange(self.n_values)[:, None]).astype(np.float64)
        found[:, np.isnan(x)] = np.nan
        return found

    def means(self, parameters: Array) -> Array:
        """Means of the categories' numbers."""
        found: Array = parameters @ np.arange(self.n_values)
        return found

    def deviations(self, parameters: Array) -> Array:
        """Standard deviations of the categories' numbers."""
        numbers = np.arange(self.n_values)
        found: Array = np.sqrt(np.maximum(parameters @ numbers**2 - (parameters @ numbers) ** 2, 0.0))
        return found

    def sample(self, parameters: Array, labels: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """See `Family`."""
        limits = np.cumsum(parameters, axis=1)[labels]
        drawn = (rng.random(len(labels))[:, None] * limits[:, -1:] >= limits).sum(axis=1)
        found: Array = np.minimum(drawn, self.n_values - 1).astype(np.float64)
        return found
