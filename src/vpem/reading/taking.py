"""Takes one table apart: numbers and ids, or all that is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vpem.reading.coding import Coded, Codes, has_texts, in_fit, is_said, to_codes, true_or_false
from vpem.reading.columns import Fault, counts_rows, to_numbers, to_texts
from vpem.reading.opening import Source, lines_of, read_arrow
from vpem.reading.problems import PROGRAM, Problem, Words, unknown

Array = NDArray[np.float64]
Key = tuple[str, ...]

MANY = 20
"""Rows from which on 1, 2, 3, ... is no chance."""


@dataclass(frozen=True, eq=False)
class Part:
    """One table's numbers."""

    party: str
    names: list[str]
    values: Array
    keys: list[Key] | None
    originals: list[tuple[Any, ...]] | None
    words: dict[str, list[str]] = field(default_factory=dict)
    """Of coded columns, by name: what their numbers stand for."""


@dataclass(frozen=True)
class Reader:
    """Takes tables apart, and collects what is wrong with them."""

    ids: tuple[str, ...]
    problems: list[Problem]
    notes: list[tuple[str, str]]
    """Table and note."""
    words: Words = PROGRAM
    codes: Codes = False
    """Whether words are coded, as categories."""

    def from_file(
        self, source: Source, columns: Sequence[str] | None = None, keep: Callable[[str], bool] = lambda _: True
    ) -> Part | None:
        """Numbers of a file: of the columns that are named, or else of all but the ids of which `keep` says so."""
        wanted = (
            [name for name in source.names if name not in self.ids and keep(name)] if columns is None else columns
        )
        if not self._are_known([*self.ids, *wanted], source.names, str(source.path)):
            return None
        texts = [name for name in wanted if has_texts(self.codes, source.party, name)]
        table, problems = read_arrow(source, [*self.ids, *wanted], [*self.ids, *texts], self.notes)
        self.problems.extend(problems)
        if source.dialect is not None:
            self._note_form(source)
        if table is None:
            return None
        for name in texts if source.dialect is not None else ():
            table = table.set_column(table.column_names.index(name), name, true_or_false(table.column(name)))
        if columns is None:
            wanted = self._without_index(source, table, list(wanted))
        return self.from_arrow(table, wanted, source.party, source)

    def texts_from_file(self, source: Source, column: str) -> tuple[list[str | None], list[Key] | None] | None:
        """One column of a file as texts, None where it is missing; and the rows' ids."""
        place, names = str(source.path), list(dict.fromkeys([*self.ids, column]))
        if not self._are_known(names, source.names, place):
            return None
        table, problems = read_arrow(source, names, names, self.notes)
        self.problems.extend(problems)
        if table is None:
            return None
        texts = to_texts(table.column(column))
        if isinstance(texts, str):
            self.add(place, f"{place}: expected texts or numbers in column {column!r}, got {texts}")
            return None
        return texts, self._keys(table, place) if self.ids else None

    def from_arrow(self, table: Any, wanted: Sequence[str], party: str, source: Source | None = None) -> Part | None:
        """Numbers of an Arrow table, whose columns are known to be there."""
        place = party if source is None else str(source.path)
        before = len(self.problems)
        if table.num_rows == 0:
            self.add(place, f"{place}: expected rows, got none; is it empty but for its names?")
        elif not wanted:
            beside = f" beside {', '.join(map(repr, self.ids))}" if self.ids else ""
            self.add(place, f"{place}: expected at least one column{beside}, got none")
        if len(self.problems) > before:
            return None
        keys = self._keys(table, place) if self.ids else None
        values, faults, words = np.empty((table.num_rows, len(wanted))), {}, {}
        dialect = None if source is None else source.dialect
        commas = dialect is not None and dialect.separator != "," and dialect.decimal == "."
        for number, name in enumerate(wanted):
            coded = self._take(table.column(name), commas, party, name)
            if isinstance(coded, Fault):
                faults[name] = coded
                continue
            values[:, number] = found = coded.values
            if coded.words is not None:
                words[name] = coded.words
            elif pa.types.is_boolean(table.column(name).type):
                self.notes.append((place, f"column {name!r} is true or false: taken as 1 and 0"))
            if len(found) >= MANY and counts_rows(found):
                note = f"column {name!r} counts the rows, {found[0]:.0f}, {found[1]:.0f}, ...: is it a measurement?"
                self.notes.append((place, f"{note} (else: {self.words.ignoring([name])})"))
        self._add_faults(faults, place, source)
        if len(self.problems) > before:
            return None
        originals = None
        if keys is not None:
            originals = keys if dialect is not None else _tuples(table, self.ids)
        return Part(party, list(wanted), values, keys, originals, words)

    def _take(self, column: Any, may_have_commas: bool, party: str, name: str) -> Coded | Fault:
        if self.codes is not False:
            has_words, said = in_fit(self.codes, party, name), is_said(self.codes, party, name)
            return to_codes(column, may_have_commas=may_have_commas, has_words=has_words, said=said)
        found = to_numbers(column, may_have_commas=may_have_commas)
        return found if isinstance(found, Fault) else Coded(found)

    def _add_faults(self, faults: dict[str, Fault], place: str, source: Source | None) -> None:
        rows = {fault.row for fault in faults.values() if fault.row is not None}
        lines = {} if source is None else lines_of(source, rows)
        for name, fault in faults.items():
            where = "" if fault.row is None else f", row {fault.row + 1}"
            if fault.row in lines:
                where = f", line {lines[fault.row]}"
            self.add(
                place,
                f"{place}{where}, column {name!r}" + (" " if fault.kind == "empty" else ": ") + fault.text,
                kind=(name, fault.kind),
                column=name if fault.is_ignorable else None,
                may_be_id=fault.may_be_id and not self.ids,
                remedy=self.words.families if fault.kind == "words" and self.codes is False else fault.remedy,
            )

    def add(self, table: str, text: str, **more: Any) -> None:
        """Note a problem; see `Problem`."""
        self.problems.append(Problem(table=table, text=text, **more))

    def _are_known(self, names: Sequence[str], known: Sequence[str], place: str) -> bool:
        before = len(self.problems)
        for name in names:
            text = unknown(name, known, f"{place}: the id column" if name in self.ids else f"{place}: column")
            if text is not None:
                self.add(place, text, kind=(name, "unknown"))
        return len(self.problems) == before

    def _note_form(self, source: Source) -> None:
        assert source.dialect is not None, "of text"
        if source.dialect.notes:
            self.notes.append((str(source.path), ", ".join(source.dialect.notes)))
        if source.dialect.doubt:
            text, remedy = f"{source.path}: {source.dialect.doubt}", "say it with --decimal , or --decimal ."
            self.add(str(source.path), text, kind=("", "doubt"), remedy=remedy)

    def _without_index(self, source: Source, table: Any, wanted: list[str]) -> list[str]:
        """All columns but one without a name that numbers the rows, and those with neither name nor values."""
        place, index = str(source.path), source.index
        if index in wanted and table.num_rows:
            wanted.remove(index)
            numbers = to_numbers(table.column(index))
            if isinstance(numbers, np.ndarray) and counts_rows(numbers):
                note = "the first column has no name and counts the rows: left out"
                self.notes.append((place, f"{note} (else: {self.words.naming(index)})"))
            else:
                begins = f"got none for the first, which begins with {table.column(index)[0]}"
                text = f"{place}: expected a name for every column, {begins}"
                uses = f"an id: {self.words.naming(index)}; not wanted: {self.words.ignoring([index])}"
                remedy = f"{uses}; a column of numbers: give it a name"
                self.add(place, text, kind=(index, "unnamed"), remedy=remedy)
        unnamed = [name for name in wanted if name in source.unnamed]
        empty = {name for name in unnamed if table.column(name).null_count == table.num_rows}
        self.notes.extend(
            (place, f"a column without a name is called {name}") for name in unnamed if name not in empty
        )
        return [name for name in wanted if name not in empty]

    def _keys(self, table: Any, place: str) -> list[Key] | None:
        columns = []
        for name in self.ids:
            found = to_texts(table.column(name))
            if isinstance(found, str):
                text = f"{place}: expected texts or numbers in the id column {name!r}, got {found}"
                self.add(place, text)
            elif None in found:
                row, many = found.index(None) + 1, found.count(None)
                more = f" (and in {many - 1} more rows)" if many > 1 else ""
                self.add(place, f"{place}, row {row}: expected an id in column {name!r}, got nothing{more}")
            columns.append(found)
        if any(isinstance(found, str) or None in found for found in columns):
            return None
        keys: list[Key] = list(zip(*columns, strict=True))
        count = Counter(keys)
        if len(count) < len(keys):
            key = count.most_common(1)[0][0]
            first = keys.index(key)
            places = f"{first + 1} and {keys.index(key, first + 1) + 1}"
            names = ", ".join(map(repr, self.ids))
            n_more = len(keys) - len(count)
            self.add(
                place,
                f"{place}: expected every id in column {names} once, got {spell(key)!r} in rows {places}"
                + (f"; {n_more:,} rows in all repeat an id" if n_more > 1 else ""),
                remedy="keep one row of each id, add them up first, or name more columns of which an id consists",
            )
            return None
        return keys


def spell(key: Sequence[Any]) -> str:
    """An id as one text."""
    return " ".join(map(str, key))


def _tuples(table: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
