"""Amounts that are often exactly zero: a share of zeros, and a log-normal or Gaussian distribution of the rest.

The variance of the rest has a lower bound, a share of the variance in all rows. Otherwise a few equal amounts could
form a component of their own, whose density is unbounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array
from vpem.core.blocks.families import GAUSSIAN, TINY_ROWS, Facts, Smooth

LOG_NORMAL, NORMAL = 1.0, 0.0
ARGUMENTS = {"": LOG_NORMAL, "lognormal": LOG_NORMAL, GAUSSIAN: NORMAL}
"""Texts after the colon to arguments."""

MANY_ZEROS = 0.1
"""Smallest share of zeros for which amounts get the family "zeros"."""

LEAST_SHARE = 1e-9
"""Shares of zeros are between this and 1 minus this."""

LEAST_VARIANCE = 0.01
"""Lower bound of the variance of the rest within a component, as a share of the variance in all rows."""

FAR = 1e4
"""Squared distance of the centre from the mean of the rest, in variances, beyond which squares lose digits."""

SHARE, MEAN, VARIANCE, BOUND, CENTRE, SCALE = range(6)


@dataclass(frozen=True)
class Zeros(Smooth):
    """Parameters (n_components, 6): share of zeros; mean and variance of the other values, or of their logarithms.

    The other parameters are the same for all components: the bound of the variance, and the centre and scale of the
    statistics. Sums of squares around a centre near the mean of the rest lose no digits, because no component's
    variance is below the bound.
    """

    kind = "zeros"
    examples = ("zeros", "zeros:gaussian")
    n_parameters = 6
    n_free = 3  # share, mean and variance
    n_statistics = 4  # zeros, others, sum and sum of squares
    n_features = 2  # an indicator of the rest, and the rest in standard deviations

    def __post_init__(self) -> None:
        if self.argument not in (LOG_NORMAL, NORMAL):
            raise ValueError(f"expected zeros or zeros:gaussian, got zeros:{self.argument:g}")

    def __str__(self) -> str:
        return "zeros" if self.is_log else "zeros:gaussian"

    @property
    def label(self) -> str:
        """Name in summaries: both forms are apart."""
        return str(self)

    @classmethod
    def parse(cls, argument: str) -> Zeros:
        """See `Family`."""
        return cls(ARGUMENTS[argument] if argument in ARGUMENTS else float(argument))

    @classmethod
    def suits(cls, facts: Facts) -> bool:
        """True for amounts of which many are zero."""
        return facts.smallest >= 0 and facts.share_of_zeros >= MANY_ZEROS

    @classmethod
    def choose(cls, text: str, facts: Facts) -> str:
        """See `Family`."""
        if facts.distinct is not None and len(np.setdiff1d(facts.distinct, [0.0])) < 2:
            raise ValueError("has one amount beside zero, and no spread of it; say that it is 'categorical'")
        if text == cls.kind and facts.smallest < 0:
            raise ValueError(f"has amounts down to {facts.smallest:g}, whose logarithm is none; try 'zeros:gaussian'")
        return super().choose(text, facts)

    @property
    def is_log(self) -> bool:
        """True if the rest is log-normal."""
        return self.argument == LOG_NORMAL

    def check(self, parameters: Array) -> None:
        """See `Family`."""
        share, _, variance, bound, _, scale = parameters.T
        if not (((share > 0) & (share < 1)).all() and (variance > 0).all() and (bound >= 0).all()):
            raise ValueError("expected shares of zeros between 0 and 1, and positive variances, got others")
        if not (scale > 0).all():
            raise ValueError("expected a positive scale of amounts, got another")

    def to_vector(self, parameters: Array) -> Array:
        """Log-odds of the share, mean, log of the variance."""
        share = parameters[:, SHARE]
        return np.stack(
            [np.log(share) - np.log1p(-share), parameters[:, MEAN], np.log(parameters[:, VARIANCE])], axis=1
        )

    def from_vector(self, vector: Array, like: Array) -> Array:
        """See `Family`."""
        found = like.copy()
        found[:, SHARE] = np.clip(1.0 / (1.0 + np.exp(-vector[:, 0])), LEAST_SHARE, 1 - LEAST_SHARE)
        found[:, MEAN] = vector[:, 1]
        found[:, VARIANCE] = np.maximum(np.exp(vector[:, 2]), like[:, BOUND])
        return found

    def transform(self, x: Array, parameters: Array) -> Array:
        """Indicators of zero and of the rest, the standardized value (or its logarithm), and its square."""
        is_rest, y = self._split(x)
        y = np.where(is_rest, (y - parameters[0, CENTRE]) / parameters[0, SCALE], 0.0)
        return np.stack([(x == 0).astype(np.float64), is_rest.astype(np.float64), y, y**2])

    def _split(self, x: Array) -> tuple[NDArray[np.bool_], Array]:
        """True for the rest, and its values or their logarithms."""
        is_rest = x > 0 if self.is_log else ~np.isnan(x) & (x != 0)
        y = np.where(is_rest, x, 1.0)
        return is_rest, np.log(y) if self.is_log else y

    def is_strange(self, x: Array) -> NDArray[np.bool_]:
        """True for negative amounts if the rest is log-normal."""
        return x < 0 if self.is_log else np.zeros(len(x), dtype=bool)

    @property
    def expects(self) -> str:
        """See `Family`."""
        return "amounts of at least 0; correct it, leave it empty, or fit the column as zeros:gaussian or gaussian"

    def natural(self, parameters: Array) -> Array:
        """See `Smooth`; the density includes the derivative of the logarithm."""
        share, mean, variance, _, centre, scale = parameters.T
        moved, squared = (mean - centre) / scale, variance / scale**2
        rest = np.log1p(-share) - 0.5 * np.log(2 * np.pi * variance) - moved**2 / (2 * squared)
        jacobian = 1.0 * self.is_log
        return np.stack(
            [np.log(share), rest - jacobian * centre, moved / squared - jacobian * scale, -0.5 / squared], axis=1
        )

    def m_step(self, statistics: Array, previous: Array, smoothing: float) -> Array:
        """Compute shares, means and variances; parameters without rows keep their previous values."""
        zeros, rest, first, second = statistics.T
        found, total = previous.copy(), zeros + rest
        there, has_rest = total > TINY_ROWS, rest > TINY_ROWS
        shares = np.clip(zeros / np.where(there, total, 1.0), LEAST_SHARE, 1 - LEAST_SHARE)
        found[:, SHARE] = np.where(there, shares, found[:, SHARE])
        means = first / np.where(has_rest, rest, 1.0)
        variances = np.maximum(second / np.where(has_rest, rest, 1.0) - means**2, 0.0)
        centre, scale = previous[:, CENTRE], previous[:, SCALE]
        found[:, MEAN] = np.where(has_rest, centre + scale * means, found[:, MEAN])
        bounded = np.maximum(scale**2 * variances, previous[:, BOUND])
        found[:, VARIANCE] = np.where(has_rest, np.maximum(bounded, np.finfo(float).tiny), found[:, VARIANCE])
        return found

    def first(self, mean: float, variance: float) -> Array:
        """See `Family`; half of the rows are zeros."""
        if self.is_log:
            centre, scale = float(np.log(max(mean, np.finfo(float).tiny))), 1.0
        else:
            centre, scale = mean, float(np.sqrt(variance)) or 1.0
        return np.array([[0.5, centre, scale**2, 0.0, centre, scale]])

    def can_be_constant(self, value: float) -> bool:
        """True for zero; other constant amounts have no variance."""
        return value == 0

    def recentre(self, everything: Array) -> Array:
        """Move the centre to the mean of the rest if it is far away: a column's mean includes the zeros."""
        _, mean, variance, _, centre, scale = everything.T
        is_far, found = np.square(mean - centre) > FAR * variance, everything.copy()
        found[:, CENTRE] = np.where(is_far, mean, centre)
        found[:, VARIANCE] = np.where(is_far, scale**2, variance)  # around a far centre it may be mere rounding
        return found

    def settle(self, everything: Array) -> Array:
        """Set the bound of the variance."""
        variance = everything[:, VARIANCE]
        found = everything.copy()
        found[:, BOUND] = LEAST_VARIANCE * variance
        return found

    def start(self, values: Array, everything: Array) -> Array:
        """See `Family`; a zero raises the share of zeros, another value lowers it and is the mean of the rest."""
        found = np.repeat(everything, len(values), axis=0)
        is_rest, rest = self._split(values)
        found[:, SHARE] = 0.5 * (found[:, SHARE] + ~is_rest)
        found[:, SHARE] = np.clip(found[:, SHARE], LEAST_SHARE, 1 - LEAST_SHARE)
        found[:, MEAN] = np.where(is_rest, rest, found[:, MEAN])
        return found

    def features(self, x: Array, everything: Array) -> Array:
        """See `Family`."""
        is_rest, y = self._split(x)
        y = (y - everything[0, MEAN]) / np.sqrt(everything[0, VARIANCE])
        found = np.stack([is_rest.astype(np.float64), np.where(is_rest, y, 0.0)])
        found[:, np.isnan(x)] = np.nan
        return found

    def _rest(self, parameters: Array) -> tuple[Array, Array]:
        """Means and variances of the nonzero values."""
        mean, variance = parameters[:, MEAN], parameters[:, VARIANCE]
        if not self.is_log:
            return mean, variance
        with np.errstate(over="ignore"):
            expected = np.exp(mean + variance / 2)
            return expected, expected**2 * np.expm1(variance)

    def means(self, parameters: Array) -> Array:
        """Means, zeros included."""
        found: Array = (1 - parameters[:, SHARE]) * self._rest(parameters)[0]
        return found

    def deviations(self, parameters: Array) -> Array:
        """Standard deviations, zeros included."""
        (mean, variance), share = self._rest(parameters), parameters[:, SHARE]
        return np.sqrt((1 - share) * (variance + share * mean**2))

    def point_mass(self, parameters: Array) -> Array | None:
        """Shares of zeros."""
        found: Array = parameters[:, SHARE]
        return found

    def log_units(self, x: Array, parameters: Array, weights: Array) -> Array:
        """See `Density`: log of the deviation of nonzero values, or of their logarithms; 0 at zeros and gaps."""
        share, mean, variance, *_ = parameters.T
        shares = weights * (1 - share)
        shares = shares / shares.sum()
        deviation = np.sqrt(shares @ (variance + np.square(mean - shares @ mean)))
        is_rest, y = self._split(x)
        return np.where(is_rest, np.log(deviation) + (y if self.is_log else 0.0), 0.0)

    def sample(self, parameters: Array, labels: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """See `Family`."""
        share, mean, variance, *_ = parameters[labels].T
        is_zero, noise = rng.random(len(labels)) < share, rng.standard_normal(len(labels))
        rest = mean + np.sqrt(variance) * noise
        return np.where(is_zero, 0.0, np.exp(rest) if self.is_log else rest)
