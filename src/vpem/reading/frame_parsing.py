"""Convert parties' data frames to Arrow tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from vpem.reading.amounts import refuse_amounts
from vpem.reading.category_parsing import Coded, Codes, has_texts, in_fit, is_said, to_codes
from vpem.reading.column_parsing import Fault, to_arrow
from vpem.reading.dialect import Form
from vpem.reading.opening import look
from vpem.reading.problems import PYTHON, Problem, TableError, Words, complain, unknown
from vpem.reading.table_join import Rows, as_names, join_parts
from vpem.reading.taking import Part, Reader


def join_frames(
    tables: Mapping[str, Any],
    on: str | Sequence[str],
    keep: Callable[[str, str], bool],
    form: Form | None = None,
    *,
    codes: Codes = False,
    words: Words = PYTHON,
) -> Rows:
    """Join several parties' tables by id, as `join` does with files.

    Parameters
    ----------
    tables : mapping from party to table
        pandas, polars, Arrow, a dict of columns, or the path of a file.
    on : str or sequence of str
        Id columns; in pandas they may be the index.
    keep : callable
        Called with a party and a column's name; True to read the column.
    form : Form, optional
        Format of files; properties that are not given are detected.
    codes : bool or names, default=False
        True to encode words as categories; or the columns that have words in a fit.
    words : Words
        Wording of the remedies.
    """
    reader = Reader(as_names(on), [], [], words, codes, {} if form is None else form.dates)
    if not reader.ids:
        raise TableError("expected on= to name at least one column, got none")
    parts = [_part(reader, str(party), table, keep, form) for party, table in tables.items()]
    complain(reader.problems, words)
    return join_parts([part for part in parts if part is not None], reader)


def _part(reader: Reader, party: str, table: Any, keep: Callable[[str, str], bool], form: Form | None) -> Part | None:
    if isinstance(table, str | os.PathLike):
        try:
            source = look(table, form)
        except TableError as error:
            reader.add(party, str(error))
            return None
        return reader.from_file(source, keep=lambda name: keep(party, name), party=party)
    columns = columns_of(table, reader.ids)
    if columns is None:
        kind = type(table).__name__
        reader.add(party, f"{party}: expected a pandas, polars or Arrow table or a file's path, got {kind}")
        return None
    names = [name for name, _ in columns]
    twice = [name for name, times in Counter(names).items() if times > 1]
    wrong = [f"{party}: expected columns with different names, got {name!r} more than once" for name in twice]
    wrong += [
        text for name in reader.id_columns if (text := unknown(name, names, f"{party}: the id column")) is not None
    ]
    wanted = [name for name in names if name not in reader.ids and keep(party, name)]
    for text in wrong:
        reader.add(party, text)
    if wrong:
        return None
    arrays: dict[str, Any] = {}
    for name, values in columns:
        if name in wanted or name in reader.ids:
            try:
                arrays[name] = to_arrow(values)
            except (pa.ArrowException, TypeError, ValueError):
                text = f"{party}, column {name!r}: expected numbers, got values of several kinds"
                reader.add(party, text, column=None if name in reader.ids else name)
    if any(name not in arrays for name in reader.id_columns):
        return None
    return reader.from_arrow(pa.table(arrays), [name for name in wanted if name in arrays], party)


def code_frame(columns: Sequence[tuple[str, Any]], codes: Codes = True) -> list[Coded]:
    """Convert named columns to numbers and encode words; raise one TableError for all columns that fail."""
    found, problems = [], []
    for name, values in columns:
        try:
            array = to_arrow(values)
            whole = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
            fault = None if has_texts(codes, "", name) else refuse_amounts(whole)
            coded = fault or to_codes(whole, has_words=in_fit(codes, "", name), said=is_said(codes, "", name))
        except (pa.ArrowException, TypeError, ValueError):
            coded = Fault(kind="kinds", text="expected numbers or words, got values of several kinds")
        if isinstance(coded, Fault):
            text = f"column {name!r}" + (" " if coded.kind == "empty" else ": ") + coded.text
            remedy = PYTHON.dating(name, "days") if coded.kind == "date" else coded.remedy
            problems.append(Problem(table="", text=text, kind=(name, coded.kind), remedy=remedy))
        else:
            found.append(coded)
    if problems:
        try:
            complain(problems, PYTHON)
        except TableError as error:
            raise TableError(f"{error}; leave such columns out of the table, or turn them into numbers") from None
    return found


def columns_of(table: Any, ids: Sequence[str] = ()) -> list[tuple[str, Any]] | None:
    """Return names and values of a table's columns; None for other objects."""
    if hasattr(type(table), "collect_schema") and hasattr(type(table), "collect"):  # a lazy frame of polars
        table = table.collect()
    if isinstance(table, Mapping):
        return [(str(name), values) for name, values in table.items()]
    if hasattr(table, "reset_index") and hasattr(table, "columns"):  # pandas
        if any(name in ids for name in table.index.names):
            table = table.reset_index()
        return [(str(name), table.iloc[:, number]) for number, name in enumerate(table.columns)]
    if hasattr(table, "__arrow_c_stream__") or isinstance(table, pa.Table | pa.RecordBatch):
        try:
            found = pa.table(table)
        except (pa.ArrowException, TypeError):
            return None
        return list(zip(map(str, found.column_names), found.columns, strict=True))
    return None
