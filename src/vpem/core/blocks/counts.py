"""Counts: Poisson distributions, or negative binomial distributions where the variance exceeds the mean.

With the mean m and the dispersion a the variance is m + a m^2, and

    log p(v) = sum_{j < v} log(1 + a j) - log v! + v log m - (v + 1 / a) log(1 + a m),

which is the Poisson distribution for a = 0. A few sums over the rows do not determine a: it depends on the number of
rows with each value. These numbers are the statistics. They are additive, and exact for every dispersion. A
fixed-point iteration around the last dispersion would need fewer numbers, but many more iterations of EM.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from vpem.core.blocks.arrays import Array
from vpem.core.blocks.families import MOST_VALUES, TINY_ROWS, Discrete, Facts

LEAST_MEAN = 1e-9
"""Lower bound of means: a component in which all counts are zero must not give other counts probability zero."""

LEAST, LARGEST = 1e-8, 1e4
"""Smallest and largest dispersion other than 0."""

SMALL_COUNTS = 20.0
"""Upper limit on the mean of whole numbers that are taken as counts."""

HEAP = 0.2
"""Share of one value from which whole numbers are taken as counts: a Gaussian would collapse onto that value."""


@dataclass(frozen=True)
class Poisson(Discrete):
    """Parameters (n_components, 2): mean and dispersion, which is 0."""

    kind = "poisson"
    is_dispersed = False
    n_parameters = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.argument > MOST_VALUES:
            raise ValueError(
                f"expected counts below {MOST_VALUES}, got {self.kind}:{self.argument:g}; try the family gaussian or "
                "zeros, or a larger unit"
            )

    @property
    def n_free(self) -> int:
        """Number of free parameters: mean and, for a negative binomial distribution, dispersion."""
        return 1 + self.is_dispersed

    def check(self, parameters: Array) -> None:
        """See `Family`."""
        if not ((parameters[:, 0] > 0).all() and (parameters[:, 1] >= 0).all()):
            raise ValueError("expected positive means of counts, and dispersions of at least 0, got others")

    def to_vector(self, parameters: Array) -> Array:
        """Logarithms of the free parameters."""
        return np.log(np.maximum(parameters[:, : self.n_free], LEAST))

    def from_vector(self, vector: Array, like: Array) -> Array:
        """See `Family`."""
        found = like.copy()
        found[:, 0] = np.maximum(np.exp(vector[:, 0]), LEAST_MEAN)
        if self.is_dispersed:
            found[:, 1] = np.minimum(np.exp(vector[:, 1]), LARGEST)
        return found

    def log_table(self, parameters: Array) -> Array:
        """See `Discrete`."""
        numbers = np.arange(self.n_values)
        mean, a = parameters[:, :1], parameters[:, 1:]
        steps = np.cumsum(np.log1p(a * numbers[:-1]), axis=1)
        rising = np.concatenate([np.zeros((len(a), 1)), steps], axis=1)
        return rising + _rest(numbers.astype(np.float64), mean, a)

    def log_density(self, x: Array, parameters: Array) -> Array:
        """See `Family`; valid for all counts, including those beyond `n_values`."""
        is_value = (x >= 0) & (x == np.floor(x))
        v, mean, a = np.where(is_value, x, 0.0), parameters[:, :1], parameters[:, 1:]
        sizes = 1.0 / np.maximum(a, LEAST)
        rising = np.where(a > LEAST, gammaln(v + sizes) - gammaln(sizes) + v * np.log(np.maximum(a, LEAST)), 0.0)
        # Avoid cancellation where the dispersion is tiny: a v (v - 1) / 2 to first order.
        small = (a > 0) & (a * np.maximum(v, 1.0) < 1e-4)
        rising = np.where(small, a * v * (v - 1) / 2 - a**2 * (v - 1) * v * (2 * v - 1) / 12, rising)
        return np.where(is_value, rising + _rest(v, mean, a), -np.inf)

    def m_step(self, statistics: Array, previous: Array, smoothing: float) -> Array:
        """Compute means and dispersions from the numbers of rows with each value."""
        counts = statistics.sum(axis=1)
        there = counts > TINY_ROWS
        means = np.maximum(statistics @ np.arange(self.n_values) / np.where(there, counts, 1.0), LEAST_MEAN)
        found = np.stack([means, previous[:, 1]], axis=1)
        if self.is_dispersed:
            found[:, 1] = _dispersions(statistics / np.where(there, counts, 1.0)[:, None], means)
            # The likelihood may have several maxima: never move from a higher one to a lower one.
            kept = np.stack([means, previous[:, 1]], axis=1)
            new, old = ((statistics * self.log_table(own)).sum(axis=1) for own in (found, kept))
            found = np.where((new >= old)[:, None], found, kept)
        return np.where(there[:, None], found, previous)

    def first(self, mean: float, variance: float) -> Array:
        """Parameters of a Poisson distribution with this mean."""
        return np.array([[max(mean, LEAST_MEAN), 0.0]])

    def start(self, values: Array, everything: Array) -> Array:
        """Return components with means halfway between the mean of all rows and the values."""
        found = np.repeat(everything, len(values), axis=0)
        found[:, 0] = np.maximum(0.5 * (found[:, 0] + np.maximum(values, 0.0)), LEAST_MEAN)
        return found

    def means(self, parameters: Array) -> Array:
        """Means, the first parameter."""
        found: Array = parameters[:, 0]
        return found

    def deviations(self, parameters: Array) -> Array:
        """Square roots of m + a m^2."""
        mean, a = parameters.T
        found: Array = np.sqrt(mean + a * mean**2)
        return found

    def sample(self, parameters: Array, labels: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """Draw Poisson counts whose rates are drawn from a Gamma distribution."""
        mean, a = parameters[labels].T
        sizes = 1.0 / np.maximum(a, LEAST)
        rates = np.where(a > LEAST, rng.gamma(sizes, mean / sizes), mean)
        found: Array = rng.poisson(rates).astype(np.float64)
        return found


@dataclass(frozen=True)
class Counts(Poisson):
    """Parameters (n_components, 2): mean and dispersion, 0 where the variance does not exceed the mean."""

    kind = "counts"
    is_dispersed = True

    @classmethod
    def suits(cls, facts: Facts) -> bool:
        """True for whole numbers from 0 that are small, or of which many are equal but not zero."""
        is_small = facts.mean < SMALL_COUNTS and facts.largest < 100
        has_heap = facts.largest_share >= HEAP > facts.share_of_zeros
        is_count = facts.is_whole and facts.smallest >= 0 and facts.largest < MOST_VALUES
        return is_count and (is_small or has_heap)


def _rest(v: Array, mean: Array, a: Array) -> Array:
    """Log-probability without the term of the rising product."""
    z = a * mean
    small = z < 1e-6
    ratio = np.where(small, 1.0 - z / 2 + z**2 / 3, np.log1p(z) / np.where(small, 1.0, z))  # log(1 + z) / z
    found: Array = v * (np.log(mean) - np.log1p(z)) - mean * ratio - gammaln(v + 1.0)
    return found


def _dispersions(shares: Array, means: Array) -> Array:
    """Find zeros of the log-likelihood's derivative in the dispersion; 0 where the variance is at most the mean.

    Newton's method in the logarithm, with bisection where a step would leave the bracketing interval.

    Parameters
    ----------
    shares : array of shape (n_components, n_values)
        Share of the rows with each value.
    means : array of shape (n_components,)
    """
    numbers = np.arange(shares.shape[1])
    larger = shares.sum(axis=1, keepdims=True) - np.cumsum(shares, axis=1)  # share of values above each

    def slope(a: Array) -> tuple[Array, Array]:
        """First and second derivatives with respect to a."""
        quotients = numbers / (1.0 + a[:, None] * numbers)
        z = a * means
        small = z < 1e-3
        safe = np.where(small, 1.0, a)
        log = np.log1p(z)
        first = np.where(
            small,
            means**2 * (0.5 - z / 3 + z**2 / 4 - z**3 / 5 + z**4 / 6),
            means / safe - log / safe**2,
        )
        second = np.where(
            small,
            means**3 * (-1 / 3 + z / 2 - 3 * z**2 / 5 + 4 * z**3 / 6),
            -means / safe**2 - means / (1 + z) / safe**2 + 2 * log / safe**3,
        )
        return (larger * quotients).sum(axis=1) - first, -(larger * quotients**2).sum(axis=1) - second

    low, high = np.full(len(means), np.log(LEAST)), np.full(len(means), np.log(LARGEST))
    at_least = slope(np.exp(low))[0] > 0
    at_most = slope(np.exp(high))[0] > 0
    spread = np.maximum((shares @ numbers**2 - means**2 - means) / means**2, LEAST)
    point = np.clip(np.log(spread), low, high)
    for _ in range(60):
        a = np.exp(point)
        value, curvature = slope(a)
        low, high = np.where(value > 0, point, low), np.where(value > 0, high, point)
        bend = curvature * a + value
        with np.errstate(divide="ignore", invalid="ignore"):
            stepped = point - value / bend
        inside = (stepped > low) & (stepped < high)
        moved = np.where(inside, stepped, 0.5 * (low + high))
        if (np.abs(moved - point) < 1e-13).all():
            break
        point = moved
    found: Array = np.where(at_least, np.where(at_most, LARGEST, np.exp(point)), 0.0)
    return found
