"""Gaps, batches, streams and broken components through the estimator."""

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from oracles import block_log_density, contents
from vpem import CollapsedComponentError, Consensus, VerticalGaussianMixture, VerticalKMeans
from vpem.core.agent.meeting import meeting_traffic

PARTIES = {"bank": [0, 3], "shop": [1, 2], "post": [4]}


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(400, 5)) + 4 * rng.integers(2, size=(400, 1)) + np.arange(5)
    X[rng.random(X.shape) < 0.05] = np.nan
    X[np.ix_(rng.random(400) < 0.2, [0, 3])] = np.nan
    X[5] = np.nan
    return X


def fitted(X, **arguments):
    settings = {"n_components": 2, "partition": PARTIES, "random_state": 0, "tol": 1e-6, "max_iter": 500}
    return VerticalGaussianMixture(**{**settings, **arguments}).fit(X)


@pytest.mark.parametrize("init", ["kmeans", "k-means++", "labels", "random", "random_from_data"])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_every_start_and_type_takes_gaps(X, init, covariance_type):
    model = fitted(X, init_params=init, covariance_type=covariance_type, reg_covar=0.0, n_init=3)
    assert model.converged_
    assert np.diff(model.lower_bounds_).min() > -1e-10
    if init != "random":  # random responsibilities may end in one broad component
        assert sorted(np.round(model.means_[:, 4])) == [4, 8]


@pytest.mark.processors
@pytest.mark.parametrize("graph", ["star", "path"])
def test_scores_and_predictions_marginalize(X, graph):
    model = fitted(X, graph=graph)
    log_joint = block_log_density(X, model.means_, model.covariance_matrix()) + np.log(model.weights_)
    np.testing.assert_allclose(model.score_samples(X), logsumexp(log_joint, axis=1), rtol=1e-9, atol=1e-9)
    nothing = np.full((1, 5), np.nan)
    np.testing.assert_allclose(model.predict_proba(nothing), model.weights_[None], rtol=1e-12)
    assert model.score_samples(nothing)[0] == pytest.approx(0.0, abs=1e-12)
    only_post = np.array([[np.nan, np.nan, np.nan, np.nan, 4.0]])
    assert model.predict(only_post) == np.argmin(np.abs(model.means_[:, 4] - 4.0))


@pytest.mark.parametrize("n_gaps", [1, 1000])
def test_gaps_of_some_rows_do_not_change_the_predictions_of_others(n_gaps):
    # More rows than go through together: what was noted of the gaps of some must not be used for the next.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 5)) @ rng.normal(size=(5, 5))
    model = VerticalGaussianMixture(2, partition=[range(5)], random_state=0, tol=1e9).fit(X)
    expected = model.score_samples(X)
    X[5 : 5 + n_gaps, 3] = np.nan
    found = model.score_samples(X)
    np.testing.assert_allclose(np.delete(found, slice(5, 5 + n_gaps)), np.delete(expected, slice(5, 5 + n_gaps)))


def test_gaps_cost_less_than_leaving_out_rows():
    rng = np.random.default_rng(3)
    whole = rng.normal(size=(2000, 6)) + 3 * rng.integers(2, size=(2000, 1))
    gappy = whole.copy()
    gappy[rng.random(whole.shape) < 0.2] = np.nan
    complete = gappy[~np.isnan(gappy).any(axis=1)]
    arguments = {"partition": [[0, 1, 2], [3, 4, 5]], "n_components": 2}
    assert fitted(gappy, **arguments).score(whole) > fitted(complete, **arguments).score(whole)


def test_kmeans_takes_gaps(X):
    model = VerticalKMeans(2, partition=PARTIES, random_state=0).fit(X)
    assert sorted(np.round(model.cluster_centers_[:, 4])) == [4, 8]
    distances = np.nansum(np.square(X[:, None, :] - model.cluster_centers_), axis=2)
    assert model.inertia_ == pytest.approx(distances.min(axis=1).sum())
    for k in range(2):
        np.testing.assert_allclose(model.cluster_centers_[k], np.nanmean(X[model.labels_ == k], axis=0), atol=0.02)


def test_an_empty_column_is_named(X):
    bad = X.copy()
    bad[:, 2] = np.nan
    for model in (VerticalGaussianMixture(2, partition=PARTIES), VerticalKMeans(2, partition=PARTIES)):
        with pytest.raises(ValueError, match="column 2 of party 'shop' holds no value at all"):
            model.fit(bad)


