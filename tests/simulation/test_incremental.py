"""Batches and streams against implementations that keep all responsibilities."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import (
    CentralizedEM,
    contents,
    dense_covariances,
    examples,
    make_mixture,
    make_settings,
    problems,
    relative_error,
)
from vpem.core.blocks.batches import batch_slices
from vpem.core.decisions.repair import Repair
from vpem.core.network.adders import flood_traffic, sum_traffic
from vpem.core.network.consensus import Consensus
from vpem.core.network.parties import make_network
from vpem.core.network.star import Star
from vpem.core.network.sums import Shape
from vpem.simulation.fit import em
from vpem.simulation.model import make_problem
from vpem.simulation.streams import Stream, online_step

pytestmark = [pytest.mark.processors, pytest.mark.usefixtures("small_chunks")]


def prepare(problem, graph="star", **changes):
    """The problem as a network has it, a start and settings."""
    usual = {"covariance_type": "full", "tol": 0.0, "reg_covar": 1e-6, "max_iter": 4}
    rules = make_settings(n_components=problem.n_components, **{**usual, **changes})
    network = make_network(dict(enumerate(problem.partition)), graph)
    start = make_mixture(network, problem.weights, problem.means, problem.covariances(problem.partition))
    summation = Star() if graph == "star" else Consensus(5)
    return make_problem(problem.X, network, summation, rules.density), start, rules


def pass_of_batches(task, rules, batch_size):
    """What one pass sends: a run without iterations has only the last one."""
    weights = np.full(rules.n_components, 1 / rules.n_components)
    rows = task.X[: rules.n_components]
    covariances = [np.array([np.eye(len(held))] * rules.n_components) for held in task.network.block_columns]
    start = make_mixture(task.network, weights, rows, covariances)
    return em(task, task.channel(), start, replace(rules, max_iter=0), batch_size=batch_size).traffic


def centralized(problem, reg_covar=1e-6):
    covariances = problem.covariances(problem.partition)
    return CentralizedEM(problem.X, problem.partition, problem.weights, problem.means, covariances, "full", reg_covar)


def assert_same(network, mixture, oracle, partition):
    assert relative_error(mixture.weights[0], oracle.weights) < 1e-9
    assert relative_error(network.assemble([block.means for block in mixture.blocks]), oracle.means) < 1e-9
    dense = dense_covariances(partition, oracle.X.shape[1], [block.covariances for block in mixture.blocks])
    assert relative_error(dense, oracle.covariances) < 1e-9


@examples(25)
@given(problems(), st.integers(8, 60))
def test_it_equals_incremental_em_that_keeps_all_responsibilities(problem, batch_size):
    task, start, rules = prepare(problem)
    found = em(task, task.channel(), start, rules, batch_size=batch_size)
    oracle = centralized(problem)
    responsibilities, log_likelihoods = oracle.e_step()
    energies = [log_likelihoods.mean()]
    oracle.m_step(problem.X, responsibilities)
    for _ in range(3):
        for batch in batch_slices(len(problem.X), batch_size):
            responsibilities[batch], _ = oracle.e_step(batch)
            energy = oracle.free_energy(responsibilities)  # before the M-step; the pass's last one counts
            oracle.m_step(problem.X, responsibilities)
        energies.append(energy)
    np.testing.assert_allclose([bounds[0] for bounds in found.lower_bounds], energies, rtol=1e-9)
    assert_same(task.network, found.mixture, oracle, problem.partition)


@examples(30)
@given(st.one_of(problems(), problems(gaps=True)), st.sampled_from(["star", "path"]))
def test_one_batch_of_all_rows_is_em(problem, graph):
    task, start, rules = prepare(problem, graph, max_iter=8, reg_covar=1e-6 if graph == "star" else 1e-2)
    full = em(task, task.channel(), start, rules)
    found = em(task, task.channel(), start, rules, batch_size=len(problem.X))
    np.testing.assert_allclose(found.lower_bounds, full.lower_bounds, rtol=1e-9)
    for block, expected in zip(found.mixture.blocks, full.mixture.blocks, strict=True):
        assert relative_error(block.means, expected.means) < 1e-9
        assert relative_error(block.covariances, expected.covariances) < 1e-9


@examples(40)
@given(
    st.one_of(problems(), problems(gaps=True)),
    st.integers(3, 60),
    st.sampled_from(["full", "tied", "diag", "spherical"]),
)
def test_the_free_energy_never_falls(problem, batch_size, covariance_type):
    # Exact sums and reg_covar=0; the likelihood itself may fall. 1e-10 per row is room for rounding.
    task, _, rules = prepare(problem, covariance_type=covariance_type, reg_covar=0.0, max_iter=10)
    n_matrices = 1 if covariance_type == "tied" else problem.n_components
    start = make_mixture(
        task.network,
        problem.weights,
        problem.means,
        [np.repeat(block.covariances, n_matrices, axis=0) for block in task.overall.blocks],
    )
    found = em(task, task.channel(), start, rules, batch_size=batch_size)
    assert np.diff([bounds[0] for bounds in found.lower_bounds]).min() > -1e-10


@pytest.mark.parametrize("batch_size", [1, 7, 50, 199, 200, 1000])
@pytest.mark.parametrize("graph", ["star", "path"])
def test_every_batch_size_ends_where_em_ends(batch_size, graph):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) + 3 * rng.integers(2, size=(200, 1))
    network = make_network({0: [0, 1], 1: [2], 2: [3]}, graph)
    rules = make_settings(n_components=2, covariance_type="full", tol=1e-12, reg_covar=1e-6, max_iter=500)
    task = make_problem(X, network, Star() if graph == "star" else Consensus(60), rules.density)
    covariances = [np.repeat(block.covariances, 2, axis=0) for block in task.overall.blocks]
    start = make_mixture(network, np.array([0.5, 0.5]), X[:2], covariances)
    expected = em(task, task.channel(), start, rules)
    found = em(task, task.channel(), start, rules, batch_size=batch_size)
    assert expected.converged
    assert found.converged
    for block, other in zip(found.mixture.blocks, expected.mixture.blocks, strict=True):
        np.testing.assert_allclose(block.means, other.means, atol=1e-4)
    assert found.lower_bounds[-1] == pytest.approx(expected.lower_bounds[-1], abs=1e-8)


def test_a_pass_sends_the_bytes_of_an_iteration_and_one_number():
    network = make_network({0: [0], 1: [1], 2: [2]}, "star")
    rules = make_settings(n_components=2, covariance_type="full", tol=0.0, reg_covar=1e-6, max_iter=1)
    X = np.random.default_rng(0).normal(size=(100, 3))
    traffic = pass_of_batches(make_problem(X, network, Star(), rules.density), rules, 30)
    assert traffic.messages == 4 * 6
    assert contents(traffic) == 6 * (8 * 100 * 2 + 8 * rules.n_decisions + 8)


def test_a_pass_floods_its_decisions_once_and_wholly_however_few_rounds():
    network = make_network({number: [number] for number in range(6)}, "path")  # five hops wide
    rules = make_settings(n_components=2, covariance_type="full", tol=0.0, reg_covar=1e-6, max_iter=1)
    task = make_problem(np.random.default_rng(0).normal(size=(100, 6)), network, Consensus(2), rules.density)
    traffic = pass_of_batches(task, rules, 30)
    sums = [sum_traffic(task.summation, network, Shape(rows, 2)) for rows in (30, 30)]
    sums.append(sum_traffic(task.summation, network, Shape(30, 2), rules.n_decisions))  # three rounds more
    sums.append(sum_traffic(task.summation, network, Shape(10, 2, 1)))
    assert traffic.bytes == sum(one.bytes for one in sums)
    assert traffic.rounds == 4 * 2 + 3


def test_batches_cover_the_rows():
    assert batch_slices(10, 4) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert batch_slices(3, 5) == [slice(0, 3)]


@examples(20)
@given(problems(most_parties=3))
def test_a_stream_equals_weighted_rows(problem):
    # Three calls: the rows of call t end up with the weight of their step, times what later steps left over.
    task, mixture, rules = prepare(problem, reg_covar=1e-3)
    oracle = centralized(problem, 1e-3)
    weights, responsibilities = np.zeros(len(problem.X)), np.zeros((len(problem.X), problem.n_components))
    stream = Stream(task.overall)
    for step, rows in enumerate(np.array_split(np.arange(len(problem.X)), 3)):
        share = (step + 1) ** -0.7
        responsibilities[rows], _ = oracle.e_step(rows)
        weights *= 1 - share
        weights[rows] = share / len(rows)
        seen = weights > 0
        oracle.m_step(problem.X[seen], (weights[:, None] * responsibilities)[seen])
        fit, stream, _ = online_step(replace(task, X=problem.X[rows]), task.channel(), mixture, rules, stream)
        mixture = fit.mixture
        assert_same(task.network, mixture, oracle, problem.partition)
        assert stream.n_rows == pytest.approx(1 / np.square(weights).sum()), "rows of equal weight worth as much"


def test_the_first_step_of_a_stream_is_an_iteration_of_em():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 6)) @ rng.normal(size=(6, 6)) + 3 * rng.integers(2, size=(100, 1))
    network = make_network({0: [0, 1, 2, 3, 4], 1: [5]}, "path")
    rules = make_settings(n_components=2, covariance_type="full", tol=0.0, reg_covar=0.0, max_iter=1, shrinkage="oas")
    task = make_problem(X, network, Consensus(3), rules.density)
    covariances = [np.repeat(block.covariances, 2, axis=0) for block in task.overall.blocks]
    start = make_mixture(network, np.array([0.5, 0.5]), X[:2], covariances)
    expected = em(task, task.channel(), start, rules)
    found, _, _ = online_step(task, task.channel(), start, rules, Stream(task.overall))
    np.testing.assert_allclose(found.lower_bounds, expected.lower_bounds)
    for block, other in zip(found.mixture.blocks, expected.mixture.blocks, strict=True):
        assert relative_error(block.covariances, other.covariances) < 1e-12


def starved(X, graph="star"):
    """A task in which the second of two components starts far from all rows."""
    network = make_network({0: [0], 1: [1]}, graph)
    rules = make_settings(n_components=2, covariance_type="full", tol=1e-6, reg_covar=1e-6, max_iter=200)
    task = make_problem(X, network, Star() if graph == "star" else Consensus(20), rules.density)
    start = make_mixture(network, np.array([0.5, 0.5]), np.array([[2.5, 2.5], [1e6, 1e6]]), [np.ones((2, 1, 1))] * 2)
    return task, start, rules


@pytest.mark.parametrize("graph", ["star", "path"])
@pytest.mark.parametrize("batch_size", [None, 50])
def test_repairs_are_part_of_the_traffic(graph, batch_size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) + 5 * rng.integers(2, size=(300, 1))
    task, start, rules = starved(X, graph)
    if batch_size is None:
        found = em(task, task.channel(), start, rules)
        one = sum_traffic(task.summation, task.network, Shape(300, 2), rules.n_decisions)
    else:
        found = em(task, task.channel(), start, rules, batch_size=batch_size)
        one = pass_of_batches(task, rules, batch_size)
    assert [repair.component for repair in found.repairs] == [1]
    flood = flood_traffic(task.summation, task.network, 1)
    assert found.traffic.bytes == one.bytes * (found.n_iter + 1) + flood.bytes
    assert sorted(np.round(found.mixture.blocks[0].means[:, 0])) == [0, 5]


def test_streams_repair_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2)) + 5 * rng.integers(2, size=(2000, 1))
    task, mixture, rules = starved(X)
    stream = Stream(task.overall)
    for rows in np.array_split(np.arange(2000), 20):
        fit, stream, _ = online_step(replace(task, X=X[rows]), task.channel(), mixture, rules, stream)
        mixture = fit.mixture
    assert stream.repairs == (Repair(1, 1, 0, "starved"),)
    assert sorted(np.round(mixture.blocks[0].means[:, 0])) == [0, 5]


def test_an_early_collapse_of_a_pass_is_not_forgotten():
    # The first batch's rows are alike: a component on them collapses there, and the later batches know nothing of it.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1)) + 5
    X[:50] = 0.0
    network = make_network({0: [0]}, "star")
    rules = make_settings(n_components=2, covariance_type="full", tol=1e-6, reg_covar=0.0, max_iter=2)
    task = make_problem(X, network, Star(), rules.density)
    start = make_mixture(network, np.array([0.5, 0.5]), np.array([[0.0], [5.0]]), [np.array([[[1e-2]], [[1.0]]])])
    found = em(task, task.channel(), start, rules, batch_size=50)
    assert [repair[1:4] for repair in found.repairs] == [(0, 0, "collapsed")]
