"""Ids that tables write in different ways."""

import numpy as np
import pytest

from vpem.overlap import NearIds
from vpem.reading import TableError
from vpem.tables import join


def tables(*ids):
    return {f"party{place}": {"id": list(own), f"x{place}": np.arange(len(own))} for place, own in enumerate(ids)}


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ("007", "7", "leading zeros"),
        ("P007", "P7", "leading zeros"),
        ("ab1", "AB1", "upper and lower case"),
        ("a 1", "a1", "spaces"),
        ("AB-12", "AB12", "dashes"),
        ("2020-01-05", "2020/1/5", "their spelling"),
        ("7.0", "7", "a fraction of .0"),
        (" Ab 07", "ab-7", "their spelling"),
    ],
)
def test_ids_that_differ_in_their_spelling(one, other, difference):
    table = join(tables(["same", "more", one], ["same", "less", other]), on="id")
    assert table.near == (NearIds(party="party0", other="party1", count=1, difference=difference),)
    [note] = table.notes
    assert note == (
        f"party0: 1 id is in party1 in another spelling, such as {one.strip()!r}, which is {other!r} there: they "
        f"differ in {difference}, and are not matched"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["same", "7"], ["same", "8"]),
        (["same", "1.5"], ["same", "15"]),
        (["same", "2020-1-15"], ["same", "2020-11-5"]),
        (["same", "100"], ["same", "1"]),
        (["same", "a1", "A1"], ["same", "a1", "x"]),  # case counts: one party has both
        (["same", "70"], ["same", "7"]),
    ],
)
def test_ids_that_are_different(one, other):
    table = join(tables(one, other), on="id")
    assert (table.near, table.notes) == ((), [])


def test_one_party_of_three_writes_ids_in_its_own_way():
    ids = [f"{number:03d}" for number in range(1, 50)]
    table = join(tables(ids, ids, [text.lstrip("0") for text in ids]), on="id")
    assert table.near == (NearIds(party="party2", other="party0", count=49, difference="leading zeros"),)


def test_ids_of_several_columns():
    one = {"year": ["2020", "2021"], "month": ["01", "10"], "x": [1, 2]}
    other = {"year": ["2020", "2021"], "month": ["1", "10"], "y": [1, 2]}
    table = join({"one": one, "other": other}, on=["year", "month"])
    assert table.near == (NearIds(party="one", other="other", count=1, difference="leading zeros"),)


def test_tables_with_no_id_in_common_show_two_that_nearly_match():
    with pytest.raises(TableError, match="none in common; compare their spelling, such as '007' of party0 and '7'"):
        join(tables(["x1", "007"], ["y1", "7"]), on="id")
