"""Consensus(rounds="auto"): rounds with momentum, sums that go on from the last one, and the way back."""

import math
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vpem
from oracles import connected_graphs, mixing_weights
from studies import bits, make_study, run, table
from vpem import Consensus, Tree, VerticalGaussianMixture, VerticalKMeans
from vpem.core.decisions.retreating import must_retreat
from vpem.core.network.adders import MessageAdder
from vpem.core.network.chebyshev import Averaging, accelerate
from vpem.core.network.parties import make_network
from vpem.core.network.summation import Shape
from vpem.datasets import make_vertical_blobs
from vpem.transports import wire
from vpem.transports.inprocess import Disturbances, InProcess

SERIES = "iterate 0"
KINDS = ["metropolis", "laplacian"]


def network_on(graph, hops=0, seed=0):
    return make_network({n: [n] for n in sorted(graph)}, graph, hops, np.random.default_rng(seed))


def edges_of_the_spectrum(W):
    """The smallest eigenvalue, and the largest but one."""
    eigenvalues = np.sort(np.linalg.eigvals(W).real)
    return eigenvalues[0], eigenvalues[-2]


def chebyshev(degree, x):
    """The polynomial, by its recursion, of a number or a matrix."""
    one = 1.0 if np.isscalar(x) else np.eye(len(x))
    before, now = one, x
    for _ in range(degree - 1):
        before, now = now, 2 * (x * now if np.isscalar(x) else x @ now) - before
    return now


def naive_polynomial(W, degree):
    """p(W) = T(y(W)) / T(y(1)), with y that takes all eigenvalues but the largest to [-1, 1]."""
    low, high = edges_of_the_spectrum(W)
    if high - low < 1e-9:
        return (W - low * np.eye(len(W))) / (1 - low)
    y = (2 * W - (low + high) * np.eye(len(W))) / (high - low)
    return chebyshev(degree, y) / chebyshev(degree, (2 - low - high) / (high - low))


# Rounds with momentum


