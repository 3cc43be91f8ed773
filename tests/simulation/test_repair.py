"""Components that cannot go on."""

import numpy as np
import pytest

from definitions import columns_with_noise
from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.factors import make_block, make_statistics
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.sweep import N_WORST
from vpem.core.decisions.repair import MOST_REPAIRS, Repair, RepairQueue
from vpem.core.network.consensus import Consensus
from vpem.core.network.parties import make_network
from vpem.core.network.star import Star
from vpem.core.network.traffic import OVERHEAD_BYTES
from vpem.simulation.em import e_step
from vpem.simulation.model import Mixture, make_problem
from vpem.simulation.repair import Repairer, repair_mixture

WORST = np.array([7, 3, 5])


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(50, 3))


@pytest.fixture
def network():
    return make_network({"a": [0, 1], "b": [2]}, "path")


@pytest.fixture
def problem(X, network):
    return make_problem(X, network, Consensus(3), Gaussian())


@pytest.fixture
def mixture(X, problem):
    blocks = (
        make_block(part, np.repeat(block.covariances, 2, axis=0) / 9)
        for part, block in zip((X[:2, :2], X[:2, 2:]), problem.overall.blocks, strict=True)
    )
    return Mixture(Gaussian(), np.array([[0.9, 0.1], [0.8, 0.2]]), tuple(blocks))


def test_a_restart_puts_a_component_on_a_row_with_the_overall_covariance(X, network, problem, mixture):
    found = repair_mixture(problem, mixture, [1], np.array([7]))
    np.testing.assert_allclose(found.weights, [[0.5, 0.5]] * 2)
    for held, before, after, whole in zip(
        network.block_columns, mixture.blocks, found.blocks, problem.overall.blocks, strict=True
    ):
        np.testing.assert_array_equal(after.means[1], X[7, held])
        np.testing.assert_array_equal(after.covariances[1], whole.covariances[0])
        np.testing.assert_array_equal(after.means[0], before.means[0])
        np.testing.assert_array_equal(after.covariances[0], before.covariances[0])


def test_a_party_that_lacks_the_row_takes_its_column_means(X, network, mixture):
    X[7, 2] = np.nan
    problem = make_problem(X, network, Consensus(3), Gaussian())
    found = repair_mixture(problem, mixture, [1], np.array([7]))
    assert found.blocks[1].means[1, 0] == pytest.approx(np.nanmean(X[:, 2]))


def test_one_root_finds_it_the_next_sum_tells_all_then_it_is_restarted(X, network, problem, mixture):
    repairer = Repairer(problem, problem.channel().begin(mixture.weights))
    full = np.full((2, 2), 25.0)
    same, sound = repairer.visit(1, mixture, full, [[], [1]], WORST)
    assert same is mixture, "nobody else knows yet"
    assert not sound
    assert repairer.channel.traffic.messages == 0
    after, sound = repairer.visit(2, mixture, full, [[], [1]], WORST)
    np.testing.assert_array_equal(after.blocks[0].means[1], X[7, :2])
    assert not sound
    assert repairer.all_repairs() == (Repair(1, 1, "b", "collapsed"),)
    assert repairer.channel.traffic.bytes == 2 * (8 + OVERHEAD_BYTES), "one row number over one link, each way"
    assert repairer.visit(3, after, full, [[], []], WORST) == (after, True)


def test_starving_at_one_root_is_enough(X, network, problem, mixture):
    repairer = Repairer(problem, problem.channel().begin(mixture.weights))
    counts = np.array([[49.0, 1.0], [50.0, 1e-9]])
    repairer.visit(4, mixture, counts, [[], []], WORST)
    assert repairer.all_repairs() == (Repair(4, 1, "b", "starved", restarted=False),)


def test_after_some_restarts_a_collapse_is_an_error_and_starving_is_left_alone(X, network, problem, mixture):
    repairer = Repairer(problem, problem.channel().begin(mixture.weights))
    full = np.full((2, 2), 25.0)
    rows = []
    for iteration in range(MOST_REPAIRS):
        repairer.visit(2 * iteration, mixture, full, [[], [1]], WORST)
        # What it had kept collapses once more in the iteration that restarts it: that does not count.
        after, _ = repairer.visit(2 * iteration + 1, mixture, full, [[], [1]], WORST)
        rows.append(int(np.flatnonzero(X[:, 2] == after.blocks[1].means[1, 0])[0]))
    assert rows == [7, 3, 5], "each time the next worst row"
    _, sound = repairer.visit(10, mixture, np.array([[50.0, 0.0]] * 2), [[], []], WORST)
    assert sound
    with pytest.raises(CollapsedComponentError, match=r"component 1 .* party 'b' \(3 repairs did not help\)"):
        repairer.visit(11, mixture, full, [[], [1]], WORST)


