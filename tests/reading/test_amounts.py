"""Money, percentages and thousands: read where they can mean one number only, and said; asked about otherwise."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpem import VerticalMixture
from vpem.reading import Form, TableError, read
from vpem.reading.category_parsing import Said


def column(tmp_path, cells, separator=";", **told):
    """The column `x` of a file with these cells."""
    path = tmp_path / "table.csv"
    rows = [f"{number}{separator}{cell}" for number, cell in enumerate(cells)]
    path.write_text("\n".join([f"n{separator}x", *rows, ""]))
    return read(path, form=Form(**told), keep=lambda name: name == "x")


@pytest.mark.parametrize(
    ("cells", "values", "unit", "note"),
    [
        (["19,60 €", "1.200,50 €", ""], [19.6, 1200.5, np.nan], "€", "amounts in €: '1.200,50 €' is read as 1200.5"),
        (["$1,200.50", "$3", "-$4.5"], [1200.5, 3, -4.5], "$", "amounts in $: '$1,200.50' is read as 1200.5"),
        (["EUR 19.60", "EUR 3"], [19.6, 3], "EUR", "amounts in EUR"),
        (["1'200.50 CHF", "7 CHF"], [1200.5, 7], "CHF", "amounts in CHF"),
        (["18%", "18.4 %", "NA"], [0.18, 0.184, np.nan], "%", "percentages: '18%' is read as 0.18"),
        (["18,5 %", "-3 %"], [0.185, -0.03], "%", "percentages: '18,5 %' is read as 0.185"),
        (["1.398,25", "12,5", "7"], [1398.25, 12.5, 7], "", "between thousands: '1.398,25' is read as 1398.25"),
        (["1,398.25", "12.5"], [1398.25, 12.5], "", "between thousands: '1,398.25' is read as 1398.25"),
        (["1,234,567", "89"], [1234567, 89], "", "between thousands"),
        (["1 234 567", "1\u00a0200,5", "89"], [1234567, 1200.5, 89], "", "between thousands"),
        (["\u22121,5", "2,25"], [-1.5, 2.25], "", ""),
    ],
)
def test_amounts_are_read_and_said(tmp_path, cells, values, unit, note):
    rows = column(tmp_path, cells)
    np.testing.assert_array_equal(rows.values[:, 0], values)
    assert rows.read_as == ({"x": unit} if unit else {})
    assert any("column 'x' has" in one and note in one for one in rows.notes) or not note


def test_thousands_are_asked_about_until_they_are_told(tmp_path):
    for cells, mark in ((["1,398", "12"], "comma"), (["1.398 €", "12 €"], "point")):
        with pytest.raises(TableError, match=f"got '{cells[0]}': is the {mark} a decimal mark.*--decimal"):
            column(tmp_path, cells, "|")
    assert column(tmp_path, ["1,398", "12"], "|", decimal=".").values[:, 0].tolist() == [1398, 12]
    assert column(tmp_path, ["1,398", "12"], "|", decimal=",").values[:, 0].tolist() == [1.398, 12]
    assert column(tmp_path, ["1.398 €", "12 €"], decimal=",").values[:, 0].tolist() == [1398, 12]


def test_a_point_in_a_file_of_decimal_commas_is_asked_about(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a;b\n1.398;1,5\n950;2,5\n")
    with pytest.raises(TableError, match=r"column 'a': .* got '1.398': is the point a decimal mark"):
        read(path)
    assert read(path, form=Form(decimal=",")).values.tolist() == [[1398, 1.5], [950, 2.5]]
    path.write_text("a;b\n1.398;1,5\n9.5;2,5\n")  # this point cannot stand between thousands
    assert read(path).values.tolist() == [[1.398, 1.5], [9.5, 2.5]]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["18%", "unknown", "20%"], "line 3, column 'x': .* got 'unknown'; 1 of 3 values are no numbers"),
        (["1.398,25", "12,5", "oops"], "line 4, column 'x': .* got 'oops'; 1 of 3 values are no numbers"),
        (["18%", "0.2"], "line 3, column 'x': expected numbers written in one way, got '18%' and '0.2'"),
        (["5 €", "$5"], r"expected numbers written in one way, got '5 €' and '\$5'"),
        (["1.398,25", "2.5"], "expected numbers written in one way, got '1.398,25' and '2.5'"),
    ],
)
@pytest.mark.parametrize("codes", [False, Said()])
def test_what_is_wrong_with_amounts_is_told_and_they_are_no_categories(tmp_path, cells, message, codes):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["n;x", *(f"{number};{cell}" for number, cell in enumerate(cells)), ""]))
    with pytest.raises(TableError, match=message):
        read(path, keep=lambda name: name == "x", codes=codes)


def test_amounts_are_categories_if_the_user_says_so(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("n,dose\n0,5%\n1,10%\n2,5%\n")
    assert read(path, codes=Said()).values[:, 1].tolist() == [0.05, 0.1, 0.05]
    rows = read(path, codes=Said(frozenset(["dose"])))
    assert rows.words == {"dose": ["10%", "5%"]}
    assert rows.notes == []


def test_texts_of_parquet_are_read_alike(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"rate": ["18%", None, "20%"]}), path)
    rows = read(path)
    np.testing.assert_array_equal(rows.values[:, 0], [0.18, np.nan, 0.2])
    assert rows.notes == ["table.parquet: column 'rate' has percentages: '18%' is read as 0.18"]


def test_a_data_frame_is_not_changed_and_amounts_are_no_categories():
    frame = pd.DataFrame({"rate": [f"{number % 36}%" for number in range(100)], "x": np.arange(100) / 3})
    with pytest.raises(ValueError, match=r"'rate': expected numbers or words, got texts that are amounts.*'0%'"):
        VerticalMixture(2).fit(frame)
    model = VerticalMixture(2, families={"rate": "categorical"}).fit(frame.replace({"rate": {"9%": "8%"}}))
    assert "35%" in model.fitted_.coding.labels[0]


NUMBERS = st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: round(value, 2))


@settings(deadline=None, max_examples=60)
@given(values=st.lists(NUMBERS, min_size=2, max_size=6), comma=st.booleans(), unit=st.sampled_from(["", " €", "%"]))
def test_any_amounts_come_back(tmp_path_factory, values, comma, unit):
    values = [*values, 1234.56]  # which can be read in one way only
    texts = [f"{value:,.2f}{unit}" for value in values]
    if comma:
        texts = [text.translate(str.maketrans(".,", ",.")) for text in texts]
    rows = column(tmp_path_factory.mktemp("any"), texts)
    np.testing.assert_allclose(rows.values[:, 0], np.array(values) / (100 if unit == "%" else 1), rtol=1e-15)
