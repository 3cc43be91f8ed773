"""Core of the protocol of a family of densities: the distribution of a block's columns within a component.

A family is one class. It defines the parameters of a block (`Block`), the contribution of a block to the network's
sum, the statistics that an M-step needs (`Statistics`), and the M-step. Blocks do not depend on each other directly:
they share only the sum of their contributions (equation 12 of the paper). The rest of the package treats blocks and
statistics as opaque.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array, Block, Columns, Statistics

OWN = "own"
"""Metadata key of a field of which each agent has its own part; agents do not compare such fields."""


class CollapsedComponentError(ValueError):
    """Error for a component whose rows do not determine its parameters, such as a singular covariance.

    Parameters
    ----------
    component : int or None
        None: the block's columns do not determine any parameters, whatever the component.
    party : object
    repairs : int
        Number of earlier repairs of the component.
    lacking : str
        What no component can have, for the message.
    """

    def __init__(self, component: int | None, party: object = None, repairs: int = 0, lacking: str = "a covariance"):
        self.component = component
        self.party = party
        where = "" if party is None else f" at party {party!r}"
        what = f"no component can have {lacking}" if component is None else f"component {component} has collapsed"
        again = f" ({repairs} repairs did not help)" if repairs else ""
        super().__init__(
            f"{what}{where}{again}: expected rows that determine the parameters of a component (of a Gaussian, a "
            "positive definite covariance), got too few distinct rows, or columns that are constant, multiples of "
            "each other or too large; try fewer components, a larger reg_covar, another covariance_type, "
            "shrinkage='oas', or scaling or leaving out columns"
        )


class DensityCore(ABC):
    """Methods that every density defines, and sums of statistics; `Density` adds the optional methods."""

    # Parameters

    @abstractmethod
    def shapes(self, n_components: int, n_columns: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the arrays from which `make` makes a block; a file stores these arrays."""

    @abstractmethod
    def make(self, arrays: Mapping[str, Array]) -> Block:
        """Make a block from arrays of these shapes, and derive its other arrays.

        Raises
        ------
        ValueError
            If the arrays are not valid parameters.
        """

    @abstractmethod
    def to_vector(self, block: Block) -> Array:
        """Return the parameters as one unconstrained vector: every nearby vector gives valid parameters."""

    @abstractmethod
    def from_vector(self, vector: Array, like: Block) -> Block:
        """Inverse of `to_vector`, for a block of the same shapes."""

    # EM

    @abstractmethod
    def log_density(self, XT: Array, block: Block) -> Array:
        """Log-density of each row under each component, with all constants.

        Parameters
        ----------
        XT : array of shape (n_columns, n_rows)
            Gaps (NaN) are marginalized; a row of gaps has log-density 0.
        block : Block

        Returns
        -------
        array of shape (n_components, n_rows)
            Finite: at least `LOWEST`.
        """

    @abstractmethod
    def collect(self, XT: Array, responsibilities: Array, block: Block) -> Statistics:
        """Compute statistics of rows; gaps are filled in by their expectation under `block`, rows of gaps left out.

        Parameters
        ----------
        XT : array of shape (n_columns, n_rows)
        responsibilities : array of shape (n_components, n_rows)
        block : Block

        Raises
        ------
        ValueError
            If a value is outside the family's support.
        """

    def add(self, one: Statistics, other: Statistics) -> Statistics:
        """Return the statistics of the rows of both."""
        return Statistics(**{name: array + other.arrays[name] for name, array in one.arrays.items()})

    def scale(self, statistics: Statistics, factor: float) -> Statistics:
        """Return the statistics of the same rows with their weights multiplied by a factor."""
        return Statistics(**{name: factor * array for name, array in statistics.arrays.items()})

    @abstractmethod
    def m_step(self, statistics: Statistics, previous: Block, columns: Columns) -> tuple[Block, list[int]]:
        """Compute parameters from statistics (equations 9 and 11).

        A component that would collapse keeps its previous parameters. So does a component without rows. It does not
        count as collapsed, because no row depends on it.

        Returns
        -------
        block : Block
        collapsed : list of int
        """

    @abstractmethod
    def expected_log_density(self, statistics: Statistics, block: Block) -> float:
        """Expected log-density of the rows that the statistics stand for, plus the entropy of their gaps.

        This is the block's term of the free energy.
        """

    # Initialization

    @abstractmethod
    def first(self, columns: Columns) -> Block:
        """Return a block of one component, from the moments of the columns alone."""

    @abstractmethod
    def start(self, centres: Array, everything: Block) -> Block:
        """Return components around centres, (n_components, n_columns).

        All other parameters are those of `everything`, the block's part of `overall`.
        """

    # Predictions and reports

    @abstractmethod
    def means(self, block: Block) -> Array:
        """Expected values; (n_components, n_columns)."""

    @abstractmethod
    def deviations(self, block: Block) -> Array:
        """Standard deviations; (n_components, n_columns)."""

    @abstractmethod
    def sample(self, block: Block, labels: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """Draw one row from the component of each label; (n_rows, n_columns)."""
