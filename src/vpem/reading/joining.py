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

from vpem.reading.coding import Codes
from vpem.reading.dialect import Form
from vpem.reading.opening import Source, look
from vpem.reading.problems import PROGRAM, Problem, TableError, Words, complain
from vpem.reading.taking import Key, Part, Reader, spell

Array = NDArray[np.float64]


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
    places: dict[str, NDArray[np.intp]] = field(default_factory=dict)
    """Of several tables: the numbers, here, of the rows that each has, in its own order."""
    words: dict[str, list[str]] = field(default_factory=dict)
    """Of columns with categories, by name: what their numbers stand for."""
    notes: list[str] = field(default_factory=list)
    """What was done that the user may not expect."""


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
        CSV, packed or not, however it is written, or Parquet.
    id_column : str or sequence of str, optional
        The column that names the rows, each once; or several that do together.
    columns : sequence of str, optional
        Which to read, in this order; by default all but the id.
    keep : callable
        Of all columns, only those are read for whose names it says so.
    form : Form, optional
        How the file is written, as far as it is not to be found out.
    codes : bool or names, default=False
        Whether words are coded, as categories; or the columns that have words in a fit.
    words : Words
        How remedies are called.
    """
    source = path if isinstance(path, Source) else look(path, form)
    reader = Reader(as_names(id_column), [], [], words, codes)
    part = reader.from_file(source, columns, keep)
    complain(reader.problems, words)
    assert part is not None, "no problems"
    notes = told(reader.notes)
    if part.keys is None:
        return Rows(part.names, part.values, words=part.words, notes=notes)
    named = _named(part.keys, part.originals, reader.ids)
    return Rows(part.names, part.values, **named, words=part.words, notes=notes)


def read_texts(
    path: str | os.PathLike[str] | Source,
    column: str,
    *,
    id_column: str | Sequence[str] | None = None,
    form: Form | None = None,
) -> tuple[list[str | None], list[Key] | None]:
    """One column of a file as texts, None where it is missing, and its ids, one text for each id column."""
    source = path if isinstance(path, Source) else look(path, form)
    reader = Reader(as_names(id_column), [], [])
    found = reader.texts_from_file(source, column)
    complain(reader.problems)
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
    """Several parties' files side by side, by id; a row that a party lacks is missing there, not lost.

    A party is named after its file. A column name that several tables have gets the party's name in front. With
    `keep`, only columns for whose party and name it says so are read; with `codes`, words are coded, as categories.
    What is wrong with any file is in one message.
    """
    sources = [one if isinstance(one, Source) else look(one, form) for one in tables]
    reader = Reader(as_names(id_column), [], [], codes=codes)
    count = Counter(source.party for source in sources)
    for name, times in count.items():
        if times > 1:
            text = f"expected files with different names, as parties are named after them, got {name!r} twice"
            reader.problems.append(Problem(table=name, text=text))
    parts = [reader.from_file(one, keep=lambda name, party=one.party: keep(party, name)) for one in sources]  # type: ignore[misc]
    complain(reader.problems)
    return join_parts([part for part in parts if part is not None], reader)


def join_parts(parts: Sequence[Part], reader: Reader) -> Rows:
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
    complain(reader.problems, reader.words)
    values, first = np.full((len(place), len(names)), np.nan), 0
    places = {part.party: np.array([place[key] for key in part.keys or ()], dtype=np.intp) for part in parts}
    words: dict[str, list[str]] = {}
    for part in parts:
        called = dict(zip(part.names, parties[part.party], strict=True))
        words |= {called[name]: own for name, own in part.words.items()}
        values[places[part.party], first : first + len(part.names)] = part.values
        first += len(part.names)
    return Rows(
        names,
        values,
        parties=parties,
        own_names={part.party: part.names for part in parts},
        places=places,
        words=words,
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