def test_numbers_too_large_to_square_are_named(X):
    with pytest.raises(ValueError, match=r"whose squares can be added, got .*e\+200 in column 0 of party 'bank'"):
        fitted(np.where(np.isnan(X), 0.0, 1e200) * [1, 0, 0, 0, 0])


@pytest.mark.parametrize("graph", ["star", "path"])
def test_batches_end_where_em_ends(X, graph):
    full, batched = fitted(X, graph=graph), fitted(X, graph=graph, batch_size=37)
    assert batched.score(X) == pytest.approx(full.score(X), abs=1e-5)
    assert batched.n_iter_ <= full.n_iter_
    assert batched.traffic_.messages > full.traffic_.messages
    np.testing.assert_allclose(fitted(X, graph=graph, batch_size=400).lower_bounds_, full.lower_bounds_, rtol=1e-9)


@pytest.mark.parametrize("graph", ["star", "path"])
def test_a_stream_learns_what_a_fit_learns(graph):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(6000, 5)) + 4 * rng.integers(2, size=(6000, 1))
    X[rng.random(X.shape) < 0.02] = np.nan
    model = VerticalGaussianMixture(2, partition=PARTIES, graph=graph, random_state=0)
    traffic = [model.partial_fit(rows).traffic_.bytes for rows in np.array_split(X, 30)]
    assert model.n_iter_ == 30
    each = np.diff(traffic)
    assert (each == each[0]).all()
    assert model.score(X) == pytest.approx(fitted(X, graph=graph).score(X), abs=2e-3)
    assert not hasattr(model, "certificate_")
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :3])
    with pytest.raises(ValueError, match=r"expected to go on with n_components=2.*try a new estimator"):
        model.set_params(n_components=3).partial_fit(X)
    assert model.predict(X).shape == (6000,), "a refused step leaves the model as it was"


@pytest.mark.processors
def test_a_fit_after_a_stream_and_a_stream_after_a_fit_begin_anew(X):
    model = VerticalGaussianMixture(2, partition=PARTIES, random_state=0, tol=1e-6, max_iter=500)
    model.partial_fit(X[:100]).partial_fit(X[100:]).fit(X)
    np.testing.assert_array_equal(model.means_, fitted(X).means_)
    assert model.certificate_.gain < 1e-5
    again = model.partial_fit(X[:100])
    np.testing.assert_array_equal(
        again.means_, VerticalGaussianMixture(2, partition=PARTIES, random_state=0).partial_fit(X[:100]).means_
    )


@pytest.mark.parametrize("graph", ["star", "path"])
@pytest.mark.parametrize("batch_size", [None, 50])
def test_a_collapse_is_repaired_and_recorded(graph, batch_size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) + 5 * rng.integers(2, size=(300, 1))
    X[:40] = X[0]  # forty rows alike, on which a component can collapse
    model = VerticalGaussianMixture(
        2,
        graph=graph,
        batch_size=batch_size,
        reg_covar=0.0,
        max_iter=500,
        weights_init=[0.5, 0.5],
        means_init=np.array([X[0], X[100]]),
        precisions_init=[np.array([1e8, 1.0]).reshape(2, 1, 1)] * 2,
        random_state=0,
    ).fit(X)
    assert model.repairs_[0][1:] == (0, 0, "collapsed", True)
    assert model.converged_
    assert sorted(np.round(model.means_[:, 1])) == [0, 5]
    assert model.traffic_.bytes > 0


def test_a_starved_component_is_repaired_and_recorded():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) + 5 * rng.integers(2, size=(300, 1))
    model = VerticalGaussianMixture(
        2,
        weights_init=[0.5, 0.5],
        means_init=[[2.5, 2.5], [1e6, 1e6]],
        precisions_init=[np.ones((2, 1, 1))] * 2,
        max_iter=500,
        random_state=0,
    ).fit(X)
    assert model.repairs_ == [(1, 1, 0, "starved", True)]
    assert sorted(np.round(model.means_[:, 1])) == [0, 5]


def test_what_no_repair_can_help_is_an_error_that_says_what_to_try(X):
    constant = X.copy()
    constant[:, 4] = 1.0
    with pytest.raises(CollapsedComponentError, match=r"at party 'post'.*try fewer components, a larger reg_covar"):
        fitted(constant, reg_covar=0.0)


