"""Files as Excel, pandas, R and others write them: the same numbers come out, and what was found out is said."""

import contextlib
import gzip

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpem.reading import Form, TableError, look, read
from vpem.reading.dialect import sniff
from vpem.reading.gap_words import MISSING
from vpem.reading.opening import party_name

NAMES = ["income", "debt"]
VALUES = np.array([[1.5, 2.25], [np.nan, -3.0], [1000.5, 4e-05]])
POINTS = [["1.5", "2.25"], ["", "-3"], ["1000.5", "4e-05"]]
COMMAS = [["1,5", "2,25"], ["", "-3"], ["1000,5", "4E-05"]]


def lines(rows, separator=",", end="\r\n", header=tuple(NAMES)):
    return "".join(separator.join(row) + end for row in [*([header] if header else []), *rows])


def zstd(content):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


FRAME = pd.DataFrame(VALUES, columns=NAMES)

# What each program writes, byte by byte; and what is said about it.
FILES = {
    # Excel: "CSV UTF-8", "CSV" in the USA and in Germany, "Unicode Text", and what it needs to open a file rightly
    "excel utf-8": (b"\xef\xbb\xbf" + lines(POINTS).encode(), []),
    "excel german": (lines(COMMAS, ";").encode("cp1252"), ["semicolons", "decimal commas"]),
    "excel german utf-8": (b"\xef\xbb\xbf" + lines(COMMAS, ";").encode(), ["semicolons", "decimal commas"]),
    "excel unicode text": (b"\xff\xfe" + lines(POINTS, "\t").encode("utf-16-le"), ["UTF-16", "tabs"]),
    "excel unicode text german": (
        b"\xff\xfe" + lines(COMMAS, "\t").encode("utf-16-le"),
        ["UTF-16", "tabs", "decimal commas"],
    ),
    "excel sep": (b"sep=;\r\n" + lines(COMMAS, ";").encode(), ["semicolons", "decimal commas"]),
    "excel errors": (lines([["1.5", "2.25"], ["#N/A", "-3"], ["1000.5", "4E-05"]]).encode(), ["'#N/A'"]),
    "excel trailing": (lines([[*row, ""] for row in COMMAS], ";", header=(*NAMES, "")).encode(), ["semicolons"]),
    "excel trailing rows": (lines([[*row, ""] for row in COMMAS], ";").encode(), ["semicolons"]),
    "old mac": (lines(POINTS, end="\r").encode(), []),
    # pandas
    "pandas": (FRAME.to_csv().encode(), ["counts the rows: left out"]),
    "pandas without index": (FRAME.to_csv(index=False).encode(), []),
    "pandas, saved again": (
        FRAME.reset_index().rename(columns={"index": "Unnamed: 0"}).to_csv(index=False).encode(),
        ["counts the rows: left out"],
    ),
    "pandas, european": (FRAME.to_csv(index=False, sep=";", decimal=",").encode(), ["semicolons", "decimal commas"]),
    "pandas, quoted": (FRAME.to_csv(index=False, quoting=1).encode(), []),
    "pandas, gzip": (gzip.compress(FRAME.to_csv(index=False).encode()), []),
    "pandas, two gzips": (
        gzip.compress(lines(POINTS[:2]).encode()) + gzip.compress(lines(POINTS[2:], header=None).encode()),
        [],
    ),
    "pandas, zstd": (zstd(FRAME.to_csv(index=False).encode()), []),
    "pandas, zstd, utf-16": (zstd(FRAME.to_csv(index=False).encode("utf-16")), ["UTF-16"]),
    "pandas, utf-16 without a mark": (FRAME.to_csv(index=False).encode("utf-16-le"), ["UTF-16"]),
    "pandas, utf-16 big end first": (b"\xfe\xff" + FRAME.to_csv(index=False).encode("utf-16-be"), ["UTF-16"]),
    "pandas, bars": (FRAME.to_csv(index=False, sep="|").encode(), ["bars"]),
    **{
        f"pandas, gap {word}": (
            FRAME.to_csv(index=False, na_rep=word).encode(),
            [f"gaps: {word.strip()!r} in income (1) (else: --gaps)"],
        )
        for word in ("?", "NA", "N/A", "-", "null", "NULL", "NaN", "None", "<NA>", " ? ", "n/a", "none", "--")
    },
    # R: write.csv, write.csv2, write.table, write.table(sep = "\t", col.names = NA), row.names = FALSE
    "R": (b'"","income","debt"\n"1",1.5,2.25\n"2",NA,-3\n"3",1000.5,4e-05\n', ["counts the rows: left out"]),
    "R, csv2": (b'"";"income";"debt"\n"1";1,5;2,25\n"2";NA;-3\n"3";1000,5;4e-05\n', ["decimal commas", "left out"]),
    "R, table": (b'"income" "debt"\n"1" 1.5 2.25\n"2" NA -3\n"3" 1000.5 4e-05\n', ["spaces", "left out"]),
    "R, tabs": (b'""\t"income"\t"debt"\n"1"\t1.5\t2.25\n"2"\tNA\t-3\n"3"\t1000.5\t4e-05\n', ["tabs", "left out"]),
    "R, no names of rows": (b'"income","debt"\n1.5,2.25\nNA,-3\n1000.5,4e-05\n', ["'NA' in income (1)"]),
    "polars": (pl.DataFrame(FRAME.to_dict("list")).write_csv().encode(), ["'NaN' in income (1)"]),
}


