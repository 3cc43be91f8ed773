"""A density of the tests' own, by the public protocol alone: Gamma distributions of positive columns."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import digamma, gammaln, polygamma
from scipy.stats import gamma

import vpem
from oracles import relative_error
from studies import STUDIES, agree, bits, make_study, run, table
from vpem import Consensus, VerticalMixture
from vpem.extend import DENSITIES, LOWEST, Block, CollapsedComponentError, Columns, Density, Statistics
from vpem.report import make_report
from vpem.transports.inprocess import Disturbances


@dataclass(frozen=True)
class Gamma(Density):
    """Independent columns with the density x^(a-1) exp(-x / s) / (Gamma(a) s^a)."""

    largest_shape: float = 1e6

    def shapes(self, n_components, n_columns):
        return {"shape": (n_components, n_columns), "scale": (n_components, n_columns)}

    def make(self, arrays):
        if not all((array > 0).all() for array in arrays.values()):
            raise ValueError("expected positive shapes and scales")
        return Block(**arrays)

    def to_vector(self, block):
        return np.log([block.shape, block.scale]).ravel()

    def from_vector(self, vector, like):
        shape, scale = np.exp(vector).reshape(2, *like.shape.shape)
        return Block(shape=shape, scale=scale)

    def log_density(self, XT, block):
        x, a, s = np.where(XT > 0, XT, 1.0), block.shape[:, :, None], block.scale[:, :, None]
        found = (a - 1) * np.log(x) - x / s - gammaln(a) - a * np.log(s)
        return np.maximum(np.where(np.isnan(XT), 0.0, np.where(XT > 0, found, LOWEST)).sum(axis=1), LOWEST)

    def collect(self, XT, responsibilities, block):
        if (XT <= 0).any():
            raise ValueError("expected positive numbers")
        x = np.where(np.isnan(XT), 1.0, XT)
        parts = ~np.isnan(XT), np.where(np.isnan(XT), 0.0, XT), np.log(x)
        counts, sums, logs = (responsibilities @ part.T for part in parts)
        return Statistics(counts=counts, sums=sums, logs=logs)

    def m_step(self, statistics, previous, columns):
        there = statistics.counts > 1e-12
        counts = np.where(there, statistics.counts, 1.0)
        means = np.where(there, statistics.sums / counts, 1.0)
        spread = np.where(there, np.log(means) - statistics.logs / counts, 0.5)
        collapsed = ~(spread > 0.5 / self.largest_shape).all(axis=1)
        spread = np.where(collapsed[:, None], 0.5, spread)
        a = (3 - spread + np.sqrt((spread - 3) ** 2 + 24 * spread)) / (12 * spread)
        for _ in range(20):  # Newton, in 1 / a
            a = 1 / (1 / a + (np.log(a) - digamma(a) - spread) / (a**2 * (1 / a - polygamma(1, a))))
        kept = collapsed[:, None] | ~there
        shape, scale = np.where(kept, previous.shape, a), np.where(kept, previous.scale, means / a)
        return Block(shape=shape, scale=scale), np.flatnonzero(collapsed).tolist()

    def expected_log_density(self, statistics, block):
        a, s = block.shape, block.scale
        terms = (a - 1) * statistics.logs - statistics.sums / s - statistics.counts * (gammaln(a) + a * np.log(s))
        return float(terms.sum())

    def first(self, columns):
        if not (columns.variances > columns.noise).all():
            raise CollapsedComponentError(None, columns.party)
        return Block(
            shape=(columns.means**2 / columns.variances)[None], scale=(columns.variances / columns.means)[None]
        )

    def start(self, centres, everything):
        return Block(shape=np.repeat(everything.shape, len(centres), axis=0), scale=centres / everything.shape)

    def means(self, block):
        return block.shape * block.scale

    def deviations(self, block):
        return np.sqrt(block.shape) * block.scale

    def sample(self, block, labels, rng):
        return rng.gamma(block.shape[labels], block.scale[labels])


PARTIES = {"a": [0, 4], "b": [1], "c": [2, 3]}


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    X = rng.gamma([[2.0, 5, 1, 9, 3], [8.0, 2, 6, 4, 7]], [[1.0, 2, 3, 1, 0.5], [2.0, 5, 1, 3, 2]], (200, 2, 5))
    X = X.reshape(400, 5)[np.argsort(labels, kind="stable")]
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:7, :3] = X[9] = np.nan
    return X


def fitted(X, **arguments):
    settings = {"n_components": 2, "density": Gamma(), "partition": PARTIES, "random_state": 0, "tol": 1e-6}
    return VerticalMixture(**{**settings, **arguments}).fit(X)


def columns_of(X):
    there = ~np.isnan(X)
    return Columns(
        party="a",
        counts=there.sum(axis=0),
        means=np.nanmean(X, axis=0),
        variances=np.nanvar(X, axis=0),
        largest=np.nanmax(X, axis=0),
        has_gaps=~there.all(axis=0),
    )


def test_log_densities_are_scipys(X):
    block = Block(shape=np.array([[2.0, 0.5], [30.0, 1.0]]), scale=np.array([[1.0, 2.0], [0.1, 5.0]]))
    found = Gamma().log_density(X[:, :2].T, block)
    for k in range(2):
        expected = gamma.logpdf(X[:, :2], block.shape[k], scale=block.scale[k])
        np.testing.assert_allclose(found[k], np.nansum(expected, axis=1), rtol=1e-12)
        marginal = Gamma().marginal(block, 1, X[10:20, 1])
        np.testing.assert_allclose(marginal[k], np.nan_to_num(expected[10:20, 1]), rtol=1e-12)
    assert Gamma().log_density(np.array([[-1.0], [-1.0]]), block).tolist() == [[LOWEST], [LOWEST]]
    filled = Gamma().conditional(block, X[:, :2].T)
    np.testing.assert_array_equal(filled[1, 0], np.where(np.isnan(X[:, 0]), 3.0, X[:, 0]))


def test_the_m_step_is_a_maximum(X):
    density, columns = Gamma(), columns_of(X)
    weights = np.random.default_rng(1).dirichlet(np.ones(3), size=len(X)).T
    before = density.start(np.nanmean(X, axis=0) * [[0.5], [1], [2]], density.first(columns))
    statistics = density.collect(X.T, weights, before)
    block, collapsed = density.m_step(statistics, before, columns)
    assert collapsed == []

    def loss(vector):
        return -density.expected_log_density(statistics, density.from_vector(vector, before))

    best = minimize(loss, density.to_vector(before), method="BFGS", options={"gtol": 1e-4})
    assert loss(density.to_vector(block)) <= best.fun + 1e-9
    assert relative_error(density.to_vector(block), best.x) < 1e-4
    assert density.expected_log_density(statistics, block) > density.expected_log_density(statistics, before)
    assert density.n_parameters(3, 5) == 30


@pytest.mark.parametrize("batch_size", [None, 60])
@pytest.mark.parametrize("graph", ["star", "ring"])
@pytest.mark.parametrize("init_params", ["kmeans", "labels", "random", "random_from_data"])
def test_both_engines_fit_the_same(X, graph, batch_size, init_params):
    arguments = {"graph": graph, "batch_size": batch_size, "init_params": init_params, "n_init": 2, "max_iter": 5}
    arguments |= {"summation": None if graph == "star" else Consensus(6), "tol": 1e9 if batch_size else 1e-3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        one, other = (fitted(X[:150], engine=engine, **arguments) for engine in ("simulation", "agents"))
    assert relative_error(other.hub_weights_, one.hub_weights_) < 1e-9
    assert relative_error(other.lower_bounds_, one.lower_bounds_) < 1e-9
    for found, expected in zip(other.parameters_, one.parameters_, strict=True):
        assert all(relative_error(found[name], expected[name]) < 1e-9 for name in ("shape", "scale"))
    np.testing.assert_array_equal(other.traffic_.table, one.traffic_.table)


@pytest.mark.parametrize("batch_size", [None, 60])
def test_the_likelihood_never_falls_and_the_truth_is_found(X, batch_size):
    model = fitted(X, batch_size=batch_size, max_iter=500)
    assert model.converged_
    assert np.diff(model.lower_bounds_).min() > -1e-12
    assert model.certificate_.gain < 1e-5
    there = ~np.isnan(X[:, [0, 3]]).all(axis=1)
    found = model.predict(X)[there]
    halves = np.arange(400)[there] >= 200
    assert max((found == halves).mean(), (found != halves).mean()) > 0.95
    drawn, labels = model.sample(20_000)
    for k in range(2):
        np.testing.assert_allclose(drawn[labels == k].mean(axis=0), model.means_[k], rtol=0.05)


@pytest.mark.parametrize("kill", [0.0, 0.2])
@pytest.mark.parametrize("study", STUDIES)
def test_however_messages_are_delivered_the_bits_are_the_same(study, kill):
    graph, arguments = STUDIES[study]
    arguments = {**arguments, "X": np.exp(0.3 * table()), "density": Gamma()}
    expected = bits(run(make_study(graph, **arguments)[0]).agents.values())
    disturbances = Disturbances(np.random.default_rng(0), delay=0.2, duplicate=0.2, kill=kill)
    found = run(make_study(graph, **arguments)[0], encoded=True, disturbances=disturbances)
    assert bits(found.agents.values()) == expected


def test_agents_agree_on_the_density():
    digests = {agree(density=density).digest for density in (Gamma(), Gamma(5.0), vpem.Gaussian())}
    assert len(digests) == 3


def test_components_that_collapse_are_repaired(X):
    X = np.where(np.isnan(X), 3.0, X)
    X[:30] = X[0]
    for batch_size in (None, 100):
        model = fitted(X, n_components=6, batch_size=batch_size, max_iter=1000, tol=1e-3)
        assert any(repair.restarted for repair in model.repairs_)
        assert np.isfinite(model.score(X))
    # A component that is far from all rows starves.
    widths = map(len, PARTIES.values())
    far = [{"shape": np.full((2, n), 50.0), "scale": np.outer([0.1, 1e6], np.ones(n))} for n in widths]
    stream = VerticalMixture(2, density=Gamma(), partition=PARTIES, weights_init=[0.5, 0.5], blocks_init=far)
    for start in range(0, 400, 50):
        stream.partial_fit(X[start : start + 50])
    assert any(repair.restarted for repair in stream.repairs_)
    assert np.isfinite(stream.score(X))


def test_models_survive_files(X, tmp_path, monkeypatch):
    graph = nx.relabel_nodes(nx.path_graph(3), dict(enumerate(PARTIES)))
    model = fitted(X, density=Gamma(largest_shape=1e4), graph=graph, hops=1, tol=1e-3)
    with pytest.raises(TypeError, match=r"expected a density .*\(Gaussian.*\), got Gamma"):
        vpem.save(model, tmp_path / "model")
    monkeypatch.setitem(DENSITIES, "gamma", Gamma)
    vpem.save(model, tmp_path / "model")
    again = vpem.load(tmp_path / "model")
    assert type(again) is VerticalMixture
    assert again.density == Gamma(1e4)
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    np.testing.assert_array_equal(again.sample(5)[0], model.sample(5)[0])
    assert again.bic(X) == model.bic(X)
    monkeypatch.undo()
    with pytest.raises(vpem.ModelFileError, match=r"expected a density .*'gaussian'.*\), got 'gamma'; update vpem"):
        vpem.load(tmp_path / "model")
    gaussian = VerticalMixture(2, density=vpem.Gaussian(covariance_type="diag"), random_state=0).fit(X)
    vpem.save(gaussian, tmp_path / "model")
    assert type(vpem.load(tmp_path / "model")) is VerticalMixture


def test_a_start_may_be_given(X):
    blocks = [{"shape": np.full((2, len(held)), 2.0)} for held in PARTIES.values()]
    for engine in ("simulation", "agents"):
        model = fitted(X, blocks_init=blocks, weights_init=[0.3, 0.7], max_iter=0, engine=engine)
        np.testing.assert_array_equal(model.parameters_[1]["shape"], [[2.0], [2.0]])
        np.testing.assert_array_equal(model.weights_, [0.3, 0.7])
        whole = [{**own, "scale": own["shape"]} for own in blocks]
        model = fitted(X, blocks_init=whole, weights_init=[0.3, 0.7], max_iter=0, engine=engine)
        np.testing.assert_array_equal(model.means_, 4.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"density": "gamma"}, "expected density to be a Density"),
        ({"blocks_init": [{}]}, "a dict for each of the 3 blocks"),
        ({"blocks_init": [{"rate": 1}, {}, {}]}, "with some of shape, scale"),
        ({"blocks_init": [{"shape": [[1.0]]}, {}, {}]}, r"expected blocks_init\[0\]\['shape'\] of shape \(2, 2\)"),
        ({"blocks_init": [{}, {"shape": [[-1.0], [1.0]]}, {}]}, "expected positive shapes"),
    ],
)
def test_wrong_arguments_say_what_was_expected(X, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fitted(X, **arguments)


def test_wrong_values_say_so(X):
    model = fitted(X)
    X[3, 4] = -1.0
    for engine in ("simulation", "agents"):
        with pytest.raises(ValueError, match="expected positive numbers"):
            fitted(X, engine=engine)
    with pytest.raises(ValueError, match="leave out row 3"):
        model.predict(X)
    model.set_params(warm_start=True, density=vpem.Gaussian())
    with pytest.raises(ValueError, match=r"expected to go on with n_components=2 and Gamma\(.*got 2 and Gaussian\("):
        model.fit(X)


def test_the_report_draws_its_curves(X):
    model = fitted(X)
    page = make_report(model, X)
    assert '"curves":[[' in page
    assert "Gamma(largest_shape=1000000.0)" in page