def test_a_collapse_that_nobody_could_repair_any_more_is_recorded():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1)) + 5
    X[:40] = 0.0
    with pytest.warns(ConvergenceWarning):
        model = VerticalGaussianMixture(
            2,
            reg_covar=0.0,
            max_iter=1,
            weights_init=[0.5, 0.5],
            means_init=[[0.0], [5.0]],
            precisions_init=[np.array([1e4, 1.0]).reshape(2, 1, 1)],
        ).fit(X)
    assert model.repairs_ == [(1, 0, 0, "collapsed", False)]
    assert model.certificate_.gain == np.inf


def test_one_start_that_collapses_does_not_end_a_fit():
    rng = np.random.default_rng(1)
    X = np.round(rng.normal(size=(60, 2)), 1)
    X[:30] = X[0]
    arguments = {"n_components": 4, "partition": None, "reg_covar": 0.0}

    def outcome(seed, n_init):
        try:
            return fitted(X, random_state=seed, n_init=n_init, **arguments)
        except CollapsedComponentError:
            return None

    alone = [outcome(seed, 1) for seed in range(20)]
    assert None in alone
    assert any(model is not None for model in alone)
    failed = alone.index(None)
    many = next(model for model in (outcome(failed, n) for n in (5, 20, 60)) if model is not None)
    assert np.isfinite(many.lower_bound_)


def test_a_column_that_never_varies_has_no_variance_from_nowhere():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * 1e-3
    X[:, 2] = 7.0
    X[rng.random(200) < 0.5, 2] = np.nan
    arguments = {"n_components": 1, "partition": {"a": [0, 1], "b": [2]}}
    with pytest.raises(CollapsedComponentError, match="no component can have a covariance at party 'b'"):
        fitted(X, reg_covar=0.0, **arguments)
    assert fitted(X, reg_covar=1e-8, **arguments).covariances_[1] == pytest.approx(1e-8, rel=1e-3)


def test_a_variance_below_rounding_is_no_variance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2)) + 1e12  # rounded to 1e-4: a variance of 1e-6 means nothing here
    X[:, 1] = 1e12
    with pytest.raises(CollapsedComponentError, match="no component can have a covariance at party 1"):
        fitted(X, partition=None, n_components=1, reg_covar=1e-6)


def test_a_component_without_a_covariance_at_the_start_is_recorded():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(100, 2)), np.full((40, 2), 9.0)])
    model = fitted(X, partition=None, reg_covar=0.0, max_iter=0)
    [repair] = {repair[2:] for repair in model.repairs_}
    assert repair == (0, "collapsed", False)
    assert model.repairs_[0].iteration == 0
    assert np.isfinite(model.score(X))


def test_rows_missing_everywhere_do_not_tilt_the_start():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) + 8 * (np.arange(400) % 2)[:, None]
    X[:200] = np.nan
    model = fitted(X, partition=None, max_iter=0)
    np.testing.assert_allclose(model.weights_, [0.5, 0.5], atol=0.01)


def test_a_stream_refuses_what_it_cannot_square_and_stays_sound(X):
    model = VerticalGaussianMixture(2, partition=PARTIES, random_state=0).partial_fit(X)
    before = model.means_.copy()
    with pytest.raises(ValueError, match="whose squares can be added"):
        model.partial_fit(X * 1e200)
    np.testing.assert_array_equal(model.means_, before)
    assert model.partial_fit(X).n_iter_ == 2


def test_a_stream_counts_what_is_pooled(X):
    arguments = {"partition": PARTIES, "random_state": 0, "graph": "path", "hops": 1, "summation": Consensus(2)}
    model = VerticalGaussianMixture(2, init_params="random", **arguments)
    sent = [contents(model.partial_fit(X).traffic_) for _ in range(2)]
    pooled = 8 * 400 * 3  # the bank's two columns and the post's one travel to the shop
    assert sent[1] - sent[0] == pooled + 2 * 8 * 400 * 2 + 2 * 4 * 8 * (400 * 2 + 4)
    assert 2 * sent[0] - sent[1] == contents(meeting_traffic(model.fitted_.network, 400, 1)), "they meet once"


def test_a_failed_fit_leaves_the_model_as_it_was(X):
    model = fitted(X)
    for attempt in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="from 0 to 2"):
            attempt(np.ones((5, 3)))
        assert model.predict(X).shape == (400,)
        assert model.certificate_.gain < 1e-3


