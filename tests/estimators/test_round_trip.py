"""Tables out as they came in: of the same kind, with ids, names, words and types; also after save and load."""

import operator

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import vpem
from vpem import VerticalGaussianMixture, VerticalMixture
from vpem.estimators.checks import shared_seed
from vpem.estimators.frames import typed
from vpem.model.category_codes import UnseenWarning
from vpem.model.evaluation import draw
from vpem.tables import ArrowTable, join

N = 200
FRAMES = {
    "pandas": lambda table: table,
    "polars": pl.from_pandas,
    "arrow": lambda table: pa.Table.from_pandas(table, preserve_index=False),
}
KINDS = FRAMES | {"columns": lambda table: {name: own.tolist() for name, own in table.items()}}


def tables():
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=N)
    bank = pd.DataFrame(
        {
            "customer": [f"c{number:03}" for number in range(N)],
            "income": rng.normal(30 + 20 * group, 5),
            "job": np.where(rng.random(N) < 0.8, np.where(group, "nurse", "smith"), "clerk").astype(object),
            "note": [f"seen on day {number}" for number in range(N)],
            "age": rng.normal(40, 5, N),
        }
    )
    shop = pd.DataFrame(
        {
            "customer": bank["customer"],
            "age": rng.normal(40 + 5 * group, 5),
            "visits": rng.poisson(3 + 6 * group),
            "dose": rng.choice([20, 40, 80], size=N),
            "member": rng.random(N) < 0.2 + 0.6 * group,
        }
    )
    return bank, shop[::-1].reset_index(drop=True)


def parties(kind="pandas", columns=("income", "job")):
    """With gaps in the bank's columns, and rows that the shop lacks."""
    bank, shop = tables()
    bank.loc[3:9, list(columns)] = None
    shop = shop[: N - 20]
    return {"bank": KINDS[kind](bank.drop(columns="note")), "shop": KINDS[kind](shop)}


def fitted(X, **arguments):
    return VerticalMixture(2, families={"dose": "categorical"}, random_state=0).fit(X, **arguments)


def in_pandas(table):
    if isinstance(table, dict):
        return pd.DataFrame(table)
    return table if isinstance(table, pd.DataFrame) else table.to_pandas()


def saved(model, folder):
    vpem.save(model, folder / "model.vpem")
    return vpem.load(folder / "model.vpem")


# Dicts of tables


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_takes_dicts_of_tables(kind, tmp_path):
    X = parties(kind)
    model = fitted(X, on="customer")
    again = saved(model, tmp_path)
    assert (again.on_, again.partition, again.get_params()["partition"]) == (("customer",), None, None)
    for name in ("predict", "predict_proba", "score_samples", "score", "bic"):
        np.testing.assert_array_equal(getattr(again, name)(X), getattr(model, name)(X))
    alone = {"shop": X["shop"]}
    np.testing.assert_array_equal(again.predict(alone), model.predict(alone))
    np.testing.assert_array_equal(again.predict(join(X, on="customer")), model.predict(X))
    assert len(join(X, on="customer").ids) == len(model.predict(X))
    # Another fit, or one that goes on, takes them too.
    assert again.set_params(warm_start=True).fit(X).partition_ == model.partition_
    assert again.set_params(warm_start=False).fit(X, on="customer").partition_ == model.partition_


def test_joined_tables_have_ids_though_there_are_words():
    X = parties()
    table = join(X, on="customer")
    assert table.ids[:3] == ["c000", "c001", "c002"]
    assert table.words["job"] == ["clerk", "nurse", "smith"]
    for estimator in (VerticalGaussianMixture(2), vpem.VerticalKMeans(2)):
        with pytest.raises(ValueError, match=r"numbers in column 'job', got words, such as 'clerk'; VerticalMixture"):
            estimator.fit(table)
    np.testing.assert_array_equal(fitted(table).predict(X), fitted(X, on="customer").predict(X))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_loaded", [False, True])