@given(connected_graphs(fewest_agents=2), st.sampled_from(KINDS), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_rounds_are_chebyshev_s_polynomial_of_the_weights(graph, kind, n_rounds, seed):
    W = mixing_weights(graph, kind)
    averaging = accelerate(W)
    start = np.random.default_rng(seed).normal(size=(len(graph), 3))
    before, now = np.zeros_like(start), start
    for momentum in averaging.momenta(n_rounds):
        before, now = now, momentum * (averaging.weights @ now) + (1 - momentum) * before
    if math.isfinite(averaging.reach):
        np.testing.assert_allclose(now, naive_polynomial(W, n_rounds) @ start, atol=1e-9)
    left = np.linalg.norm(now - start.mean(axis=0)) / np.linalg.norm(start - start.mean(axis=0))
    assert left <= averaging.error_factor(n_rounds) * (1 + 1e-6) + 1e-9


@given(connected_graphs(fewest_agents=2), st.sampled_from(KINDS), st.floats(1e-9, 0.9))
def test_rounds_needed_are_the_fewest(graph, kind, factor):
    averaging = accelerate(mixing_weights(graph, kind))
    n_rounds = averaging.rounds_needed(factor)
    assert averaging.error_factor(n_rounds) <= factor * (1 + 1e-4)
    assert n_rounds == 1 or averaging.error_factor(n_rounds - 1) > factor * (1 - 1e-4)


def test_a_complete_graph_needs_one_round_and_a_path_about_the_root():
    assert accelerate(mixing_weights(nx.complete_graph(6), "metropolis")).rounds_needed(1e-9) == 1
    assert accelerate(np.ones((1, 1))) == Averaging(np.ones((1, 1)))
    path = network_on(nx.path_graph(30))
    assert Consensus().n_rounds(path) == 3777
    assert [Consensus("auto").n_rounds(path, stage) for stage in range(4)] == [215, 139, 46, 69]
    assert Consensus("auto").rounds_needed(path, 1e-6) is None
    assert Consensus("auto").error_factor(path) == 0.0
    assert Consensus("auto", "laplacian").n_rounds(path) == Consensus("auto", "laplacian", 0.1).n_rounds(path)
    assert Consensus("auto").n_rounds(network_on(nx.empty_graph(1))) == 1


def test_how_many_rounds_the_design_says():
    """S = ceil(arccosh(2 N) / arccosh(x)), and at least the diameter."""
    for graph in (nx.cycle_graph(8), nx.path_graph(9), nx.star_graph(5), nx.barbell_graph(6, 4)):
        low, high = edges_of_the_spectrum(mixing_weights(graph, "metropolis"))
        x = (2 - low - high) / (high - low)
        expected = math.ceil(np.arccosh(2 * len(graph)) / np.arccosh(x))
        assert Consensus("auto").n_rounds(network_on(graph), 2) == max(expected, nx.diameter(graph))


# Sums


@given(
    connected_graphs(),
    st.integers(0, 2),
    st.sampled_from(KINDS),
    st.integers(1, 4),
    st.floats(0.1, 1e4),
    st.integers(0, 2**32 - 1),
)
def test_the_sum_is_kept_and_what_is_left_shrinks(graph, hops, kind, n_sums, scale, seed):
    """Against every agent's `z <- P (z + change)`, with p(W) by its recursion."""
    network, shape = network_on(graph, hops, seed), Shape(5, 2, 1)
    rng, n, W = np.random.default_rng(seed), len(graph), mixing_weights(graph, kind)
    summation = Consensus("auto", kind)
    adder = MessageAdder(summation, network)
    z, old = np.zeros((n, 11)), np.zeros((n, 11))
    for number in range(n_sums):
        terms = scale * rng.normal(size=(len(network.hubs), 11))
        found, traffic = adder.add(terms, shape, SERIES, 2)
        new = np.empty((n, 11))
        for hub, term in zip(network.hubs, terms, strict=True):
            new[list(hub.members)] = n * term / len(hub.members)
        n_rounds = summation.n_rounds(network, 2 if number else 1)
        z, old = z + new - old, new
        if n > 1:
            assert traffic.rounds == n_rounds + network.depth
            z = naive_polynomial(W, n_rounds) @ z
        np.testing.assert_allclose(found, z[[hub.root for hub in network.hubs]], atol=1e-8 * scale)
        leads = np.array([carry["lead"] for carry in adder.carries[SERIES]])
        np.testing.assert_allclose((leads + new).mean(axis=0), terms.sum(axis=0), atol=1e-11 * n * scale)
        np.testing.assert_allclose(leads.sum(axis=0), 0, atol=1e-11 * n * scale)


@given(connected_graphs(fewest_agents=2), st.integers(0, 1), st.sampled_from(KINDS), st.integers(0, 2**32 - 1))
def test_sums_of_the_same_terms_become_exact(graph, hops, kind, seed):
    network, rng = network_on(graph, hops, seed), np.random.default_rng(seed)
    adder, shape = MessageAdder(Consensus("auto", kind), network), Shape(4, 3)
    adder.add(rng.normal(size=(len(network.hubs), 12)), shape, SERIES, 0)
    terms, last = 10 * rng.normal(size=(len(network.hubs), 12)), math.inf
    for number in range(20):
        error = np.abs(adder.add(terms, shape, SERIES, 0)[0] - terms.sum(axis=0)).max()
        # 1 / (2 N) of the spread in the Euclidean norm over agents, which the largest may use up at one of them.
        assert error <= 20 * len(graph) ** 2 * (0.5 / len(graph)) ** number + 1e-10
        last = error
    assert last < 1e-9


def test_other_sums_stand_alone():
    network, shape = network_on(nx.path_graph(6)), Shape(4, 3)
    adder = MessageAdder(Consensus("auto"), network)
    terms = np.random.default_rng(0).normal(size=(6, 12))
    for series, n_rounds in (("", 39), ("cluster", 27), (SERIES, 27), (SERIES, 6), (SERIES, 6)):
        found, traffic = adder.add(terms, shape, series, 0)
        np.testing.assert_allclose(found, np.tile(terms.sum(axis=0), (6, 1)), atol=1e-5 if series else 1e-8)
        assert traffic.rounds == n_rounds, series
    assert not any(adder.carries["cluster"])
    _, traffic = adder.add(np.ones((6, 13)), Shape(4, 3, 1), SERIES, 0)
    assert traffic.rounds == 27, "another shape is another series"
    adder.retreat()
    rounds = [adder.add(terms, shape, SERIES, 0)[1].rounds for _ in range(3)]
    assert rounds == [27, 9, 9]


def test_what_it_refuses():
    for rounds in ("Auto", 0, True, 1.5):
        with pytest.raises(ValueError, match="None, 'auto' or a whole number"):
            Consensus(rounds)
    with pytest.raises(ValueError, match="sums that are the same for all parties"):
        VerticalGaussianMixture(2, graph="ring", summation=Consensus("auto"), accelerate="squarem").fit(table())


# Both engines


def fit(X, **arguments):
    parties = {"a": [0, 1], "b": [2], "c": [3, 4], "d": [5]}
    settings = {"partition": parties, "graph": "path", "max_iter": 40, "reg_covar": 1e-3, "random_state": 0}
    return VerticalGaussianMixture(2, **{**settings, "summation": Consensus("auto"), **arguments}).fit(X)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"hops": 1}, {"batch_size": 9, "init_params": "random"}, {"n_init": 2}, {"init_params": "k-means++"}],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::vpem.FitWarning")
