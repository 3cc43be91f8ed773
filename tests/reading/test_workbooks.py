"""Workbooks as Excel and LibreOffice write them: a sheet is read as the same table saved as CSV."""

import sys
import zipfile
from datetime import date, datetime, time

import numpy as np
import pandas as pd
import pytest
import xlsxwriter

from vpem.reading import Form, TableError, look, read
from vpem.reading.category_parsing import Said


def write_book(path, **sheets):
    """A workbook with these sheets, each a list of rows."""
    with xlsxwriter.Workbook(path, {"default_date_format": "yyyy-mm-dd hh:mm"}) as book:
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for number, row in enumerate(rows):
                sheet.write_row(number, 0, row)
    return path


def test_what_pandas_writes_to_excel_is_read_as_its_csv(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "person": np.arange(1, 301),
            "x": rng.normal(size=300),
            "n": rng.integers(50, size=300),
            "w": ["a", "b"] * 150,
        }
    )
    frame.loc[rng.random(300) < 0.2, "x"] = np.nan
    frame.to_excel(tmp_path / "table.xlsx", index=False, engine="xlsxwriter")
    frame.to_csv(tmp_path / "table.csv", index=False)
    found, expected = (read(tmp_path / f"table.{end}", id_column="person", codes=Said()) for end in ("xlsx", "csv"))
    assert (found.names, found.ids, found.words) == (expected.names, expected.ids, expected.words)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-15)  # it writes 16 digits
    assert found.notes == expected.notes == []
    frame.to_excel(tmp_path / "indexed.xlsx", engine="xlsxwriter")
    assert "counts the rows: left out" in read(tmp_path / "indexed.xlsx", codes=Said()).notes[0]


def test_cells_keep_what_they_are(tmp_path):
    rows = [
        ["name", "when", "yes", "price", "text", "gap"],
        ["007", datetime(2024, 5, 3, 14, 30), True, 19.6, "1.398,25", 1],
        ["7", datetime(2024, 5, 4), False, 1e-7, "12,5", "#N/A"],
        ["x y", datetime(2024, 5, 5, 6), True, 123456789012, "7", ""],
    ]
    path = write_book(tmp_path / "table.xlsx", one=rows)
    found = read(path, id_column="name", form=Form(dates={"when": "hour"}))
    assert found.ids == ["007", "7", "x y"]
    expected = [[14.5, 1, 19.6, 1398.25, 1], [0, 0, 1e-7, 12.5, np.nan], [6, 1, 123456789012, 7, np.nan]]
    np.testing.assert_array_equal(found.values, expected)


def test_sheets_can_be_named_and_the_choice_is_said(tmp_path):
    shop, bank = [["id", "x"], [1, 2.5]], [["id", "y"], [1, 3.5]]
    path = write_book(tmp_path / "book.xlsx", empty=[], shop=shop, bank=bank)
    rows = read(path)
    assert rows.names == ["id", "x"]
    assert (
        rows.notes[0]
        == "book.xlsx: sheet 'shop', the first that is not empty, is read (for another: 'book.xlsx#bank')"
    )
    source = look(f"{path}#bank")
    assert source.party == "bank"
    assert look(path).party == "book"
    rows = read(source)
    assert (rows.names, rows.values.tolist(), rows.notes) == (["id", "y"], [[1, 3.5]], [])
    with pytest.raises(TableError, match=r"sheet 'bnak' is not there; did you mean 'bank'\?"):
        look(f"{path}#bnak")
    with pytest.raises(TableError, match="expected the file of a table, found no such file"):
        look(f"{tmp_path}/other.xlsx#bank")
    assert read(write_book(tmp_path / "one.xlsx", only=shop)).notes == []


def test_a_table_that_begins_below_and_ends_above_empty_cells(tmp_path):
    path = tmp_path / "table.xlsx"
    with xlsxwriter.Workbook(path) as book:
        sheet, bold = book.add_worksheet(), book.add_format({"bold": True})
        for number, row in enumerate([["x", "y"], [1.5, 2], ["", ""], [3, "oops"], [4, 5], [6, 7]]):
            sheet.write_row(number + 2, 1, row)
        sheet.write_blank(30, 1, None, bold)
    with pytest.raises(TableError, match=r"line 6, column 'y': .*'oops'; 1 of 4"):  # where it is in the sheet
        read(path)
    assert read(path, keep=lambda name: name == "x").values[:, 0].tolist() == [1.5, 3, 4, 6]


def test_one_column_keeps_its_gaps(tmp_path):
    path = write_book(tmp_path / "table.xlsx", one=[["x"], [1.5], [""], [3]])
    np.testing.assert_array_equal(read(path).values[:, 0], [1.5, np.nan, 3])


def test_workbooks_of_another_name_and_files_that_are_none(tmp_path):
    path = write_book(tmp_path / "table.bin", one=[["x"], [1.5], [2]])
    assert read(path).values[:, 0].tolist() == [1.5, 2]
    with zipfile.ZipFile(tmp_path / "table.zip", "w") as archive:
        archive.writestr("table.csv", "x\n1\n")
    with pytest.raises(TableError, match="got an archive; unpack it first"):
        look(tmp_path / "table.zip")
    (tmp_path / "broken.xlsx").write_bytes(b"x,y\n1,2\n")
    with pytest.raises(TableError, match="expected a workbook, got a file that cannot be read"):
        look(tmp_path / "broken.xlsx")
    with pytest.raises(TableError, match="a workbook without any cells"):
        look(write_book(tmp_path / "empty.xlsx", one=[], two=[]))


def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch):
    path = write_book(tmp_path / "table.xlsx", one=[["x"], [1]])
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(TableError, match=r"table.xlsx: .*pip install 'vpem\[excel\]', or save each table as CSV"):
        look(path)


def test_dates_of_cells_are_told(tmp_path):
    rows = [["born", "at"], [date(2024, 5, 3), time(14, 30)], [date(2024, 5, 4), time(6)]]
    path = write_book(tmp_path / "table.xlsx", one=rows)
    with pytest.raises(TableError, match=r"(?s)column 'born'.*date.*--dates born=days"):
        read(path)
    days = (date(2024, 5, 3) - date(1970, 1, 1)).days
    assert read(path, keep=lambda name: name == "born", form=Form(dates={"born": "days"})).values[0, 0] == days
