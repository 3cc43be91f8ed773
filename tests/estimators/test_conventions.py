"""Every estimator does as scikit-learn's users expect: its own checks, weights of rows, where warnings point."""

import inspect
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import vpem
from vpem import DistributedDimensionKMeans, Gaussian, VerticalGaussianMixture, VerticalKMeans, VerticalMixture

ESTIMATORS = [
    VerticalGaussianMixture(),
    VerticalMixture(),
    VerticalMixture(families="gaussian"),
    VerticalMixture(density=Gaussian()),
    VerticalKMeans(n_clusters=2),
    DistributedDimensionKMeans(2, n_init=1),
]
X = np.random.default_rng(0).normal(size=(60, 3)) + 6 * (np.arange(60) % 2)[:, None]


def test_no_estimator_is_forgotten():
    public = [getattr(vpem, name) for name in vpem.__all__]
    known = {one for one in public if inspect.isclass(one) and issubclass(one, BaseEstimator)}
    assert {type(one) for one in ESTIMATORS} == known


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_own_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # otherwise scikit-learn skips one of them
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # they set max_iter to small numbers
        check(estimator)


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_matrix, sparse.dok_array])
def test_sparse_tables_are_refused_in_these_words(make):
    for estimator in ESTIMATORS:
        with pytest.raises(TypeError, match="Sparse data was passed"):
            estimator.fit(make(X))


def test_a_cell_holds_one_value():
    table = X.astype(object)
    table[4, 1] = {"a": 1}
    with pytest.raises(TypeError, match=r"one value in every cell, got {'a': 1} in row 4 of column 1; .* a string"):
        VerticalMixture(2).fit(table)


def test_arrays_of_objects_have_no_names():
    table = X.astype(object)
    model = VerticalMixture(2, random_state=0).fit(table)
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.predict(X), model.predict(table))
    table[:, 2] = np.where(X[:, 2] > 3, "high", "low")
    model.fit(table)
    assert not hasattr(model, "feature_names_in_")
    assert model.categories_ == {2: ["high", "low"]}


# Weights of rows


METHODS = [
    (estimator, name)
    for estimator in ESTIMATORS
    for name in ("fit", "partial_fit", "fit_predict", "score")
    if hasattr(estimator, name)
]


@pytest.mark.parametrize(("estimator", "name"), METHODS)
def test_weights_of_rows_are_refused_with_what_to_do_instead(estimator, name):
    estimator.fit(X)
    method, weights = getattr(estimator, name), np.ones(len(X))
    text = r"expected no sample_weight, got one: \w+ counts each row once; .* repeat rows .*np.repeat.*; .*rng.choice"
    text = text.replace(r"\w+", rf"{type(estimator).__name__}\.\w+")
    with pytest.raises(TypeError, match=text):
        method(X, sample_weight=weights)
    with pytest.raises(TypeError, match=text):
        method(X, None, sample_weight=weights)
    method(X, sample_weight=None)  # as scikit-learn's own estimators may be called
    assert "sample_weight" not in inspect.signature(method).parameters, (
        "scikit-learn would test that it has an effect"
    )


def test_weights_behind_the_other_arguments_and_in_pipelines_are_refused_too():
    weights = np.ones(len(X))
    with pytest.raises(TypeError, match=r"VerticalKMeans.fit counts each row once"):
        VerticalKMeans(2).fit(X, None, weights)
    pipeline = make_pipeline(StandardScaler(), VerticalGaussianMixture(2))
    with pytest.raises(TypeError, match=r"VerticalGaussianMixture.fit counts each row once"):
        pipeline.fit(X, verticalgaussianmixture__sample_weight=weights)


def test_repeated_rows_count_as_the_message_says():
    weights = np.random.default_rng(1).integers(0, 3, size=len(X))
    repeated = X[np.repeat(np.arange(len(X)), weights)]
    model = VerticalGaussianMixture(1, reg_covar=0).fit(repeated)
    np.testing.assert_allclose(model.means_[0], np.average(X, axis=0, weights=weights))


# Warnings


@pytest.mark.parametrize("estimator", [VerticalGaussianMixture(3, max_iter=1), VerticalKMeans(3, max_iter=1)])
def test_warnings_point_at_the_line_that_asked_for_the_fit(estimator):
    with pytest.warns(ConvergenceWarning) as caught:
        estimator.set_params(random_state=0, tol=0.0).fit(np.random.default_rng(0).normal(size=(200, 3)))
    assert {one.filename for one in caught} == {__file__}