def test_dicts_of_tables_are_imputed_as_dicts_of_tables(kind, is_loaded, tmp_path):
    X = parties(kind)
    model = fitted(X, on="customer")
    filled, doubt = (saved(model, tmp_path) if is_loaded else model).impute(X, return_std=True)
    assert list(filled) == list(doubt) == ["bank", "shop"]
    ids = join(X, on="customer").ids
    before, after = in_pandas(X["bank"]), in_pandas(filled["bank"])
    for party, table in filled.items():
        assert type(table) is type(X[party])
        assert list(in_pandas(table)) == list(in_pandas(X[party]))
        assert list(in_pandas(table)["customer"]) == list(in_pandas(doubt[party])["customer"]) == ids
        assert not in_pandas(table).isna().to_numpy().any()
    gaps = before["job"].isna()
    assert set(after["job"][gaps]) <= {"clerk", "nurse", "smith"}
    pd.testing.assert_frame_equal(after[~gaps], before[~gaps], check_dtype=False)
    # Rows that the shop does not have: whole gaps, of which truth values and doses are such.
    shop = in_pandas(filled["shop"]).set_index("customer")
    own = in_pandas(X["shop"]).set_index("customer")
    pd.testing.assert_frame_equal(shop.loc[own.index], own, check_dtype=False)
    added = shop.drop(index=own.index)
    assert len(added) == 20
    assert set(added["member"]) <= {True, False}
    assert set(added["dose"]) <= {20, 40, 80}
    doubts = in_pandas(doubt["shop"]).set_index("customer")
    assert (doubts.loc[own.index] == 0).all(axis=None)
    assert (doubts.loc[added.index] > 0).all(axis=None)
    # What an array of all columns would get.
    table = join(X, on="customer", codes=frozenset({"job", "member"}))
    by_hand = model.impute(np.asarray(table))
    np.testing.assert_allclose(after["income"], by_hand[:, 0])
    assert [model.categories_["job"][int(code)] for code in by_hand[:, 1]] == list(after["job"])


def test_tables_keep_what_the_model_does_not_use_and_a_missing_party_gets_a_table():
    bank, shop = tables()
    model = fitted({"bank": bank.drop(columns="note"), "shop": shop}, on="customer")
    filled = model.impute({"shop": pl.from_pandas(shop[:5]).with_columns(town=pl.lit("Ulm"), visits=None)})
    assert list(filled) == ["bank", "shop"]
    assert filled["bank"].columns == ["customer", "income", "job", "age"]  # as the bank has it: age is in both
    assert filled["bank"].schema["job"] == pl.String
    assert filled["shop"].columns == ["customer", "age", "visits", "dose", "member", "town"]
    assert filled["shop"]["visits"].null_count() == 0
    both = {"bank": bank[:3].set_index("customer"), "shop": shop[-2:].assign(town=["Ulm", "Jena"], stays=True)}
    filled = model.impute(both)
    assert filled["bank"].index.tolist() == ["c000", "c001", "c002"]
    assert filled["bank"].index.name == "customer"
    assert filled["bank"]["note"].tolist() == bank["note"][:3].tolist()
    assert filled["shop"]["town"][:2].tolist() == ["Jena", "Ulm"]
    assert filled["shop"][["town", "stays"]].isna().sum().tolist() == [1, 1], "nothing is known of the third row"


def test_files_become_data_frames(tmp_path):
    X = parties()
    paths = {}
    for party, table in X.items():
        paths[party] = tmp_path / f"{party}.csv"
        table.to_csv(paths[party], index=False)
    model = fitted(paths, on="customer")
    filled = saved(model, tmp_path).impute(paths)
    assert isinstance(filled["bank"], pd.DataFrame)
    assert filled["bank"]["customer"].tolist() == join(paths, on="customer").ids
    assert set(filled["bank"]["job"]) <= {"clerk", "nurse", "smith"}
    joined = model.impute(join(paths, on="customer"))
    assert list(joined) == ["customer", "income", "job", "bank.age", "shop.age", "visits", "dose", "member"]
    assert joined["job"].tolist() == filled["bank"]["job"].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_dicts_of_tables_are_drawn_as_dicts_of_tables(kind, tmp_path):
    model = fitted(parties(kind), on="customer")
    again = saved(model, tmp_path)
    for own, expected in ((model, type(parties(kind)["bank"])), (again, pd.DataFrame)):
        drawn, labels = own.sample(50)
        assert {type(table) for table in drawn.values()} == {expected}
        bank, shop = in_pandas(drawn["bank"]), in_pandas(drawn["shop"])
        assert list(bank) == ["customer", "income", "job", "age"]
        assert list(shop) == ["customer", "age", "visits", "dose", "member"]
        assert bank["customer"].tolist() == shop["customer"].tolist() == list(range(50))
        assert set(bank["job"]) <= {"clerk", "nurse", "smith"}
        assert shop["member"].dtype == bool
        assert shop["dose"].dtype == shop["visits"].dtype == np.int64
        assert np.isfinite(own.score(drawn))  # the same names and words go in again
        assert fitted(drawn, on="customer").partition_ == model.partition_
        # The rows are those that the model draws as numbers.
        numbers, same = draw(own.fitted_, 50, shared_seed(own.random_state))
        np.testing.assert_array_equal(labels, same)
        np.testing.assert_allclose(bank["income"], numbers[:, 0])
        assert bank["job"].tolist() == [model.categories_["job"][int(code)] for code in numbers[:, 1]]


