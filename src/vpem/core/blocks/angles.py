"""Angles, and hours of a day or a week: von Mises distributions, which are periodic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import i0e, i1e

from vpem.core.blocks.arrays import Array
from vpem.core.blocks.families import TINY_ROWS, Facts, Smooth

MOST_CONCENTRATED = 1e4
"""Upper bound of concentrations, a deviation of 0.01 radians: values are rounded to hours or degrees."""


@dataclass(frozen=True)
class Angles(Smooth):
    """Parameters (n_components, 2): mean direction in radians, and concentration; the argument is the period."""

    kind = "angles"
    examples = ("angles:24",)
    may_have_codes = False
    n_parameters = 2
    n_statistics = 3  # sums of ones, cosines and sines
    n_features = 2  # cosine and sine

    def __post_init__(self) -> None:
        if not 0 < self.argument < np.inf:
            raise ValueError(f"expected a positive period, such as angles:360 or angles:24, got {self}")

    @classmethod
    def choose(cls, text: str, facts: Facts) -> str:
        """See `Family`."""
        if text == cls.kind:
            raise ValueError("needs the period of its angles, such as 'angles:360' or 'angles:24'")
        return super().choose(text, facts)

    @property
    def period(self) -> float:
        """Period of the values, the argument."""
        return self.argument

    def check(self, parameters: Array) -> None:
        """See `Family`."""
        if not (parameters[:, 1] >= 0).all():
            raise ValueError("expected concentrations of at least 0, got others")

    def to_vector(self, parameters: Array) -> Array:
        """Concentration times cosine and sine of the direction."""
        direction, concentration = parameters.T
        return np.stack([concentration * np.cos(direction), concentration * np.sin(direction)], axis=1)

    def from_vector(self, vector: Array, like: Array) -> Array:
        """See `Family`."""
        lengths = np.minimum(np.hypot(*vector.T), MOST_CONCENTRATED)
        return np.stack([np.arctan2(vector[:, 1], vector[:, 0]), lengths], axis=1)

    def transform(self, x: Array, parameters: Array) -> Array:
        """Ones, cosines and sines."""
        angles = x * (2 * np.pi / self.argument)
        found = np.stack([np.ones(len(x)), np.cos(angles), np.sin(angles)])
        return np.where(np.isnan(x), 0.0, found)

    def is_strange(self, x: Array) -> NDArray[np.bool_]:
        """True for values more than one period away from zero, which may have another unit."""
        return np.abs(x) > self.argument

    @property
    def expects(self) -> str:
        """See `Family`."""
        period = f"{self.argument:g}"
        return f"angles from -{period} to {period}; correct it, give the column its period, or take the remainder"

    def natural(self, parameters: Array) -> Array:
        """See `Smooth`."""
        concentration = parameters[:, 1]
        normalizers = -np.log(i0e(concentration)) - concentration - np.log(self.argument)
        return np.concatenate([normalizers[:, None], self.to_vector(parameters)], axis=1)

    def m_step(self, statistics: Array, previous: Array, smoothing: float) -> Array:
        """Compute the mean direction, and the concentration whose mean resultant length is that of the rows."""
        counts, cosines, sines = statistics.T
        there = counts > TINY_ROWS
        lengths = np.hypot(cosines, sines) / np.where(there, counts, 1.0)
        found = np.stack([np.arctan2(sines, cosines), _concentrations(lengths)], axis=1)
        return np.where(there[:, None], found, previous)

    def first(self, mean: float, variance: float) -> Array:
        """Parameters of the uniform distribution of directions."""
        return np.zeros((1, 2))

    def start(self, values: Array, everything: Array) -> Array:
        """Return components with the values as directions, and a concentration of at least 1."""
        concentrations = np.full(len(values), max(float(everything[0, 1]), 1.0))
        return np.stack([values * (2 * np.pi / self.argument), concentrations], axis=1)

    def features(self, x: Array, everything: Array) -> Array:
        """See `Family`."""
        angles = x * (2 * np.pi / self.argument)
        return np.stack([np.cos(angles), np.sin(angles)])

    def means(self, parameters: Array) -> Array:
        """Mean directions, from 0 to the period."""
        found: Array = parameters[:, 0] * (self.argument / (2 * np.pi)) % self.argument
        return found

    def deviations(self, parameters: Array) -> Array:
        """Circular standard deviations, at most half the period."""
        lengths = np.maximum(i1e(parameters[:, 1]) / i0e(parameters[:, 1]), 1e-9)
        found: Array = np.minimum(np.sqrt(-2 * np.log(lengths)) / (2 * np.pi), 0.5) * self.argument
        return found

    def sample(self, parameters: Array, labels: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """See `Family`."""
        direction, concentration = parameters[labels].T
        found: Array = rng.vonmises(direction, concentration) * (self.argument / (2 * np.pi)) % self.argument
        return found


def _concentrations(lengths: Array) -> Array:
    """Invert I1 / I0 at these values, by Newton's method from Banerjee's approximation."""
    largest = i1e(MOST_CONCENTRATED) / i0e(MOST_CONCENTRATED)
    inner = np.clip(lengths, 0.0, largest)
    found = inner * (2 - inner**2) / (1 - inner**2)
    for _ in range(12):
        safe = np.maximum(found, 1e-12)
        ratio = i1e(found) / i0e(found)
        slope = np.where(found > 1e-6, 1 - ratio / safe - ratio**2, 0.5)
        found = np.clip(found - (ratio - inner) / np.maximum(slope, 1e-12), 0.0, MOST_CONCENTRATED)
    return np.where(lengths >= largest, MOST_CONCENTRATED, found)
