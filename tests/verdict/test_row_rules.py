"""Few rows in common and ids that nearly match are findings; a small table within a large one is none."""

import pytest

from vpem.overlap import NearIds, RowSummary
from vpem.verdict import Facts, judge


def rows(held, n_rows, n_common, matched=None, **more):
    usual = {"n_used": n_rows, "is_joined": True}
    return RowSummary(held=held, n_rows=n_rows, n_common=n_common, matched=matched or {}, **{**usual, **more})


def findings(found):
    usual = {"n_components": 2, "tol": 1e-3, "max_iter": 100, "lower_bounds": [-5.0, -4.0, -3.9, -3.9]}
    return judge(Facts(converged=True, rows=found, **usual))


@pytest.mark.parametrize(
    ("found", "severity"),
    [
        (rows({"a": 200, "b": 200}, 398, 2, {"a": 2, "b": 2}), "red"),
        (rows({"a": 200, "b": 200}, 300, 100, {"a": 100, "b": 100}), "amber"),
        (rows({"a": 200, "b": 200}, 250, 150, {"a": 150, "b": 150}), None),
        (rows({"bank": 100_000, "shop": 1000}, 100_000, 1000, {"bank": 1000, "shop": 1000}), None),
        (rows({"bank": 100_000, "shop": 1000}, 100_990, 10, {"bank": 10, "shop": 10}), "red"),
        (rows({"a": 100, "b": 100, "c": 100}, 200, 0, {"a": 100, "b": 100, "c": 0}), "red"),
        (rows({"a": 100}, 100, 100, {"a": 0}), None),
        # Of a study, where a party knows the numbers only.
        (rows({"a": 200, "b": 200, "c": 200}, 590, None, is_private=True), "red"),
        (rows({"a": 200, "b": 200, "c": 200}, 240, None, is_private=True), None),
        (rows({"a": 200, "b": 200}, 2, 2, is_private=True), "red"),
    ],
)
def test_few_rows_in_common(found, severity):
    told = [one.severity for one in findings(found) if one.code == "few_in_common"]
    assert told == ([] if severity is None else [severity])


def test_what_is_said_of_few_rows():
    [found] = findings(rows({"a": 200, "b": 300}, 498, 2, {"a": 2, "b": 2}))
    assert found.sentence.startswith("Of the 200 rows of 'a', another table has 2:")
    assert found.remedy == "compare how the tables write their ids"
    [found] = findings(rows({"a": 200, "b": 200}, 20, 20, is_private=True))
    assert found.sentence.startswith("The parties have 20 in common, from 200 of a, 200 of b:")
    assert "No party sees the ids of others" in found.sentence


@pytest.mark.parametrize(("count", "severity"), [(100, "amber"), (2, "amber"), (1, "note")])
def test_ids_that_nearly_match(count, severity):
    near = (NearIds(party="a", other="b", count=count, difference="leading zeros"),)
    matched = {"a": 150, "b": 150}
    [found] = findings(rows({"a": 200, "b": 200}, 250, 150, matched, near=near))
    assert (found.code, found.severity) == ("near_ids", severity)
    assert f"{count} of 200 ids of 'a' are those of 'b' in another spelling." in found.sentence
    assert "leading zeros" in found.sentence


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (rows({"a": 5}, 5, 5), "5; all used"),
        (rows({"a": 5, "b": 5}, 5, 5), "5, which all parties have; all used"),
        (rows({"a": 5, "b": 3}, 6, 2), "6 (5 of a, 3 of b), 2 in common; all used"),
        (rows({"a": 1500, "b": 1300}, 2000, None, n_used=1800), "2,000 (1,500 of a, 1,300 of b); 1,800 used"),
    ],
)
def test_rows_in_a_line(found, said):
    assert found.describe() == said


def test_gaps_in_a_line():
    assert rows({"a": 5}, 5, 5).describe_gaps() == "none"
    many = {f"x{number}": number for number in range(1, 21)}
    assert rows({"a": 5}, 5, 5, gaps=many).describe_gaps() == "210 in 20 columns; most in x20 20, x19 19, x18 18"
    assert rows({"a": 5}, 5, 5, gaps={"x": 1200, "y": 0, "z": 3}).describe_gaps() == "x 1,200, z 3"