def test_many_columns_need_no_hand_tuned_constant():
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(10, 240))

    def rows(n):
        labels = rng.integers(2, size=(n, 1))
        return rng.normal(size=(n, 10)) @ factors + rng.normal(size=(n, 240)) + 3 * labels

    X, new = rows(2000), rows(500)
    common = {"n_components": 2, "partition": [range(240)], "reg_covar": 0.0, "tol": 1e-3}
    shrunk = fitted(X, shrinkage="oas", **common)
    assert shrunk.score(new) > fitted(X, **common).score(new)
    # With fewer rows than columns only shrinkage has a covariance to offer.
    assert np.isfinite(fitted(X[:200], shrinkage="oas", **common).score(new))
    with pytest.raises(CollapsedComponentError):
        fitted(X[:200], **common)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shrinkage": 1.5}, "from 0 to 1, got 1.5"),
        ({"shrinkage": "lw"}, "'oas' or a number"),
        ({"batch_size": 0}, "batch_size to be a whole number, 1 or more"),
    ],
)
def test_bad_arguments_say_what_was_expected(X, arguments, message):
    with pytest.raises(ValueError, match=message):
        fitted(X, **arguments)


# Clusters that are far apart


@pytest.mark.parametrize("far", [1e6, 1e9, 1e12])
@pytest.mark.parametrize(
    "arguments",
    [
        {"partition": [[0, 1, 2]]},
        {"partition": [[0, 1, 2]], "covariance_type": "diag"},
        {"partition": [[0, 1], [2]], "graph": "path"},
        {"partition": [[0, 1], [2]], "engine": "agents"},
    ],
)
def test_clusters_that_are_far_apart(far, arguments):
    # All rows together have a singular covariance, to rounding; each cluster has a sound one.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0.3], [0, 0, 1]])
    X[200:] += far
    model = VerticalGaussianMixture(2, random_state=0, reg_covar=0.0, **arguments).fit(X)
    order = model.means_[:, 0].argsort()
    dense = model.covariance_matrix()[order]
    for rows, mean, covariance in zip((X[:200], X[200:]), model.means_[order], dense, strict=True):
        np.testing.assert_allclose(mean, rows.mean(axis=0), atol=8e-16 * far)
        expected = np.where(covariance != 0, np.cov((rows - rows[0]).T, bias=True), 0.0)
        # Means of this size are rounded, and the squares of that rounding are part of the covariances.
        np.testing.assert_allclose(covariance, expected, rtol=1e-9, atol=(8e-16 * far) ** 2)
    assert model.repairs_ == []


# Rows that no party has


@pytest.mark.parametrize("engine", ["simulation", "agents"])
@pytest.mark.parametrize("graph", ["star", "path"])
@pytest.mark.parametrize("batch_size", [None, 70])
def test_rows_without_any_value_do_not_count(engine, graph, batch_size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) + 3 * rng.integers(2, size=(200, 1))
    more = np.full((300, 4), np.nan)
    places = np.sort(rng.permutation(300)[:200])
    more[places] = X
    start = {"weights_init": [0.4, 0.6], "means_init": X[:2], "precisions_init": [[[[1.0]], [[1.0]]]] * 4}
    arguments = {"graph": graph, "engine": engine, "max_iter": 30, "tol": 1e-6, "random_state": 0, **start}
    if batch_size is None:
        fewer, wider = ({**arguments} for _ in range(2))
    else:  # the same rows in each batch
        places = np.concatenate([np.arange(70), 100 + np.arange(70), 200 + np.arange(60)])
        more[:] = np.nan
        more[places] = X
        fewer, wider = {**arguments, "batch_size": 70}, {**arguments, "batch_size": 100}
    without = VerticalGaussianMixture(2, **fewer).fit(X)
    with_them = VerticalGaussianMixture(2, **wider).fit(more)
    assert with_them.n_iter_ == without.n_iter_
    np.testing.assert_allclose(with_them.lower_bounds_, without.lower_bounds_, rtol=1e-12)
    np.testing.assert_allclose(with_them.weights_, without.weights_, rtol=1e-12)
    np.testing.assert_allclose(with_them.means_, without.means_, rtol=1e-9)
    assert with_them.certificate_.gain == pytest.approx(without.certificate_.gain, abs=1e-12)
    for name in ("bic", "aic", "score"):
        assert getattr(without, name)(more) == pytest.approx(getattr(without, name)(X), rel=1e-12), name
    np.testing.assert_allclose(with_them.predict_proba(more)[np.isnan(more).all(axis=1)][0], with_them.weights_)
    with pytest.raises(ValueError, match="gaps"):
        without.score(more[np.isnan(more).all(axis=1)])