@pytest.mark.parametrize(("content", "said"), FILES.values(), ids=FILES)
def test_files_of_other_programs(tmp_path, content, said):
    path = tmp_path / "table"  # its name says nothing
    path.write_bytes(content)
    rows = read(path)
    assert rows.names == NAMES
    np.testing.assert_array_equal(rows.values, VALUES)
    for word in said:
        assert word in " ".join(rows.notes)
    assert bool(rows.notes) == bool(said), "nothing is said of usual files"


@pytest.mark.parametrize("kind", ["csv", "csv.gz"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_what_pandas_writes_is_read_as_pandas_reads_it(tmp_path, kind, separator, encoding):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"größe": rng.normal(size=500), "n": rng.integers(1000, size=500), "größter": rng.random(500)}
    )
    frame.iloc[rng.random(500) < 0.2, 0] = np.nan
    decimal = "." if separator == "," else ","
    path = tmp_path / f"table.{kind}"
    frame.to_csv(path, index=False, sep=separator, decimal=decimal, encoding=encoding)
    rows = read(path)
    expected = pd.read_csv(path, sep=separator, decimal=decimal, encoding=encoding)
    assert rows.names == list(expected.columns)
    np.testing.assert_allclose(rows.values, expected.to_numpy(float), rtol=1e-15)


def test_names_with_line_breaks_commas_and_quotes(tmp_path):
    path = tmp_path / "table.csv"
    names = ["income\n(EUR)", "debt, net", 'the "rest"', " padded "]
    pd.DataFrame([[1.5, 2, 3, 4], [5, 6, 7, 8.5]], columns=names).to_csv(path, index=False)
    rows = read(path)
    assert rows.names == [*names[:3], "padded"]
    np.testing.assert_array_equal(rows.values, [[1.5, 2, 3, 4], [5, 6, 7, 8.5]])


def test_a_first_line_of_numbers_is_a_row(tmp_path):
    path = tmp_path / "table.csv"
    np.savetxt(path, np.arange(6).reshape(3, 2) + 0.5, delimiter=",")
    rows = read(path)
    assert rows.names == ["column_0", "column_1"]
    np.testing.assert_array_equal(rows.values, np.arange(6).reshape(3, 2) + 0.5)
    assert "the first line has numbers and counts as a row; the columns are column_0 to column_1" in rows.notes[0]
    assert "--header" in rows.notes[0]
    told = read(path, form=Form(header=True))
    assert len(told.values) == 2
    assert told.notes == []
    np.savetxt(path, np.arange(6).reshape(3, 2) + 0.5)  # separated by spaces
    np.testing.assert_array_equal(read(path).values, rows.values)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("2010,2011\n1,2\n", None),  # years could be names: said, and can be told
        ("station,2010,2011\n1,2,3\n", ["station", "2010", "2011"]),
        ("0,1,2\n5,6,7\n", ["0", "1", "2"]),  # to_csv(index=False) of a frame without names
        (",0,1\n0,5,6\n1,7,9\n", ["0", "1"]),
        ("0,1\n1,0\n", None),  # could be data
        ("0,1\n1.5,0\n", ["0", "1"]),
        ("?,1.5\n1,2\n", None),
        ("1.5\n2.5\n", None),
    ],
)
def test_names_that_are_numbers(tmp_path, text, names):
    path = tmp_path / "table.csv"
    path.write_text(text)
    rows = read(path)
    assert rows.names == (names or [f"column_{number}" for number in range(len(rows.names))])
    assert rows.notes, "in doubt something is said"
    n_rows = len(text.splitlines())
    told = read(path, form=Form(header=False), keep=lambda name: name != "column_0" or "station" not in text)
    assert told.names[-1] == f"column_{text.splitlines()[0].count(',')}"
    assert len(told.values) == n_rows
    assert len(read(path, form=Form(header=True)).values) == n_rows - 1


