"""Coding of categories: in a fit they are numbers 0, 1, 2, ..., whatever they are in the table."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.rows import Rows, Table, row_chunks

Array = NDArray[np.float64]

MOST_NAMED = 5
"""Largest number of values that a message lists."""


UNSEEN = "some categories were not in the fit, and count as not observed"


class UnseenWarning(UserWarning):
    """Rows have categories that the fit has not seen; these values count as not observed."""


@dataclass(frozen=True, eq=False)
class Coding:
    """Categories that the codes of a model represent."""

    labels: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Column to the names of its categories."""
    numbers: Mapping[int, Array] = field(default_factory=dict)
    """Column to its values in ascending order, for categories that are numbers."""

    def code(self, table: Table, words: Mapping[int, Sequence[str]], names: Sequence[str] | None = None) -> Table:
        """Convert a table to the codes of the fit.

        Parameters
        ----------
        table : Table of shape (n_rows, n_columns)
        words : mapping
            Column to the words that its codes represent, for columns of words.
        names : sequence of str, optional
            Column names, for warnings.
        """
        changed = {column for column in words if list(words[column]) != list(self.labels.get(column, ()))}
        if not changed and not self.numbers:
            return table
        coded = _CodedRows(self, table, {column: words[column] for column in changed}, names)
        return coded[0 : len(table)] if isinstance(table, np.ndarray) else coded

    def code_rows(
        self, rows: Rows, words: Mapping[int, Sequence[str]], names: Sequence[str] | None
    ) -> tuple[Array, list[str]]:
        """Convert rows to the codes of the fit; also list the unseen categories of each column, which become gaps."""
        found = np.array(rows, dtype=np.float64)
        unseen: list[str] = []
        for column in {*words, *self.numbers}:
            values = found[:, column].copy()
            own = self.labels.get(column)
            if column in words and own is not None:
                new = _codes_of(words[column], own)
                codes = np.where(np.isnan(values), 0, values).astype(np.intp)
                found[:, column] = np.where(np.isnan(values), np.nan, new[codes])
                strange = [words[column][code] for code in np.unique(codes[~np.isnan(values)]) if np.isnan(new[code])]
            elif column in self.numbers:
                ordered = self.numbers[column]
                places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
                is_known = ordered[places] == values
                found[:, column] = np.where(is_known, places, np.nan)
                strange = [number_name(value) for value in np.unique(values[~is_known & ~np.isnan(values)]).tolist()]
            else:
                raise ValueError(f"expected numbers in column {_called(column, names)}, as in the fit, got words")
            if strange:
                shown = ", ".join(map(repr, strange[:MOST_NAMED])) + (", ..." if len(strange) > MOST_NAMED else "")
                unseen.append(f"{_called(column, names)}: {shown}")
        return found, unseen

    def code_numbers(self, column: int, values: Array, name: str) -> Array:
        """Codes, (n_rows,), of numbers in a column that has words in the fit, by the words that are these numbers.

        Numbers 0 and 1 are booleans.

        Raises
        ------
        ValueError
            If a number is not among the words.
        """
        labels = self.labels[column]
        if not {label.lower() for label in labels} <= set(TRUTH):
            found, places = np.unique(values, return_inverse=True)
            words = [number_name(value) for value in found.tolist()]
            codes = _codes_of(words, labels)
            strange = np.flatnonzero(np.isnan(codes) & ~np.isnan(found))
            if len(strange):
                raise ValueError(_no_words(name, labels, words[strange[0]]))
            values = codes[places]
        return values

    def refuse_numbers(self, table: Table, words: Mapping[int, Sequence[str]], names: Sequence[str]) -> None:
        """Raise ValueError if a data frame has numbers where the fit has words that look like numbers.

        Such numbers are ambiguous: they may be the words without leading zeros, or codes.
        """
        columns = [
            column
            for column, labels in self.labels.items()
            if column not in words and column not in self.numbers and any(map(_looks_like_a_number, labels))
        ]
        for rows in row_chunks(0, len(table), table.shape[1]) if columns else ():
            chunk = np.asarray(table[rows])
            for column in columns:
                values = chunk[:, column].astype(np.float64)
                values = values[~np.isnan(values)]
                if len(values):
                    remedy = "; or codes, as samples have them, in a plain array"
                    shown = number_name(float(values[0]))
                    raise ValueError(_no_words(str(names[column]), self.labels[column], shown) + remedy)

    def in_words(self, column: int, values: Array) -> Any:
        """Return one column of a decoded table, (n_rows,), with words in place of their codes; None for a gap."""
        if column not in self.labels or column in self.numbers:
            return values
        labels = self.labels[column]
        return [None if np.isnan(value) else labels[round(value)] for value in values.tolist()]

    def in_cells(self, column: int, values: Array) -> Any:
        """Return one column without gaps, (n_rows,), with words, booleans and integers as in data frames."""
        if column in self.numbers:
            is_whole = np.array_equal(self.numbers[column], np.rint(self.numbers[column]))
            return np.rint(values).astype(np.int64) if is_whole else values
        if tuple(self.labels.get(column, ())) == TRUTH:
            return np.rint(values) == 1
        return self.in_words(column, values)

    def decode(self, X: Array) -> Array:
        """Replace the codes of numbers by the numbers; (n_rows, n_columns)."""
        found = X.copy()
        for column, ordered in self.numbers.items():
            codes = found[:, column]
            is_there = ~np.isnan(codes)
            places = np.clip(np.rint(np.where(is_there, codes, 0)), 0, len(ordered) - 1).astype(np.intp)
            found[:, column] = np.where(is_there, ordered[places], np.nan)
        return found


class _CodedRows:
    """Table whose rows are coded when they are read."""

    def __init__(self, coding: Coding, table: Table, words: Mapping[int, Sequence[str]], names: Sequence[str] | None):
        self.coding, self.table, self.words, self.names = coding, table, words, names

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns."""
        return self.table.shape

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: Any) -> Rows:
        """Rows by slice or by number; (n_rows, n_columns)."""
        found, unseen = self.coding.code_rows(self.table[rows], self.words, self.names)
        if unseen:
            warnings.warn(f"{UNSEEN}: {'; '.join(unseen)}", UnseenWarning, stacklevel=2)
        return found


TRUTH = ("false", "true")


def _codes_of(words: Sequence[str], labels: Sequence[str]) -> Array:
    """Code of each word, (n_words,); NaN if it is not a label. Booleans match in upper and lower case."""
    known = {label: float(code) for code, label in enumerate(labels)}
    truth = {label.lower(): code for label, code in known.items() if label.lower() in TRUTH}
    return np.array([known.get(word, truth.get(word.lower(), np.nan)) for word in words], dtype=np.float64)


def _looks_like_a_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def _no_words(name: str, labels: Sequence[str], number: str) -> str:
    return (
        f"expected words in column {name!r}, as in the fit, such as {labels[0]!r}, got numbers, such as {number}; "
        "give the texts that the fit had"
    )


def number_name(value: float) -> str:
    """Name of a number's category, which is unique to the number."""
    return str(int(value)) if value.is_integer() else repr(value)


def words_by_number(X: Any, names: Sequence[str] | None) -> dict[int, list[str]]:
    """Column number to the words that its codes represent."""
    words = getattr(X, "words", None)
    if not words:
        return {}
    named = X.column_names or range(X.shape[1]) if names is None or X.column_names is None else names
    place = {str(name): number for number, name in enumerate(named)}
    return {place[name]: list(own) for name, own in words.items()}


def _called(column: int, names: Sequence[str] | None) -> str:
    return str(column) if names is None else repr(str(names[column]))
