"""Tables larger than memory: the same numbers, and memory that does not grow with the rows."""

import pickle
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from sklearn.model_selection import GridSearchCV

from vpem import VerticalGaussianMixture, VerticalKMeans
from vpem.tables import ArrowTable

NAMES = ["age", "income", "visits", "basket"]
PARTIES = {"bank": ["age", "income"], "shop": ["visits", "basket"]}


def make_rows(n_rows, gaps=True):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 4)) + 4 * rng.integers(2, size=(n_rows, 1))
    if gaps:
        X[rng.random(X.shape) < 0.02] = np.nan
    return X


def arrow(X):
    return pa.table({name: pa.array(X[:, number], from_pandas=True) for number, name in enumerate(NAMES)})


@pytest.fixture(scope="module")
def X():
    return make_rows(50_000)


@pytest.fixture(scope="module")
def folder(X, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    pyarrow.parquet.write_table(arrow(X), folder / "whole.parquet", row_group_size=7000)
    (folder / "parts").mkdir()
    for number, rows in enumerate(np.array_split(X, 3)):
        pyarrow.parquet.write_table(arrow(rows), folder / "parts" / f"{number}.parquet")
    pyarrow.feather.write_feather(arrow(X), folder / "whole.feather")
    return folder


def sources(folder, X):
    return [
        ArrowTable(folder / "whole.parquet"),
        ArrowTable(str(folder / "parts")),
        ArrowTable(pyarrow.dataset.dataset(folder / "whole.feather", format="feather")),
        ArrowTable(arrow(X)),
    ]


def test_rows_in_any_order(folder, X):
    for table in sources(folder, X):
        assert table.shape == (50_000, 4)
        assert len(table) == 50_000
        for rows in (slice(0, 10), slice(10, 30_000), slice(30_000, 50_000), slice(5, 6), slice(50_000, 50_000)):
            np.testing.assert_array_equal(table[rows], X[rows])
        numbers = np.array([49_999, 3, 20_000])
        np.testing.assert_array_equal(table[numbers], X[numbers])
        again = pickle.loads(pickle.dumps(ArrowTable(folder / "whole.parquet")))
        np.testing.assert_array_equal(again[100:200], X[100:200])


def test_a_table_is_a_sequence_of_rows(X):
    table = ArrowTable(arrow(X[:100]))
    np.testing.assert_array_equal(np.asarray(table), X[:100])
    np.testing.assert_array_equal(list(table), X[:100])
    mask = np.arange(100) % 7 == 0
    np.testing.assert_array_equal(table[mask], X[:100][mask])
    assert table[[]].shape == (0, 4)
    for wrong in (3, "age", np.array([1.5]), (slice(0, 2), 1)):
        with pytest.raises(TypeError, match="a slice or a list of row numbers"):
            table[wrong]
    with pytest.raises(IndexError, match="from 0 to 99"):
        table[[100]]
    search = GridSearchCV(
        VerticalGaussianMixture(partition=[[0, 1], [2, 3]], random_state=0), {"n_components": [1, 2]}, cv=3
    ).fit(table)
    assert search.best_params_ == {"n_components": 2}


def test_large_numbers_nulls_and_booleans():
    table = ArrowTable(pa.table({"a": [2**60, None], "b": [True, False]}))
    np.testing.assert_array_equal(table[0:2], [[2.0**60, 1.0], [np.nan, 0.0]])


def test_a_file_that_changes_is_noticed(tmp_path, X):
    path = tmp_path / "table.parquet"
    pyarrow.parquet.write_table(arrow(X[:5000]), path)
    table = ArrowTable(path)
    pyarrow.parquet.write_table(arrow(X[:50]), path)
    for rows in (slice(0, 100), np.array([4999])):
        with pytest.raises(ValueError, match=r"changed|cannot be read"):
            table[rows]


@pytest.mark.processors
@pytest.mark.parametrize("arguments", [{}, {"batch_size": 20_000}, {"init_params": "random_from_data", "n_init": 2}])
def test_fits_and_predictions_are_those_of_the_array(folder, X, arguments):
    by_number = VerticalGaussianMixture(2, partition=[[0, 1], [2, 3]], random_state=0, **arguments).fit(X)
    for table in sources(folder, X)[:2]:
        model = VerticalGaussianMixture(2, partition=PARTIES, random_state=0, **arguments).fit(table)
        np.testing.assert_array_equal(model.means_, by_number.means_)
        np.testing.assert_array_equal(model.predict(table), by_number.predict(X))
        assert model.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="expected 4 columns, as in the fit, got 2"):
        model.predict(ArrowTable(folder / "whole.parquet", columns=["age", "income"]))
    with pytest.raises(ValueError, match="expected the columns of the fit, age, income"):
        model.predict(ArrowTable(folder / "whole.parquet", columns=NAMES[::-1]))


