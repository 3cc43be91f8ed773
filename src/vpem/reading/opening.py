"""Open files of tables: detect their format first, then read them."""

from __future__ import annotations

import codecs
import csv
import io
import os
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from vpem.files import why_no_file
from vpem.reading.dialect import HEAD_BYTES, Dialect, Form, sniff
from vpem.reading.problems import Problem, TableError, complain
from vpem.reading.workbooks import WORKBOOKS, divide_path, read_sheet

PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
"""First bytes of compressed files."""

TEXTS = (".csv", ".tsv", ".txt", ".tab", ".dat", ".data")
ENDINGS = (".gz", ".gzip", ".zst", ".zstd", ".bz2", *TEXTS, ".parquet", *WORKBOOKS)
"""Endings that are removed from a file's name to give the party's name."""

ZIPPED, OLD_EXCEL = b"PK\3\4", b"\xd0\xcf\x11\xe0"
"""First bytes of zip archives, which include new workbooks, and of old Excel workbooks."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file of a table whose format is known but whose rows are not read yet."""

    path: Path
    names: list[str]
    packing: str | None = None
    dialect: Dialect | None = None
    """Format of the text; None for Parquet."""
    form: Form = field(default_factory=Form)
    """Format as the user gave it."""
    content: bytes | None = None
    """Sheet of a workbook as CSV; None for other files."""

    @property
    def party(self) -> str:
        """Name of the party that owns this file."""
        return party_name(self.path)

    @property
    def unnamed(self) -> frozenset[str]:
        """Columns whose names were generated."""
        return frozenset() if self.dialect is None else self.dialect.unnamed

    @property
    def index(self) -> str | None:
        """First column if it has no name; it may hold row numbers."""
        return None if self.dialect is None else self.dialect.index


def party_name(path: str | os.PathLike[str]) -> str:
    """Return a file's name without its endings: `shop.csv.gz` gives `shop`, and so does `book.xlsx#shop`."""
    path, sheet = divide_path(Path(path))
    name = sheet or path.name
    while (ending := Path(name).suffix).lower() in ENDINGS and name != ending:
        name = name[: -len(ending)]
    return name


def look(path: str | os.PathLike[str], form: Form | None = None) -> Source:
    """Detect the columns and the format of a file; only the first bytes of a text file are read.

    Parameters
    ----------
    path : path
        CSV with any of the usual separators, decimal marks and encodings, optionally compressed by gzip, zstd or
        bzip2; a workbook, as `book.xlsx`, or one of its sheets, as `book.xlsx#shop`; or Parquet.
    form : Form, optional
        Format of text files; properties that are not given are detected.
    """
    path = Path(path)
    if not divide_path(path)[0].is_file():
        raise TableError(f"{path}: expected the file of a table, {why_no_file(path)}")
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
    """Detect the format of several files; raise the problems of all files as one TableError."""
    sources, problems = [], []
    for path in paths:
        try:
            sources.append(look(path, form))
        except TableError as error:
            problems.append(Problem(table=str(path), text=str(error)))
    complain(problems)
    return sources


def _look(path: Path, form: Form | None) -> Source:
    form = Form() if form is None else form
    file, sheet = divide_path(path)
    with file.open("rb") as stream:
        start = stream.read(8)
    ending = file.suffix.lower()
    if start[:4] == b"PAR1" or ending == ".parquet":
        with pq.ParquetFile(path) as parquet:
            return Source(path=path, names=list(parquet.schema_arrow.names), form=form)
    if start[:4] in (ZIPPED, OLD_EXCEL) or ending in WORKBOOKS:
        if ending not in WORKBOOKS and not _is_workbook(file):
            raise TableError("expected CSV, Parquet or a workbook, got an archive; unpack it first")
        content, notes = read_sheet(file, sheet)
        dialect = sniff(content, replace(form, separator=",", decimal=".", encoding="utf-8"))
        dialect = replace(dialect, notes=(*notes, *dialect.notes))
        return Source(path=path, names=list(dialect.names), dialect=dialect, form=form, content=content)
    packing = next((name for mark, name in PACKED.items() if start.startswith(mark)), None)
    source = Source(path=path, names=[], packing=packing, form=form)
    with _open(source) as stream:
        head = stream.read(HEAD_BYTES)
    dialect = sniff(head, form, is_whole=len(head) < HEAD_BYTES)
    return replace(source, names=list(dialect.names), dialect=dialect)


def _is_workbook(path: Path) -> bool:
    """True if an archive is a workbook, whatever its ending."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as stream:
            return stream.read(4) == OLD_EXCEL
    with zipfile.ZipFile(path) as archive:
        return not {"[Content_Types].xml", "content.xml"}.isdisjoint(archive.namelist())


def _open(source: Source) -> Any:
    if source.content is not None:
        return pa.BufferReader(source.content)
    stream = pa.OSFile(str(source.path), "rb")
    return stream if source.packing is None else pa.CompressedInputStream(stream, source.packing)


def read_arrow(
    source: Source, columns: Sequence[str], texts: Sequence[str], notes: list[tuple[str, str]]
) -> tuple[Any, list[Problem]]:
    """Read columns of a file as an Arrow table, those in `texts` without conversion; return it with the problems."""
    problems: list[Problem] = []
    try:
        if source.dialect is None:
            return pq.read_table(source.path, columns=list(columns)), problems
        try:
            table = _read_text(source, source.dialect, columns, texts, problems)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error) or source.dialect.encoding != "utf-8":
                raise
            other = replace(source.dialect, encoding="cp1252")  # the first bytes were valid UTF-8, later ones are not
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

    with _open(source) as stream:
        table = pa_csv.read_csv(
            stream,
            read_options=pa_csv.ReadOptions(
                column_names=list(dialect.names), skip_rows=dialect.skipped_lines, encoding=dialect.encoding
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=dialect.separator, newlines_in_values=True, invalid_row_handler=keep_ragged
            ),
            convert_options=pa_csv.ConvertOptions(
                null_values=[""],  # words for gaps are replaced and counted later
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
    """Return the line, counted from 1, on which each row, counted from 0, ends; empty for Parquet."""
    dialect = source.dialect
    found: dict[int, int] = {}
    if dialect is None or not rows:
        return found
    name = "utf-8-sig" if codecs.lookup(dialect.encoding).name == "utf-8" else dialect.encoding
    with _open(source) as stream:
        text = io.TextIOWrapper(io.BufferedReader(_Raw(stream)), encoding=name, errors="replace", newline="")
        for _ in range(dialect.skipped_lines):
            text.readline()
        number, last = 0, max(rows)
        reader = csv.reader(text, delimiter=dialect.separator)
        with suppress(csv.Error):  # a value is too long for it; errors then give the row's number
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
    """Adapter from an Arrow stream to the raw stream that Python's text reader needs."""

    def __init__(self, stream: Any):
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._stream.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)
