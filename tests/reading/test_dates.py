"""Dates and times: numbers of days, days of the week and hours if the user says so; never categories."""

from datetime import UTC, date, datetime, time, timedelta, timezone

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vpem import VerticalMixture
from vpem.reading import Form, TableError, read
from vpem.reading.category_parsing import Said
from vpem.tables import date_numbers, join

DAY = (date(2024, 5, 3) - date(1970, 1, 1)).days  # a Friday


def column(tmp_path, cells, what):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["n,x", *(f"{number},{cell}" for number, cell in enumerate(cells)), ""]))
    return read(path, form=Form(dates={"x": what}), keep=lambda name: name == "x")


@pytest.mark.parametrize(
    ("cells", "what", "values", "read_as"),
    [
        (["2024-05-03", "2024-05-04", ""], "days", [DAY, DAY + 1, np.nan], "days"),
        (["2024-05-03 12:00", "2024-05-04"], "days", [DAY + 0.5, DAY + 1], "days"),
        (["2024-05-03T18:00:00Z", "2024-05-04T00:00:00.5+02:00"], "hour", [18, 0.5 / 3600], "hour"),
        (["03.05.2024", "04.05.2024"], "days", [DAY, DAY + 1], "days:dmy"),
        (["03/05/2024", "31/05/2024"], "weekday", [4, 4], "weekday:dmy"),
        (["05/03/2024", "05/31/2024"], "weekday", [4, 4], "weekday:mdy"),
        (["05/05/2024"], "days", [DAY + 2], "days:dmy"),
        (["03/05/2024"], "days:dmy", [DAY], "days:dmy"),
        (["05/03/2024"], "days:mdy", [DAY], "days:mdy"),
        (["14:30", "2:30 pm", "12:00 AM", "NA"], "hour", [14.5, 14.5, 0, np.nan], "hour"),
        (["2024/05/03 14:30", "2024/05/04"], "hour", [14.5, 0], "hour"),
        (["2:30 pm", "-", "1:30 am"], "hour", [14.5, np.nan, 1.5], "hour"),
        (["1969-12-31", "1899-12-31"], "weekday", [2, 6], "weekday"),
    ],
)
def test_dates_of_text_files(tmp_path, cells, what, values, read_as):
    rows = column(tmp_path, cells, what)
    np.testing.assert_allclose(rows.values[:, 0], values, rtol=1e-12)
    assert rows.read_as == {"x": read_as}
    assert "column 'x' has dates or times: " in rows.notes[-1]


def test_every_day_is_the_one_of_the_calendar(tmp_path):
    days = [date(1890, 1, 1) + timedelta(days=97 * number) for number in range(800)]
    for form in ("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y"):
        rows = column(tmp_path, [day.strftime(form).zfill(10) for day in days], "weekday")
        assert rows.values[:, 0].tolist() == [day.weekday() for day in days]


@pytest.mark.parametrize(
    ("cells", "what", "message"),
    [
        (["03/05/2024", "04/05/2024"], "hour", r"which is the month\?.*--dates x=hour:dmy; if not, hour:mdy"),
        (["03/05/2024", "31/05/2024", "05/31/2024"], "days", "line 4, .*in one way, got '05/31/2024'"),
        (["31.02.2024"], "days", "expected a date as 2024-12-31 .* got '31.02.2024'"),
        (["03/05/24"], "days", "expected a date as 2024-12-31 .* got '03/05/24'"),
        (["2024-05-03", "unknown"], "days", "line 3, .*got 'unknown'"),
        (["14:30"], "days", "expected dates for 'days', got times alone"),
        (["2024-05-03"], "hour", "expected times of day for 'hour', got dates alone"),
        (["1.5"], "days", "expected a date .* got '1.5'"),
        (["2024-05-03"], "month", "expected dates to become days, weekday or hour.*got 'month' for 'x'"),
    ],
)
def test_dates_that_are_none_or_in_doubt(tmp_path, cells, what, message):
    with pytest.raises(TableError, match=message):
        column(tmp_path, cells, what)


@pytest.mark.parametrize("cells", [["2024-05-03", "2024-05-04"], ["?x", "3.5.2024", "4.5.2024"], ["14:30", "14:31"]])
@pytest.mark.parametrize("codes", [False, Said()])
def test_dates_are_no_categories_and_the_remedies_are_said(tmp_path, cells, codes):
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["n,visited", *(f"{number},{cell}" for number, cell in enumerate(cells)), ""]))
    with pytest.raises(
        TableError, match=r"column 'visited'.*--dates visited=days \(or weekday, hour\).*--ignore visited"
    ):
        read(path, codes=codes)


TYPED = {
    "date": (pa.array([date(2024, 5, 3), None]), "days", DAY),
    "timestamp": (pa.array([datetime(2024, 5, 3, 14, 30), None], pa.timestamp("ns")), "hour", 14.5),
    "zone": (
        pa.array([datetime(2024, 5, 3, 23, 30, tzinfo=UTC), None], pa.timestamp("s", tz="Europe/Berlin")),
        "weekday",
        5,
    ),
    "time": (pa.array([time(14, 30), None]), "hour", 14.5),
    "before": (pa.array([datetime(1969, 12, 31, 12), None], pa.timestamp("ms")), "days", -0.5),
}


@pytest.mark.parametrize(("values", "what", "expected"), TYPED.values(), ids=TYPED)
def test_dates_with_a_type(tmp_path, values, what, expected):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"x": values}), path)
    with pytest.raises(TableError, match=r"column 'x'.*a date or time.*--dates x=days"):
        read(path)
    np.testing.assert_array_equal(read(path, form=Form(dates={"x": what})).values[:, 0], [expected, np.nan])
    np.testing.assert_array_equal(date_numbers(values, what), [expected, np.nan])


def test_data_frames_are_told_how(tmp_path):
    frame = pd.DataFrame({"visited": pd.date_range("2024-05-03", periods=50, freq="7h"), "x": np.arange(50.0)})
    with pytest.raises(ValueError, match=r"column 'visited'.*date_numbers\(table\['visited'\], 'days'\)"):
        VerticalMixture(2).fit(frame)
    hours = date_numbers(frame["visited"], "hour")
    np.testing.assert_array_equal(hours, frame["visited"].dt.hour)
    with pytest.raises(TableError, match="expected dates to become"):
        date_numbers(frame["visited"], "month")
    with pytest.raises(TableError, match="expected dates or times, got values of type double"):
        date_numbers(frame["x"], "days")
    parties = {"bank": frame.assign(id=range(50))[["id", "visited"]], "shop": frame.assign(id=range(50))[["id", "x"]]}
    table = join(parties, on="id", form=Form(dates={"bank.visited": "hour"}))
    np.testing.assert_array_equal(table[:][:, 0], hours)
    zoned = pd.Series([datetime(2024, 5, 3, 1, tzinfo=timezone(timedelta(hours=2)))])
    assert date_numbers(zoned, "days").tolist() == [DAY + 1 / 24]
