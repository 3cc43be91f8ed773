"""Read one table as numbers, or join several parties' tables by an id."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.overlap import NearIds
from vpem.reading.category_parsing import Codes
from vpem.reading.dialect import Form
from vpem.reading.opening import Source, look
from vpem.reading.problems import PROGRAM, ROW_NUMBER, Problem, TableError, Words, complain
from vpem.reading.spelling import Near, find_near
from vpem.reading.taking import Key, Part, Reader, spell

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers with the names of their columns and, if present, the ids of their rows."""

    names: list[str]
    values: Array
    """Shape (n_rows, n_columns); NaN if a value, or a party's whole row, is missing."""
    ids: list[str] | None = None
    """One text for each row."""
    parties: dict[str, list[str]] | None = None
    """Columns of each party, if there are several tables."""
    keys: dict[str, list[str]] | None = None
    """Id column to its texts, one for each row."""
    originals: list[tuple[Any, ...]] | None = None
    """Ids with the types of the tables, one tuple for each row."""
    own_names: dict[str, list[str]] = field(default_factory=dict)
    """Names of each party's columns in its own table, if there are several tables."""
    places: dict[str, NDArray[np.intp]] = field(default_factory=dict)
    """Party to the indices in `values` of its rows, in the order of its table, if there are several tables."""
    words: dict[str, list[str]] = field(default_factory=dict)
    """Column of categories to the words of its codes."""
    read_as: dict[str, str] = field(default_factory=dict)
    """Column written as percentages, money or dates to %, the currency, or the part of the date."""
    gap_words: dict[str, dict[str, int]] = field(default_factory=dict)
    """Column to the number of gaps by word, for columns in which words count as gaps."""
    near: tuple[NearIds, ...] = ()
    """Ids that do not match because of their spelling, if there are several tables."""
    notes: list[str] = field(default_factory=list)
    """Notes on processing that the user may not expect."""


def read(
    path: str | os.PathLike[str] | Source,
    *,
    id_column: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    keep: Callable[[str], bool] = lambda _: True,
    form: Form | None = None,
    codes: Codes = False,
    words: Words = PROGRAM,
) -> Rows:
    """Read numbers from a file.

    Parameters
    ----------
    path : path or Source
        CSV of any format, compressed or not, or Parquet.
    id_column : str or sequence of str, optional
        Id column, in which every id occurs once; or several columns that form the id.
    columns : sequence of str, optional
        Columns to read, in this order; by default all except the id.
    keep : callable
        Called with a column's name; True to read it. Ignored if `columns` is given.
    form : Form, optional
        Format of the file; properties that are not given are detected.
    codes : bool or names, default=False
        True to encode words as categories; or the columns that have words in a fit.
    words : Words
        Wording of the remedies.
    """
    source = path if isinstance(path, Source) else look(path, form)
    reader = Reader(as_names(id_column), [], [], words, codes, source.form.dates)
    part = reader.from_file(source, columns, keep)
    complain(reader.problems, words)
    assert part is not None, "no problems"
    notes = told(reader.notes)
    if part.keys is None:
        return Rows(part.names, part.values, **_about(part), notes=notes)
    named = _named(part.keys, part.originals, reader.ids)
    return Rows(part.names, part.values, **named, **_about(part), notes=notes)


def _about(part: Part) -> dict[str, Any]:
    """Return words, units and gaps of a table's columns as arguments of `Rows`."""
    return {"words": part.words, "read_as": part.read_as, "gap_words": part.gap_words}


def read_texts(
    path: str | os.PathLike[str] | Source,
    column: str,
    *,
    id_column: str | Sequence[str] | None = None,
    form: Form | None = None,
    notes: list[str] | None = None,
) -> tuple[list[str | None], list[Key] | None]:
    """Read one column of a file as texts, None for missing values, and the rows' ids, one text for each id column.

    Notes on processing that the user may not expect are appended to `notes`.
    """
    source = path if isinstance(path, Source) else look(path, form)
    reader = Reader(as_names(id_column), [], [])
    found = reader.texts_from_file(source, column)
    complain(reader.problems)
    if notes is not None:
        notes += told(reader.notes)
    assert found is not None, "no problems"
    return found


