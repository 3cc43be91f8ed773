"""VerticalGaussianMixture as a scikit-learn estimator."""

import itertools
import pickle
import re
import warnings
from fractions import Fraction

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oracles import make_settings, relative_error
from vpem import CollapsedComponentError, Consensus, Star, VerticalGaussianMixture
from vpem.core.agent.meeting import meeting_traffic
from vpem.core.network.traffic import pooling_traffic
from vpem.core.settings import Agreement
from vpem.estimators import checks
from vpem.estimators.precisions import covariances_from_precisions
from vpem.simulation.fit import em, make_start
from vpem.simulation.model import make_problem
from vpem.tables import ArrowTable

TYPES = ["full", "tied", "diag", "spherical"]
PARTIES = {"bank": [0, 3], "shop": [1, 2], "post": [4]}

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(11)
    shape = rng.normal(size=(5, 5)) / 2 + np.eye(5)
    return rng.normal(size=(300, 5)) @ shape + 3 * rng.integers(2, size=(300, 1)) + np.arange(5)


def fitted(X, **arguments):
    settings = {"n_components": 2, "partition": PARTIES, "random_state": 0, "tol": 1e-5, "max_iter": 500}
    return VerticalGaussianMixture(**{**settings, **arguments}).fit(X)


@pytest.mark.processors
@pytest.mark.parametrize("covariance_type", TYPES)
def test_one_party_is_scikit_learn(X, covariance_type):
    start = {"weights_init": [0.4, 0.6], "means_init": X[[0, 1]]}
    precisions = {
        "full": np.array([np.eye(5)] * 2),
        "tied": np.eye(5),
        "diag": np.ones((2, 5)),
        "spherical": np.ones(2),
    }[covariance_type]
    common = {"covariance_type": covariance_type, "tol": 1e-6, "max_iter": 500, **start}
    expected = GaussianMixture(2, precisions_init=precisions, **common).fit(X)
    found = VerticalGaussianMixture(2, partition=[range(5)], precisions_init=[precisions], **common).fit(X)
    assert found.n_iter_ == expected.n_iter_ > 3
    for name in ("weights_", "means_", "lower_bounds_"):
        assert relative_error(getattr(found, name), getattr(expected, name)) < 1e-9
    assert relative_error(found.covariances_[0], expected.covariances_) < 1e-9
    assert found.covariances_[0].shape == expected.covariances_.shape
    np.testing.assert_allclose(found.score_samples(X), expected.score_samples(X), rtol=1e-9)
    assert found.bic(X) == pytest.approx(expected.bic(X))
    assert found.aic(X) == pytest.approx(expected.aic(X))


@pytest.mark.processors
@pytest.mark.parametrize(("covariance_type", "shape"), [("full", (2, 1, 1)), ("diag", (2, 1)), ("spherical", 2)])
def test_one_party_per_column_is_scikit_learns_diag(X, covariance_type, shape):
    common = {"weights_init": [0.4, 0.6], "means_init": X[[0, 1]], "tol": 1e-6, "max_iter": 500}
    expected = GaussianMixture(2, covariance_type="diag", precisions_init=np.ones((2, 5)), **common).fit(X)
    found = VerticalGaussianMixture(
        2, covariance_type=covariance_type, precisions_init=[np.ones(shape)] * 5, **common
    ).fit(X)
    assert found.n_iter_ == expected.n_iter_
    for name in ("weights_", "means_", "lower_bounds_"):
        assert relative_error(getattr(found, name), getattr(expected, name)) < 1e-9
    found_variances = np.diagonal(found.covariance_matrix(), axis1=1, axis2=2)
    assert relative_error(found_variances, expected.covariances_) < 1e-9


