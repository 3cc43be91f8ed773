"""Records of named arrays: what a density calls its parameters and statistics is its own affair."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from vpem.core.blocks.weights import EPSILON

Array = NDArray[np.float64]


class Arrays:
    """Named arrays of numbers; `Arrays(means=..., scales=...)` has the attributes `means` and `scales`.

    Neither the record nor its arrays are changed in place.
    """

    def __init__(self, **arrays: Any):
        for name, array in arrays.items():
            if type(array) is not ndarray:
                arrays[name] = np.asarray(array)
        object.__setattr__(self, "__dict__", arrays)

    @property
    def arrays(self) -> dict[str, Array]:
        """All of them, by name."""
        return self.__dict__

    def __getattr__(self, name: str) -> Array:
        raise AttributeError(f"expected one of {', '.join(self.__dict__)}, got {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"expected no change to a record of arrays, got another {name!r}")

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {array.shape}" for name, array in self.arrays.items())
        return f"{type(self).__name__}({shapes})"


class Block(Arrays):
    """Parameters of all components within one block."""


class Statistics(Arrays):
    """All that an M-step needs to know of some rows within one block."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns:
    """What the holder of a block knows of its columns before any message; arrays of shape (n_columns,)."""

    party: Hashable
    """Name of the holder, for errors."""
    counts: Array
    """How many values are there."""
    means: Array
    """Of the values that are there."""
    variances: Array
    """Likewise."""
    largest: Array
    """Largest size of a value."""
    has_gaps: NDArray[np.bool_]
    """Whether some value is missing."""
    families: tuple[str, ...] = ()
    """Of each column, where they differ; see `Density.families_of`."""

    def take(self, chosen: NDArray[np.intp]) -> Columns:
        """Some of the columns."""
        numbers = {
            name: getattr(self, name)[chosen] for name in ("counts", "means", "variances", "largest", "has_gaps")
        }
        return Columns(party=self.party, **numbers)

    @cached_property
    def noise(self) -> Array:
        """What rounding alone would leave of a variance: deviations from a mean are rounded like the values."""
        return rounding_noise(self.largest)


def rounding_noise(largest: Array) -> Array:
    """What rounding alone would leave of variances of columns whose largest values are these."""
    noise: Array = np.square(16 * EPSILON * largest)
    return noise
