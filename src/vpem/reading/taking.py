"""Extract numbers and ids from one table, or collect its problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vpem.reading.amounts import Marks, read_amounts, refuse_amounts
from vpem.reading.category_parsing import Coded, Codes, has_texts, in_fit, is_said, to_codes, true_or_false
from vpem.reading.column_parsing import Fault, counts_rows, to_numbers, to_texts
from vpem.reading.date_parts import FAMILIES
from vpem.reading.dates import read_dates
from vpem.reading.gap_words import MISSING, words_of
from vpem.reading.gaps import clean, tell_words
from vpem.reading.opening import Source, lines_of, read_arrow
from vpem.reading.problems import PROGRAM, ROW_NUMBER, Problem, Words, unknown

Array = NDArray[np.float64]
Key = tuple[str, ...]

MANY = 20
"""Minimum number of rows for the note that a column 1, 2, 3, ... counts the rows."""


@dataclass(frozen=True, eq=False)
class Part:
    """Numbers of one table."""

    party: str
    names: list[str]
    values: Array
    keys: list[Key] | None
    originals: list[tuple[Any, ...]] | None
    words: dict[str, list[str]] = field(default_factory=dict)
    """Encoded column to the words of its codes."""
    read_as: dict[str, str] = field(default_factory=dict)
    """Column written as percentages, money or dates to the unit, or the part of the date."""
    gap_words: dict[str, dict[str, int]] = field(default_factory=dict)
    """Column to the number of gaps by word, for columns in which words count as gaps."""


@dataclass(frozen=True)
class Reader:
    """Extracts numbers and ids from tables, and collects problems and notes."""

    ids: tuple[str, ...]
    problems: list[Problem]
    notes: list[tuple[str, str]]
    """Pairs of a table and a note."""
    words: Words = PROGRAM
    codes: Codes = False
    """Columns whose words are encoded as categories; see `Codes`."""
    dates: Mapping[str, str] = field(default_factory=dict)
    """Columns of dates to their parts; see `Form`."""

    def from_file(
        self,
        source: Source,
        columns: Sequence[str] | None = None,
        keep: Callable[[str], bool] = lambda _: True,
        party: str | None = None,
    ) -> Part | None:
        """Read numbers from a file; return None if there are problems.

        Without `columns`, all columns except the ids for which `keep` is true are read. The party is named after the
        file, unless another name is given.
        """
        party = source.party if party is None else party
        wanted = (
            [name for name in source.names if name not in self.ids and keep(name)] if columns is None else columns
        )
        if not self._are_known([*self.id_columns, *wanted], source.names, str(source.path)):
            return None
        texts = [name for name in wanted if has_texts(self.codes, party, name)]
        dated = [name for name in wanted if self._part_of_date(party, name)]
        names = [*self.id_columns, *wanted]
        table, problems = read_arrow(source, names, [*self.id_columns, *texts, *dated], self.notes)
        self.problems.extend(problems)
        if source.dialect is not None:
            self._note_form(source)
        if table is None:
            return None
        table, gap_words = self._clean(source, table, party, [*texts, *dated])
        for name in texts if source.dialect is not None else ():
            table = table.set_column(table.column_names.index(name), name, true_or_false(table.column(name)))
        if columns is None:
            wanted = self._without_index(source, table, list(wanted))
        part = self.from_arrow(table, wanted, party, source)
        return None if part is None else replace(part, gap_words=gap_words)

    def _clean(
        self, source: Source, table: Any, party: str, texts: Sequence[str] = ()
    ) -> tuple[Any, dict[str, dict[str, int]]]:
        """Replace words for gaps by nulls in a text file; return the table and the counts by column and word."""
        gaps: dict[str, dict[str, int]] = {}
        kept: dict[str, dict[str, int]] = {}
        if source.dialect is None:
            return table, gaps
        for place, name in enumerate(table.column_names):
            words = words_of(source.dialect.gaps, party, name)
            if words is None and self._part_of_date(party, name):
                words = MISSING  # all words for gaps, even if the values do not look like dates
            if name in self.ids:  # a word for a gap is no valid id
                found = clean(table.column(name), MISSING if words is None else words, as_text=True)
            else:
                about: Any = {"as_text": name in texts, "has_words": bool(in_fit(self.codes, party, name))}
                found = clean(table.column(name), words, decimal=source.dialect.decimal, **about)
                gaps |= {name: found.gaps} if found.gaps else {}
                kept |= {name: found.kept} if found.kept and self.codes is not False else {}
            table = table.set_column(place, name, found.column)
        if gaps:
            note = f"words that count as gaps: {tell_words(gaps)} (else: {self.words.gaps})"
            self.notes.append((str(source.path), note))
        if kept:
            note = f"words that count as categories: {tell_words(kept)} (if they are gaps: {self.words.gaps})"
            self.notes.append((str(source.path), note))
        return table, gaps

    @property
    def is_by_number(self) -> bool:
        """True if rows are matched by number."""
        return self.ids == (ROW_NUMBER,)

    @property
    def id_columns(self) -> tuple[str, ...]:
        """Id columns that a table must have."""
        return () if self.is_by_number else self.ids

    def texts_from_file(self, source: Source, column: str) -> tuple[list[str | None], list[Key] | None] | None:
        """Read one column of a file as texts, None for missing values, and the rows' ids."""
        place, names = str(source.path), list(dict.fromkeys([*self.id_columns, column]))
        if not self._are_known(names, source.names, place):
            return None
        table, problems = read_arrow(source, names, names, self.notes)
        self.problems.extend(problems)
        if table is None:
            return None
        table, _ = self._clean(source, table, source.party, [column])
        texts = to_texts(table.column(column))
        if isinstance(texts, str):
            self.add(place, f"{place}: expected texts or numbers in column {column!r}, got {texts}")
            return None
        return texts, self._keys(table, place, is_text=source.dialect is not None) if self.ids else None

    def from_arrow(self, table: Any, wanted: Sequence[str], party: str, source: Source | None = None) -> Part | None:
        """Read numbers from an Arrow table that has the wanted columns; return None if there are problems."""
        place = party if source is None else str(source.path)
        before = len(self.problems)
        if table.num_rows == 0:
            self.add(place, f"{place}: expected rows, got none; is it empty but for its names?")
        elif not wanted:
            beside = f" beside {', '.join(map(repr, self.ids))}" if self.ids else ""
            self.add(place, f"{place}: expected at least one column{beside}, got none")
        if len(self.problems) > before:
            return None
        keys = (
            self._keys(table, place, is_text=source is not None and source.dialect is not None) if self.ids else None
        )
        values, faults, words = np.empty((table.num_rows, len(wanted))), {}, {}
        read_as: dict[str, str] = {}
        for number, name in enumerate(wanted):
            coded = self._take(table.column(name), party, name, source)
            if isinstance(coded, Fault):
                faults[name] = coded
                continue
            if coded.note:
                self.notes.append((place, f"column {name!r} {coded.note}"))
            if coded.read_as:
                read_as[name] = coded.read_as
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
            is_from_text = source is not None and source.dialect is not None
            originals = keys if is_from_text or self.is_by_number else _tuples(table, self.ids)
        return Part(party, list(wanted), values, keys, originals, words, read_as)

    def _take(self, column: Any, party: str, name: str, source: Source | None) -> Coded | Fault:
        """Convert one column to numbers; dates and amounts are parsed first, with a note."""
        part = self._part_of_date(party, name)
        if part and not (source is None and _has_numbers(column)):  # numbers of a data frame are final
            dated = read_dates(column, part)
            if isinstance(dated, Fault):
                if dated.kind == "empty" and in_fit(self.codes, party, name) is not None:
                    return Coded(np.full(len(column), np.nan))
                return dated
            circle = FAMILIES[part.partition(":")[0]]
            is_circle = self.codes is False and circle.startswith("angles")
            hint = f", a Gaussian; as a circle: {self.words.circling(name, circle)}" if is_circle else ""
            return Coded(dated.values, read_as=dated.read_as, note=dated.note + hint)
        amounts = None
        if not has_texts(self.codes, party, name):
            amounts = refuse_amounts(column) if source is None else read_amounts(column, marks_of(source))
        if isinstance(amounts, Fault):
            return amounts
        about: Any = {}
        if amounts is not None:
            column, about = amounts.column, {"read_as": amounts.unit, "note": amounts.note}
        if self.codes is not False:
            has_words, said = in_fit(self.codes, party, name), is_said(self.codes, party, name)
            coded = to_codes(column, has_words=has_words, said=said)
            return coded if isinstance(coded, Fault) else coded._replace(**about)
        found = to_numbers(column)
        return found if isinstance(found, Fault) else Coded(found, **about)

    def _part_of_date(self, party: str, name: str) -> str:
        """Return the part that a column of dates is converted to; "" for other columns."""
        return self.dates.get(f"{party}.{name}", self.dates.get(name, ""))

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
                remedy=self._remedy(name, fault, place if source is None else source.party),
            )

    def _remedy(self, name: str, fault: Fault, party: str) -> str:
        """Return the remedy for a fault, in the wording of the user's interface."""
        if fault.kind == "words" and self.codes is False:
            return self.words.families
        if fault.kind == "doubt":
            return self.words.decimals
        if fault.kind == "date":
            return f"to use dates as numbers, {self.words.dating(name, 'days')} (or weekday, hour)"
        if fault.kind == "order":
            part = self._part_of_date(party, name).partition(":")[0]
            return f"if the day comes first, {self.words.dating(name, f'{part}:dmy')}; if not, {part}:mdy"
        return fault.remedy

    def add(self, table: str, text: str, **more: Any) -> None:
        """Record a problem; see `Problem`."""
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
            text = f"{source.path}: {source.dialect.doubt}"
            self.add(str(source.path), text, kind=("", "doubt"), remedy=self.words.decimals)

    def _without_index(self, source: Source, table: Any, wanted: list[str]) -> list[str]:
        """Drop a first column without a name, and columns with neither a name nor values.

        A first column without a name that does not count the rows is recorded as a problem.
        """
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

    def _keys(self, table: Any, place: str, *, is_text: bool = False) -> list[Key] | None:
        """Return the ids of the rows, or None if there are problems; `is_text` for a file with words for gaps."""
        columns = []
        if self.is_by_number:
            return [(str(number),) for number in range(1, table.num_rows + 1)]
        for name in self.ids:
            found = to_texts(table.column(name))
            if isinstance(found, str):
                text = f"{place}: expected texts or numbers in the id column {name!r}, got {found}"
                self.add(place, text)
            elif None in found:
                row, many = found.index(None) + 1, found.count(None)
                more = f" (and in {many - 1} more rows)" if many > 1 else ""
                got = "got nothing" + (", or a word for a gap" if is_text else "")
                self.add(place, f"{place}, row {row}: expected an id in column {name!r}, {got}{more}")
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


def _has_numbers(column: Any) -> bool:
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def marks_of(source: Source) -> Marks:
    """Return the decimal mark of a file, as given and as detected."""
    dialect = source.dialect
    if dialect is None:
        return Marks(source.form.decimal)
    return Marks(source.form.decimal, dialect.decimal, dialect.separator == ",")


def spell(key: Sequence[Any]) -> str:
    """Return an id as one text."""
    return " ".join(map(str, key))


def _tuples(table: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