@pytest.mark.processors
def test_kmeans_and_streams_take_tables(folder, X):
    table = ArrowTable(folder / "whole.parquet")
    found = VerticalKMeans(2, partition=PARTIES, random_state=0).fit(table)
    np.testing.assert_array_equal(
        found.labels_, VerticalKMeans(2, partition=[[0, 1], [2, 3]], random_state=0).fit(X).labels_
    )
    model = VerticalGaussianMixture(2, partition=PARTIES, random_state=0).partial_fit(table)
    assert model.n_iter_ == 1


def test_bad_tables_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"found no .*nowhere\.parquet"):
        ArrowTable(tmp_path / "nowhere.parquet")
    (tmp_path / "text.parquet").write_text("age,income\n1,2\n")
    with pytest.raises(ValueError, match="is no Parquet or Arrow file"):
        ArrowTable(tmp_path / "text.parquet")
    mixed = pa.table({"age": [1.0, 2.0], "name": ["a", "b"]})
    with pytest.raises(ValueError, match="expected numbers in column 'name', got string; name the columns to use"):
        ArrowTable(mixed)
    assert ArrowTable(mixed, columns=["age"]).shape == (2, 1)
    with pytest.raises(ValueError, match="expected one of the columns age, name, got 'agee'"):
        ArrowTable(mixed, columns=["agee"])
    with pytest.raises(ValueError, match="infinity in column 'age'"):
        ArrowTable(pa.table({"age": [1.0, float("inf")]}))[0:2]
    with pytest.raises(ValueError, match="'age' more than once"):
        ArrowTable(mixed, columns=["age", "age"])
    with pytest.raises(ValueError, match="at least one column"):
        ArrowTable(mixed, columns=[])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="at least one column"):
        ArrowTable(tmp_path / "empty")
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        VerticalGaussianMixture().fit(ArrowTable(pa.table({"age": [1.0]})))


class WatchedTable(ArrowTable):
    """Notes how much memory Arrow holds at most."""

    most = 0

    def _checked(self, found):
        self.most = max(self.most, pa.total_allocated_bytes())
        return super()._checked(found)


@pytest.mark.parametrize("kind", ["memmap", "parquet"])
@pytest.mark.parametrize("batch_size", [None, 5_000])
def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch, kind, batch_size):
    # Small chunks, so that they do not hide what grows. What may grow: for k-means++ the distance of each row to
    # the nearest centre, and their cumulated sum (16 bytes a row); a few numbers for each batch.
    monkeypatch.setattr("vpem.core.rows.CHUNK_VALUES", 2**12)
    monkeypatch.setattr("vpem.tables.BATCH_ROWS", 1024)
    peaks = []
    for n_rows in (20_000, 80_000):
        X = make_rows(n_rows)
        if kind == "memmap":
            np.save(tmp_path / "table.npy", X)
            table = np.load(tmp_path / "table.npy", mmap_mode="r")
        else:
            pyarrow.parquet.write_table(arrow(X), tmp_path / "table.parquet", row_group_size=5000)
            table = WatchedTable(tmp_path / "table.parquet")
        del X
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        model = VerticalGaussianMixture(
            2, partition=[[0, 1], [2, 3]], random_state=0, tol=0.5, batch_size=batch_size
        ).fit(table)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        if kind == "parquet":
            peaks[-1] += max(table.most - before, 0)
        assert model.converged_
    assert peaks[1] - peaks[0] < 60_000 * 20