def test_no_two_components_are_put_on_one_row_and_the_rest_waits(X, network, problem, mixture):
    repairer = Repairer(problem, problem.channel().begin(mixture.weights))
    full = np.full((2, 2), 25.0)
    repairer.visit(1, mixture, full, [[0], [1]], WORST)
    repairer.visit(2, mixture, full, [[], []], np.array([7]))
    assert repairer.all_repairs() == (
        Repair(1, 0, "a", "collapsed"),
        Repair(1, 1, "b", "collapsed", restarted=False),
    )
    repairer.visit(3, mixture, full, [[], []], WORST)
    assert [case.component for case in repairer.queue.restarted] == [0, 1]
    both = Repairer(problem, problem.channel().begin(mixture.weights), RepairQueue(repairer.queue.restarted))
    both.visit(4, mixture, full, [[], []], WORST)
    assert both.channel.traffic.bytes == 2 * (2 * 8 + OVERHEAD_BYTES), "two row numbers over one link, each way"


def test_the_worst_rows_are_found_across_chunks_and_batches():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    X[100:120] = [9.0, 9.0]  # alike: only one of them counts
    X[200:220] = np.nan
    task = make_problem(X, make_network({0: [0], 1: [1]}, "star"), Star(), Gaussian())
    blocks = tuple(make_block(np.zeros((1, 1)), np.ones((1, 1, 1)) * 1e-6) for _ in range(2))
    mixture = Mixture(Gaussian(), np.ones((1, 1)), blocks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vpem.core.rows.CHUNK_VALUES", 1)
        scores, rows = e_step(task, task.channel(), mixture)[0].worst
    distances = np.nansum(X**2, axis=1)
    order = np.argsort(-distances)
    expected = [*order[:1], *order[20 : 20 + N_WORST - 1]]
    np.testing.assert_allclose(distances[rows], distances[expected])
    assert 100 <= rows[0] < 120
    assert (np.diff(scores) > 0).all()
    tiny = make_problem(X * 1e-3, task.network, Star(), Gaussian())  # densities above one
    assert not np.isnan(X[e_step(tiny, tiny.channel(), mixture)[0].worst[1]]).any()


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_a_component_that_would_collapse_keeps_what_it_had(covariance_type):
    previous = make_block(
        np.array([[0.0, 0.0], [5.0, 5.0]]),
        {
            "full": np.array([np.eye(2)] * 2),
            "tied": np.eye(2)[None],
            "diag": np.ones((2, 2)),
            "spherical": np.ones((2, 1)),
        }[covariance_type],
    )
    is_matrix = covariance_type in ("full", "tied")
    flat = np.zeros((2, 2, 2)) if is_matrix else np.zeros((2, 2))
    if covariance_type != "tied":
        flat[0] = 10 * np.eye(2) if is_matrix else 10.0
    statistics = make_statistics(np.array([10.0, 4.0]), np.ones((2, 2)), flat)
    rule = Gaussian(covariance_type=covariance_type, reg_covar=0.0)
    block, collapsed = rule.m_step(statistics, previous, columns_with_noise(np.full(2, 1e-30)))
    assert collapsed == [1]
    np.testing.assert_array_equal(block.covariances[-1], previous.covariances[-1])
    if covariance_type != "tied":
        np.testing.assert_array_equal(block.means, [[1, 1], [5, 5]])
        np.testing.assert_allclose(block.covariances[0], previous.covariances[0])


def test_a_variance_below_rounding_counts_as_collapsed():
    previous = make_block(np.zeros((1, 1)), np.ones((1, 1)))
    statistics = make_statistics(np.array([10.0]), np.ones((1, 1)), np.array([[1e-9]]))
    rule = Gaussian(covariance_type="diag", reg_covar=0.0)
    assert rule.m_step(statistics, previous, columns_with_noise(np.array([1e-11])))[1] == []
    assert rule.m_step(statistics, previous, columns_with_noise(np.array([1e-9])))[1] == [0]


def test_a_block_without_rows_of_a_component_keeps_it_and_is_sound():
    previous = make_block(np.array([[0.0], [5.0]]), np.ones((2, 1)))
    statistics = make_statistics(np.array([10.0, 0.0]), np.ones((2, 1)), np.array([[10.0], [0.0]]))
    block, collapsed = Gaussian(covariance_type="diag").m_step(statistics, previous, columns_with_noise(np.zeros(1)))
    assert collapsed == []
    assert block.means.tolist() == [[1.0], [5.0]]
    assert block.covariances[1, 0] == 1.0
