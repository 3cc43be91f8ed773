"""Families of single columns: distributions of non-Gaussian columns within each component.

A family describes one column. Its parameters are a row of numbers for each component, (n_components, n_parameters).
Its statistics have the same form, with n_statistics numbers, and are additive. Columns are independent given the
component, and a gap (NaN) adds nothing, so that gaps are handled exactly. `Discrete` families count values, and a
pass looks up their log-densities in a table. Log-densities of `Smooth` families are linear in a few functions of the
value.

A family is written as a string: "categorical:9" has nine categories, "counts:100" counts up to 99, "angles:24" the
hours of a day, "zeros" amounts that are often zero. "gaussian" columns belong to the block's Gaussian.

All that is particular to a family is in its class: which columns it is chosen for, the values that it refuses, its
distribution, and what reports show. `vpem.core.blocks.structure.FAMILIES` lists the classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array

SMALLEST = 1e-300
"""Lower bound of probabilities, so that their logarithms are finite."""

TINY_ROWS = 1e-12
"""Sum of responsibilities below which a component keeps its parameters: no row depends on them."""

GAUSSIAN = "gaussian"

MOST_VALUES = 4096
"""Maximum number of values that may be counted."""


class Facts(NamedTuple):
    """Summary of one column's values, computed by its party; gaps are ignored."""

    distinct: Array | None
    """Distinct values in ascending order; None if there are more than `MOST_VALUES`."""
    is_whole: bool
    smallest: float
    largest: float
    mean: float
    share_of_zeros: float
    largest_share: float
    """Share of the rows with the most common value, among whole numbers from 0 to below `MOST_VALUES`."""
    grows: bool
    """True if the values are whole numbers, each larger than the one before, as ids and clocks are."""


