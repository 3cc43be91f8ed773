"""Bad fits are told as such, good ones are not; with real data, as a user would fit them."""

import warnings

import networkx as nx
import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import vpem
from vpem import Consensus, FitConvergenceWarning, FitWarning, VerticalGaussianMixture, VerticalMixture
from vpem.datasets import load_breast_cancer_parties, make_vertical_blobs
from vpem.verdict import colour

from experiments.shrinkage import wide_digits  # isort: skip


def codes(model, severity="red"):
    return {finding.code for finding in model.verdict_ if finding.severity == severity}


def fitted(X, n_components, **arguments):
    """A fit whose warnings are for others to look at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        return VerticalGaussianMixture(n_components, random_state=0, **arguments).fit(X)


# Fits that looked good


@pytest.mark.parametrize("graph", ["ring", "path"])
def test_thirty_parties_with_too_few_rounds(graph):
    X = load_breast_cancer().data
    with pytest.warns(FitWarning, match="parties disagree") as noted:
        bad = VerticalGaussianMixture(2, graph=graph, summation=Consensus(100), random_state=0).fit(X)
    assert len([one for one in noted if issubclass(one.category, FitWarning)]) == 1
    assert bad.converged_, "which is what makes it look good"
    assert codes(bad) >= {"parties_disagree", "sum_error"}
    star, good = fitted(X, 2), fitted(X, 2, graph=graph)
    # What the roots see may be better than the truth; the exact likelihood is not.
    assert bad.log_likelihood_ < star.log_likelihood_ < bad.lower_bound_
    assert bad.log_likelihood_ == pytest.approx(bad.score(X), rel=1e-12)
    # Where no rounds are given, they suffice.
    assert not codes(good)
    assert good.log_likelihood_ == pytest.approx(star.log_likelihood_, abs=1e-6)
    assert (good.predict(X) == star.predict(X)).all()


def test_what_is_known_before_the_run(capsys):
    X = load_breast_cancer().data
    model = VerticalGaussianMixture(2, graph="path", summation=Consensus(100), random_state=0, verbose=1)
    (finding,) = model.about_the_sum(30)
    assert "rounds=3777" in finding.remedy
    assert not hasattr(model, "weights_")
    model.set_params(max_iter=1)
    with pytest.warns(FitConvergenceWarning):
        model.fit(X)
    assert capsys.readouterr().out.startswith(finding.sentence)
    assert VerticalGaussianMixture(2, graph="path").about_the_sum(30) == []
    assert VerticalGaussianMixture(2).about_the_sum(30) == []


def test_wide_views_with_few_rows():
    X, y, blocks, k = wide_digits()
    fitting, kept = np.split(np.random.default_rng(0).permutation(len(X)), [1300])
    bad = fitted(X[fitting], k, partition=blocks)
    assert bad.converged_
    assert bad.n_iter_ == 2
    assert codes(bad) >= {"few_rows", "one_value"}
    assert "never_left_start" in codes(bad, "amber")
    good = fitted(X[fitting], k, partition=blocks, shrinkage="auto", standardize=True)
    assert not codes(good)
    assert good.score(X[kept]) > bad.score(X[kept]) + 1e4
    truth = adjusted_rand_score(y[kept], good.predict(X[kept]))
    assert truth > adjusted_rand_score(y[kept], bad.predict(X[kept])) + 0.2


def test_rain(beijing):
    weather = beijing.weather[:, 0]
    weather = weather[~np.isnan(weather).any(axis=1)][:8000]
    model = fitted(weather, 4)
    assert codes(model) == {"one_value"}
    (finding,) = (one for one in model.verdict_ if one.code == "one_value")
    assert f"column {list(beijing.weather_names).index('RAIN')}," in finding.sentence


def test_small_units():
    blobs = make_vertical_blobs(600, 3, 2, 3, separation=5, random_state=0)
    bad = fitted(blobs.data * 1e-4, 3, partition=blobs.partition)
    assert codes(bad) == {"scale"}
    good = fitted(blobs.data * 1e-4, 3, partition=blobs.partition, standardize=True)
    assert not codes(good)
    assert adjusted_rand_score(blobs.target, good.predict(blobs.data * 1e-4)) > 0.95


def test_components_of_one_row_and_starts_far_apart():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(60, 2)), [[50.0, 50.0]]])
    assert "one_row" in codes(fitted(X, 2, partition=[[0], [1]]))
    model = fitted(rng.normal(size=(200, 4)), 5, n_init=5, init_params="random_from_data", tol=1e-5, max_iter=300)
    bounds = sorted(model.fitted_.judgement.facts.start_bounds, reverse=True)
    assert len(bounds) == 5
    assert ("starts_apart" in codes(model, "amber")) == (bounds[0] - bounds[1] > 1e-3)


def test_a_fit_that_did_not_converge_warns_as_scikit_learn_does():
    X = make_vertical_blobs(300, 2, 2, 3, random_state=0).data
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 iterations") as noted:
        model = VerticalGaussianMixture(3, max_iter=1, random_state=0).fit(X)
    assert issubclass(noted[0].category, FitWarning)
    assert noted[0].filename == __file__
    assert "not_converged" in {finding.code for finding in model.verdict_}


# Good fits


def test_the_demo_and_beijing_on_a_star_have_nothing_red(beijing):
    demo = load_breast_cancer_parties()
    for graph in ("star", "ring"):
        assert not codes(fitted(demo.data, 2, partition=demo.partition, graph=graph))
    air = beijing.data[::4]
    assert not codes(fitted(air, 4, partition=beijing.partition, max_iter=300))


@pytest.mark.parametrize("seed", range(20))
def test_well_posed_problems_have_nothing_red(seed):
    rng = np.random.default_rng(seed)
    n_parties, n_columns, k = (int(rng.integers(*ends)) for ends in ((2, 6), (1, 4), (2, 5)))
    blobs = make_vertical_blobs(1000, n_parties, n_columns, k, separation=4.0, random_state=seed)
    graph = ["star", "ring", "path", nx.random_labeled_tree(n_parties, seed=seed)][seed % 4]
    standardize = bool(seed % 2)
    arguments = {"partition": blobs.partition, "graph": graph, "standardize": standardize, "max_iter": 500}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = VerticalGaussianMixture(k, random_state=0, **arguments).fit(blobs.data)
    assert not codes(model)


# Numbers of the certificate


def test_the_exact_likelihood_and_the_disagreement_are_those_of_naive_numpy():
    blobs = make_vertical_blobs(400, 4, 1, 3, separation=1.5, random_state=1)
    X = blobs.data
    model = fitted(X, 3, graph="path", summation=Consensus(2), max_iter=30)
    certificate, W = model.certificate_, Consensus(2).matrix(model.fitted_.network)
    own = np.array(
        [
            [
                multivariate_normal(mean, cov).logpdf(X[:, [b]])
                for mean, cov in zip(model.means_[:, b], covs, strict=True)
            ]
            for b, covs in enumerate(model.covariances_)
        ]
    )  # (n_blocks, n_components, n_rows)
    views = softmax(np.einsum("rb,bkm->rkm", W, own) + np.log(model.hub_weights_)[:, :, None], axis=1)
    differences = (views.max(axis=0) - views.min(axis=0)).max(axis=0)
    labels = views.argmax(axis=1)
    assert certificate.disagreement == pytest.approx(differences.max(), rel=1e-9)
    assert certificate.mean_disagreement == pytest.approx(differences.mean(), rel=1e-9)
    assert certificate.split == (labels != labels[0]).any(axis=0).mean() > 0
    exact = model.to_sklearn()
    assert isinstance(exact, GaussianMixture)
    assert model.log_likelihood_ == certificate.log_likelihood == pytest.approx(exact.score(X), rel=1e-12)
    assert certificate.effective_rows == pytest.approx(exact.predict_proba(X).sum(axis=0), rel=1e-9)


def test_a_stream_has_a_verdict_and_no_likelihood():
    X = make_vertical_blobs(400, 2, 2, 2, separation=4, random_state=0).data
    model = VerticalGaussianMixture(2, random_state=0).fit(X)
    assert model.log_likelihood_ == pytest.approx(model.score(X))
    model.partial_fit(X)
    assert not hasattr(model, "log_likelihood_")
    assert colour(model.verdict_) == "green"


def test_agents_come_to_the_same_verdict():
    X = make_vertical_blobs(120, 4, 1, 2, random_state=0).data
    arguments = {"graph": "path", "summation": Consensus(3), "max_iter": 5, "n_init": 3}
    one, other = (fitted(X, 2, engine=engine, **arguments) for engine in ("simulation", "agents"))
    assert [finding.code for finding in one.verdict_] == [finding.code for finding in other.verdict_]
    bounds, same = (model.fitted_.judgement.facts.start_bounds for model in (one, other))
    assert len(bounds) == 3
    assert same == pytest.approx(bounds, rel=1e-9)


@pytest.mark.parametrize("family", ["categorical", "counts", "zeros"])
def test_tables_without_a_gaussian_column_have_a_verdict(family):
    rng = np.random.default_rng(0)
    groups = rng.integers(2, size=(600, 1))
    X = {
        "categorical": np.where(rng.random((600, 4)) < 0.1 + 0.8 * groups, "a", "b"),
        "counts": rng.poisson(2 + 20 * groups, (600, 4)),
        "zeros": np.where(rng.random((600, 4)) < 0.5, 0.0, np.exp(rng.normal(3.0 * groups, 1.0, (600, 4)))),
    }[family]
    model = VerticalMixture(2, partition=[[0, 1], [2, 3]], families=family, random_state=0).fit(X)
    assert adjusted_rand_score(groups[:, 0], model.predict(X)) > 0.5
    assert colour(model.verdict_) != "red"


def test_names_of_columns_stand_in_the_findings():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"wind": rng.normal(size=200), "rain": np.where(np.arange(200) % 9, 0.0, 2.0)})
    model = fitted(frame, 2)
    assert "column rain" in next(one for one in model.verdict_ if one.code == "one_value").sentence


# Files


def test_a_verdict_is_saved(tmp_path):
    blobs = make_vertical_blobs(600, 3, 2, 3, separation=5, random_state=0)
    model = fitted(blobs.data * 1e-4, 3, partition=blobs.partition, graph="path", summation=Consensus(2))
    vpem.save(model, tmp_path / "model")
    again = vpem.load(tmp_path / "model")
    assert again.verdict_ == model.verdict_
    assert len(again.verdict_) > 1
    assert again.certificate_ == model.certificate_
    assert again.log_likelihood_ == model.log_likelihood_
