"""A party's columns as the fit has them: words are coded, each column has a family, Gaussian ones are scaled.

A party decides on all of it alone, from its own table. Which families its columns have, and what their categories
are, is known to no other party: the others see log-densities only, and how many columns there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.structure import parse_families
from vpem.estimators.coding import Coding
from vpem.estimators.families import find_families, said_categories
from vpem.estimators.units import Units, find_units
from vpem.reading.coding import Codes, Said
from vpem.reading.problems import TableError
from vpem.studies.fields import StudyFileError
from vpem.studies.private import PartyFile
from vpem.studies.rows import PartyRows
from vpem.studies.shared import Study

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Local:
    """What a party works with: its rows, and its columns as the fit has them."""

    rows: PartyRows
    """Its values are X."""
    units: Units
    X: Array
    """(n_rows, n_columns): coded, and scaled, if the study says so."""
    families: tuple[str, ...] = ()
    """Of the columns, as texts; empty: the study has Gaussian ones only."""
    coding: Coding = field(default_factory=Coding)

    @property
    def notes(self) -> list[str]:
        """What the party found of its columns, for the party itself."""
        if not self.families:
            return []
        said = ", ".join(f"{name} {text}" for name, text in zip(self.rows.names, self.families, strict=True))
        return [f"families of this party's columns, which no other party is told: {said}"]

    @property
    def words(self) -> frozenset[str]:
        """Names of the columns that have words."""
        coding = self.coding
        return frozenset(self.rows.names[column] for column in coding.labels if column not in coding.numbers)

    @property
    def labels(self) -> dict[str, list[str]]:
        """What the codes of these columns stand for."""
        return {name: list(self.coding.labels[self.rows.names.index(name)]) for name in sorted(self.words)}

    def as_in_table(self) -> Array:
        """X in the units of the table, and with the numbers that categories are there; (n_rows, n_columns)."""
        values = self.X if self.units.scale is None else self.X * self.units.scale
        return self.coding.decode(values) if self.coding.numbers else values


def wanted_codes(study: Study, own: PartyFile) -> Codes:
    """Which words are coded when the party's table is read."""
    if study.has_families:
        return Said(said_categories(own.families))
    if own.families:
        raise StudyFileError(
            f'{own.path or own.party}: expected families with families = "auto" in the [model] of the shared file, '
            f"got {', '.join(own.families)} in a study of Gaussian columns; have it changed at all parties"
        )
    return False


def prepare(study: Study, rows: PartyRows, own: PartyFile) -> Local:
    """Find the columns' families, code their categories and scale them as the estimators do, each by itself."""
    families: tuple[str, ...] = ()
    coding, values = Coding(), rows.values
    if study.has_families:
        try:
            table = rows.as_in_table(values)  # whose own order tells an id or a clock
            found = find_families(dict(own.families), table, rows.words_by_number, {}, rows.names)
        except ValueError as error:
            place = own.table or own.party
            remedy = 'leave columns out with ignore = ["name"], or say what they are, in [families] or by --family'
            raise TableError(f"{place}: {error}\n{remedy} (in {own.path or 'the own file'})") from None
        families, coding = found.texts, found.coding
        values = np.ascontiguousarray(coding.code(values, rows.words_by_number, rows.names)[:])
    units = Units()
    if study.model.standardize:
        units = find_units(values, None, parse_families(families).gaussian if families else None)
        values = np.ascontiguousarray(units.scaled(values)[:], dtype=np.float64)
    rows = replace(rows, values=values)  # not both: a party may have many rows
    return Local(rows=rows, units=units, X=values, families=families, coding=coding)


def new_values(local: Local, rows: PartyRows) -> tuple[Array | None, list[str]]:
    """New rows as the fit has its own, None if the party has no values; and categories that the fit has not seen."""
    if rows.values.shape[1] == 0:
        return None, []
    values, unseen = local.coding.code_rows(rows.values, rows.words_by_number, rows.names)
    for name in sorted(local.words - set(rows.words)):
        column = rows.names.index(name)
        try:
            values[:, column] = local.coding.code_numbers(column, values[:, column], name)
        except ValueError as error:
            raise TableError(f"new rows: {error}") from None
    structure = parse_families(local.families)
    strange = structure.strange(values)
    if strange is not None:
        row, column = strange
        raise TableError(f"new rows: {structure.complaint(values[row, column], column, rows.names[column])}")
    scale = local.units.scale
    values = np.ascontiguousarray(values if scale is None else values / scale)
    return values, unseen