def test_an_index_can_be_the_id(tmp_path):
    path = tmp_path / "table.csv"
    FRAME.to_csv(path)
    rows = read(path, id_column="index")
    assert rows.ids == ["0", "1", "2"]
    assert rows.names == NAMES
    FRAME.set_axis(["x", "y", "z"]).to_csv(path)  # names, not numbers: what they are must be told
    with pytest.raises(TableError, match=r"got none for the first, which begins with x.*--id index"):
        read(path)
    assert read(path, id_column="index").ids == ["x", "y", "z"]
    np.testing.assert_array_equal(read(path, keep=lambda name: name != "index").values, VALUES)
    FRAME.set_axis([5, 7, 9]).to_csv(path)
    with pytest.raises(TableError, match="--ignore index"):
        read(path)


def test_a_comma_that_may_stand_between_thousands_is_asked_about(tmp_path):
    path = tmp_path / "table.txt"
    path.write_text("a\tb\n1,234\t1\n12,345\t2\n")
    with pytest.raises(TableError, match=r"got '1,234': is the comma a decimal mark\?; say it with --decimal ,"):
        read(path)
    assert read(path, form=Form(decimal=",")).values[:, 0].tolist() == [1.234, 12.345]
    assert read(path, form=Form(decimal=".")).values[:, 0].tolist() == [1234, 12345]
    path.write_text("a\tb\n1,234\t1\n0,345\t2\n")
    assert read(path).values[:, 0].tolist() == [1.234, 0.345]


def test_one_column_with_decimal_commas_is_asked_about(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x\n1,5\n2,5\n3,25\n")  # or rows' names and one column, as R's write.table(sep = ",") has them
    with pytest.raises(TableError, match=r"one name and '1,5': is the comma a decimal mark\?"):
        read(path)
    assert read(path, form=Form(decimal=",")).values[:, 0].tolist() == [1.5, 2.5, 3.25]
    assert read(path, form=Form(separator=",")).values[:, 0].tolist() == [5, 5, 25]
    path.write_text('x,y\n"1,5","2"\n"2,5","3"\n')
    with pytest.raises(TableError, match=r"'1,5': is the comma a decimal mark.*--decimal ,"):
        read(path)
    assert read(path, form=Form(decimal=",")).values.tolist() == [[1.5, 2], [2.5, 3]]


def test_true_and_false_and_columns_without_a_name_are_noted(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x,,yes\n1.5,2,TRUE\n2,3,FALSE\n")
    rows = read(path)
    assert rows.names == ["x", "column_1", "yes"]
    assert rows.values.tolist() == [[1.5, 2, 1], [2, 3, 0]]
    assert rows.notes == [
        "table.csv: a column without a name is called column_1",
        "table.csv: column 'yes' is true or false: taken as 1 and 0",
    ]


def test_what_shows_only_behind_the_beginning_of_a_file(tmp_path):
    n_rows = 60_000
    path = tmp_path / "table.csv"
    zeros = ["0;0;x\n"] * n_rows
    path.write_text("".join(["a;b;name\n", *zeros, "1,5;2;y\n"]))
    rows = read(path, id_column=None, keep=lambda name: name != "name")
    assert rows.values[-1].tolist() == [1.5, 2.0]
    path.write_bytes("".join(["a,name\n", *(f"{n},n{n}\n" for n in range(n_rows)), "7,größe\n"]).encode("latin-1"))
    rows = read(path, id_column="name")
    assert rows.ids[-1] == "größe"
    assert "read as Windows-1252" in rows.notes[0]
    path.write_text("".join(["a,name\n", *(f"{n},n{n}\n" for n in range(n_rows)), '7,"two\nlines"\n', "8,last\n"]))
    assert read(path, id_column="name").ids[-2:] == ["two\nlines", "last"]
    path.write_text("".join(["a\n", *["1\n"] * n_rows, "oops\n"]))
    with pytest.raises(TableError, match=f"line {n_rows + 2}, column 'a': .*'oops'; 1 of {n_rows + 1:,} values"):
        read(path)


def test_told_forms_are_checked():
    for wrong, message in [
        ({"separator": "ab"}, "one character"),
        ({"decimal": ";"}, r"\. or ,"),
        ({"encoding": "utf-9"}, "name of an encoding"),
    ]:
        with pytest.raises(TableError, match=message):
            Form(**wrong)
    assert Form(separator="tab").separator == "\t"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a table, got a file that is empty"),
        (b"\n\n", "expected a table, got a file that is empty"),
        (b"\x00\x01\x02\x03" * 9, "other binary data"),
        (b"PK\3\4" + b"x" * 99, "got an archive"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], "cannot be read"),
        (b"\x1f\x8bnothing", "cannot be read"),
        (b"PAR1 is not enough", "cannot be read"),
        (b"a,b,a,b\n1,2,3,4\n", "got 'a', 'b' more than once; is the first line a row"),
    ],
)
def test_files_that_are_no_tables(tmp_path, content, message):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(TableError, match=message):
        read(path)