def join(
    tables: Sequence[str | os.PathLike[str] | Source],
    id_column: str | Sequence[str],
    keep: Callable[[str, str], bool] = lambda *_: True,
    form: Form | None = None,
    *,
    codes: Codes = False,
) -> Rows:
    """Join several parties' files by id; a row that a party lacks is kept, with missing values for that party.

    A party is named after its file. A column name that occurs in several tables is prefixed with the party's name.
    Only columns for which `keep(party, name)` is true are read. With `codes`, words are encoded as categories. The
    problems of all files are raised as one error.
    """
    sources = [one if isinstance(one, Source) else look(one, form) for one in tables]
    reader = Reader(as_names(id_column), [], [], codes=codes, dates=sources[0].form.dates if sources else {})
    count = Counter(source.party for source in sources)
    for name, times in count.items():
        if times > 1:
            text = f"expected files with different names, as parties are named after them, got {name!r} twice"
            reader.problems.append(Problem(table=name, text=text))
    parts = [reader.from_file(one, keep=lambda name, party=one.party: keep(party, name)) for one in sources]  # type: ignore[misc]
    complain(reader.problems)
    return join_parts([part for part in parts if part is not None], reader)


def join_parts(parts: Sequence[Part], reader: Reader) -> Rows:
    """Join parties' tables; rows are in the order in which their ids first appear."""
    place: dict[Key, int] = {}
    originals: list[tuple[Any, ...]] = []
    for part in parts:
        for key, original in zip(part.keys or (), part.originals or (), strict=True):
            if key not in place:
                place[key] = len(place)
                originals.append(original)
    _check_aligned(parts, reader)
    near = find_near(parts)
    _check_overlap(parts, reader, near)
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
    complain(reader.problems, reader.words)
    values, first = np.full((len(place), len(names)), np.nan), 0
    places = {part.party: np.array([place[key] for key in part.keys or ()], dtype=np.intp) for part in parts}
    words: dict[str, list[str]] = {}
    read_as: dict[str, str] = {}
    gap_words: dict[str, dict[str, int]] = {}
    for part in parts:
        called = dict(zip(part.names, parties[part.party], strict=True))
        words |= {called[name]: own for name, own in part.words.items()}
        read_as |= {called[name]: own for name, own in part.read_as.items()}
        gap_words |= {called[name]: own for name, own in part.gap_words.items()}
        values[places[part.party], first : first + len(part.names)] = part.values
        first += len(part.names)
    return Rows(
        names,
        values,
        parties=parties,
        own_names={part.party: part.names for part in parts},
        places=places,
        words=words,
        read_as=read_as,
        gap_words=gap_words,
        near=tuple(one.ids for one in near),
        notes=[*told(reader.notes), *(f"{one.ids.party}: {one.note}" for one in near)],
        **_named(list(place), originals, reader.ids),
    )


def _check_aligned(parts: Sequence[Part], reader: Reader) -> None:
    """Raise TableError if tables matched by row number have different numbers of rows."""
    if not reader.is_by_number or len(parts) < 2:
        return
    counts = {part.party: len(part.values) for part in parts}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{count:,} in {party}" for party, count in counts.items())
        text = f"expected as many rows in all tables, as they are matched by number ({ROW_NUMBER}), got {shown}"
        reader.problems.append(Problem(table="", text=text))
        complain(reader.problems, reader.words)
    reader.notes.append(
        ("all tables", f"matched by the rows' numbers: row 1 of each is the same, ..., row {len(parts[0].values):,}")
    )


def _check_overlap(parts: Sequence[Part], reader: Reader, near: Sequence[Near]) -> None:
    if len(parts) < 2:
        return
    count = Counter(key for part in parts for key in part.keys or ())
    alone = [part for part in parts if all(count[key] == 1 for key in part.keys or ())]
    if len(alone) == len(parts):
        names = ", ".join(map(repr, reader.ids))
        one, other = ((part.party, spell((part.keys or [()])[0])) for part in parts[:2])
        if near:
            one, other = (near[0].ids.party, near[0].own), (near[0].ids.other, near[0].other)
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
    """Merge notes: tables with the same note are listed together."""
    groups: dict[str, list[str]] = {}
    for table, note in notes:
        groups.setdefault(note, []).append(Path(table).name)
    found = []
    for note, tables in groups.items():
        shown = ", ".join(tables[:3]) + (f" and {len(tables) - 3} more" if len(tables) > 3 else "")
        found.append(f"{shown}: {note}")
    return found


def as_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return id columns as a tuple of names; raise TableError for a duplicate."""
    names = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise TableError(f"expected every id column once, got {twice[0]!r} twice")
    return names