@pytest.mark.processors
@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("graph", ["star", "path"])
def test_to_sklearn_has_the_same_densities(X, covariance_type, graph):
    model = fitted(X, covariance_type=covariance_type, graph=graph)
    other = model.to_sklearn()
    np.testing.assert_allclose(other.score_samples(X), model.score_samples(X), rtol=1e-9)
    np.testing.assert_allclose(other.predict_proba(X), model.predict_proba(X), atol=1e-9)
    assert (other.predict(X) == model.predict(X)).all()
    assert other.sample(3)[0].shape == (3, 5)
    assert other.n_iter_ == model.n_iter_
    assert other.covariance_type == ("diag" if covariance_type == "spherical" else covariance_type)
    if other.covariance_type == "diag":
        np.testing.assert_allclose(other.precisions_ * other.covariances_, 1.0)
    else:
        products = other.precisions_ @ other.covariances_
        np.testing.assert_allclose(products, np.broadcast_to(np.eye(5), products.shape), atol=1e-9)


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("partition", [[range(5)], PARTIES, None], ids=["one", "three", "five"])
def test_to_sklearn_has_the_same_criteria(X, covariance_type, partition):
    model = fitted(X, covariance_type=covariance_type, partition=partition)
    widths = [len(hub.columns) for hub in model.hubs_]
    entries = {
        "full": 2 * sum(width * (width + 1) // 2 for width in widths),
        "tied": sum(width * (width + 1) // 2 for width in widths),
        "diag": 2 * 5,
        "spherical": 2 * len(widths),
    }[covariance_type]
    converted = model.to_sklearn()
    for other in (converted, pickle.loads(pickle.dumps(converted))):
        assert other._n_parameters() == 1 + 2 * 5 + entries
        assert other.bic(X) == pytest.approx(model.bic(X), rel=1e-9)
        assert other.aic(X) == pytest.approx(model.aic(X), rel=1e-9)
        np.testing.assert_allclose(other.score_samples(X), model.score_samples(X), rtol=1e-9)
    if partition and len(partition) == 1:
        assert type(converted) is GaussianMixture, "scikit-learn has the same model"
        assert converted.covariance_type == covariance_type
        assert converted.covariances_.shape == converted.precisions_.shape == model.covariances_[0].shape


def test_a_converted_model_that_is_fitted_again_has_no_blocks(X):
    converted = fitted(X).to_sklearn()
    dense = GaussianMixture(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="minimum of 2"):
        converted.fit(X[:1])
    assert converted._n_parameters() < dense._n_parameters()
    for again in (clone(converted).fit(X), converted.fit(X)):
        assert again._n_parameters() == dense._n_parameters()


def test_attributes_fit_together_on_a_graph_with_hubs(X):
    graph = nx.Graph([("bank", "shop"), ("shop", "post")])
    model = fitted(X, graph=graph, hops=1, summation=Consensus(5))
    [hub] = model.hubs_
    assert hub == ("shop", ("bank", "shop", "post"), (0, 3, 1, 2, 4))
    dense = model.covariance_matrix()
    np.testing.assert_array_equal(dense[:, hub.columns][:, :, hub.columns], model.covariances_[0])
    assert model.means_.shape == (2, 5)
    assert model.hub_weights_.shape == (1, 2)

    model = fitted(X, graph=graph, summation=Consensus(3))
    assert [hub.root for hub in model.hubs_] == ["bank", "shop", "post"]
    assert model.hub_weights_.shape == (3, 2)
    np.testing.assert_allclose(model.weights_, model.hub_weights_.mean(axis=0))
    assert np.ptp(model.hub_weights_, axis=0).max() > 0, "roots keep their own estimates"
    assert model.disagreement_ == model.certificate_.disagreement > 0
    assert model.lower_bound_ == model.lower_bounds_[-1]
    assert len(model.lower_bounds_) == model.n_iter_
    outside = np.ix_([0, 3], [1, 2, 4])
    assert not any(matrix[outside].any() for matrix in model.covariance_matrix())


def test_predictions_and_scores_are_those_of_the_assembled_model(X):
    model = fitted(X, graph="path", summation=Consensus(2))
    assert model.disagreement_ > 1e-3
    dense = model.covariance_matrix()
    log_joint = np.log(model.hub_weights_.mean(axis=0)) + np.column_stack(
        [multivariate_normal.logpdf(X, mean, matrix) for mean, matrix in zip(model.means_, dense, strict=True)]
    )
    np.testing.assert_allclose(model.score_samples(X), logsumexp(log_joint, axis=1), rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X), softmax(log_joint, axis=1), atol=1e-12)
    assert model.score(X) == pytest.approx(logsumexp(log_joint, axis=1).mean(), rel=1e-12)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_given_precisions_follow_the_hubs_columns(X, covariance_type):
    rng = np.random.default_rng(0)
    columns = [(1, 2), (4,), (0, 3)]  # the order of hubs_ for this graph and partition

    def precisions(width):
        roots = rng.normal(size=(2, width, width)) + 2 * np.eye(width)
        matrices = roots @ roots.transpose(0, 2, 1)
        variances = np.diagonal(matrices, axis1=1, axis2=2)
        return {"full": matrices, "tied": matrices[0], "diag": variances, "spherical": variances[:, 0]}[
            covariance_type
        ]

    given = [precisions(len(held)) for held in columns]
    model = fitted(
        X,
        partition={"shop": [1, 2], "post": [4], "bank": [0, 3]},
        covariance_type=covariance_type,
        max_iter=0,
        weights_init=[0.3, 0.7],
        means_init=X[:2],
        precisions_init=given,
    )
    assert [hub.columns for hub in model.hubs_] == columns
    for found, precision in zip(model.covariances_, given, strict=True):
        expected = np.linalg.inv(precision) if covariance_type in ("full", "tied") else 1 / precision
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_array_equal(model.means_, X[:2])
    np.testing.assert_array_equal(model.weights_, [0.3, 0.7])


def test_a_large_offset_changes_nothing(X):
    near, far = fitted(X), fitted(X + 1e7)
    # Rows are rounded to 1e7 * 1e-16.
    np.testing.assert_allclose(far.means_ - 1e7, near.means_, atol=1e-6)
    np.testing.assert_allclose(far.covariance_matrix(), near.covariance_matrix(), atol=1e-6)


@pytest.mark.processors
def test_enough_rounds_equal_the_star(X):
    star, ring = fitted(X), fitted(X, graph="path", summation=Consensus(100))  # 2/3 to the hundredth
    assert relative_error(ring.means_, star.means_) < 1e-9
    assert ring.n_iter_ == star.n_iter_
    assert ring.disagreement_ < 1e-9
    assert star.disagreement_ == 0


@pytest.mark.parametrize("graph", ["star", "ring", "path", "complete"])
def test_one_party_one_component(graph):
    X = np.random.default_rng(0).normal(size=(50, 2)) * 3 + 1
    model = VerticalGaussianMixture(1, partition=[[0, 1]], graph=graph).fit(X)
    np.testing.assert_allclose(model.means_[0], X.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(model.covariance_matrix()[0], np.cov(X.T, bias=True) + 1e-6 * np.eye(2), rtol=1e-9)
    assert model.converged_
    assert model.weights_.tolist() == [1.0]
    assert (model.predict(X) == 0).all()


def test_traffic_of_a_fit_adds_up_by_hand(X):
    model = fitted(X, init_params="random", n_init=2)
    # Numbers for two components, whether to stop, the smallest bound, who found one of the two broken; a header.
    each = 8 * 300 * 2 + 8 * (2 + 2) + 68
    meeting = meeting_traffic(model.fitted_.network, 300, 0)
    assert (meeting.messages, meeting.rounds) == (12, 2)
    assert model.traffic_.messages % 6 == 0
    assert model.traffic_.bytes - meeting.bytes == (model.traffic_.messages - 12) * each
    one = fitted(X, init_params="random")
    assert one.traffic_.messages == 6 * (one.n_iter_ + 1) + 12
    assert one.traffic_.rounds == 2 * (one.n_iter_ + 1) + 2
    assert one.traffic_.per_agent["server"].messages_sent == 3 * (one.n_iter_ + 1) + 6

    hubs = fitted(X, init_params="random", graph="path", hops=1, summation=Consensus(7))
    before = pooling_traffic(hubs.fitted_.network, 300).bytes
    assert before == 8 * 300 * (2 + 1) + 2 * 68
    before += meeting_traffic(hubs.fitted_.network, 300, 1).bytes
    assert hubs.traffic_.bytes == before + (hubs.n_iter_ + 1) * (2 * (4800 + 68) + 7 * 4 * each)


def test_restarts_differ_and_the_best_is_kept_by_the_root_that_sees_least(X):
    # Two rounds on a path: the roots see so different likelihoods that they rank restarts differently.
    arguments = {"n_components": 3, "init_params": "random_from_data", "graph": "path", "summation": Consensus(2)}
    seed = checks.shared_seed(0)
    network, summation = checks.build_network(PARTIES, "path", 0, Consensus(2), 5, None, seed)
    rules = make_settings(n_components=3, covariance_type="full", tol=1e-5, reg_covar=1e-6, max_iter=500)
    fits, problem = [], make_problem(X, network, summation, rules.density)
    for restart in range(6):
        channel = problem.channel()
        agreement = Agreement(settings=rules, summation=summation, seed=seed, init_params="random_from_data")
        start = make_start(problem, channel, agreement, number=restart)
        fits.append(em(problem, channel, start.mixture, rules))
    seen = np.array([fit.lower_bounds[-1] for fit in fits])
    assert len(np.unique(seen.round(6), axis=0)) > 1
    best = seen.min(axis=1).argmax()
    assert best != seen.mean(axis=1).argmax(), "the example must have a difference to show"
    model = fitted(X, n_init=6, **arguments)
    np.testing.assert_array_equal(model.hub_weights_, fits[best].mixture.weights)
    assert model.lower_bound_ == seen[best].mean()
    meeting = meeting_traffic(network, len(X), 0)
    assert model.traffic_.bytes == sum(fit.traffic.bytes for fit in fits) + meeting.bytes


@pytest.mark.processors
def test_a_warm_start_goes_on_where_it_stopped(X):
    with pytest.warns(ConvergenceWarning):
        whole = fitted(X, graph="path", summation=Consensus(3), tol=0.0, max_iter=8)
    model = VerticalGaussianMixture(
        2,
        partition=PARTIES,
        random_state=0,
        graph="path",
        summation=Consensus(3),
        tol=0.0,
        max_iter=4,
        warm_start=True,
    )
    for _ in range(2):
        with pytest.warns(ConvergenceWarning):
            model.fit(X)
    np.testing.assert_array_equal(model.hub_weights_, whole.hub_weights_)
    np.testing.assert_array_equal(model.means_, whole.means_)
    assert model.lower_bounds_ == whole.lower_bounds_[4:]
    assert model.n_iter_ == 4
    for change in (
        {"n_components": 3},
        {"partition": [[0, 1], [2], [3, 4]]},
        {"graph": "star", "summation": None},
    ):
        other = pickle.loads(pickle.dumps(model)).set_params(**change)
        with pytest.raises(ValueError, match="try warm_start=False"):
            other.fit(X)
        assert other.predict(X).shape == (300,), "a refused fit leaves the model as it was"
    with pytest.raises(ValueError, match="3 features"):
        model.fit(X[:, :3])
    assert model.predict(X).shape == (300,)
    with pytest.warns(ConvergenceWarning):
        model.set_params(summation=Consensus(50)).fit(X)
    assert model.disagreement_ < 1e-6, "links and rounds may change"


def test_a_converged_warm_start_stops_at_once(X):
    model = fitted(X, warm_start=True)
    assert model.fit(X).n_iter_ == 1


@pytest.mark.processors
def test_data_frames_by_column_name(X):
    names = ["age", "visits", "basket", "income", "parcels"]
    by_name = {"bank": ["age", "income"], "shop": ["visits", "basket"], "post": "parcels"}
    expected = fitted(X)
    for table in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
        model = fitted(table, partition=by_name)
        assert model.feature_names_in_.tolist() == names
        np.testing.assert_array_equal(model.means_, expected.means_)
        np.testing.assert_array_equal(model.predict(table), expected.predict(X))
    assert [hub.columns for hub in model.hubs_] == [(0, 3), (1, 2), (4,)]
    assert model.to_sklearn().feature_names_in_.tolist() == names


def test_float32_gives_the_same_model_to_its_own_precision(X):
    low = X.astype(np.float32)
    np.testing.assert_allclose(fitted(low).means_, fitted(low.astype(np.float64)).means_, rtol=1e-12)


def test_samples_follow_the_model(X):
    for covariance_type in TYPES:
        model = fitted(X, covariance_type=covariance_type)
        drawn, labels = model.sample(40_000)
        assert drawn.shape == (40_000, 5)
        np.testing.assert_array_equal(np.sort(labels), labels)
        for k in range(2):
            own = drawn[labels == k]
            # Standard errors at about 15,000 rows: 1% of a deviation, 2% of a variance.
            np.testing.assert_allclose(own.mean(axis=0), model.means_[k], atol=0.1)
            assert relative_error(np.cov(own.T), model.covariance_matrix()[k]) < 0.1
    with pytest.raises(ValueError, match="n_samples"):
        model.sample(0)


def test_information_criteria_count_the_blocks(X):
    model = fitted(X)  # weights 1, means 10, blocks of 2, 2 and 1 columns: 2 * (3 + 3 + 1)
    log_likelihood = model.score(X) * 300
    assert model.aic(X) == pytest.approx(-2 * log_likelihood + 2 * 25)
    assert model.bic(X) == pytest.approx(-2 * log_likelihood + np.log(300) * 25)


def test_it_clones_pickles_pipes_and_searches(X):
    model = fitted(X, graph=nx.path_graph(3), summation=Consensus(4, "laplacian"))
    assert clone(model).get_params()["summation"] == Consensus(4, "laplacian")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.traffic_.bytes == model.traffic_.bytes
    assert model.set_params(covariance_type="diag").to_sklearn().covariance_type == "full", "as it was fitted"
    pipe = make_pipeline(StandardScaler(), VerticalGaussianMixture(2, partition=PARTIES, random_state=0)).fit(X)
    assert set(pipe.predict(X)) == {0, 1}
    search = GridSearchCV(
        VerticalGaussianMixture(random_state=0, partition=PARTIES), {"n_components": [1, 2]}, cv=3
    ).fit(X)
    assert search.best_params_ == {"n_components": 2}


def test_parts_of_a_start_can_be_given(X):
    means = X[[3, 4]]
    given, other = fitted(X, max_iter=0, means_init=means), fitted(X, max_iter=0)
    np.testing.assert_array_equal(given.means_, means)
    np.testing.assert_array_equal(given.weights_, other.weights_)
    np.testing.assert_array_equal(given.covariance_matrix(), other.covariance_matrix())
    assert given.n_iter_ == 0


def test_verbose_tells_of_starts_and_iterations(X, capsys):
    model = fitted(X, verbose=2)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "the network's sum is computed as the exact sum"
    assert len(lines) == model.n_iter_ + 1
    assert "iteration 2: log-likelihood" in lines[1]
    assert f"converged in {model.n_iter_} iterations" in lines[-1]
    fitted(X, verbose=1, graph="path", summation=Consensus(100))
    first, last = capsys.readouterr().out.splitlines()
    assert first.endswith("from which the rounds differ by less than rounding")
    assert "converged in" in last
    fitted(X)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components to be a whole number, 1 or more, got 0"),
        ({"n_components": 301}, "n_samples = 300, n_components = 301; try a smaller"),
        ({"covariance_type": "fuller"}, "one of 'full', 'tied', 'diag', 'spherical', got 'fuller'"),
        ({"init_params": "k-means"}, "got 'k-means'"),
        ({"tol": -1}, "tol to be a finite number, 0 or more"),
        ({"reg_covar": float("nan")}, "reg_covar"),
        ({"max_iter": 1.5}, "max_iter"),
        ({"n_init": 0}, "n_init"),
        ({"hops": 1}, "centralized EM"),
        ({"summation": Consensus(3)}, "star, whose server adds exactly"),
        ({"summation": Star(), "graph": "ring"}, "graph without a server"),
        ({"graph": nx.Graph([(0, 1)])}, "2 nodes"),
        ({"graph": nx.empty_graph(3)}, "3 separate pieces"),
        ({"partition": [[0, 1], [2, 3]]}, "held by no party: 4"),
        ({"weights_init": [0.5, 0.6]}, "add up to 1"),
        ({"weights_init": [1.0, 0.0]}, "never revive"),
        ({"weights_init": [1.0]}, r"shape \(2,\), got shape \(1,\)"),
        ({"means_init": np.zeros((2, 4))}, r"shape \(2, 5\), got shape \(2, 4\)"),
        ({"means_init": np.full((2, 5), np.nan)}, "means_init to be finite"),
        ({"means_init": "rows"}, "means_init to be numbers"),
        ({"precisions_init": [np.ones((2, 2, 2))]}, "each of the 3 blocks"),
        (
            {"precisions_init": [np.ones((2, 2, 2))] * 2 + [np.ones((2, 1, 1))]},
            "precisions_init.0. to be symmetric",
        ),
        ({"precisions_init": 3}, "a list with an array for each block, got 3"),
        ({"precisions_init": {"bank": 1}}, "a list with an array"),
        ({"precisions_init": [[[[1e-9, 5e-10], [0, 1e-9]]] * 2] * 2 + [np.ones((2, 1, 1))]}, "to be symmetric"),
        ({"verbose": "x"}, "verbose to be a whole number"),
        ({"precisions_init": [-np.ones((2, 2))] * 3, "covariance_type": "diag"}, "to be positive"),
        ({"shrinkage": "oas", "covariance_type": "diag"}, "expected covariance_type 'full' or 'tied' with shrinkage"),
        ({"shrinkage": 0.5, "covariance_type": "spherical"}, "toward their diagonals, got shrinkage=0.5 with 'sph"),
    ],
)
def test_bad_arguments_say_what_was_expected(X, arguments, message):
    with pytest.raises(ValueError, match=message):
        fitted(X, **arguments)


