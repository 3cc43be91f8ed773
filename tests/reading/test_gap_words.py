"""Which words are gaps: never in data frames, by the column in files of text, or as the user says."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vpem import VerticalMixture
from vpem.reading import Form, TableError, join, read, read_texts
from vpem.reading.category_parsing import Said
from vpem.reading.gap_words import CERTAIN, DOUBTFUL
from vpem.tables import code_words
from vpem.tables import join as join_tables

WORDS = ["none", "NA", "-", "?", "", "null", "NaN"]
RNG = np.random.default_rng(0)
HABITS = RNG.choice(["some", *WORDS], size=120)
AMOUNTS = RNG.normal(size=120) + 4 * (HABITS == "none")


@pytest.fixture
def write(tmp_path):
    def write(text, name="table.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def column(*cells):
    """A CSV file with one column and another one of numbers."""
    return "cell,other\n" + "".join(f"{cell},{number}.5\n" for number, cell in enumerate(cells))


# Frames


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_every_word_of_a_frame_is_a_value(library):
    """An issue: a category "none" of 144 rows was missing, and `impute` replaced it."""
    frame = library({"habit": HABITS.tolist(), "amount": AMOUNTS.tolist()})
    coded = code_words(frame)
    assert not np.isnan(coded[:]).any()
    assert coded.words["habit"] == sorted({"some", *WORDS})
    joined = join_tables({"clinic": {"id": range(120), "habit": HABITS.tolist(), "amount": AMOUNTS.tolist()}}, "id")
    assert not np.isnan(joined[:]).any()
    assert joined.notes == []


@pytest.mark.filterwarnings("ignore::vpem.FitWarning")
def test_impute_leaves_words_as_they_are():
    frame = pd.DataFrame({"habit": HABITS, "amount": AMOUNTS})
    frame.loc[3, "habit"] = None
    model = VerticalMixture(2, families="auto", n_init=1, max_iter=3, random_state=0).fit(frame)
    filled = model.impute(frame)
    assert filled["habit"].drop(index=3).tolist() == frame["habit"].drop(index=3).tolist()
    assert isinstance(filled.loc[3, "habit"], str)


def test_words_among_the_numbers_of_a_frame_are_an_error():
    with pytest.raises(ValueError, match="expected a number or nothing, got '-'; 1 of 5 values are no numbers"):
        code_words(pd.DataFrame({"dose": ["1", "2", "-", "4", "5"]}))


def test_parquet_has_gaps_of_its_own(tmp_path):
    pq.write_table(pa.table({"habit": [*HABITS.tolist(), None], "n": range(121)}), tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet", codes=True)
    assert np.isnan(rows.values).sum() == 1
    assert rows.words["habit"] == sorted({"some", *WORDS})
    assert rows.gap_words == {}


# Files


@pytest.mark.parametrize("word", DOUBTFUL)
def test_doubtful_words_are_categories_among_words(write, word):
    rows = read(write(column("a", word, "b", word, "a")), codes=True)
    assert rows.words["cell"] == sorted(["a", "b", word])
    assert not np.isnan(rows.values).any()
    assert rows.gap_words == {}
    assert rows.notes == [
        f"table.csv: words that count as categories: {word!r} in cell (2) (if they are gaps: --gaps)"
    ]


@pytest.mark.parametrize("word", CERTAIN)
def test_certain_words_are_gaps_among_words_and_are_counted(write, word):
    rows = read(write(column("a", word, "b", word, "a")), codes=True)
    assert rows.words["cell"] == ["a", "b"]
    assert np.isnan(rows.values[:, 0]).tolist() == [False, True, False, True, False]
    assert rows.gap_words == {"cell": {word: 2}}
    assert rows.notes == [f"table.csv: words that count as gaps: {word!r} in cell (2) (else: --gaps)"]


@pytest.mark.parametrize("cells", [["1.5", "2", "3e1"], ["0.5", ".5", "inf"][:2], ["10", "20", "30"]])
@pytest.mark.parametrize("word", [*CERTAIN, *DOUBTFUL])
def test_among_numbers_all_of_them_are_gaps(write, cells, word):
    rows = read(write(column(*cells, word)))
    np.testing.assert_array_equal(rows.values[:, 0], [*map(float, cells), np.nan])
    [counts] = rows.gap_words.values()
    assert sum(counts.values()) == 1
    assert "in cell (1) (else: --gaps)" in rows.notes[0]


def test_marks_among_dates_and_amounts_with_units_are_gaps_too(write):
    for cells in (
        ["2020-01-05", "2021-11-15", "-"],
        ["19,60 €", "5 €", "-"],
        ["18%", "9%", "-"],
    ):
        path = write("cell;other\n" + "".join(f"{cell};{n}\n" for n, cell in enumerate(cells)))
        texts, _ = read_texts(path, "cell")
        assert texts == [*cells[:2], None]


def test_decimal_commas_and_truth_values_beside_words(write):
    rows = read(write("x;ok;n\n1,5;true;1\nNA;NA;-\n2,25;false;3\n"), codes=True)
    np.testing.assert_array_equal(rows.values[:, 0], [1.5, np.nan, 2.25])
    assert rows.words == {"ok": ["false", "true"]}
    assert rows.gap_words == {"x": {"NA": 1}, "ok": {"NA": 1}, "n": {"-": 1}}
    assert "words that count as gaps: 'NA' in x (1), ok (1); '-' in n (1)" in " ".join(rows.notes)


def test_empty_cells_and_spaces_are_gaps_without_a_word(write):
    rows = read(write(column("a", "", "b", "  ", "a")), codes=True)
    assert np.isnan(rows.values[:, 0]).tolist() == [False, True, False, True, False]
    assert (rows.gap_words, rows.notes) == ({}, [])


def test_a_fit_with_words_has_doubtful_words_in_few_rows_too(write):
    rows = read(write(column("none", "none")), codes=frozenset({"cell"}))
    assert rows.words == {"cell": ["none"]}


def test_codes_that_are_said_to_be_categories(write):
    rows = read(write(column("01", "?", "1", "2", "01")), codes=Said(frozenset({"cell"})))
    assert rows.words["cell"] == ["01", "1", "2"]
    assert rows.gap_words == {"cell": {"?": 1}}


# What the user says


def test_words_can_be_told(write):
    path = write(column("a", "none", "NA", "b", "b"))
    told = read(path, codes=True, form=Form(gaps=["none"]))
    assert told.words["cell"] == ["NA", "a", "b"]
    assert told.gap_words == {"cell": {"none": 1}}
    nothing = read(path, codes=True, form=Form(gaps=[]))
    assert nothing.words["cell"] == ["NA", "a", "b", "none"]


def test_words_of_single_columns(write):
    path = write("country,income\nNA,1\nDE,NA\nFR,-999\nNA,4\n")
    rows = read(path, codes=True, form=Form(gaps={"country": [], "*": ["NA", -999]}))
    assert rows.words["country"] == ["DE", "FR", "NA"]
    np.testing.assert_array_equal(rows.values[:, 1], [1, np.nan, np.nan, 4])
    assert rows.gap_words == {"income": {"NA": 1, "-999": 1}}


def test_numbers_can_be_gaps_however_they_are_written(write):
    rows = read(write("a,b\n1,-999.0\n-999,2.5\n-999,-999.00\n"), form=Form(gaps=["-999"]))
    np.testing.assert_array_equal(rows.values, [[1, np.nan], [np.nan, 2.5], [np.nan, np.nan]])
    assert rows.gap_words == {"a": {"-999": 2}, "b": {"-999": 2}}


def test_a_word_that_is_not_told_is_an_error_among_numbers(write):
    with pytest.raises(TableError, match="line 3, column 'cell': expected a number or nothing, got 'NA'"):
        read(write(column("1", "NA", "2")), form=Form(gaps=["?"]))


@pytest.mark.parametrize("gaps", [5, {"a": 5}, [None], [True]])
def test_gaps_that_are_no_words(gaps):
    with pytest.raises(TableError, match="expected gaps as a list of words, such as"):
        Form(gaps=gaps)


def test_joined_files_have_notes_and_words_of_their_own(write):
    a = write("id,habit\n1,none\n2,NA\n3,some\n4,some\n", "a.csv")
    b = write("id,dose\n1,-\n2,5\n3,7\n", "b.csv")
    rows = join([a, b], "id", codes=True)
    assert rows.gap_words == {"habit": {"NA": 1}, "dose": {"-": 1}}
    table = join_tables({"a": a, "b": b}, on="id", gaps={"a.habit": ["none"], "*": ["-"]})
    assert table.words == {"habit": ["NA", "some"]}
    assert table.notes == [
        "a.csv: words that count as gaps: 'none' in habit (1) (else: vpem.tables.join(..., gaps=))",
        "b.csv: words that count as gaps: '-' in dose (1) (else: vpem.tables.join(..., gaps=))",
    ]
    with pytest.raises(TableError, match="gaps: column 'habbit' is not there; did you mean 'habit'"):
        join_tables({"a": a, "b": b}, on="id", gaps={"habbit": []})


@pytest.mark.parametrize("word", ["NA", "-", "none"])
def test_no_word_for_a_gap_is_an_id(write, word):
    path = write(f"id,x\n1,2\n{word},3\n")
    with pytest.raises(TableError, match="row 2: expected an id in column 'id', got nothing, or a word for a gap"):
        read(path, id_column="id")
    assert read(path, id_column="id", form=Form(gaps={"id": []})).ids == ["1", word]
