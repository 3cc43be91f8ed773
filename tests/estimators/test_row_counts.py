"""Every fit knows its rows: of each party, in common, used, and gaps of each column."""

import warnings
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import vpem
from vpem import Masked, Star, VerticalGaussianMixture, VerticalMixture
from vpem.tables import ArrowTable, join
from vpem.verdict import colour

RNG = np.random.default_rng(0)
GROUP = RNG.integers(2, size=400)
VALUES = RNG.normal(size=(400, 4)) + 6 * GROUP[:, None]


def bank_and_shop(one, other, first=0):
    bank = pd.DataFrame({"id": one, "income": VALUES[: len(one), 0], "age": VALUES[: len(one), 1]})
    places = slice(first, first + len(other))
    return {"bank": bank, "shop": pd.DataFrame({"id": other, "visits": VALUES[places, 2]})}


def fit(tables, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vpem.FitWarning)
        return VerticalGaussianMixture(2, random_state=0).set_params(**arguments).fit(tables, on="id")


def test_leading_zeros_are_found():
    """An issue: 100 of 200 ids did not match, and nothing was said."""
    tables = bank_and_shop([f"{number:03d}" for number in range(200)], [str(number) for number in range(200)])
    tables["bank"].loc[:4, "income"] = np.nan
    model = fit(tables)
    assert model.rows_.describe() == "300 (200 of bank, 200 of shop), 100 in common; all used"
    assert model.rows_.gaps == {"income": 5}, "not those of rows that a party lacks"
    assert {"near_ids", "few_in_common"} <= {one.code for one in model.verdict_}
    assert colour(model.verdict_) == "amber"
    assert "300 (200 of bank, 200 of shop), 100 in common; all used" in model._repr_html_()


def test_two_rows_in_common_are_red():
    tables = bank_and_shop(range(200), range(198, 398), first=198)
    with pytest.warns(vpem.FitWarning, match="Of the 200 rows of 'bank', another table has 2"):
        VerticalGaussianMixture(2, random_state=0).fit(tables, on="id")


def test_files_keep_what_is_known_of_the_rows(tmp_path):
    tables = bank_and_shop([f"{number:03d}" for number in range(200)], [str(number) for number in range(200)])
    model = fit(tables)
    vpem.save(model, tmp_path / "model.vpem")
    assert vpem.load(tmp_path / "model.vpem").rows_ == model.rows_


def test_no_id_is_in_a_file(tmp_path):
    ids = [f"secret{number:03d}" for number in range(200)]
    model = fit(bank_and_shop(ids, [text.replace("secret00", "secret") for text in ids]))
    assert model.rows_.near[0].count == 10
    vpem.save(model, tmp_path / "model.vpem")
    with zipfile.ZipFile(tmp_path / "model.vpem") as archive:
        assert "secret" not in archive.read("model.json").decode()


def test_one_table_in_memory_and_as_a_stream():
    X = VALUES[:50].copy()
    X[:10, 0], X[5:20, 2:], X[7] = np.nan, np.nan, np.nan
    partition = {"a": [0, 1], "b": [2, 3]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vpem.FitWarning)
        model = VerticalGaussianMixture(2, partition=partition, random_state=0).fit(X)
        streamed = VerticalGaussianMixture(2, partition=partition, random_state=0).fit(
            ArrowTable(pa.table({str(n): pa.array(X[:, n], from_pandas=True) for n in range(4)}))
        )
    found = model.rows_
    assert found == streamed.rows_
    assert (found.n_rows, found.n_common, found.n_used, found.n_empty) == (50, 35, 49, 1)
    assert found.held == {"a": 49, "b": 35}
    assert found.gaps == {"0": 10, "1": 1, "2": 15, "3": 15}
    assert found.describe() == "50 (49 of a, 35 of b), 35 in common; 49 used"


def test_rows_that_masks_leave_out_are_not_used():
    X = VALUES.copy()
    X[:60, 0], X[60:90, :2] = np.nan, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vpem.FitWarning)
        model = VerticalGaussianMixture(2, summation=Masked(Star()), random_state=0, max_iter=3).fit(X)
    assert model.rows_.n_used == 370
    assert model.rows_.n_common == 310


def test_words_that_count_as_gaps_are_known(tmp_path):
    table = pd.DataFrame({"id": range(90), "job": ["NA", "clerk", "nurse"] * 30, "n": VALUES[:90, 0]})
    table.to_csv(tmp_path / "a.csv", index=False)
    table.drop(columns="job").rename(columns={"n": "m"}).to_csv(tmp_path / "b.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vpem.FitWarning)
        model = VerticalMixture(2, families="auto", random_state=0, max_iter=5)
        model.fit({"a": tmp_path / "a.csv", "b": tmp_path / "b.csv"}, on="id")
    assert model.rows_.gap_words == {"job": {"NA": 30}}
    assert model.rows_.gaps == {"job": 30}


def test_a_stream_has_no_rows_to_tell_of():
    model = fit(bank_and_shop(range(200), range(200)))
    assert model.rows_.describe() == "200, which all parties have; all used"
    model.partial_fit(join(bank_and_shop(range(200), range(200)), on="id"))
    assert not hasattr(model, "rows_")