NO_MATRICES = {
    "zero": np.zeros((2, 2)),
    "singular": np.ones((2, 2)),
    "singular but for rounding": [[1.0, 1 / 3], [1 / 3, 1 / 9 + 1e-17]],
    "indefinite": [[1.0, 2.0], [2.0, 1.0]],
    "asymmetric": [[1.0, 0.5], [0.1, 1.0]],
    "negative": -np.eye(2),
    "not a number": [[np.nan, 0.0], [0.0, 1.0]],
}


@pytest.mark.parametrize("exponent", [-320, -310, -299, -220, -140, 0, 8, 140, 299, 307])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_precisions_of_every_size(X, covariance_type, exponent):
    scale = float(f"1e{exponent}")

    def of_type(matrix, width):
        matrix = np.asarray(matrix)[:width, :width] * scale
        variances = np.diagonal(matrix)
        forms = {"full": [matrix] * 2, "tied": matrix, "diag": [variances] * 2, "spherical": [variances[0]] * 2}
        return np.array(forms[covariance_type])

    def fit_with(matrix, max_iter):
        given = [of_type(matrix, 2), of_type(matrix, 2), of_type(np.eye(1), 1)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            common = {"weights_init": [0.3, 0.7], "means_init": X[:2], "precisions_init": given}
            return given, fitted(X, covariance_type=covariance_type, max_iter=max_iter, **common)

    sound = [[2.0, -1.0], [-1.0, 3.0]]
    if -300 <= exponent <= 300:
        given, model = fit_with(sound, 0)
        for found, precision in zip(model.covariances_, given, strict=True):
            expected = np.linalg.inv(precision / scale) if covariance_type in ("full", "tied") else scale / precision
            np.testing.assert_allclose(found * scale, expected, rtol=1e-12)
        _, model = fit_with(sound, 2)
        assert np.isfinite(model.covariance_matrix()).all()
        assert np.isfinite(model.means_).all()
    else:
        with pytest.raises(
            ValueError, match=r"(?s)precisions_init.0. to be .*from 1e-300 to 1e\+300, got .*scale the col"
        ):
            fit_with(sound, 0)
    for name, matrix in NO_MATRICES.items():
        if name in ("zero", "negative", "not a number") or covariance_type in ("full", "tied"):
            with pytest.raises(ValueError, match=r"expected precisions_init.0. to be") as caught:
                fit_with(matrix, 0)
            assert type(caught.value) is ValueError, name


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_singular_precisions_are_singular_at_every_scale(covariance_type):
    network, _ = checks.build_network([range(3)], "star", 0, None, 3, None, 0)
    for exponent in range(-320, 308):
        precisions = np.ones((1, 3, 3) if covariance_type == "full" else (3, 3)) * float(f"1e{exponent}")
        with pytest.raises(ValueError, match="to be symmetric and positive definite"):
            covariances_from_precisions([precisions], covariance_type, 1, network)


def test_no_shrinkage_suits_every_covariance_type(X):
    for nothing in (None, 0, 0.0):
        assert fitted(X, shrinkage=nothing, covariance_type="diag").converged_
    assert fitted(X, shrinkage="oas", covariance_type="tied").converged_


def test_a_summation_of_another_kind(X):
    for wrong in ("consensus", Consensus):
        with pytest.raises(TypeError, match=r"expected summation to be None, Star\(\), Tree\(\), Consensus"):
            fitted(X, summation=wrong)


def test_infinities_gaps_and_a_collapse_are_errors(X):
    bad = X.copy()
    bad[3, 2] = np.inf
    with pytest.raises(ValueError, match="got infinity in X"):
        fitted(bad)
    constant = X.copy()
    constant[:, 4] = 1.0
    with pytest.raises(CollapsedComponentError, match="no component can have a covariance at party 'post'"):
        fitted(constant, reg_covar=0)
    with pytest.raises(NotFittedError):
        VerticalGaussianMixture().predict(X)
    with pytest.raises(NotFittedError):
        VerticalGaussianMixture().sample()
    failed = VerticalGaussianMixture(301)
    with pytest.raises(ValueError, match="n_components"):
        failed.fit(X)
    with pytest.raises(NotFittedError):
        failed.predict(X)


@pytest.mark.processors
def test_a_generator_is_a_random_state(X):
    first, second = (fitted(X, random_state=np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(first.means_, second.means_)
    assert first.sample(5)[0].shape == (5, 5)


def test_rows_beyond_all_densities(X):
    far = np.vstack([X[:1], np.full((1, 5), 1e149)])
    model = fitted(X)
    assert np.isfinite(model.predict_proba(far)).all()
    assert -1e300 < model.score_samples(far)[1] < -1e290
    # Zero times minus infinity would be NaN: with one round, agents two hops away count for nothing.
    with pytest.warns(ConvergenceWarning):
        lost = fitted(X, graph="path", summation=Consensus(1), means_init=np.full((2, 5), 1e160), max_iter=3, tol=0.0)
    assert np.isfinite(lost.lower_bounds_).all()
    assert np.isfinite(lost.means_).all()


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score", "score_samples", "bic", "aic"])
def test_predictions_refuse_what_fits_refuse(X, method):
    model = fitted(X)
    names = ["age", "visits", "basket", "income", "parcels"]
    by_name = fitted(pd.DataFrame(X, columns=names))
    for value, shown in ((1e155, r"1e\+155"), (-1e200, r"1e\+200")):
        far = X.copy()
        far[299, 3], far[0, 0] = value, np.nan
        message = (
            f"expected numbers whose squares can be added, got {shown} in column 3 of party 'bank'; scale the col"
        )
        with pytest.raises(ValueError, match=message):
            getattr(model, method)(far)
        with pytest.raises(ValueError, match=message):
            getattr(by_name, method)(ArrowTable(pa.table(dict(zip(names, far.T, strict=True)))))
        with pytest.raises(ValueError, match=message):
            fitted(far)


def largest_density(row, model):
    """The component whose density is largest far from all, in exact arithmetic."""
    distances = []
    for mean, precision in zip(model.means_, np.linalg.inv(model.covariance_matrix()), strict=True):
        deviations = [Fraction(x) - Fraction(m) for x, m in zip(row.tolist(), mean.tolist(), strict=True)]
        weights = [[Fraction(entry) for entry in entries] for entries in precision.tolist()]
        pairs = itertools.product(range(len(row)), repeat=2)
        distances.append(sum(deviations[i] * weights[i][j] * deviations[j] for i, j in pairs))
    return distances.index(min(distances))


@pytest.mark.parametrize("partition", [[range(5)], PARTIES, None], ids=["one", "three", "five"])
@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_rows_just_within_the_limit_get_the_right_component(X, covariance_type, partition):
    rng = np.random.default_rng(3)
    spread = np.vstack([X[:150] * [0.1, 1.0, 3.0, 0.5, 1.0], 20 + X[150:] * [2.0, 0.1, 1.0, 1.0, 3.0]])
    model = fitted(spread, covariance_type=covariance_type, partition=partition)
    rows = np.vstack([np.eye(5), -np.eye(5), rng.uniform(-1, 1, size=(20, 5)), np.ones((1, 5))])
    seen = set()
    for size in (1e20, 1e100, 1e149):
        found = model.predict_proba(rows * size)
        expected = [largest_density(row, model) for row in rows * size]
        np.testing.assert_array_equal(found, np.eye(2)[expected])
        seen |= set(expected)
    assert seen == {0, 1} or covariance_type == "spherical", "either component wins somewhere"


@pytest.mark.parametrize("covariance_type", TYPES)
def test_rows_too_many_deviations_away_are_refused(X, covariance_type):
    def narrow(*precisions):
        forms = {"full": [p * np.eye(5) for p in precisions], "tied": precisions[0] * np.eye(5)}
        forms |= {"diag": np.outer(precisions, np.ones(5)), "spherical": precisions}
        common = {"weights_init": [0.5, 0.5], "means_init": X[:2], "precisions_init": [forms[covariance_type]]}
        return fitted(X, partition={"all": range(5)}, covariance_type=covariance_type, max_iter=0, **common)

    far = X[:3].copy()
    far[1, 4], far[2, 0] = -1e149, np.nan
    message = r"got -1e\+149 in column 4 of party 'all', 1e\+153 standard deviations from every .*; leave out row 1$"
    with pytest.raises(ValueError, match=message):
        narrow(1e8, 1e8).predict_proba(far)
    if covariance_type != "tied":
        np.testing.assert_array_equal(narrow(1e8, 1.0).predict(far)[1], 1)


@pytest.mark.processors
def test_agents_are_an_engine_of_their_own(X, capsys):
    model = fitted(X, engine="agents", graph="path", n_init=2, init_params="random", verbose=2)
    simulated = fitted(X, graph="path", n_init=2, init_params="random")
    assert relative_error(model.means_, simulated.means_) < 1e-9
    assert model.certificate_.gain == pytest.approx(simulated.certificate_.gain, abs=1e-9)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("start 1, iteration 1: log-likelihood")
    assert any(line.startswith("start 2, iteration 2: log-likelihood") for line in lines)
    assert re.match(r"start [12] converged in \d+ iterations: log-likelihood", lines[-1]), "the best of them"
    names = {"bank": [0], 7: [1], ("a", "b"): [2, 3, 4]}
    assert set(fitted(X, engine="agents", partition=names).traffic_.per_agent) == {*names, "server"}


def test_what_agents_cannot_do(X):
    with pytest.raises(ValueError, match="one of 'simulation', 'agents', got 'magic'"):
        fitted(X, engine="magic")
    with pytest.raises(ValueError, match="expected engine='simulation' to go on"):
        VerticalGaussianMixture(2, engine="agents").partial_fit(X)
    model = fitted(X, engine="agents", warm_start=True)
    with pytest.raises(ValueError, match="try fit with warm_start=False"):
        model.fit(X)
    with pytest.raises(CollapsedComponentError, match="party 'shop'"):
        fitted(np.where(np.arange(5) == PARTIES["shop"][0], 1.0, X), engine="agents", reg_covar=0.0)


def test_parties_and_links_by_name():
    X = np.random.default_rng(0).normal(size=(60, 4))
    parties = {"a": [2], "b": [0, 3], "c": [1]}
    star = VerticalGaussianMixture(partition=parties).fit(X)
    assert star.partition_ == parties
    assert sorted(map(sorted, star.graph_.edges)) == [["a", "server"], ["b", "server"], ["c", "server"]]
    links = nx.Graph([("a", "c"), ("c", "b")])
    path = VerticalGaussianMixture(partition=parties, graph=links).fit(X)
    assert list(path.graph_) == ["a", "b", "c"]
    assert nx.utils.graphs_equal(nx.Graph(path.graph_.edges), links)


def test_auto_shrinks_each_block_by_itself_and_agents_do_the_same():
    """Blocks of one size must not be mixed, as they may be where blocks are stacked."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.normal(size=(60, 3)), 100 * rng.normal(size=(60, 3))]) + 4 * (np.arange(60) % 2)[:, None]
    arguments = {"partition": [[0, 1, 2], [3, 4, 5]], "shrinkage": "auto", "random_state": 0}
    one = VerticalGaussianMixture(2, **arguments).fit(X)
    other = VerticalGaussianMixture(2, engine="agents", **arguments).fit(X)
    np.testing.assert_allclose(one.means_, other.means_, rtol=1e-9)
    np.testing.assert_allclose(one.covariance_matrix(), other.covariance_matrix(), rtol=1e-9, atol=1e-9)
    deviations = np.sqrt(one.covariance_matrix().diagonal(axis1=1, axis2=2))
    assert deviations[:, :3].max() < 5 < 50 < deviations[:, 3:].min()


def test_tiny_scatters_do_not_vanish_in_products():
    """Products of two tiny variances are zero, and a correlation with them was no number."""
    X, *_ = np.random.default_rng(0).normal(size=(1, 200, 4))
    X[:, 1] = 1e-150 * X[:, 1]
    model = VerticalGaussianMixture(2, partition=[range(4)], random_state=0, max_iter=20, tol=1.0).fit(X)
    assert np.isfinite(model.score(X))