def test_both_engines_are_the_same_gaps_batches_and_hubs_included(arguments):
    simulated, agents = (fit(table(), engine=engine, **arguments) for engine in ("simulation", "agents"))
    np.testing.assert_allclose(agents.means_, simulated.means_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(agents.lower_bounds_, simulated.lower_bounds_, rtol=1e-9)
    np.testing.assert_array_equal(agents.traffic_.table, simulated.traffic_.table)
    assert agents.traffic_.rounds == simulated.traffic_.rounds


def study(summation=None, hops=0):
    summation = Consensus("auto") if summation is None else summation
    return make_study(nx.path_graph(5), summation=summation, hops=hops, batch_size=9, n_init=2)[0]


@pytest.mark.parametrize("hops", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_however_messages_are_delivered_the_bits_are_the_same(hops, seed):
    expected = bits(run(study(hops=hops)).agents.values())
    disturbed = Disturbances(np.random.default_rng(seed), delay=0.3, duplicate=0.1, kill=0.02)
    assert bits(run(study(hops=hops), encoded=True, disturbances=disturbed).agents.values()) == expected


@pytest.mark.parametrize("stop_after", [40, 200, 400, 700, 1000])
def test_memories_are_part_of_the_checkpoint(stop_after):
    expected = bits(run(study()).agents.values())
    transport = InProcess(study(), encoded=True).start()
    left = [stop_after]

    def is_time():
        left[0] -= 1
        return left[0] == 0

    transport.run(is_time)
    assert left[0] <= 0, "there is something left to do"
    saved = wire.encode_state(transport.agents[1].state)
    transport.crash(1)
    transport.run()
    transport.recover(1, saved)
    transport.run()
    assert bits(transport.agents.values()) == expected


# The way back


@dataclass(frozen=True)
class Hasty(Consensus):
    """Sums that go on from others with far too few rounds."""

    rounds: str = "auto"
    few: int = 2
    guarded: bool = True

    @property
    def is_guarded(self):
        return self.guarded

    def n_rounds(self, network, stage=0):
        return super().n_rounds(network, stage) if stage < 2 else math.ceil(self.few * 1.5 ** (stage - 2))


@pytest.fixture(scope="module")
def fast():
    """Blobs whose EM goes fast from a random start."""
    return make_vertical_blobs(600, 12, 1, 3, separation=1.5, random_state=0)


def fit_fast(data, summation, engine="simulation", **arguments):
    settings = {"tol": 1e-7, "max_iter": 300, "random_state": 0, "init_params": "random_from_data"}
    model = VerticalGaussianMixture(
        3, partition=data.partition, graph="path", summation=summation, engine=engine, **settings, **arguments
    )
    return model.fit(data.data)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::vpem.FitWarning")
def test_sums_that_are_too_short_are_caught_and_get_more_rounds(fast):
    exact, misled, guarded = (
        fit_fast(fast, summation) for summation in (Tree(), Hasty(few=4, guarded=False), Hasty(few=4))
    )
    assert misled.log_likelihood_ < exact.log_likelihood_ - 1
    assert guarded.converged_
    assert guarded.log_likelihood_ == pytest.approx(exact.log_likelihood_, abs=1e-6)
    n_falls = (np.diff(guarded.lower_bounds_) < -0.01).sum()
    assert 0 < n_falls <= 4


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::vpem.FitWarning")
@pytest.mark.parametrize("arguments", [{}, {"batch_size": 250}], ids=str)
def test_both_engines_go_back_together(fast, arguments):
    simulated, agents = (fit_fast(fast, Hasty(few=1), engine, **arguments) for engine in ("simulation", "agents"))
    assert (np.diff(simulated.lower_bounds_) < -0.01).any()
    np.testing.assert_allclose(agents.lower_bounds_, simulated.lower_bounds_, rtol=1e-9)
    np.testing.assert_allclose(agents.means_, simulated.means_, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(agents.traffic_.table, simulated.traffic_.table)


def test_the_guard_never_speaks_up_with_the_rounds_of_the_design(fast):
    model = fit_fast(fast, Consensus("auto"))
    assert (np.diff(model.lower_bounds_) > -0.01).all()
    exact = fit_fast(fast, Tree())
    assert model.log_likelihood_ == pytest.approx(exact.log_likelihood_, abs=1e-6)


def test_when_to_go_back():
    assert must_retreat([-2.0, -1.0, -1.02], 2, 0)
    assert not must_retreat([-1.0, -1.005], 2, 0), "reg_covar and rounding take a little"
    assert not must_retreat([-1.0, -2.0], 1, 0), "there is nothing to go back to"
    assert not must_retreat([-1.0, -2.0], 2, 4), "it falls for another reason"
    assert not must_retreat([-2.0], 2, 0)


# Whole fits


GRAPHS = {
    "path": (nx.path_graph(8), 14),
    "ring": (nx.cycle_graph(8), 7),
    "geometric": (nx.random_geometric_graph(8, 0.5, seed=2), 4),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_fit_comes_to_a_fixed_point_for_far_fewer_bytes(name):
    graph, factor = GRAPHS[name]
    data = make_vertical_blobs(1500, 8, 1, 3, separation=1.5, random_state=3)
    arguments = {"partition": data.partition, "graph": graph, "tol": 1e-10, "max_iter": 500, "random_state": 0}
    exact, plain, auto = (
        VerticalGaussianMixture(3, summation=summation, init_params="random_from_data", **arguments).fit(data.data)
        for summation in (Tree(), Consensus(), Consensus("auto"))
    )
    assert auto.converged_
    assert abs(auto.certificate_.gain) <= 1e-6
    assert auto.certificate_.disagreement <= 1e-6
    np.testing.assert_allclose(auto.means_, exact.means_, atol=1e-4)
    # What the parties see of the likelihood is as right as it is with exact sums.
    assert abs(auto.lower_bound_ - auto.log_likelihood_) < 2 * abs(exact.lower_bound_ - exact.log_likelihood_)
    assert plain.traffic_.bytes > factor * auto.traffic_.bytes


def test_k_means_and_predictions(fast):
    exact, auto = (
        VerticalKMeans(3, partition=fast.partition, graph="path", summation=summation, random_state=0).fit(fast.data)
        for summation in (Tree(), Consensus("auto"))
    )
    np.testing.assert_array_equal(auto.labels_, exact.labels_)
    model = fit_fast(fast, Consensus("auto"), "agents")
    np.testing.assert_allclose(model.predict_proba(fast.data).sum(axis=1), 1)


def test_a_model_keeps_its_sum(tmp_path, fast):
    model = fit_fast(fast, Consensus("auto", "laplacian"))
    vpem.save(model, tmp_path / "model")
    again = vpem.load(tmp_path / "model")
    assert again.summation == Consensus("auto", "laplacian")
    np.testing.assert_array_equal(again.predict(fast.data), model.predict(fast.data))