# One table


def one_table():
    bank, shop = tables()
    table = bank.drop(columns=["note", "age"]).merge(shop, on="customer").set_index("customer")
    table.loc["c003":"c009", ["income", "job"]] = None
    table["member"] = table["member"].astype(object).where(np.arange(N) % 10 > 0, None)
    return table


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("is_loaded", [False, True])
def test_data_frames_are_imputed_and_drawn_as_data_frames(kind, is_loaded, tmp_path):
    table = one_table()
    X = FRAMES[kind](table)
    model = fitted(X)
    used = saved(model, tmp_path) if is_loaded else model
    filled, doubt = used.impute(X, return_std=True)
    assert type(filled) is type(doubt) is type(X)
    after = in_pandas(filled)
    if kind == "pandas":
        assert filled.index.equals(table.index)
        assert doubt.index.equals(table.index)
    there = table.notna().to_numpy()
    assert not after.isna().to_numpy().any()
    assert (after.to_numpy()[there] == table.to_numpy()[there]).all(), "what is there stays"
    assert {type(value) for value in after["member"]} == {bool}
    assert (in_pandas(doubt).to_numpy()[there] == 0).all()
    assert (in_pandas(doubt).to_numpy()[~there] > 0).all()
    drawn, _ = used.sample(20)
    assert type(drawn) is (pd.DataFrame if is_loaded else type(X))
    drawn = in_pandas(drawn)
    assert list(drawn) == list(table)
    assert (drawn["member"].dtype, drawn["dose"].dtype, drawn["visits"].dtype) == (bool, np.int64, np.int64)
    assert set(drawn["job"]) <= {"clerk", "nurse", "smith"}
    assert np.isfinite(used.score(drawn))


def test_types_of_columns_stay_if_they_can():
    table = one_table()
    table["job"] = pd.Categorical(table["job"], categories=["smith", "nurse", "clerk", "baker"], ordered=True)
    table["income"] = table["income"].astype(np.float32)
    table["member"] = table["member"].astype("boolean")
    table["dose"] = table["dose"].where(np.arange(N) % 7 > 0).astype("Int64")
    table["visits"] = table["visits"].where(np.arange(N) % 5 > 0).astype("Int64")
    model = fitted(one_table())
    filled = model.impute(table)
    kept = ["job", "income", "member", "dose", "age"]
    assert filled[kept].dtypes.tolist() == table[kept].dtypes.tolist()
    assert filled["visits"].dtype == np.float64, "a mean has a fraction, which is not cut off"
    few = table[table["job"] != "smith"].copy()
    few["job"] = few["job"].cat.remove_unused_categories()
    again = model.impute(few.assign(income=15.0))
    assert again["job"].notna().all(), "a category that these rows lack is added"
    polars = pl.from_pandas(one_table()).with_columns(pl.when(pl.int_range(N) % 7 > 0).then("dose").alias("dose"))
    assert model.impute(polars).schema == polars.schema
    for kind in (pl.Categorical, pl.Enum(["clerk", "nurse", "smith"])):
        column = pl.Series(["nurse", None, "smith"], dtype=kind)
        assert typed(["nurse", "clerk", "smith"], column, "polars").dtype == kind
    assert (
        typed(["nurse", "pilot"], pl.Series(["nurse", None], dtype=pl.Enum(["nurse"])), "polars").dtype == pl.String
    )
    arrow = pa.Table.from_pandas(one_table(), preserve_index=False)
    arrow = arrow.set_column(1, "job", arrow.column("job").cast(pa.string()).dictionary_encode())
    found = model.impute(arrow)
    assert found.schema.field("job").type == arrow.schema.field("job").type


