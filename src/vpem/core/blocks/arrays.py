"""Records of named arrays; each density chooses the names of its parameters and statistics."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
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

    The record is immutable, and its arrays are never changed in place.
    """

    def __init__(self, **arrays: Any):
        for name, array in arrays.items():
            if type(array) is not ndarray:
                arrays[name] = np.asarray(array)
        object.__setattr__(self, "__dict__", arrays)

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays, by name."""
        return self.__dict__

    def __getattr__(self, name: str) -> Array:
        raise AttributeError(f"expected one of {', '.join(self.__dict__)}, got {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"expected no change to a record of arrays, got another {name!r}")

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {array.shape}" for name, array in self.arrays.items())
        return f"{type(self).__name__}({shapes})"


def equal_keys(keys: Sequence[Hashable]) -> list[list[int]]:
    """Group the numbers of blocks with equal keys."""
    groups: dict[Hashable, list[int]] = {}
    for b, key in enumerate(keys):
        groups.setdefault(key, []).append(b)
    return list(groups.values())


def stack(records: Sequence[Mapping[str, Array]], names: Sequence[str]) -> dict[str, Array]:
    """Concatenate arrays of several blocks along the components."""
    return {name: np.concatenate([record[name] for record in records]) for name in names}


def unstack(record: Mapping[str, Array], n_blocks: int) -> list[dict[str, Array]]:
    """Inverse of `stack`."""
    parts = {name: own.reshape(n_blocks, len(own) // n_blocks, *own.shape[1:]) for name, own in record.items()}
    return [{name: own[b] for name, own in parts.items()} for b in range(n_blocks)]


class Block(Arrays):
    """Parameters of all components within one block."""


class Statistics(Arrays):
    """Sums over rows within one block that an M-step needs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns:
    """Moments of a block's columns, which its holder knows before any message; arrays of shape (n_columns,)."""

    party: Hashable
    """Name of the holder, for error messages."""
    counts: Array
    """Number of observed values of each column."""
    means: Array
    """Means of the observed values."""
    variances: Array
    """Variances of the observed values."""
    largest: Array
    """Largest absolute value of each column."""
    has_gaps: NDArray[np.bool_]
    """True for columns with missing values."""
    families: tuple[str, ...] = ()
    """Family of each column; empty if all columns belong to one family; see `Density.families_of`."""

    def take(self, chosen: NDArray[np.intp]) -> Columns:
        """Return the record of the chosen columns."""
        numbers = {
            name: getattr(self, name)[chosen] for name in ("counts", "means", "variances", "largest", "has_gaps")
        }
        return Columns(party=self.party, **numbers)

    @cached_property
    def noise(self) -> Array:
        """Variance that rounding alone can produce: deviations from a mean have the rounding errors of the values."""
        return rounding_noise(self.largest)


def rounding_noise(largest: Array) -> Array:
    """Variances that rounding alone can produce in columns with these largest absolute values."""
    noise: Array = np.square(16 * EPSILON * largest)
    return noise
