"""Families of the columns of a mixed block, and the positions of their parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.angles import Angles
from vpem.core.blocks.arrays import Array, Block
from vpem.core.blocks.categorical import Categorical
from vpem.core.blocks.counts import Counts, Poisson
from vpem.core.blocks.families import GAUSSIAN, Family
from vpem.core.blocks.zeros import Zeros

FAMILIES: dict[str, type[Family]] = {
    "categorical": Categorical,
    "counts": Counts,
    "poisson": Poisson,
    "zeros": Zeros,
    "angles": Angles,
}
"""Families of non-Gaussian columns, by name. "auto" chooses the first that suits a column."""

FIRST_NUMBERS = {"categorical": 0, "counts": 1, "poisson": 2, "zeros": 3, "angles": 4}
"""Numbers of families that model files have from a time before `family_number` derived them from names."""


def family_number(name: str) -> int:
    """Return the number that stands for a family's name in a block's `structure`; Gaussian columns have -1."""
    derived = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6])  # exact in double precision
    return FIRST_NUMBERS.get(name, derived)


class Part(NamedTuple):
    """One non-Gaussian column."""

    column: int
    """Number of the column in the block."""
    family: Family
    parameters: slice
    """Position of its parameters in `others`."""


@dataclass(frozen=True)
class Structure:
    """Families of a block's columns; None for Gaussian columns."""

    families: tuple[Family | None, ...]

    @staticmethod
    def of(block: Block) -> Structure:
        """Return the structure of a block."""
        structure = np.ascontiguousarray(block.structure)
        return _read_structure(structure.tobytes(), structure.shape[0])

    @cached_property
    def gaussian(self) -> NDArray[np.intp]:
        """Gaussian columns."""
        return np.array([c for c, family in enumerate(self.families) if family is None], dtype=np.intp)

    @cached_property
    def others(self) -> tuple[Part, ...]:
        """Non-Gaussian columns."""
        found, start = [], 0
        for column, family in enumerate(self.families):
            if family is not None:
                found.append(Part(column, family, slice(start, start + family.n_parameters)))
                start += family.n_parameters
        return tuple(found)

    @cached_property
    def by_column(self) -> dict[int, Part]:
        """Non-Gaussian columns, by their numbers."""
        return {part.column: part for part in self.others}

    @cached_property
    def n_parameters(self) -> int:
        """Number of parameters in `others` per component."""
        return sum(part.family.n_parameters for part in self.others)

    @cached_property
    def statistics(self) -> tuple[slice, ...]:
        """Positions of the statistics of each non-Gaussian column."""
        found, start = [], 0
        for part in self.others:
            found.append(slice(start, start + part.family.n_statistics))
            start += part.family.n_statistics
        return tuple(found)

    def strange(self, X: Array) -> tuple[int, int] | None:
        """Row and column of the first value of X, (n_rows, n_columns), outside its family's support; or None."""
        for part in self.others:
            rows = np.flatnonzero(part.family.is_strange(X[:, part.column]))
            if len(rows):
                return int(rows[0]), part.column
        return None

    def complaint(self, value: float, column: int, name: object) -> str:
        """Return the message for an invalid value of a column with this name."""
        family = self.by_column[column].family  # Gaussian columns take all numbers
        expected, _, remedy = family.expects.partition("; ")
        text = f"expected {expected} in column {name!r}, whose family is {family}, got {value:g}"
        return f"{text}; {remedy}" if remedy else text

    def array(self) -> Array:
        """Number and argument of each family; (n_columns, 2)."""
        pairs = [(-1.0, 0.0) if own is None else (family_number(own.kind), own.argument) for own in self.families]
        return np.array(pairs, dtype=np.float64).reshape(-1, 2)


@lru_cache(maxsize=256)
def _read_structure(content: bytes, n_columns: int) -> Structure:
    pairs = np.frombuffer(content, dtype=np.float64).reshape(n_columns, 2)
    known: dict[float, type[Family]] = {family_number(name): family for name, family in FAMILIES.items()}
    if not np.isin(pairs[:, 0], [-1, *known]).all():
        raise ValueError("expected families that this version knows, got others")
    return Structure(tuple(None if number < 0 else known[number](float(value)) for number, value in pairs))


@lru_cache(maxsize=256)
def parse_families(texts: Sequence[str]) -> Structure:
    """Structure of columns whose families are given as strings."""
    return Structure(tuple(map(parse_family, texts)))


def parse_family(text: str) -> Family | None:
    """Return the family with this string; None for "gaussian".

    Raises
    ------
    ValueError
        If there is no such family, or if its argument is missing or wrong.
    """
    kind, _, argument = text.partition(":")
    if text == GAUSSIAN:
        return None
    try:
        return FAMILIES[kind].parse(argument)
    except KeyError:
        known = ", ".join((GAUSSIAN, *FAMILIES))
        raise ValueError(f"expected a family of {known}, got {text!r}") from None
    except ValueError as error:
        if argument and str(error).startswith("expected"):
            raise
        raise ValueError(f"expected a number after the colon, such as {kind}:24, got {text!r}") from None


def takes_words(text: str) -> bool:
    """True if a column with this family, or with "auto" or part of a family's string, may be one of words."""
    kind = text.partition(":")[0]
    return kind in FAMILIES and FAMILIES[kind].takes_words