@dataclass(frozen=True)
class Family(ABC):
    """Distribution of one column.

    Parameters
    ----------
    argument : float
        Number after the colon in the family's string.
    """

    argument: float

    kind: ClassVar[str]
    """Name of the family, before the colon in its string."""
    examples: ClassVar[tuple[str, ...]] = ()
    """Strings that users may write; by default, the name."""
    takes_words: ClassVar[bool] = False
    """True for columns of words, which the party encodes as 0, 1, ..."""
    may_have_codes: ClassVar[bool] = True
    """True if a value far from all others may be a code, such as -999 for a gap."""

    # Choice of the family

    @classmethod
    def parse(cls, argument: str) -> Self:
        """Return the family with this text after the colon; raise ValueError if it is wrong."""
        return cls(float(argument))

    @classmethod
    def suits(cls, facts: Facts) -> bool:
        """True if "auto" chooses the family for a column of numbers with these facts."""
        return False

    @classmethod
    def choose(cls, text: str, facts: Facts) -> str:
        """Return the family's string for a column of numbers for which the user or "auto" wants `text`.

        Raises
        ------
        ValueError
            If the column does not fit; the message goes on from the column's name.
        """
        family = cls.parse(text.partition(":")[2])
        if family.is_strange(np.array([facts.smallest, facts.largest])).any():
            expected, _, remedy = family.expects.partition("; ")
            raise ValueError(f"has values from {facts.smallest:g} to {facts.largest:g}, and not {expected}; {remedy}")
        return text

    # Parameters

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Number of parameters per component."""

    @property
    def n_free(self) -> int:
        """Number of free parameters per component; by default, all."""
        return self.n_parameters

    @property
    @abstractmethod
    def n_statistics(self) -> int:
        """Number of statistics per component."""

    @abstractmethod
    def check(self, parameters: Array) -> None:
        """Raise ValueError for invalid parameters."""

    @abstractmethod
    def to_vector(self, parameters: Array) -> Array:
        """Return the parameters as unconstrained vectors, (n_components, n): nearby vectors give valid parameters."""

    @abstractmethod
    def from_vector(self, vector: Array, like: Array) -> Array:
        """Inverse of `to_vector`."""

    # EM

    @abstractmethod
    def log_density(self, x: Array, parameters: Array) -> Array:
        """Log-density of observed values (n_rows,); (n_components, n_rows). Minus infinity for invalid values."""

    def is_strange(self, x: Array) -> NDArray[np.bool_]:
        """True for values outside the family's support, (n_rows,); False for gaps."""
        return np.zeros(len(x), dtype=bool)

    @property
    def expects(self) -> str:
        """Description of the valid values, then a remedy for others; for error messages."""
        return "finite numbers"

    def refusal(self, where: str, value: float) -> str:
        """Return the message for a value outside the family's support."""
        expected, _, remedy = self.expects.partition("; ")
        return f"expected {expected} {where}, got {value:g}" + (f"; {remedy}" if remedy else "")

    @abstractmethod
    def m_step(self, statistics: Array, previous: Array, smoothing: float) -> Array:
        """Return the parameters that maximize the expected log-density, within bounds."""

    @abstractmethod
    def expected_log_density(self, statistics: Array, parameters: Array) -> float:
        """Expected log-density of the rows that the statistics summarize."""

    # Initialization

    @abstractmethod
    def first(self, mean: float, variance: float) -> Array:
        """Parameters of one component, from the moments of the column alone; (1, n_parameters)."""

    def can_be_constant(self, value: float) -> bool:
        """True if rows that all have this value determine parameters."""
        return True

    def recentre(self, everything: Array) -> Array:
        """Return the component of all rows with the centre of its statistics moved, if they have lost digits."""
        return everything

    def settle(self, everything: Array) -> Array:
        """Set the bounds of parameters that follow from the component of all rows."""
        return everything

    @abstractmethod
    def start(self, values: Array, everything: Array) -> Array:
        """Return a component around each value, (n,), drawn toward the component of all rows."""

    # k-means

    @property
    def n_features(self) -> int:
        """Number of features by which k-means compares rows."""
        return 1

    def features(self, x: Array, everything: Array) -> Array:
        """Features of values, (n_features, n_rows), with a total variance of about 1; NaN for a gap.

        By default, the values in units of their standard deviation.
        """
        found: Array = (x / self.deviations(everything))[None]
        return found

    # Reports

    @abstractmethod
    def means(self, parameters: Array) -> Array:
        """Expected values, (n_components,); for categories, those of their numbers."""

    @abstractmethod
    def deviations(self, parameters: Array) -> Array:
        """Standard deviations; (n_components,)."""

    def values(self) -> Array | None:
        """Possible values of the column; None if it is continuous."""
        return None

    @property
    def period(self) -> float | None:
        """Period of the values; None if they are not periodic."""
        return None

    def categories(self, parameters: Array) -> Array | None:
        """Probabilities of the categories, (n_components, n_categories); None if the column is numeric."""
        return None

    def point_mass(self, parameters: Array) -> Array | None:
        """Shares of values that are exactly zero, (n_components,), if the column is continuous elsewhere."""
        return None

    def log_units(self, x: Array, parameters: Array, weights: Array) -> Array:
        """See `Density`; (n_rows,)."""
        return np.zeros(len(x))

    @property
    def label(self) -> str:
        """Name of the family in summaries."""
        return self.kind

    @abstractmethod
    def sample(self, parameters: Array, labels: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """Draw one value from the component of each label; (n_rows,)."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.argument:g}"


@dataclass(frozen=True)
class Discrete(Family):
    """Whole numbers from 0; the statistics are the numbers of rows with each value.

    The argument is the number of values that are counted. It follows from the column's largest value.
    """

    def __post_init__(self) -> None:
        size, kind = self.argument, self.kind
        if not np.isfinite(size) or size != int(size) or size < 2:
            raise ValueError(f"expected {kind} with a whole number of values, 2 or more, got {kind}:{size:g}")

    @classmethod
    def choose(cls, text: str, facts: Facts) -> str:
        """See `Family`."""
        if not facts.is_whole or facts.smallest < 0:
            raise ValueError(f"has other values than whole numbers from 0, which are no {cls.kind}")
        if facts.largest >= MOST_VALUES:
            raise ValueError(
                f"has values up to {facts.largest:g}, too large to be counted; try 'zeros' or 'gaussian'"
            )
        return f"{cls.kind}:{facts.largest + 1:g}"

    @property
    def n_values(self) -> int:
        """Number of values that are counted: 0, ..., n_values - 1."""
        return int(self.argument)

    @property
    def n_statistics(self) -> int:
        """Number of statistics: one for each value."""
        return self.n_values

    def is_strange(self, x: Array) -> NDArray[np.bool_]:
        """True for values that are not whole numbers from 0."""
        found: NDArray[np.bool_] = ~np.isnan(x) & ~((x >= 0) & (x == np.floor(x)))
        return found

    @property
    def expects(self) -> str:
        """See `Family`."""
        return "whole numbers from 0; correct it, leave it empty, or fit the column as gaussian or zeros"

    def log_table(self, parameters: Array) -> Array:
        """Log-probabilities of all values that are counted; (n_components, n_values)."""
        return self.log_density(self.values(), parameters)

    def expected_log_density(self, statistics: Array, parameters: Array) -> float:
        """See `Family`."""
        return float((statistics * self.log_table(parameters)).sum())

    def values(self) -> Array:
        """All values that are counted."""
        return np.arange(self.n_values, dtype=np.float64)


@dataclass(frozen=True)
class Smooth(Family):
    """Log-densities that are linear in a few functions of the value; the statistics are sums of these functions."""

    @abstractmethod
    def transform(self, x: Array, parameters: Array) -> Array:
        """Functions of the values, (n_statistics, n_rows); zeros for gaps and invalid values."""

    @abstractmethod
    def natural(self, parameters: Array) -> Array:
        """Coefficients of the functions, constants included; (n_components, n_statistics)."""

    def log_density(self, x: Array, parameters: Array) -> Array:
        """See `Family`."""
        found: Array = self.natural(parameters) @ self.transform(x, parameters)
        return np.where(self.is_strange(x), -np.inf, found)

    def expected_log_density(self, statistics: Array, parameters: Array) -> float:
        """See `Family`."""
        return float((statistics * self.natural(parameters)).sum())
