"""Imputed tables: the caller's own table, in which only the gaps change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.estimators import frames
from vpem.model.category_codes import Coding, number_name

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Filling:
    """A table and the values for its gaps; arrays have shape (n_rows, n_columns)."""

    values: Array
    """The table's own numbers, and its own codes in columns of words."""
    words: Mapping[int, Sequence[str]]
    """Column to the words that these codes represent."""
    expected: Array
    """Imputed numbers, and codes of the fit in columns of words; used in gaps only."""
    coding: Coding
    """The fit's codes of categories."""

    def column(self, number: int, own: Sequence[Any] | None = None) -> Any:
        """Return one column without gaps, (n_rows,), with words and booleans in place of codes.

        Parameters
        ----------
        number : int
        own : sequence of shape (n_rows,), optional
            Cells of the caller's table; by default computed from `values` and `words`.
        """
        values, words = self.values[:, number], self.words.get(number)
        if own is None:
            own = values.tolist() if words is None else Coding({number: words}).in_words(number, values)
        found, rows = list(own), np.flatnonzero(np.isnan(values))
        texts = [value for value in own if isinstance(value, str)]
        if texts:  # the text "true" stays a text, True a boolean
            cells = _as_texts(self.coding.in_words(number, self.expected[rows, number]), texts)
        else:
            cells = self.coding.in_cells(number, self.expected[rows, number])
        for row, cell in zip(rows.tolist(), cells, strict=True):
            found[row] = cell.item() if isinstance(cell, np.generic) else cell
        return found

    def like(self, X: Any, names: Sequence[str]) -> Any:
        """Return a table of the same kind as X; a data frame keeps its index, names and types.

        Parameters
        ----------
        X : table of shape (n_rows, n_columns)
        names : sequence of str
            Column names for tables that are neither arrays nor data frames.
        """
        kind = frames.kind_of(X)
        if kind == frames.ARRAY:
            return self._array(X)
        if not hasattr(X, "columns"):
            ids = id_columns(getattr(X, "on", ()), getattr(X, "ids", ()))
            return frames.make_frame({**ids, **{name: self.column(at) for at, name in enumerate(names)}}, kind)
        own = list(frames.columns_in(X, kind).values())
        changed = {at: self._typed(own[at], None, at, kind) for at in self._changed()}
        return frames.replace_columns(X, kind, changed)

    def like_tables(self, tables: Mapping[Any, Any], joined: Any, parties: Mapping[str, Mapping[str, int]]) -> Any:
        """Return one table for each party, with all rows and their ids in the order of the joined table.

        Parameters
        ----------
        tables : mapping
            Party to its table. A party without a table gets one of the kind of the first.
        joined : JoinedTable
            The same tables, joined.
        parties : mapping
            Party to its columns: name in the party's table to column number.
        """
        given, ids = {str(party): table for party, table in tables.items()}, id_columns(joined.on, joined.ids)
        first, found = frames.kind_of(next(iter(given.values()))), {}
        for party, numbers in parties.items():
            kind = frames.kind_of(given[party]) if party in given else first
            if party in given and kind != frames.OTHER:
                named = {**numbers, **{name.removeprefix(f"{party}."): number for name, number in numbers.items()}}
                found[party] = self._party(given[party], kind, ids, joined.places[party], named)
            else:
                own = {name: self.column(number) for name, number in numbers.items()}
                found[party] = frames.make_frame({**ids, **own}, kind)
        return found

    def _party(
        self,
        table: Any,
        kind: str,
        ids: Mapping[str, list[Any]],
        places: NDArray[np.intp],
        numbers: Mapping[str, int],
    ) -> Any:
        """Return one party's table; columns outside the model are empty in rows that the party lacks."""
        index = [name for name in getattr(getattr(table, "index", None), "names", ()) if name in ids]
        table = table.reset_index() if index else table
        made: dict[str, Any] = {}
        for name, column in frames.columns_in(table, kind).items():
            cells: list[Any] = [None] * len(self.values)
            for place, cell in zip(places.tolist(), frames.cells_of(column), strict=True):
                cells[place] = cell
            if name in numbers:
                made[name] = self._typed(column, cells, numbers[name], kind)
            elif name in ids or not isinstance(self, Deviations):
                made[name] = frames.typed(ids.get(name, cells), column, kind)
        found = frames.make_frame(made, kind)
        return found.set_index(index) if index else found

    def _changed(self) -> list[int]:
        """Numbers of the columns with gaps."""
        return [int(number) for number in np.flatnonzero(np.isnan(self.values).any(axis=0))]

    def _typed(self, column: Any, cells: Sequence[Any] | None, number: int, kind: str) -> Any:
        """Return one column of a data frame without gaps; its own cells are `cells`, by default those of `column`."""
        if cells is None and frames.has_doubles(column, kind):
            return frames.typed(self._numbers[:, number], None, kind)
        return frames.typed(self.column(number, frames.cells_of(column) if cells is None else cells), column, kind)

    @cached_property
    def _numbers(self) -> Array:
        """All values as numbers and codes."""
        return np.where(np.isnan(self.values), self.expected, self.values)

    def _array(self, X: Any) -> NDArray[Any]:
        if not (isinstance(X, np.ndarray) and X.dtype.kind in "OUS"):
            return self._numbers
        found = X.astype(object)
        for number in self._changed():
            found[:, number] = self.column(number, X[:, number].tolist())
        return found


class Deviations(Filling):
    """Standard deviations of imputed values, 0 elsewhere; numbers in every column."""

    def column(self, number: int, own: Sequence[Any] | None = None) -> Any:  # noqa: ARG002
        """Return the deviations of one column, (n_rows,)."""
        return self._numbers[:, number]

    def _changed(self) -> list[int]:
        return list(range(self.values.shape[1]))

    def _typed(self, column: Any, cells: Sequence[Any] | None, number: int, kind: str) -> Any:  # noqa: ARG002
        return frames.typed(self.column(number), None, kind)

    @cached_property
    def _numbers(self) -> Array:
        return np.where(np.isnan(self.values), self.expected, 0.0)

    def _array(self, X: Any) -> NDArray[Any]:  # noqa: ARG002
        return self._numbers


def _as_texts(cells: Any, texts: Sequence[str]) -> list[str]:
    """Write numbers as texts, as the column's own texts write the same numbers; words stay as they are."""
    if not isinstance(cells, np.ndarray):
        return list(cells)
    spelt: dict[float, str] = {}
    for text in texts:
        with suppress(ValueError):
            spelt.setdefault(float(text), text)
    return [spelt.get(cell) or number_name(cell) for cell in cells.tolist()]


def id_columns(on: Sequence[str], ids: Sequence[Any]) -> dict[str, list[Any]]:
    """Id columns, from one value or tuple of values per row."""
    if len(on) == 1:
        return {on[0]: list(ids)}
    return {name: [one[place] for one in ids] for place, name in enumerate(on)}
