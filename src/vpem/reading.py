"""Small tables: read from CSV and Parquet, joined by an id, written back."""

from __future__ import annotations

import csv
import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from vpem.files import check_outputs, replacing

Array = NDArray[np.float64]

TABLES = (".csv", ".parquet")
"""Endings of files that are written."""

MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
"""What a CSV file may write in place of a number that is not there."""


class TableError(ValueError):
    """A table that cannot be used as it is; the message says where, and what to try."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers with the names of their columns, and of their rows if these have any."""

    names: list[str]
    values: Array
    """(n_rows, n_columns); NaN where a value, or a party's whole row, is missing."""
    ids: list[str] | None = None
    parties: dict[str, list[str]] | None = None
    """Of several tables: the columns that each brought."""


def read(path: str | os.PathLike[str], *, id_column: str | None = None, columns: Sequence[str] | None = None) -> Rows:
    """Read numbers from a file.

    Parameters
    ----------
    path : path
        Ends in `.csv` (a line of names, then rows) or `.parquet`.
    id_column : str, optional
        The column that names the rows, each once.
    columns : sequence of str, optional
        Which to read, in this order; by default all but the id.
    """
    table = _open(path, id_column)
    if len(set(table.column_names)) < len(table.column_names):
        twice = next(name for name in table.column_names if table.column_names.count(name) > 1)
        raise TableError(f"{path}: expected columns with different names, got {twice!r} more than once")
    if table.num_rows == 0:
        raise TableError(f"{path}: expected rows, got none; is the file empty but for its names?")
    ids = None if id_column is None else _ids(table, id_column, path)
    wanted = [name for name in table.column_names if name != id_column] if columns is None else list(columns)
    if not wanted:
        raise TableError(f"{path}: expected at least one column beside {id_column!r}, got none")
    values = np.empty((table.num_rows, len(wanted)))
    for number, name in enumerate(wanted):
        check_known(name, table.column_names, f"{path}: column")
        values[:, number] = _numbers(table.column(name), name, path)
    return Rows(wanted, values, ids)


def read_texts(
    path: str | os.PathLike[str], column: str, *, id_column: str | None = None
) -> tuple[list[str | None], list[str] | None]:
    """One column of a file as texts, None where it is missing, and the ids of its rows."""
    table = _open(path, id_column)
    check_known(column, table.column_names, f"{path}: column")
    try:
        texts: list[str | None] = table.column(column).cast(pa.string()).to_pylist()
    except pa.ArrowException:
        kind = table.column(column).type
        raise TableError(f"{path}: expected texts or numbers in column {column!r}, got {kind}") from None
    return texts, None if id_column is None else _ids(table, id_column, path)


def read_joined(
    paths: Sequence[str | os.PathLike[str]], id_column: str, keep: Callable[[str, str], bool] = lambda *_: True
) -> Rows:
    """Several parties' tables side by side, by id; a row that a party lacks is missing there, not lost.

    A party is named after its file. A column name that several tables have gets the party's name in front. With
    `keep`, only columns for whose party and name it says so are read.
    """
    parts: dict[str, Rows] = {}
    for path in paths:
        name = Path(path).stem
        if name in parts:
            raise TableError(
                f"expected files with different names, as parties are named after them, got {name!r} twice"
            )
        own = [column for column in column_names(path) if column != id_column and keep(name, column)]
        parts[name] = read(path, id_column=id_column, columns=own)
    ids = list(dict.fromkeys(one for part in parts.values() for one in part.ids or ()))
    place = {one: number for number, one in enumerate(ids)}
    shared = [set(part.ids or ()) for part in parts.values()]
    if len(parts) > 1 and not set.union(*(one & other for one in shared for other in shared if one is not other)):
        raise TableError(
            f"expected ids in column {id_column!r} that two tables have, got none in common; compare their spelling"
        )
    every = [name for part in parts.values() for name in part.names]
    names, parties, blocks = [], {}, []
    for party, part in parts.items():
        own = [f"{party}.{name}" if every.count(name) > 1 else name for name in part.names]
        block = np.full((len(ids), len(own)), np.nan)
        block[[place[one] for one in part.ids or ()]] = part.values
        names += own
        parties[party] = own
        blocks.append(block)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableError(f"expected columns with different names after the join, got {twice!r} twice; rename one")
    return Rows(names, np.hstack(blocks), ids, parties)