def test_words_that_the_fit_has_not_seen_stay():
    table = one_table()
    model = fitted(table)
    new = table.copy()
    new.loc["c012", "job"], new.loc["c014", "dose"] = "pilot", 30
    with pytest.warns(UnseenWarning):
        filled, doubt = model.impute(new, return_std=True)
    assert (filled.loc["c012", "job"], filled.loc["c014", "dose"]) == ("pilot", 30)
    assert (doubt.loc["c012", "job"], doubt.loc["c014", "dose"]) == (0, 0)
    gaps = new["job"].isna()
    assert filled["job"][gaps].notna().all()


def test_truth_values_written_as_words_stay_words():
    table = one_table()
    table["member"] = table["member"].map({True: "true", False: "false"}, na_action="ignore")
    filled = fitted(table).impute(table)
    assert set(filled["member"]) == {"true", "false"}


DIGITS = ["0", "1", "2.50", None] * 30
OF_DIGITS = {
    "pandas": lambda: pd.DataFrame({"n": DIGITS}),
    "pandas string": lambda: pd.DataFrame({"n": pd.Series(DIGITS, dtype="string")}),
    "pandas category": lambda: pd.DataFrame({"n": pd.Series(DIGITS, dtype="category")}),
    "polars": lambda: pl.DataFrame({"n": DIGITS}),
    "polars category": lambda: pl.DataFrame({"n": pl.Series(DIGITS, dtype=pl.Categorical)}),
    "arrow": lambda: pa.table({"n": DIGITS}),
}


@pytest.mark.parametrize("kind", OF_DIGITS)
def test_words_of_digits_are_imputed_as_the_column_writes_them(kind):
    """Gaps became 2.0 or "2.0", a category that did not exist; tables of Arrow failed."""
    table = OF_DIGITS[kind]()
    found = VerticalMixture(1, families="categorical", random_state=0).fit(table).impute(table)["n"]
    assert set(found.to_pylist() if kind == "arrow" else found) == {"0", "1", "2.50"}
    type_of = operator.attrgetter("type" if kind == "arrow" else "dtype")
    assert type_of(found) == type_of(table["n"])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_a_party_that_lacks_rows_gets_words_of_digits(make):
    shop = make({"id": [*range(110)], "visits": DIGITS[:110]})
    bank = make({"id": [*range(120)], "income": np.random.default_rng(0).normal(size=120)})
    families = {"visits": "categorical"}
    found = VerticalMixture(1, families=families, random_state=0).fit({"shop": shop, "bank": bank}, on="id")
    visits = found.impute({"shop": shop, "bank": bank})["shop"]["visits"]
    assert len(visits) == 120
    assert set(visits.to_pylist() if make is pa.table else visits) == {"0", "1", "2.50"}


def test_arrays_are_imputed_and_drawn_as_arrays(tmp_path):
    numbers = one_table()[["income", "age", "dose"]].to_numpy(dtype=float)
    model = VerticalMixture(2, families={2: "categorical"}, random_state=0).fit(numbers)
    for used in (model, saved(model, tmp_path)):
        filled, doubt = used.impute(numbers, return_std=True)
        drawn, _ = used.sample(20)
        assert filled.dtype == doubt.dtype == drawn.dtype == np.float64
        assert np.isfinite(filled).all()
        assert set(drawn[:, 2]) <= {20.0, 40.0, 80.0}
    objects = one_table().to_numpy(dtype=object)
    model = VerticalMixture(2, random_state=0).fit(objects)
    for used in (model, saved(model, tmp_path)):
        filled, drawn = used.impute(objects), used.sample(20)[0]
        assert filled.dtype == drawn.dtype == object
        assert set(filled[:, 1]) == {"clerk", "nurse", "smith"}
        assert set(drawn[:, 1]) <= {"clerk", "nurse", "smith"}
        assert set(filled[:, 5]) == {True, False}
        there = ~pd.isna(objects)
        assert (filled[there] == objects[there]).all()


def test_streamed_tables_give_tables_of_arrow():
    table = one_table()[["income", "age"]]
    model = VerticalGaussianMixture(2, random_state=0).fit(
        ArrowTable(pa.Table.from_pandas(table, preserve_index=False))
    )
    filled = model.impute(ArrowTable(pa.Table.from_pandas(table, preserve_index=False)))
    assert isinstance(filled, pa.Table)
    assert isinstance(model.sample(3)[0], pa.Table)
    np.testing.assert_allclose(filled.column("income"), model.impute(table)["income"])
