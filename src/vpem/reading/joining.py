"""Tables as numbers: one alone, or several parties' side by side, by an id."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.reading.columns import counts_rows, to_numbers, to_texts
from vpem.reading.dialect import Form
from vpem.reading.opening import Source, lines_of, look, read_arrow
from vpem.reading.problems import PROGRAM, Problem, TableError, Words, complain, unknown

Array = NDArray[np.float64]
Key = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers with the names of their columns, and of their rows if these have any."""

    names: list[str]
    values: Array
    """(n_rows, n_columns); NaN where a value, or a party's whole row, is missing."""
    ids: list[str] | None = None
    """One text a row."""
    parties: dict[str, list[str]] | None = None
    """Of several tables: the columns that each brought."""
    keys: dict[str, list[str]] | None = None
    """The same as `ids`, one list for each id column."""
    originals: list[tuple[Any, ...]] | None = None
    """The same again, as the tables have them."""
    own_names: dict[str, list[str]] = field(default_factory=dict)
    """Of several tables: the names that the columns have there."""
    notes: list[str] = field(default_factory=list)
    """What was done that the user may not expect."""


@dataclass(frozen=True, eq=False)
class Part:
    """One table's numbers."""

    party: str
    names: list[str]
    values: Array
    keys: list[Key] | None
    originals: list[tuple[Any, ...]] | None


@dataclass(frozen=True)
class Reader:
    """Takes tables apart, and collects what is wrong with them."""

    ids: tuple[str, ...]
    problems: list[Problem]
    notes: list[tuple[str, str]]
    """Table and note."""

    def from_file(
        self, source: Source, columns: Sequence[str] | None = None, keep: Callable[[str], bool] = lambda _: True
    ) -> Part | None:
        """Numbers of a file: of the columns that are named, or else of all but the ids of which `keep` says so."""
        wanted = (
            [name for name in source.names if name not in self.ids and keep(name)] if columns is None else columns
        )
        if not self._are_known([*self.ids, *wanted], source.names, str(source.path)):
            return None
        table, problems = read_arrow(source, [*self.ids, *wanted], self.ids)
        self.problems.extend(problems)
        if source.dialect is not None:
            self._note_form(source)
        if table is None:
            return None
        if columns is None:
            wanted = self._without_index(source, table, list(wanted))
        return self.from_arrow(table, wanted, source.party, source)

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
        values, faults = np.empty((table.num_rows, len(wanted))), {}
        dialect = None if source is None else source.dialect
        commas = dialect is not None and dialect.separator != "," and dialect.decimal == "."
        for number, name in enumerate(wanted):
            found = to_numbers(table.column(name), may_have_commas=commas)
            if isinstance(found, np.ndarray):
                values[:, number] = found
            else:
                faults[name] = found
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
                remedy=fault.remedy,
            )
        if len(self.problems) > before:
            return None
        originals = None
        if keys is not None:
            originals = keys if dialect is not None else _tuples(table, self.ids)
        return Part(party, list(wanted), values, keys, originals)

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
        if index in wanted:
            wanted.remove(index)
            if counts_rows(table.column(index)):
                self.notes.append(
                    (place, f"the first column has no name and counts the rows: left out (else: --id {index})")
                )
            else:
                text = (
                    f"{place}: expected a name for every column, got none for the first, which begins with "
                    f"{table.column(index)[0]}"
                    if table.num_rows
                    else f"{place}: expected rows, got none"
                )
                remedy = f"an id: --id {index}; not wanted: --ignore {index}; a column of numbers: give it a name"
                self.add(place, text, kind=(index, "unnamed"), remedy=remedy)
        empty = [
            name for name in wanted if name in source.unnamed and table.column(name).null_count == table.num_rows
        ]
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


def read(
    path: str | os.PathLike[str] | Source,
    *,
    id_column: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    keep: Callable[[str], bool] = lambda _: True,
    form: Form | None = None,
) -> Rows:
    """Read numbers from a file.

    Parameters
    ----------
    path : path or Source
        CSV, packed or not, however it is written, or Parquet.
    id_column : str or sequence of str, optional
        The column that names the rows, each once; or several that do together.
    columns : sequence of str, optional
        Which to read, in this order; by default all but the id.
    keep : callable
        Of all columns, only those are read for whose names it says so.
    form : Form, optional
        How the file is written, as far as it is not to be found out.
    """
    source = path if isinstance(path, Source) else look(path, form)
    reader = Reader(as_names(id_column), [], [])
    part = reader.from_file(source, columns, keep)
    complain(reader.problems)
    assert part is not None, "no problems"
    notes = told(reader.notes)
    if part.keys is None:
        return Rows(part.names, part.values, notes=notes)
    return Rows(part.names, part.values, **_named(part.keys, part.originals, reader.ids), notes=notes)