def write(path: str | os.PathLike[str], columns: Mapping[str, Iterable[Any]]) -> None:
    """Write columns as CSV or Parquet, by the file's ending, whole or not at all."""
    path = Path(path)
    check_outputs([path], endings=TABLES)
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    with replacing(path) as unfinished:
        if path.suffix.lower() == ".parquet":
            pq.write_table(table, unfinished)
        else:
            pa_csv.write_csv(table, unfinished)


def check_known(name: str, known: Sequence[str], what: str) -> None:
    """Raise TableError for a name that is none of the known ones, with the one that was meant, perhaps."""
    if name not in known:
        near = difflib.get_close_matches(name, list(map(str, known)), n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ";"
        shown = ", ".join(map(str, known[:20])) + (" ..." if len(known) > 20 else "")
        raise TableError(f"{what} {name!r} is not there{meant} known are {shown}")


def _open(path: str | os.PathLike[str], id_column: str | None) -> Any:
    ending = Path(path).suffix.lower()
    if not Path(path).is_file():
        raise TableError(f"{path}: expected a file, found none")
    try:
        if ending == ".parquet":
            return pq.read_table(path)
        if ending in (".csv", ".tsv", ".txt"):
            options = pa_csv.ConvertOptions(
                null_values=MISSING,
                strings_can_be_null=True,
                column_types={id_column: pa.string()} if id_column is not None else None,
            )
            separator = pa_csv.ParseOptions(delimiter="\t" if ending == ".tsv" else ",")
            table = pa_csv.read_csv(path, parse_options=separator, convert_options=options)
            table.column_names  # noqa: B018 (decodes them, or fails here)
            return table
    except UnicodeDecodeError:
        raise TableError(f"{path}: expected text in UTF-8, got another encoding; save it as UTF-8") from None
    except pa.ArrowException as error:
        raise TableError(f"{path}: expected a table, got a file that cannot be read: {error}") from None
    raise TableError(f"{path}: expected a file that ends in .csv or .parquet, got {ending or 'no ending'!r}")


def _ids(table: Any, name: str, path: Any) -> list[str]:
    check_known(name, table.column_names, f"{path}: the id column")
    try:
        found: list[str | None] = table.column(name).cast(pa.string()).to_pylist()
    except pa.ArrowException:
        kind = table.column(name).type
        raise TableError(f"{path}: expected texts or numbers in the id column {name!r}, got {kind}") from None
    seen: dict[str | None, int] = {}
    for number, one in enumerate(found):
        if one is None:
            raise TableError(f"{path}, row {number + 1}: expected an id in column {name!r}, got nothing")
        if one in seen:
            raise TableError(
                f"{path}: expected every id in column {name!r} once, got {one!r} in rows {seen[one] + 1} and "
                f"{number + 1}; keep one of them, or add them up first"
            )
        seen[one] = number
    return [str(one) for one in found]


def _numbers(column: Any, name: str, path: Any) -> Array:
    kind = column.type
    if pa.types.is_null(kind):
        raise TableError(f"{path}: column {name!r} has no value at all; leave it out")
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        where, value = _first_text(column, name, path)
        raise TableError(
            f"{path}{where}, column {name!r}: expected a number or nothing, got {value!r}; leave the column out "
            "(--ignore, or name the others in the parties file), or turn it into numbers first"
            + ("; are the columns separated by semicolons? they must be by commas" if ";" in name else "")
        )
    values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax()) + 1
        raise TableError(
            f"{path}, row {row}, column {name!r}: expected a finite number, got infinity; leave it empty"
        )
    return values


def _first_text(column: Any, name: str, path: Any) -> tuple[str, Any]:
    """Where the first value is that is no number, and the value."""
    if Path(path).suffix.lower() == ".csv":
        with Path(path).open(newline="", encoding="utf-8", errors="replace") as file:
            reader = csv.DictReader(file)
            for row in reader:
                if not _is_number(row.get(name) or ""):
                    return f", line {reader.line_num}", row.get(name)
    value = next((one for one in column.to_pylist() if one is not None), None)
    return "", value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.strip() in MISSING
    return True


def column_names(path: str | os.PathLike[str]) -> list[str]:
    """Names of a file's columns."""
    if Path(path).is_file() and Path(path).suffix.lower() == ".csv":
        try:
            with pa_csv.open_csv(path) as first_rows:
                return list(map(str, first_rows.schema.names))
        except (pa.ArrowException, UnicodeDecodeError):
            pass  # the whole table's error is the better one
    return list(map(str, _open(path, None).column_names))
