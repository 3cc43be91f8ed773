"""Tables of several parties side by side: the same join for files and for data frames, as pandas would do it."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import vpem
from vpem import VerticalGaussianMixture, VerticalKMeans
from vpem.reading import TableError
from vpem.reading import join as join_files
from vpem.report import make_report
from vpem.tables import join

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4)) + 4 * (np.arange(200) % 2)[:, None]
ORDER = RNG.permutation(np.arange(50, 200))
BANK = pd.DataFrame({"customer": np.arange(150), "age": X[:150, 0], "income": X[:150, 1]})
SHOP = pd.DataFrame({"age": X[ORDER, 2], "customer": ORDER, "visits": X[ORDER, 3]})

KINDS = {
    "pandas": lambda frame: frame,
    "pandas with the id as index": lambda frame: frame.set_index("customer"),
    "polars": pl.from_pandas,
    "arrow": pa.Table.from_pandas,
    "dict": lambda frame: frame.to_dict("list"),
}


def merged():
    """What pandas makes of it; rows in the order of `join`."""
    both = BANK.merge(SHOP, on="customer", how="outer", suffixes=(".bank", ".shop")).set_index("customer")
    ids = [*range(150), *(number for number in ORDER if number >= 150)]
    return both.loc[ids, ["age.bank", "income", "age.shop", "visits"]].to_numpy()


@pytest.mark.parametrize("one", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("other", KINDS.values(), ids=KINDS)
def test_frames_of_all_kinds(one, other):
    table = join({"bank": one(BANK), "shop": other(SHOP)}, on="customer")
    assert table.column_names == ["bank.age", "income", "shop.age", "visits"]
    assert table.parties == {"bank": ["bank.age", "income"], "shop": ["shop.age", "visits"]}
    assert table.ids == [*range(150), *(int(number) for number in ORDER if number >= 150)]
    assert table.shape == (200, 4)
    np.testing.assert_array_equal(np.asarray(table), merged())


def test_files_and_frames_are_joined_in_the_same_way(tmp_path):
    BANK.to_csv(tmp_path / "bank.csv.gz", index=False, sep=";", decimal=",")
    SHOP.to_parquet(tmp_path / "shop.parquet")
    files = join_files([tmp_path / "bank.csv.gz", tmp_path / "shop.parquet"], "customer")
    np.testing.assert_array_equal(files.values, merged())
    assert files.parties == {"bank": ["bank.age", "income"], "shop": ["shop.age", "visits"]}
    mixed = join({"bank": tmp_path / "bank.csv.gz", "shop": SHOP}, on="customer")
    np.testing.assert_array_equal(np.asarray(mixed), merged())
    assert files.ids == [str(one) for one in mixed.ids]


def test_several_columns_make_an_id(tmp_path):
    hours = pd.date_range("2020-02-27", periods=100, freq="h")
    keys = pd.DataFrame({"month": hours.month, "day": hours.day, "hour": hours.hour})
    north = keys.assign(cold=np.arange(100) / 3)[:80]
    south = keys.assign(warm=np.arange(100) / 7)[10:].sample(frac=1, random_state=0)
    on = ["month", "day", "hour"]
    table = join({"north": north, "south": pl.from_pandas(south)}, on=on)
    expected = north.merge(south, on=on, how="outer").set_index(on)
    assert table.on == tuple(on)
    assert table.ids[0] == (2, 27, 0)
    for key, row in zip(table.ids, np.asarray(table), strict=True):
        np.testing.assert_array_equal(row, expected.loc[key].to_numpy())
    assert len(table) == 100
    north.to_csv(tmp_path / "north.csv", index=False)
    south.to_csv(tmp_path / "south.csv", index=False)
    files = join_files([tmp_path / "north.csv", tmp_path / "south.csv"], on)
    np.testing.assert_array_equal(files.values, np.asarray(table))
    assert files.keys["day"] == [str(key[1]) for key in table.ids]
    # Parts of ids that would be the same if they were glued together are different.
    odd = join({"a": {"x": ["1", "1 1"], "y": ["1 1", "1"], "z": [1.0, 2.0]}}, on=["x", "y"])
    assert len(odd) == 2


def test_ids_of_other_types_are_the_same(tmp_path):
    floats = BANK.assign(customer=BANK["customer"].astype(float))
    texts = SHOP.assign(customer=SHOP["customer"].astype(str))
    np.testing.assert_array_equal(np.asarray(join({"bank": floats, "shop": texts}, on="customer")), merged())
    floats.to_csv(tmp_path / "bank.csv", index=False)  # 0.0, 1.0, ...
    np.testing.assert_array_equal(
        np.asarray(join({"bank": tmp_path / "bank.csv", "shop": SHOP}, on="customer")), merged()
    )
    zeros = {"customer": ["007", "7"], "x": [1.0, 2.0]}
    assert join({"a": zeros}, on="customer").ids == ["007", "7"]
    days = pd.date_range("2020-01-01", periods=3)
    table = join({"a": {"day": days, "x": [1, 2, 3]}, "b": pl.DataFrame({"day": days, "y": [1, 2, 3]})}, on="day")
    assert not np.isnan(np.asarray(table)).any()


# Fits


def fit(tables, **arguments):
    return VerticalGaussianMixture(2, random_state=0, **arguments).fit(tables, on="customer")


TABLES = {"bank": BANK, "shop": pl.from_pandas(SHOP)}


def test_a_fit_of_a_dict_is_that_of_the_joined_table():
    model = fit(TABLES, graph="ring")
    expected = VerticalGaussianMixture(
        2, random_state=0, graph="ring", partition={"bank": [0, 1], "shop": [2, 3]}
    ).fit(merged())
    np.testing.assert_array_equal(model.means_, expected.means_)
    assert model.partition_ == expected.partition_
    assert model.partition is None, "arguments stay"
    assert model.on_ == ("customer",)
    assert set(model.graph_) == {"bank", "shop"}
    table = join(TABLES, on="customer")
    for method in ("predict", "predict_proba", "score_samples", "score", "bic", "aic"):
        of_dict, of_table, of_array = (
            getattr(model, method)(TABLES),
            getattr(model, method)(table),
            getattr(expected, method)(merged()),
        )
        np.testing.assert_array_equal(of_dict, of_array)
        np.testing.assert_array_equal(of_table, of_array)
    np.testing.assert_array_equal(clone(model).fit_predict(TABLES, on="customer"), expected.predict(merged()))
    np.testing.assert_array_equal(clone(model).fit(table).means_, expected.means_)
    labels = dict(zip(table.ids, model.predict(TABLES), strict=True))
    assert labels[7] == expected.predict([[*X[7, :2], np.nan, np.nan]])[0]
    assert "<html" in make_report(model, table)


def test_predictions_with_other_tables(tmp_path):
    model = fit(TABLES)
    bank = model.score_samples({"bank": BANK.assign(name="x")})  # columns that the model does not know do not matter
    alone = np.hstack([X[:150, :2], np.full((150, 2), np.nan)])
    expected = VerticalGaussianMixture(2, random_state=0, partition=[[0, 1], [2, 3]]).fit(merged())
    np.testing.assert_array_equal(bank, expected.score_samples(alone))
    turned = {"shop": TABLES["shop"], "bank": BANK[["income", "customer", "age"]]}
    by_id = dict(zip(join(turned, on="customer").ids, model.score_samples(turned), strict=True))
    before = dict(zip(join(TABLES, on="customer").ids, model.score_samples(TABLES), strict=True))
    assert by_id == before
    vpem.save(model, tmp_path / "model.vpem")
    loaded = vpem.load(tmp_path / "model.vpem")
    np.testing.assert_array_equal(
        loaded.predict(join(turned, on="customer")), model.predict(join(turned, on="customer"))
    )
    np.testing.assert_array_equal(loaded.predict(TABLES), model.predict(TABLES))
    one = VerticalGaussianMixture(2, partition=loaded.partition_, random_state=0)
    one.fit(pd.DataFrame(np.asarray(join(TABLES, on="customer")), columns=loaded.feature_names_in_))
    with pytest.raises(TypeError, match=r"which column names the rows .*vpem.tables.join\(tables, on=...\)"):
        one.predict(TABLES)
    np.testing.assert_array_equal(one.predict(join(TABLES, on="customer")), model.predict(TABLES))
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(TABLES), model.predict(TABLES))


def test_streams_and_warm_starts():
    halves = [{"bank": BANK[part], "shop": SHOP[part]} for part in (slice(0, 75), slice(75, None))]
    model = VerticalGaussianMixture(2, random_state=0)
    expected = VerticalGaussianMixture(2, random_state=0, partition=[[0, 1], [2, 3]])
    for half in halves:
        model.partial_fit(half, on="customer" if half is halves[0] else None)
        expected.partial_fit(np.asarray(join(half, on="customer")))
    np.testing.assert_array_equal(model.means_, expected.means_)
    warm = VerticalGaussianMixture(2, random_state=0, warm_start=True, max_iter=2, tol=1)
    assert warm.fit(TABLES, on="customer").fit(TABLES).partition_ == {"bank": [0, 1], "shop": [2, 3]}
    assert "on_" not in vars(fit(TABLES).fit(X)), "a fit of an array forgets them"
    assert fit(TABLES).fit(X).partition_ == {0: [0], 1: [1], 2: [2], 3: [3]}


WRONG = {
    "unknown party": (lambda: fit(TABLES).predict({"bnk": BANK}), "party 'bnk' is not there; did you mean 'bank'"),
    "unknown column": (
        lambda: fit(TABLES).predict({"bank": BANK.rename(columns={"income": "incme"})}),
        "bank: the model's column 'income' is not there; did you mean 'incme'",
    ),
    "no on": (lambda: VerticalGaussianMixture(2).fit(TABLES), "expected on= to name the column"),
    "on without a dict": (lambda: VerticalGaussianMixture(2).fit(BANK, on="customer"), "with a dict from party"),
    "a partition as well": (lambda: fit(TABLES, partition=[[0, 1], [2, 3]]), "expected partition=None"),
    "other id": (
        lambda: fit({"bank": BANK, "shop": SHOP.drop(columns="customer")}),
        "shop: the id column 'customer'",
    ),
    "typo": (lambda: join(TABLES, on="custmer"), "bank: the id column 'custmer' .* did you mean 'customer'"),
    "no table": (lambda: join({"bank": np.ones((2, 2))}, on="x"), "bank: expected a pandas, polars or Arrow table"),
    "no dict": (lambda: join([BANK, SHOP], on="x"), "expected a dict from party to table, got list"),
    "no columns": (lambda: join(TABLES, on=[]), "at least one column"),
    "a column twice": (lambda: join(TABLES, on=["customer", "customer"]), "every id column once"),
    "ignore": (lambda: join(TABLES, on="customer", ignore=["ages"]), "'ages' is not there; did you mean 'age'"),
    "nothing in common": (
        lambda: join({"a": BANK, "b": SHOP.assign(customer=SHOP["customer"] + 1000)}, on="customer"),
        "none in common; compare their spelling, such as '0' of a and",
    ),
    "ids twice": (
        lambda: join({"a": pd.concat([BANK, BANK])}, on="customer"),
        "got '0' in rows 1 and 151; 150 rows in all repeat an id",
    ),
    "k-means": (
        lambda: VerticalKMeans(2).fit(BANK.drop(columns="customer")).predict(join(TABLES, "customer")),
        "an array or a",
    ),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_errors(call, message):
    with pytest.raises((TableError, TypeError, ValueError), match=message):
        call()


def test_all_problems_of_all_tables_are_told_at_once():
    bank = BANK.assign(name="x", when=pd.Timestamp("2020-01-01"), mixed=[1, "a"] * 75)
    with pytest.raises(TableError) as caught:
        join({"bank": bank, "shop": pl.from_pandas(SHOP).with_columns(kind=pl.lit("u"))}, on="customer", codes=False)
    said = str(caught.value)
    for text in (
        "4 problems",
        "bank, column 'mixed'",
        "'name'",
        "'when'",
        "got a date",
        "shop, row 1, column 'kind'",
    ):
        assert text in said
    assert "vpem.tables.join(..., ignore=['mixed', 'name', 'when', 'kind'])" in said
    table = join({"bank": bank, "shop": SHOP}, on="customer", ignore=["bank.mixed", "name", "when"])
    np.testing.assert_array_equal(np.asarray(table), merged())


def test_tables_with_the_same_rows_in_the_same_order(tmp_path):
    (tmp_path / "one.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    (tmp_path / "other.csv").write_text("c\n7\n8\n9\n")
    rows = join_files([tmp_path / "one.csv", tmp_path / "other.csv"], "@row")
    np.testing.assert_array_equal(rows.values, [[1, 2, 7], [3, 4, 8], [5, 6, 9]])
    assert rows.ids == ["1", "2", "3"]
    assert rows.notes == ["all tables: matched by the rows' numbers: row 1 of each is the same, ..., row 3"]
    table = join({"one": tmp_path / "one.csv", "frame": pd.DataFrame({"c": [7, 8, 9]})}, on="@row")
    np.testing.assert_array_equal(table[:], rows.values)
    with pytest.raises(TableError, match=r"as many rows in all tables, .* got 3 in one, 2 in frame"):
        join({"one": tmp_path / "one.csv", "frame": {"c": [7, 8]}}, on="@row")