def join(
    tables: Sequence[str | os.PathLike[str] | Source],
    id_column: str | Sequence[str],
    keep: Callable[[str, str], bool] = lambda *_: True,
    form: Form | None = None,
) -> Rows:
    """Several parties' files side by side, by id; a row that a party lacks is missing there, not lost.

    A party is named after its file. A column name that several tables have gets the party's name in front. With
    `keep`, only columns for whose party and name it says so are read. What is wrong with any file is in one message.
    """
    sources = [one if isinstance(one, Source) else look(one, form) for one in tables]
    reader = Reader(as_names(id_column), [], [])
    count = Counter(source.party for source in sources)
    for name, times in count.items():
        if times > 1:
            text = f"expected files with different names, as parties are named after them, got {name!r} twice"
            reader.problems.append(Problem(table=name, text=text))
    parts = [reader.from_file(one, keep=lambda name, party=one.party: keep(party, name)) for one in sources]  # type: ignore[misc]
    complain(reader.problems)
    return join_parts([part for part in parts if part is not None], reader)


def join_parts(parts: Sequence[Part], reader: Reader, words: Words = PROGRAM) -> Rows:
    """Parties' tables side by side; rows in the order in which their ids first appear."""
    place: dict[Key, int] = {}
    originals: list[tuple[Any, ...]] = []
    for part in parts:
        for key, original in zip(part.keys or (), part.originals or (), strict=True):
            if key not in place:
                place[key] = len(place)
                originals.append(original)
    _check_overlap(parts, reader)
    every = Counter(name for part in parts for name in part.names)
    names: list[str] = []
    parties: dict[str, list[str]] = {}
    for part in parts:
        parties[part.party] = [f"{part.party}.{name}" if every[name] > 1 else name for name in part.names]
        names += parties[part.party]
    for name, times in Counter(names).items():
        if times > 1:
            text = f"expected columns with different names after the join, got {name!r} twice; rename one"
            reader.problems.append(Problem(table=name, text=text))
    complain(reader.problems, words)
    values, first = np.full((len(place), len(names)), np.nan), 0
    for part in parts:
        values[[place[key] for key in part.keys or ()], first : first + len(part.names)] = part.values
        first += len(part.names)
    return Rows(
        names,
        values,
        parties=parties,
        own_names={part.party: part.names for part in parts},
        notes=told(reader.notes),
        **_named(list(place), originals, reader.ids),
    )


def _check_overlap(parts: Sequence[Part], reader: Reader) -> None:
    if len(parts) < 2:
        return
    count = Counter(key for part in parts for key in part.keys or ())
    alone = [part for part in parts if all(count[key] == 1 for key in part.keys or ())]
    if len(alone) == len(parts):
        names = ", ".join(map(repr, reader.ids))
        one, other = ((part.party, spell((part.keys or [()])[0])) for part in parts[:2])
        text = (
            f"expected ids in column {names} that two tables have, got none in common; compare their spelling, "
            f"such as {one[1]!r} of {one[0]} and {other[1]!r} of {other[0]}"
        )
        reader.problems.append(Problem(table=names, text=text))
        return
    for part in alone:
        reader.notes.append((part.party, "no id is in any other table; compare their spelling"))


def _named(keys: Sequence[Key], originals: Any, ids: Sequence[str]) -> Mapping[str, Any]:
    columns = {name: [key[number] for key in keys] for number, name in enumerate(ids)}
    return {"ids": [spell(key) for key in keys], "keys": columns, "originals": originals}


def told(notes: Sequence[tuple[str, str]]) -> list[str]:
    """Notes in which tables with the same note are named together."""
    groups: dict[str, list[str]] = {}
    for table, note in notes:
        groups.setdefault(note, []).append(Path(table).name)
    found = []
    for note, tables in groups.items():
        shown = ", ".join(tables[:3]) + (f" and {len(tables) - 3} more" if len(tables) > 3 else "")
        found.append(f"{shown}: {note}")
    return found


def as_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of columns from one, several or none; each once."""
    names = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise TableError(f"expected every id column once, got {twice[0]!r} twice")
    return names
