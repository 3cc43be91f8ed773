"""Columns of every type that polars and pandas have: taken as what they are, or refused by their names."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import vpem
from vpem import VerticalGaussianMixture, VerticalKMeans, VerticalMixture
from vpem.tables import join

N = 200
RNG = np.random.default_rng(0)
GROUP = RNG.integers(2, size=N)
BANK = pl.DataFrame(
    {
        "who": [f"c{number:03}" for number in range(N)],
        "job": np.where(RNG.random(N) < 0.9, np.where(GROUP, "nurse", "smith"), "clerk").tolist(),
        "income": RNG.normal(30 + 20 * GROUP, 5),
    }
)
SHOP = pl.DataFrame({"who": BANK["who"], "visits": RNG.poisson(3 + 6 * GROUP), "spent": RNG.normal(5 * GROUP, 1)})
TYPES = {
    "Categorical": lambda table: table.with_columns(pl.col("job").cast(pl.Categorical)),
    "Enum": lambda table: table.with_columns(pl.col("job").cast(pl.Enum(["smith", "nurse", "clerk", "baker"]))),
    "lazy": lambda table: table.lazy(),
}


def gaps(table):
    return table.with_columns(pl.when(pl.int_range(N) < 9).then(None).otherwise(pl.col("job")).alias("job"))


@pytest.mark.parametrize("kind", TYPES)
def test_tables_of_polars_of_every_type(kind, tmp_path):
    plain, typed = {"bank": BANK, "shop": SHOP}, {"bank": TYPES[kind](BANK), "shop": SHOP}
    expected = VerticalMixture(2, random_state=0).fit(plain, on="who")
    model = VerticalMixture(2, random_state=0).fit(typed, on="who")
    vpem.save(model, tmp_path / "m.vpem")
    again = vpem.load(tmp_path / "m.vpem")
    assert join(typed, on="who").ids == BANK["who"].to_list()
    assert model.categories_ == expected.categories_
    for one in (model, again):
        np.testing.assert_array_equal(one.predict_proba(typed), expected.predict_proba(plain))
    holes = {"bank": TYPES[kind](gaps(BANK)), "shop": SHOP}
    filled = model.impute(holes)["bank"]
    assert isinstance(filled, pl.DataFrame)
    assert filled.schema == (BANK if kind == "lazy" else typed["bank"]).schema
    assert filled["job"].to_list()[9:] == BANK["job"].to_list()[9:]
    assert filled["job"].null_count() == 0
    assert isinstance(model.sample(3)[0]["bank"], pl.DataFrame)


@pytest.mark.parametrize("kind", TYPES)
def test_one_table_of_polars(kind):
    partition = {"one": ["job"], "other": ["income"]}
    plain, typed = (own.drop("who") for own in (BANK, TYPES[kind](BANK)))
    model = VerticalMixture(2, partition=partition, random_state=0)
    expected = model.fit(plain).predict_proba(plain)
    np.testing.assert_array_equal(model.fit(typed).predict_proba(typed), expected)
    assert model.impute(typed).schema == (plain if kind == "lazy" else typed).schema


def test_numbers_in_lazy_frames():
    numbers = SHOP.select("visits", "spent")
    model = VerticalGaussianMixture(2, random_state=0)
    expected = model.fit(numbers).predict(numbers)
    np.testing.assert_array_equal(model.fit(numbers.lazy()).predict(numbers.lazy()), expected)


WORDS = BANK.select("job", "income")
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(days=number) for number in range(N)]


@pytest.mark.parametrize("estimator", [VerticalGaussianMixture, VerticalKMeans])
@pytest.mark.parametrize(
    "table",
    [
        WORDS,
        WORDS.with_columns(pl.col("job").cast(pl.Categorical)),
        WORDS.lazy(),
        WORDS.to_pandas(),
        WORDS.to_pandas().astype({"job": "category"}),
        WORDS.to_pandas().astype({"job": "string"}),
        WORDS.to_pandas().astype({"job": object}),
    ],
    ids=["polars", "Categorical", "lazy", "pandas", "category", "string", "object"],
)
def test_words_are_refused_by_the_columns_name(table, estimator):
    with pytest.raises(
        ValueError, match=r"words in column 'job' \('\w+'\); VerticalMixture\(families='auto'\) takes"
    ):
        estimator(2).fit(table)


def test_words_of_arrays_are_refused_by_the_columns_number():
    for table in (np.array([[1.0, "x"]] * N, dtype=object), np.array([["1", "x"]] * N)):
        with pytest.raises(ValueError, match=r"words in column 1 \('x'\); VerticalMixture"):
            VerticalGaussianMixture(2).fit(table)


DATES = {
    "polars": pl.DataFrame({"day": DAYS, "income": BANK["income"]}),
    "pandas": pd.DataFrame({"day": pd.to_datetime(DAYS), "income": BANK["income"].to_numpy()}),
    "periods": pd.DataFrame(
        {"day": pd.period_range("2020", periods=N, freq="D"), "income": BANK["income"].to_numpy()}
    ),
    "spans": pd.DataFrame({"day": pd.to_timedelta(np.arange(N), "D"), "income": BANK["income"].to_numpy()}),
    "arrow": pa.table({"day": DAYS, "income": BANK["income"].to_list()}),
}


@pytest.mark.parametrize("estimator", [VerticalGaussianMixture, VerticalMixture])
@pytest.mark.parametrize("kind", DATES)
def test_dates_are_refused_by_the_columns_name(kind, estimator):
    with pytest.raises(ValueError, match="dates or times in column 'day'; leave such columns out, or turn them into"):
        estimator(2).fit(DATES[kind])


@pytest.mark.parametrize("estimator", [VerticalGaussianMixture, VerticalMixture])
def test_arrays_of_dates_are_refused(estimator):
    with pytest.raises(ValueError, match="got dates or times of type datetime64"):
        estimator(2).fit(np.array([DAYS, DAYS], dtype="datetime64[D]").T)


def test_words_and_dates_are_told_at_once():
    both = DATES["polars"].with_columns(BANK["job"])
    with pytest.raises(ValueError, match=r"words in column 'job'.* and dates or times in column 'day'"):
        VerticalGaussianMixture(2).fit(both)


def test_new_rows_are_refused_in_the_same_words():
    model = VerticalGaussianMixture(2, random_state=0).fit(
        pd.DataFrame({"job": BANK["income"], "income": SHOP["spent"]})
    )
    with pytest.raises(ValueError, match="words in column 'job'"):
        model.predict(WORDS.to_pandas())
