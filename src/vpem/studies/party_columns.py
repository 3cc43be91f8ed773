"""Prepare a party's columns for the fit: code words, choose the family of each column, scale Gaussian columns.

A party decides all of this alone, from its own table. No other party knows the families and categories of its
columns: the others see only log-densities and the number of columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.structure import parse_families
from vpem.estimators.column_scales import Units, find_units
from vpem.estimators.family_choice import find_families, said_categories
from vpem.model.category_codes import Coding
from vpem.reading.category_parsing import Codes, Said
from vpem.reading.date_parts import part_families
from vpem.reading.problems import TableError
from vpem.studies.fields import StudyFileError
from vpem.studies.private import PartyFile
from vpem.studies.row_order import PartyRows
from vpem.studies.shared import Study

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Local:
    """A party's rows, and its columns as the fit uses them."""

    rows: PartyRows
    """Rows of the party; their `values` are X."""
    units: Units
    X: Array
    """Shape (n_rows, n_columns): coded values, scaled if the study standardizes."""
    families: tuple[str, ...] = ()
    """Families of the columns, as texts; empty if the study has only Gaussian columns."""
    coding: Coding = field(default_factory=Coding)

    @property
    def notes(self) -> list[str]:
        """Notes on the families of the columns, for the party itself."""
        if not self.families:
            return []
        said = ", ".join(f"{name} {text}" for name, text in zip(self.rows.names, self.families, strict=True))
        return [f"families of this party's columns, which no other party is told: {said}"]

    @property
    def words(self) -> frozenset[str]:
        """Names of the columns that contain words."""
        coding = self.coding
        return frozenset(self.rows.names[column] for column in coding.labels if column not in coding.numbers)

    @property
    def labels(self) -> dict[str, list[str]]:
        """Categories of each column with words, in the order of their codes."""
        return {name: list(self.coding.labels[self.rows.names.index(name)]) for name in sorted(self.words)}

    def as_in_table(self) -> Array:
        """Return X, (n_rows, n_columns), in the units of the table and with the table's numbers for categories."""
        values = self.X if self.units.scale is None else self.X * self.units.scale
        return self.coding.decode(values) if self.coding.numbers else values


def wanted_codes(study: Study, own: PartyFile) -> Codes:
    """Select the words to code when the party's table is read."""
    if study.has_families:
        return Said(said_categories(own.families))
    if own.families:
        raise StudyFileError(
            f'{own.path or own.party}: expected families with families = "auto" in the [model] of the shared file, '
            f"got {', '.join(own.families)} in a study of Gaussian columns; have it changed at all parties"
        )
    return False


def prepare(study: Study, rows: PartyRows, own: PartyFile) -> Local:
    """Find the columns' families, code their categories and scale each column as the estimators do."""
    families: tuple[str, ...] = ()
    coding, values = Coding(), rows.values
    if study.has_families:
        try:
            table = rows.as_in_table(values)  # ids and clocks grow in the table's own order
            dates = {} if own.form is None else part_families(own.form.dates)
            said = {name: text for name, text in dates.items() if name in rows.names} | dict(own.families)
            found = find_families(said, table, rows.words_by_number, {}, rows.names)
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
    rows = replace(rows, values=values)  # one copy only: a party may have many rows
    return Local(rows=rows, units=units, X=values, families=families, coding=coding)


def new_values(local: Local, rows: PartyRows) -> tuple[Array | None, list[str]]:
    """Code and scale new rows as in the fit; return them and the categories that the fit has not seen.

    The values are None if the party has no columns for the new rows.
    """
    if rows.values.shape[1] == 0:
        return None, []
    values, unseen = local.coding.code_rows(rows.values, rows.words_by_number, rows.names)
    for name in sorted(local.words - set(rows.words)):
        column = rows.names.index(name)
        try:
            values[:, column] = local.coding.code_numbers(column, values[:, column], name)
        except ValueError as error:
            raise TableError(f"new rows: {error}") from None
    wrong = parse_families(local.families).complaint(values, rows.names)
    if wrong is not None:
        raise TableError(f"new rows: {wrong[1]}")
    scale = local.units.scale
    values = np.ascontiguousarray(values if scale is None else values / scale)
    return values, unseen
