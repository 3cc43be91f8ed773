"""Columns divided by their own deviations: the fit does not know units, and everything is told in them."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

import vpem
from oracles import relative_error
from vpem import Consensus, FitWarning, VerticalGaussianMixture
from vpem.datasets import make_vertical_blobs
from vpem.tables import ArrowTable

BLOBS = make_vertical_blobs(400, 3, 2, 3, separation=3.0, random_state=2)
FACTORS = np.array([1.0, 1e-5, 1e6, 3.0, 0.02, 70.0])
OFFSETS = np.array([0.0, 1e-4, 5e6, -7.0, 0.0, 1e3])
X = BLOBS.data * FACTORS + OFFSETS


def with_gaps(table):
    table = table.copy()
    rng = np.random.default_rng(0)
    table[rng.random(table.shape) < 0.1] = np.nan
    table[:20, :2] = np.nan
    return table


def model(**arguments):
    usual = {"partition": BLOBS.partition, "random_state": 0, "standardize": True, "max_iter": 200}
    return VerticalGaussianMixture(3, **{**usual, **arguments})


WAYS = {
    "star": {},
    "tied": {"covariance_type": "tied"},
    "diag": {"covariance_type": "diag"},
    "ring": {"graph": "ring"},
    "hops": {"graph": "path", "hops": 1},
    "batches": {"batch_size": 90},
    "agents": {"engine": "agents"},
    "agents on a path": {"engine": "agents", "graph": "path"},
    "oas": {"shrinkage": "oas"},
    "auto": {"shrinkage": "auto"},
}


@pytest.mark.parametrize("gaps", [False, True], ids=["whole", "gaps"])
@pytest.mark.parametrize("way", WAYS)
def test_it_is_the_fit_of_scaled_columns_in_their_own_units(way, gaps):
    table = with_gaps(X) if gaps else X
    scale = np.nanstd(table, axis=0)
    found = model(**WAYS[way]).fit(table)
    other = model(**{**WAYS[way], "standardize": False}).fit(table / scale)
    np.testing.assert_allclose(found.scale_, scale, rtol=1e-12)
    np.testing.assert_allclose(found.means_, other.means_ * scale, rtol=1e-9)
    assert relative_error(found.covariance_matrix() / np.outer(scale, scale), other.covariance_matrix()) < 1e-9
    assert found.n_iter_ == other.n_iter_
    # The likelihood is that of the columns themselves: of each row, what it has of the determinant.
    there = ~np.isnan(table)
    shift = -(there * np.log(scale)).sum(axis=1)
    np.testing.assert_allclose(found.score_samples(table), other.score_samples(table / scale) + shift, atol=1e-7)
    per_row = shift.sum() / there.any(axis=1).sum()
    np.testing.assert_allclose(found.lower_bounds_, np.array(other.lower_bounds_) + per_row, atol=1e-8)
    assert found.log_likelihood_ == pytest.approx(found.score(table), abs=1e-9)
    assert found.certificate_.gain == pytest.approx(other.certificate_.gain, abs=1e-8)
    np.testing.assert_allclose(found.predict_proba(table), other.predict_proba(table / scale), atol=1e-8)


def test_units_play_no_part():
    one, other = model().fit(X), model().fit(X * 12.0)
    assert (one.predict(X) == other.predict(X * 12.0)).all()
    np.testing.assert_allclose(other.means_, one.means_ * 12.0, rtol=1e-9)
    assert other.log_likelihood_ == pytest.approx(one.log_likelihood_ - 6 * np.log(12.0), abs=1e-8)


def test_scikit_learn_says_the_same():
    scaler = StandardScaler(with_mean=False).fit(X)
    found = model(partition=[range(6)]).fit(X)
    start = {
        "weights_init": found.weights_,
        "means_init": found.means_ / scaler.scale_,
        "precisions_init": np.linalg.inv(found.covariance_matrix() / np.outer(scaler.scale_, scaler.scale_)),
    }
    theirs = GaussianMixture(3, tol=1e-3, max_iter=200, **start).fit(scaler.transform(X))
    np.testing.assert_allclose(theirs.means_ * scaler.scale_, found.means_, rtol=1e-2)
    made = found.to_sklearn()
    np.testing.assert_allclose(made.score_samples(X), found.score_samples(X), atol=1e-6)
    assert made.bic(X) == pytest.approx(found.bic(X))
    drawn, _ = found.set_params(random_state=1).sample(4000)
    np.testing.assert_allclose(drawn.std(axis=0) / X.std(axis=0), 1.0, atol=0.1)


def test_given_starts_are_in_the_columns_own_units():
    found = model().fit(X)
    precisions = [np.linalg.inv(covariances) for covariances in found.covariances_]
    start = {"weights_init": found.weights_, "means_init": found.means_, "precisions_init": precisions}
    again = model(**start, max_iter=1, tol=1e9)
    with pytest.warns(FitWarning):
        again.fit(X)
    assert again.lower_bounds_[0] == pytest.approx(found.log_likelihood_, abs=1e-8)


def test_going_on_keeps_the_scales():
    first = model(max_iter=1, warm_start=True)
    with pytest.warns(FitWarning, match="did not converge"):
        first.fit(X)
    scale = first.scale_
    likelihood = first.log_likelihood_
    first.set_params(max_iter=200).fit(X[:300])
    assert first.scale_ is scale
    assert likelihood < model().fit(X).log_likelihood_ + 1e-9
    stream = model().partial_fit(X[:200]).partial_fit(X[200:])
    np.testing.assert_allclose(stream.scale_, X[:200].std(axis=0), rtol=1e-12)
    scaled = model(standardize=False).partial_fit(X[:200] / stream.scale_).partial_fit(X[200:] / stream.scale_)
    np.testing.assert_allclose(stream.means_, scaled.means_ * stream.scale_, rtol=1e-9)
    assert not hasattr(first.set_params(standardize=False, warm_start=False).fit(X), "scale_")


def test_tables_of_all_kinds(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({f"c{n}": X[:, n] for n in range(6)}), tmp_path / "t.parquet")
    expected = model().fit(X)
    streamed = model(partition=list(BLOBS.partition.values())).fit(ArrowTable(tmp_path / "t.parquet"))
    np.testing.assert_allclose(streamed.means_, expected.means_, rtol=1e-9)
    single = model().fit(X.astype(np.float32))
    np.testing.assert_allclose(single.means_, expected.means_, rtol=1e-3)


def test_a_file_brings_the_scales_back(tmp_path):
    found = model(graph="ring").fit(X)
    vpem.save(found, tmp_path / "model")
    again = vpem.load(tmp_path / "model")
    assert again.standardize is True
    np.testing.assert_array_equal(again.scale_, found.scale_)
    np.testing.assert_array_equal(again.score_samples(X), found.score_samples(X))
    more = [one.set_params(warm_start=True).fit(X) for one in (found, again)]
    np.testing.assert_array_equal(more[0].means_, more[1].means_)
    assert clone(again).standardize is True


def test_what_is_told_during_a_fit_is_in_the_columns_own_units(capsys):
    seen = []
    found = model(callback=lambda *what: seen.append(what[-1]), verbose=1).fit(X)
    np.testing.assert_allclose(seen, found.lower_bounds_, atol=1e-9)
    assert f"log-likelihood {found.lower_bound_:.6f}" in capsys.readouterr().out


def test_columns_that_do_not_vary_and_wrong_arguments():
    table = X.copy()
    table[:, 4] = 0.1
    found = model().fit(table)
    assert found.scale_[4] == 1.0
    assert "constant" in {finding.code for finding in found.verdict_}
    with pytest.raises(ValueError, match=r"'spherical'.*try standardize=False"):
        model(covariance_type="spherical").fit(X)
    with pytest.raises(TypeError, match="True or False"):
        model(standardize="yes").fit(X)
    table[0, 0] = 1e200
    with pytest.raises(ValueError, match="squares can be added"):
        model().fit(table)


def test_a_sum_that_is_not_exact_is_told_so_in_any_units():
    with pytest.warns(FitWarning, match="rounds of averaging"):
        found = model(graph="path", summation=Consensus(1), max_iter=500).fit(X)
    assert found.log_likelihood_ == pytest.approx(found.score(X), abs=1e-9)
