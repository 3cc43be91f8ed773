"""VP-EM against EM in one place, and against agents that mix round by round."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import (
    CentralizedEM,
    LiteralAgents,
    connected_graphs,
    dense_covariances,
    examples,
    make_mixture,
    make_settings,
    problems,
    relative_error,
)
from vpem.core.decisions.stopping import comparable_bound
from vpem.core.network.consensus import Consensus
from vpem.core.network.parties import make_network
from vpem.core.network.star import Star
from vpem.simulation import certificate
from vpem.simulation import fit as simulated
from vpem.simulation.model import make_problem

pytestmark = [pytest.mark.processors, pytest.mark.usefixtures("small_chunks")]


def em(X, network, summation, mixture, rules):
    task = make_problem(X, network, summation, rules.density)
    return simulated.em(task, task.channel(), mixture, rules)


def certify(X, network, summation, mixture, rules):
    return certificate.certify(make_problem(X, network, summation, rules.density), mixture, rules)


def em_settings(problem, **changes):
    usual = {"covariance_type": "full", "tol": 0.0, "reg_covar": 1e-6, "max_iter": 1}
    return make_settings(n_components=problem.n_components, **{**usual, **changes})


def internal(covariances, covariance_type):
    """Start covariances (K, d, d), which are diagonal and alike, in the shapes of a Block."""
    if covariance_type == "tied":
        return covariances[:1]
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    return {"full": covariances, "diag": variances, "spherical": variances.mean(axis=1, keepdims=True)}[
        covariance_type
    ]


def as_matrices(covariances, n_components, n_columns):
    if covariances.ndim == 3:
        return np.broadcast_to(covariances, (n_components, n_columns, n_columns))
    return np.array([np.diag(v) for v in np.broadcast_to(covariances, (n_components, n_columns))])


def check_federated_equals_centralized(problem, covariance_type, n_iterations):
    # 1e-9: twenty iterations amplify rounding (1e-16) by what EM's own sensitivity allows, measured below 1e-11.
    X, partition = problem.X, problem.partition
    network = make_network(dict(enumerate(partition)), "star")
    start = problem.covariances(partition)
    parts = [internal(block, covariance_type) for block in start]
    whole = [
        as_matrices(part, problem.n_components, part_of.shape[1]) for part, part_of in zip(parts, start, strict=True)
    ]
    centralized = CentralizedEM(X, partition, problem.weights, problem.means.copy(), whole, covariance_type, 1e-6)
    mixture = make_mixture(network, problem.weights, problem.means, parts)
    for _ in range(n_iterations):
        fit = em(X, network, Star(), mixture, em_settings(problem, covariance_type=covariance_type))
        mixture = fit.mixture
        expected = centralized.step()
        assert fit.lower_bounds[0][0] == pytest.approx(expected, rel=1e-9)
        assert relative_error(mixture.weights[0], centralized.weights) < 1e-9
        assert relative_error(network.assemble([block.means for block in mixture.blocks]), centralized.means) < 1e-9
        dense = dense_covariances(
            partition,
            X.shape[1],
            [as_matrices(block.covariances, problem.n_components, block.means.shape[1]) for block in mixture.blocks],
        )
        assert relative_error(dense, centralized.covariances) < 1e-9


@examples(100)
@given(problems(), st.sampled_from(["full", "tied", "diag", "spherical"]))
def test_federated_equals_centralized_after_each_of_20_iterations(problem, covariance_type):
    check_federated_equals_centralized(problem, covariance_type, 20)


@examples(40)
@given(problems(most_parties=3, gaps=True), st.sampled_from(["full", "tied", "diag", "spherical"]))
def test_with_gaps_it_equals_row_by_row_marginalization(problem, covariance_type):
    check_federated_equals_centralized(problem, covariance_type, 5)


@examples(80)
@given(st.one_of(problems(), problems(gaps=True)), st.sampled_from(["full", "tied", "diag", "spherical"]))
def test_the_federated_likelihood_never_falls(problem, covariance_type):
    # Exact sums, full batches and reg_covar=0, as the corollary needs; 1e-10 per row is room for rounding.
    network = make_network(dict(enumerate(problem.partition)), "star")
    parts = [internal(block, covariance_type) for block in problem.covariances(problem.partition)]
    mixture = make_mixture(network, problem.weights, problem.means, parts)
    fit = em(
        problem.X,
        network,
        Star(),
        mixture,
        em_settings(problem, covariance_type=covariance_type, reg_covar=0.0, max_iter=30),
    )
    assert np.diff([bounds[0] for bounds in fit.lower_bounds]).min() > -1e-10


def check_decentralized_equals_literal(graph_and_problem, hops, kind, rounds, seed):
    graph, problem = graph_and_problem
    columns = dict(enumerate(problem.partition))
    network = make_network(columns, graph, hops, np.random.default_rng(seed))
    start = problem.covariances(network.block_columns)
    # A few rounds can leave roots so far from the sum that components starve: reg_covar keeps them defined.
    agents = LiteralAgents(
        problem.X,
        graph,
        problem.partition,
        network.hubs,
        problem.weights,
        problem.means,
        start,
        kind,
        rounds,
        1e-2,
    )
    mixture = make_mixture(network, problem.weights, problem.means, start)
    for _ in range(5):
        fit = em(problem.X, network, Consensus(rounds, kind), mixture, em_settings(problem, reg_covar=1e-2))
        mixture = fit.mixture
        seen = agents.step()
        np.testing.assert_allclose(np.broadcast_to(fit.lower_bounds[0], len(seen)), seen, rtol=1e-9)
        weights = np.broadcast_to(mixture.weights, (len(seen), problem.n_components))
        for b, block in enumerate(mixture.blocks):
            assert relative_error(weights[b], agents.weights[b]) < 1e-9
            assert relative_error(block.means, agents.means[b]) < 1e-9
            assert relative_error(block.covariances, agents.covariances[b]) < 1e-9


def networks_with(gaps, most_agents):
    return st.tuples(
        connected_graphs(most_agents=most_agents).flatmap(
            lambda graph: st.tuples(st.just(graph), problems(n_parties=len(graph), gaps=gaps))
        ),
        st.integers(0, 2),
        st.sampled_from(["metropolis", "laplacian"]),
        st.integers(1, 40),
        st.integers(0, 100),
    )


@examples(60)
@given(networks_with(gaps=False, most_agents=6))
def test_decentralized_equals_literal_rounds_at_every_root(arguments):
    check_decentralized_equals_literal(*arguments)


@examples(20)
@given(networks_with(gaps=True, most_agents=4))
def test_decentralized_with_gaps_equals_literal_rounds_at_every_root(arguments):
    check_decentralized_equals_literal(*arguments)


@pytest.mark.parametrize("offset", [1e3, 1e8])
def test_means_that_move_far_in_one_iteration_cost_no_digits(offset):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 2)) + 4 * rng.integers(2, size=(500, 1))
    network = make_network({0: [0, 1]}, "star")

    def covariances(table, scale):
        start = make_mixture(network, np.array([0.5, 0.5]), np.zeros((2, 2)), [np.array([scale * np.eye(2)] * 2)])
        rules = make_settings(n_components=2, covariance_type="full", tol=0.0, reg_covar=0.0, max_iter=1)
        return em(table, network, Star(), start, rules).mixture.blocks[0].covariances[0]

    # Equal components share every row evenly, so one step gives the covariance of all rows. The shifted rows
    # themselves, and the means of chunks, are rounded to offset * 1e-16.
    expected = np.cov((X + offset - offset).T, bias=True)
    assert relative_error(covariances(X + offset, offset**2), expected) < 1e-12 + offset * 1e-17


def test_all_stop_together_when_the_last_root_would():
    # With few rounds roots see different likelihoods; each one's own rule would stop it at its own iteration.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) + rng.integers(2, size=(300, 1))
    network = make_network({n: [n] for n in range(6)}, "path")
    mixture = make_mixture(network, np.array([0.5, 0.5]), X[:2], [np.ones((2, 1, 1)) * 4] * 6)
    rules = make_settings(n_components=2, covariance_type="full", tol=1e-3, reg_covar=1e-6, max_iter=500)
    fit = em(X, network, Consensus(4), mixture, rules)
    changes = np.abs(np.diff(np.array(fit.lower_bounds), axis=0))
    first = {int(np.argmax(own < 1e-3)) for own in changes.T}
    assert len(first) > 1, "the example must have roots that would stop apart"
    assert fit.converged
    assert (changes[-1] < 1e-3).all()
    assert not (changes[:-1] < 1e-3).all(axis=1).any()
    agreed = comparable_bound([bounds.min() for bounds in fit.lower_bounds], fit.converged)
    assert agreed == fit.lower_bounds[-1].min()


def test_the_certificate_tells_a_fit_that_stopped_early_and_roots_that_disagree():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 4)) + 3 * rng.integers(2, size=(400, 1))
    network = make_network({n: [n] for n in range(4)}, "ring")
    mixture = make_mixture(network, np.array([0.5, 0.5]), X[:2], [np.ones((2, 1, 1))] * 4)

    def certificate(summation, **changes):
        rules = {"covariance_type": "full", "tol": 1e-9, "reg_covar": 0.0, "max_iter": 500, **changes}
        rules = make_settings(n_components=2, **rules)
        return certify(X, network, summation, em(X, network, summation, mixture, rules).mixture, rules)

    good = certificate(Consensus(100))
    assert 0 <= good.gain < 1e-8
    assert good.disagreement < 1e-6
    assert certificate(Consensus(100), max_iter=1).gain > 1e-4
    assert certificate(Consensus(2)).disagreement > 1e-3


def test_the_certificate_is_the_gain_of_a_naive_step():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 3)) + 2 * rng.integers(2, size=(150, 1))
    blocks = [[0, 2], [1]]
    network = make_network(dict(enumerate(blocks)), "path")
    covariances = [np.array([np.eye(len(held))] * 2) for held in blocks]
    mixture = make_mixture(network, np.array([[0.4, 0.6], [0.5, 0.5]]), X[:2], covariances)
    rules = make_settings(n_components=2, covariance_type="full", tol=0.0, reg_covar=1e-6, max_iter=1)
    centralized = CentralizedEM(X, blocks, np.array([0.45, 0.55]), X[:2].copy(), covariances, "full", 1e-6)
    before = centralized.step()
    assert certify(X, network, Consensus(3), mixture, rules).gain == pytest.approx(centralized.step() - before)
