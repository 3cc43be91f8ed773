"""Files that hold tables: looked at first, then read."""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from vpem.reading.dialect import HEAD_BYTES, MISSING, Dialect, Form, sniff
from vpem.reading.problems import Problem, TableError, complain

PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
"""First bytes of packed files."""

ENDINGS = (".gz", ".gzip", ".zst", ".zstd", ".bz2", ".csv", ".tsv", ".txt", ".tab", ".dat", ".data", ".parquet")
"""Endings that are no part of a party's name."""

WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".ods")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file with a table that was looked at, but not read yet."""

    path: Path
    names: list[str]
    packing: str | None = None
    dialect: Dialect | None = None
    """How the text is written; None for Parquet."""

    @property
    def party(self) -> str:
        """Name of the party that brings this file."""
        return party_name(self.path)

    @property
    def unnamed(self) -> frozenset[str]:
        """Columns to which no name was given."""
        return frozenset() if self.dialect is None else self.dialect.unnamed

    @property
    def index(self) -> str | None:
        """A first column without a name, which may number the rows."""
        return None if self.dialect is None else self.dialect.index


def party_name(path: str | os.PathLike[str]) -> str:
    """A file's name without the endings that say what it is: `shop.csv.gz` is `shop`."""
    name = Path(path).name
    while (ending := Path(name).suffix).lower() in ENDINGS and name != ending:
        name = name[: -len(ending)]
    return name


def look(path: str | os.PathLike[str], form: Form | None = None) -> Source:
    """Names of a file's columns, and how it is written; reads no more than its beginning.

    Parameters
    ----------
    path : path
        CSV with any of the usual separators, decimal marks and encodings, or Parquet; packed by gzip, zstd or bzip2.
    form : Form, optional
        What is known of text files.
    """
    path = Path(path)
    if not path.is_file():
        raise TableError(f"{path}: expected a file, found none")
    try:
        source = _look(path, form)
    except TableError as error:
        raise TableError(f"{path}: {error}") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        raise TableError(f"{path}: expected a table, got a file that cannot be read: {error}") from None
    twice = sorted({name for name in source.names if source.names.count(name) > 1})
    if twice:
        is_text = source.dialect is not None and source.dialect.has_header
        hint = "; is the first line a row? then --no-header" if is_text else ""
        shown = ", ".join(map(repr, twice[:5]))
        raise TableError(f"{path}: expected columns with different names, got {shown} more than once{hint}")
    return source


def look_at_all(paths: Iterable[str | os.PathLike[str]], form: Form | None = None) -> list[Source]:
    """Look at several files; what is wrong with any of them is in one message."""
    sources, problems = [], []
    for path in paths:
        try:
            sources.append(look(path, form))
        except TableError as error:
            problems.append(Problem(table=str(path), text=str(error)))
    complain(problems)
    return sources


def _look(path: Path, form: Form | None) -> Source:
    with path.open("rb") as file:
        start = file.read(8)
    if start[:4] == b"PAR1" or path.suffix.lower() == ".parquet":
        with pq.ParquetFile(path) as parquet:
            return Source(path=path, names=list(parquet.schema_arrow.names))
    if start[:4] == b"PK\3\4" or path.suffix.lower() in WORKBOOKS:
        what = "a workbook" if path.suffix.lower() in WORKBOOKS else "an archive"
        raise TableError(f"expected a file that ends in .csv or .parquet, got {what}; save each table as CSV (UTF-8)")
    packing = next((name for mark, name in PACKED.items() if start.startswith(mark)), None)
    with _open(path, packing) as stream:
        head = stream.read(HEAD_BYTES)
    dialect = sniff(head, form, is_whole=len(head) < HEAD_BYTES)
    return Source(path=path, names=list(dialect.names), packing=packing, dialect=dialect)


def _open(path: Path, packing: str | None) -> Any:
    stream = pa.OSFile(str(path), "rb")
    return stream if packing is None else pa.CompressedInputStream(stream, packing)


def read_arrow(
    source: Source, columns: Sequence[str], texts: Sequence[str], notes: list[tuple[str, str]]
) -> tuple[Any, list[Problem]]:
    """Some columns of a file as an Arrow table, those in `texts` as they are written; and what is wrong with it."""
    problems: list[Problem] = []
    try:
        if source.dialect is None:
            return pq.read_table(source.path, columns=list(columns)), problems
        try:
            table = _read_text(source, source.dialect, columns, texts, problems)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error) or source.dialect.encoding != "utf-8":
                raise
            other = replace(source.dialect, encoding="cp1252")  # told apart only behind the beginning
            table = _read_text(source, other, columns, texts, problems)
            notes.append((str(source.path), "read as Windows-1252 (Latin), as it is not UTF-8"))
        return table, problems
    except (pa.ArrowException, OSError, EOFError, UnicodeError) as error:
        text = f"{source.path}: expected a table, got a file that cannot be read: {error}"
        return None, [Problem(table=str(source.path), text=text)]


def _read_text(
    source: Source, dialect: Dialect, columns: Sequence[str], texts: Sequence[str], problems: list[Problem]
) -> Any:
    ragged: list[Any] = []

    def keep_ragged(row: Any) -> str:
        ragged.append(row)
        return "skip"

    with _open(source.path, source.packing) as stream:
        table = pa_csv.read_csv(
            stream,
            read_options=pa_csv.ReadOptions(
                column_names=list(dialect.names), skip_rows=dialect.skipped_lines, encoding=dialect.encoding
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=dialect.separator, newlines_in_values=True, invalid_row_handler=keep_ragged
            ),
            convert_options=pa_csv.ConvertOptions(
                null_values=MISSING,
                strings_can_be_null=True,
                include_columns=list(columns),
                column_types={name: pa.string() for name in texts},
                decimal_point=dialect.decimal,
            ),
        )
    if ragged:
        row = ragged[0]
        shown = row.text if len(row.text) <= 60 else f"{row.text[:60]}..."
        text = (
            f"{source.path}: expected {row.expected_columns} values in every row, got {row.actual_columns} in "
            f"{shown!r}" + (f" and {len(ragged) - 1} more rows that do not fit" if len(ragged) > 1 else "")
        )
        problems.append(Problem(table=str(source.path), text=text))
    return table


def lines_of(source: Source, rows: set[int]) -> dict[int, int]:
    """Numbers of the lines, from 1, on which some rows, from 0, end; of text files only."""
    dialect = source.dialect
    found: dict[int, int] = {}
    if dialect is None or not rows:
        return found
    name = "utf-8-sig" if codecs.lookup(dialect.encoding).name == "utf-8" else dialect.encoding
    with _open(source.path, source.packing) as stream:
        text = io.TextIOWrapper(io.BufferedReader(_Raw(stream)), encoding=name, errors="replace", newline="")
        for _ in range(dialect.skipped_lines):
            text.readline()
        number, last = 0, max(rows)
        reader = csv.reader(text, delimiter=dialect.separator)
        with suppress(csv.Error):  # of values too long for it; the row's number will do
            for record in reader:
                if len(record) != len(dialect.names):
                    continue
                if number in rows:
                    found[number] = dialect.skipped_lines + reader.line_num
                if number == last:
                    break
                number += 1
    return found


class _Raw(io.RawIOBase):
    """An Arrow stream, as Python's text reader wants it."""

    def __init__(self, stream: Any):
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._stream.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)
