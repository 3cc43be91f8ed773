"""Families of the columns of a mixed block, and the positions of their parameters and statistics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
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
    """Position of its parameters in a block's `others`."""
    statistics: slice
    """Position of its statistics in the `others` of statistics."""


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
        found, first, sums = [], 0, 0
        for column, family in enumerate(self.families):
            if family is not None:
                end, last = first + family.n_parameters, sums + family.n_statistics
                found.append(Part(column, family, slice(first, end), slice(sums, last)))
                first, sums = end, last
        return tuple(found)

    @cached_property
    def by_column(self) -> dict[int, Part]:
        """Non-Gaussian columns, by their numbers."""
        return {part.column: part for part in self.others}

    @cached_property
    def n_parameters(self) -> int:
        """Number of parameters in `others` per component."""
        return sum(part.family.n_parameters for part in self.others)

    def change(self, others: Array, new: Callable[[Part, Array], Array]) -> Array:
        """Return `others` with new parameters of each column, a function of the column and its present ones."""
        found = others.copy()
        for part in self.others:
            found[:, part.parameters] = new(part, others[:, part.parameters])
        return found

    def complaint(self, X: Array, names: Sequence[object]) -> tuple[int, str] | None:
        """Row of the first value of X, (n_rows, n_columns), outside its family's support, and a message; or None."""
        for column, family, *_ in self.others:
            rows = np.flatnonzero(family.is_strange(X[:, column]))
            if len(rows):
                row = int(rows[0])
                where = f"in column {names[column]!r}, whose family is {family}"
                return row, family.refusal(where, float(X[row, column]))
        return None

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
    """True if the family with this string, or with this name, takes columns of words."""
    kind = text.partition(":")[0]
    return kind in FAMILIES and FAMILIES[kind].takes_words


def no_gaussian(n_components: int, is_matrix: bool) -> Block:
    """Empty parameters of a block without Gaussian columns."""
    empty = np.zeros((n_components, 0, 0) if is_matrix else (n_components, 0))
    return Block(
        means=np.zeros((n_components, 0)), covariances=empty, whiteners=empty, log_normalizers=np.zeros(n_components)
    )


def join_blocks(gaussian: Block, others: Array, like: Block) -> Block:
    """Join the parameters of Gaussian and other columns into a block."""
    return Block(**{**gaussian.arrays, "others": others, "structure": like.structure})
