"""VerticalGaussianMixture as a scikit-learn estimator."""

import pickle
import re
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from oracles import relative_error
from vpem import CollapsedComponentError, Consensus, Star, VerticalGaussianMixture, VerticalKMeans
from vpem.core.initial import RESTART, shared_generator
from vpem.core.meeting import meeting_traffic
from vpem.core.settings import Settings
from vpem.core.traffic import pooling_traffic
from vpem.estimators import checks
from vpem.simulation.em import em
from vpem.simulation.model import make_problem
from vpem.simulation.starts import make_start

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


@parametrize_with_checks([VerticalGaussianMixture(), VerticalKMeans(n_clusters=2)])
def test_scikit_learns_own_checks(estimator, check, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # otherwise scikit-learn skips one of them
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # they set max_iter to small numbers
        check(estimator)


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
    if other.covariance_type == "diag":
        np.testing.assert_allclose(other.precisions_ * other.covariances_, 1.0)
    else:
        products = other.precisions_ @ other.covariances_
        np.testing.assert_allclose(products, np.broadcast_to(np.eye(5), products.shape), atol=1e-9)


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
    star, ring = fitted(X), fitted(X, graph="path")  # 100 rounds: 2/3 to the hundredth
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
    meeting = meeting_traffic(model._network, 300, 0)
    assert (meeting.messages, meeting.rounds) == (12, 2)
    assert model.traffic_.messages % 6 == 0
    assert model.traffic_.bytes - meeting.bytes == (model.traffic_.messages - 12) * each
    one = fitted(X, init_params="random")
    assert one.traffic_.messages == 6 * (one.n_iter_ + 1) + 12
    assert one.traffic_.rounds == 2 * (one.n_iter_ + 1) + 2
    assert one.traffic_.per_agent["server"].messages_sent == 3 * (one.n_iter_ + 1) + 6

    hubs = fitted(X, init_params="random", graph="path", hops=1, summation=Consensus(7))
    before = pooling_traffic(hubs._network, 300).bytes
    assert before == 8 * 300 * (2 + 1) + 2 * 68
    before += meeting_traffic(hubs._network, 300, 1).bytes
    assert hubs.traffic_.bytes == before + (hubs.n_iter_ + 1) * (2 * (4800 + 68) + 7 * 4 * each)


def test_restarts_differ_and_the_best_is_kept_by_the_root_that_sees_least(X):
    # Two rounds on a path: the roots see so different likelihoods that they rank restarts differently.
    arguments = {"n_components": 3, "init_params": "random_from_data", "graph": "path", "summation": Consensus(2)}
    seed = checks.shared_seed(0)
    network, summation = checks.build_network(PARTIES, "path", 0, Consensus(2), 5, None, seed)
    rules = Settings(n_components=3, covariance_type="full", tol=1e-5, reg_covar=1e-6, max_iter=500)
    fits, problem = [], make_problem(X, network, summation, rules.rule)
    for restart in range(6):
        generator = shared_generator(seed, RESTART, restart)
        start = make_start(problem, rules, "random_from_data", generator)
        fits.append(em(problem, start.mixture, rules))
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
    fitted(X, verbose=1, graph="path")
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
        ({"partition": [[0, 1], [2, 3]]}, "held by nobody: 4"),
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
    ],
)
def test_bad_arguments_say_what_was_expected(X, arguments, message):
    with pytest.raises(ValueError, match=message):
        fitted(X, **arguments)


def test_a_summation_of_another_kind(X):
    for wrong in ("consensus", Consensus):
        with pytest.raises(TypeError, match=r"expected summation to be None, Star\(\) or Consensus"):
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
    far = np.vstack([X[:1], np.full((1, 5), 1e200)])
    model = fitted(X)
    assert np.isfinite(model.predict_proba(far)).all()
    assert model.score_samples(far)[1] < -1e299
    # Zero times minus infinity would be NaN: with one round, agents two hops away count for nothing.
    with pytest.warns(ConvergenceWarning):
        lost = fitted(X, graph="path", summation=Consensus(1), means_init=np.full((2, 5), 1e160), max_iter=3, tol=0.0)
    assert np.isfinite(lost.lower_bounds_).all()
    assert np.isfinite(lost.means_).all()


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
