"""Families of single columns: how a column that is no Gaussian is distributed within each component.

A family knows one column. Its parameters are a row of numbers for each component, (n_components, n_parameters); its
statistics are such rows too, which simply add. Columns are independent given the component, and a gap (NaN) adds
nothing, so that gaps are exact. `Discrete` families count values, and a pass looks their log-densities up; `Smooth`
ones are linear in a few functions of the value.

A family is written as a text: "categorical:9" has nine categories, "counts:100" counts up to 99, "angles:24" the
hours of a day, "zeros" amounts that are often zero. "gaussian" columns belong to the block's Gaussian.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array

SMALLEST = 1e-300
"""Probabilities are at least this: their logarithms stay finite."""

TINY_ROWS = 1e-12
"""A component with fewer rows keeps its parameters: nothing depends on them."""

GAUSSIAN = "gaussian"


@dataclass(frozen=True)
class Family(ABC):
    """How one column is distributed.

    Parameters
    ----------
    argument : float
        What the text has after the colon.
    """

    argument: float

    kind: ClassVar[str]
    is_density: ClassVar[bool]
    """Whether log-densities depend on the column's unit; otherwise they are probabilities."""

    # What is kept, for each component

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Numbers of a component."""

    @property
    @abstractmethod
    def n_free(self) -> int:
        """Free ones among them."""

    @property
    @abstractmethod
    def n_statistics(self) -> int:
        """Sums of a component."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters, for people."""
        return tuple(map(str, range(self.n_parameters)))

    @abstractmethod
    def check(self, parameters: Array) -> None:
        """Raise ValueError for what are no parameters."""

    @abstractmethod
    def to_vector(self, parameters: Array) -> Array:
        """(n_components, n): every vector near it stands for parameters."""

    @abstractmethod
    def from_vector(self, vector: Array, like: Array) -> Array:
        """Inverse of `to_vector`."""

    # EM

    @abstractmethod
    def log_density(self, x: Array, parameters: Array) -> Array:
        """Of values that are there, (n_rows,); (n_components, n_rows). What is no value has minus infinity."""

    def is_strange(self, x: Array) -> NDArray[np.bool_]:
        """Which values are none that the family describes, (n_rows,); none of them are gaps."""
        return np.zeros(len(x), dtype=bool)

    @property
    def expects(self) -> str:
        """Which values it describes, and what to try if there are others; for people."""
        return "finite numbers"

    @abstractmethod
    def m_step(self, statistics: Array, previous: Array, smoothing: float) -> Array:
        """Parameters with the largest expected log-density, within bounds."""

    @abstractmethod
    def expected_log_density(self, statistics: Array, parameters: Array) -> float:
        """Of the rows that the statistics stand for."""

    # Beginnings

    @abstractmethod
    def first(self, mean: float, variance: float) -> Array:
        """One component, from the moments of the column alone; (1, n_parameters)."""

    def can_be_constant(self, value: float) -> bool:
        """Whether rows that all have this value determine parameters."""
        del value
        return True

    def recentre(self, everything: Array) -> Array:
        """One component for all rows, around which statistics lose no digits; itself if they have lost none."""
        return everything

    def settle(self, everything: Array) -> Array:
        """One component for all rows, with bounds that follow from it."""
        return everything

    @abstractmethod
    def start(self, values: Array, everything: Array) -> Array:
        """A component around each value, (n,), otherwise nearer to all rows."""

    # k-means

    @property
    def n_features(self) -> int:
        """Numbers by which rows are compared."""
        return 1

    @abstractmethod
    def features(self, x: Array, everything: Array) -> Array:
        """(n_features, n_rows), of a variance of about 1 together; NaN for a gap."""

    # For people

    @abstractmethod
    def means(self, parameters: Array) -> Array:
        """Expected values; of categories, of their numbers. (n_components,)."""

    @abstractmethod
    def deviations(self, parameters: Array) -> Array:
        """Standard deviations; (n_components,)."""

    def values(self) -> Array | None:
        """Those that the column can have; None: it is continuous."""
        return None

    @abstractmethod
    def sample(self, parameters: Array, labels: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """Draw a value from each labelled component; (n_rows,)."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.argument:g}"


@dataclass(frozen=True)
class Discrete(Family):
    """Whole numbers from 0; statistics are how many rows have which value."""

    is_density = False

    @property
    def n_values(self) -> int:
        """Values that are counted: 0, ..., n_values - 1."""
        return int(self.argument)

    @property
    def n_statistics(self) -> int:
        """One for each value."""
        return self.n_values

    def is_strange(self, x: Array) -> NDArray[np.bool_]:
        """What is no whole number from 0."""
        found: NDArray[np.bool_] = ~np.isnan(x) & ~((x >= 0) & (x == np.floor(x)))
        return found

    @abstractmethod
    def log_table(self, parameters: Array) -> Array:
        """Log-probabilities of all values that are counted; (n_components, n_values)."""

    def expected_log_density(self, statistics: Array, parameters: Array) -> float:
        """See `Family`."""
        return float((statistics * self.log_table(parameters)).sum())

    def values(self) -> Array | None:
        """All that are counted."""
        return np.arange(self.n_values, dtype=np.float64)


@dataclass(frozen=True)
class Smooth(Family):
    """Log-densities that are linear in a few functions of the value; statistics are the sums of these."""

    @abstractmethod
    def transform(self, x: Array, parameters: Array) -> Array:
        """The functions, (n_statistics, n_rows); zeros for a gap, and for what is no value."""

    @abstractmethod
    def natural(self, parameters: Array) -> Array:
        """Their coefficients, constants included; (n_components, n_statistics)."""

    def log_density(self, x: Array, parameters: Array) -> Array:
        """See `Family`."""
        found: Array = self.natural(parameters) @ self.transform(x, parameters)
        return np.where(self.is_strange(x), -np.inf, found)

    def expected_log_density(self, statistics: Array, parameters: Array) -> float:
        """See `Family`."""
        return float((statistics * self.natural(parameters)).sum())


def counted_whole(argument: float, kind: str, smallest: int) -> None:
    """Raise ValueError unless a family's argument is a number of values."""
    if not np.isfinite(argument) or argument != int(argument) or argument < smallest:
        raise ValueError(
            f"expected {kind} with a whole number of values, {smallest} or more, got {kind}:{argument:g}"
        )
