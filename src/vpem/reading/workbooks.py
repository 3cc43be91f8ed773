"""Convert sheets of workbooks (Excel, LibreOffice) to CSV, so that they are read like text files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from vpem.reading.problems import TableError, unknown

WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
"""File endings of workbooks."""


class Sheet(NamedTuple):
    """One sheet as CSV."""

    content: bytes
    """UTF-8 with commas as separators and decimal points; line numbers equal the row numbers of the sheet."""
    notes: tuple[str, ...]


def divide_path(path: Path) -> tuple[Path, str | None]:
    """Split a path such as `book.xlsx#shop` into the file and the name of the sheet, or None."""
    name, mark, sheet = path.name.rpartition("#")
    if mark and not path.exists() and Path(name).suffix.lower() in WORKBOOKS:
        return path.with_name(name), sheet
    return path, None


def read_sheet(path: Path, name: str | None = None) -> Sheet:
    """Read the sheet with this name, or without a name the first visible one that is not empty.

    Raises
    ------
    TableError
        If the sheet does not exist, or the workbook cannot be read.
    """
    try:
        from python_calamine import CalamineError, CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum
    except ModuleNotFoundError:
        raise TableError(
            "expected python-calamine, which reads workbooks, found none; pip install 'vpem[excel]', or save each "
            "table as CSV (UTF-8)"
        ) from None
    try:
        with CalamineWorkbook.from_path(str(path)) as book:
            about = [own for own in book.sheets_metadata if own.typ == SheetTypeEnum.WorkSheet]
            names = [own.name for own in about]
            if name is not None:
                if text := unknown(name, names, "sheet"):
                    raise TableError(text)
                return _as_text(book.get_sheet_by_name(name), ())
            filled = {
                own.name: sheet
                for own in about
                if own.visible == SheetVisibleEnum.Visible and (sheet := book.get_sheet_by_name(own.name)).height > 0
            }
            if not filled:
                raise TableError("expected a sheet with a table, got a workbook without any cells")
            first = next(iter(filled))
            others = [f"{path.name}#{other}" for other in filled if other != first]
            note = (
                f"sheet {first!r}, the first that is not empty, is read (for another: {others[0]!r})"
                if others
                else ""
            )
            return _as_text(filled[first], (note,) if note else ())
    except CalamineError as error:
        raise TableError(f"expected a workbook, got a file that cannot be read: {error}") from None


def _as_text(sheet: Any, notes: tuple[str, ...]) -> Sheet:
    rows = sheet.to_python(skip_empty_area=True)
    while rows and not _has_cells(rows[-1]):
        rows.pop()
    if any(isinstance(cell, timedelta) for row in rows for cell in row):
        notes = (*notes, "durations are read as days")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    text.write("\n" * (sheet.start or (0, 0))[0])
    for row in rows:
        writer.writerow(map(_spell, row) if _has_cells(row) or len(row) == 1 else ())
    return Sheet(text.getvalue().encode(), notes)


def _has_cells(row: Sequence[Any]) -> bool:
    return any(cell != "" for cell in row)


def _spell(cell: Any) -> str:
    """Return the text of a cell in CSV."""
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else repr(cell)
    if isinstance(cell, datetime):
        return cell.isoformat(" ")
    if isinstance(cell, date | time):
        return cell.isoformat()
    if isinstance(cell, timedelta):
        return repr(cell / timedelta(days=1))
    return str(cell)
