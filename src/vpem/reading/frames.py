"""Parties' data frames as Arrow tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from vpem.reading.coding import Coded, Codes, in_fit, is_said, to_codes
from vpem.reading.columns import Fault
from vpem.reading.dialect import Form
from vpem.reading.joining import Rows, as_names, join_parts
from vpem.reading.opening import look
from vpem.reading.problems import PYTHON, Problem, TableError, Words, complain, unknown
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
    """Several parties' tables side by side, by id, as `join` does with files.

    Parameters
    ----------
    tables : mapping from party to table
        pandas, polars, Arrow, a dict of columns, or the path of a file.
    on : str or sequence of str
        The columns that name the rows; in pandas they may be the index.
    keep : callable
        Of a party and a column's name there: whether to read it.
    form : Form, optional
        How files are written, as far as it is not to be found out.
    codes : bool or names, default=False
        Whether words are coded, as categories; or the columns that have words in a fit.
    words : Words
        How remedies are called.
    """
    reader = Reader(as_names(on), [], [], words, codes)
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
        part = reader.from_file(source, keep=lambda name: keep(party, name))
        return None if part is None else replace(part, party=party)
    columns = columns_of(table, reader.ids)
    if columns is None:
        kind = type(table).__name__
        reader.add(party, f"{party}: expected a pandas, polars or Arrow table or a file's path, got {kind}")
        return None
    names = [name for name, _ in columns]
    twice = [name for name, times in Counter(names).items() if times > 1]
    wrong = [f"{party}: expected columns with different names, got {name!r} more than once" for name in twice]
    wrong += [text for name in reader.ids if (text := unknown(name, names, f"{party}: the id column")) is not None]
    wanted = [name for name in names if name not in reader.ids and keep(party, name)]
    for text in wrong:
        reader.add(party, text)
    if wrong:
        return None
    arrays: dict[str, Any] = {}
    for name, values in columns:
        if name in wanted or name in reader.ids:
            try:
                arrays[name] = _array(values)
            except (pa.ArrowException, TypeError, ValueError):
                text = f"{party}, column {name!r}: expected numbers, got values of several kinds"
                reader.add(party, text, column=None if name in reader.ids else name)
    if any(name not in arrays for name in reader.ids):
        return None
    return reader.from_arrow(pa.table(arrays), [name for name in wanted if name in arrays], party)


def code_frame(columns: Sequence[tuple[str, Any]], codes: Codes = True) -> list[Coded]:
    """Names and values of a table's columns as numbers, with words coded; TableError tells of all that cannot be."""
    found, problems = [], []
    for name, values in columns:
        try:
            array = _array(values)
            whole = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
            coded = to_codes(whole, has_words=in_fit(codes, "", name), said=is_said(codes, "", name))
        except (pa.ArrowException, TypeError, ValueError):
            coded = Fault(kind="kinds", text="expected numbers or words, got values of several kinds")
        if isinstance(coded, Fault):
            text = f"column {name!r}" + (" " if coded.kind == "empty" else ": ") + coded.text
            problems.append(Problem(table="", text=text, kind=(name, coded.kind), remedy=coded.remedy))
        else:
            found.append(coded)
    if problems:
        try:
            complain(problems, PYTHON)
        except TableError as error:
            raise TableError(f"{error}; leave such columns out of the table, or turn them into numbers") from None
    return found


def columns_of(table: Any, ids: Sequence[str] = ()) -> list[tuple[str, Any]] | None:
    """Names and values of a table's columns; None if this is no table."""
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


def _array(values: Any) -> Any:
    if isinstance(values, pa.ChunkedArray | pa.Array):
        return values
    return pa.array(values, from_pandas=True)