def test_problems_of_one_file_are_told_together(tmp_path):
    path = tmp_path / "table.csv"
    frame = pd.DataFrame(
        {
            "person": [f"p{n}" for n in range(300)],
            "when": pd.date_range("2020-01-01", periods=300).strftime("%d.%m.%Y"),
            "iso": pd.date_range("2020-01-01", periods=300),
            "sex": ["m", "f"] * 150,
            "note": [f"some text {n % 299}" for n in range(300)],
            "age": [*["30"] * 299, "old"],
            "speed": [1.0, np.inf, *[2.0] * 298],
            "empty": np.nan,
            "thousands": ["1,234"] * 300,
            "fine": np.arange(300) / 2,
        }
    )
    frame.to_csv(path, index=False)
    with pytest.raises(TableError) as caught:
        read(path)
    said = str(caught.value)
    for text in [
        "got 9 problems",
        f"{path}, line 2, column 'person': expected a number or nothing, got 'p0': words, all of them different",
        "column 'when': expected a number or nothing, got '01.01.2020', a date or time",
        "column 'iso': expected a number or nothing, got a date or time, 2020-01-01",
        "column 'sex': expected a number or nothing, got 'm': words, 2 different ones",
        "column 'note': expected a number or nothing, got 'some text 0': free text",
        "line 301, column 'age': expected a number or nothing, got 'old'; 1 of 300 values are no numbers",
        "line 3, column 'speed': expected a finite number, got infinity",
        "column 'empty' has no value at all",
        "column 'thousands': expected numbers written in one way, got '1,234': is the comma a decimal mark?",
        "--dates when=days",
        "--ignore person,when,iso,sex,note,age,speed,empty,thousands",
        "--id person",
    ]:
        assert text in said
    assert "fine" not in said
    rest = [name for name in frame if name != "fine"]
    np.testing.assert_array_equal(read(path, keep=lambda name: name not in rest).values[:, 0], frame["fine"])


def test_problems_of_parquet_too(tmp_path):
    path = tmp_path / "table.parquet"
    table = pa.table(
        {
            "when": pa.array([1, 2], pa.timestamp("s")),
            "word": pa.array(["a", "b"]).dictionary_encode(),
            "list": [[1], [2]],
            "numbers as text": ["1.5", " 2 "],
            "small": pa.array([1, None], pa.int8()),
        }
    )
    pq.write_table(table, path)
    with pytest.raises(TableError, match=r"(?s)row 1, column 'when'.*column 'word'.*column 'list'.*when,word,list"):
        read(path)
    rows = read(path, columns=["small", "numbers as text"])
    np.testing.assert_array_equal(rows.values, [[1, 1.5], [np.nan, 2]])


def test_ragged_rows_are_told_with_everything_else(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n3\nx,4\n1,2,3\n")
    with pytest.raises(TableError, match=r"(?s)2 problems.*expected 2 values.*1 in '3' and 1 more row.*column 'a'"):
        read(path)


@pytest.mark.parametrize(
    ("path", "party"),
    [
        ("shop.csv", "shop"),
        ("data/shop.csv.gz", "shop"),
        ("shop.2020.CSV.ZST", "shop.2020"),
        ("shop.parquet", "shop"),
        (".csv", ".csv"),
        ("v1.2", "v1.2"),
    ],
)
def test_parties_are_named_after_files(path, party):
    assert party_name(path) == party


def test_looking_reads_the_beginning_only(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "1,2\n" * 200_000 + "never,\0looked at")
    assert look(path).names == ["a", "b"]


CELLS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(float), st.just(np.nan), st.integers(-999, 999)
)


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=2, max_size=6),
    separator=st.sampled_from([",", ";", "\t", "|"]),
    word=st.sampled_from([word for word in MISSING if word.strip()]),
    quoting=st.sampled_from([0, 1]),
)
def test_any_numbers_come_back(tmp_path_factory, values, separator, word, quoting):
    frame = pd.DataFrame(values, columns=["first", "second"], dtype=float)
    frame.loc[len(frame)] = [0.5, 0.25]  # no column without a value
    path = tmp_path_factory.mktemp("any") / "table.csv"
    frame.to_csv(path, index=False, sep=separator, na_rep=word, quoting=quoting)
    np.testing.assert_array_equal(read(path).values, frame.to_numpy())


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_look(content):
    with contextlib.suppress(TableError):
        sniff(content)
