"""Components that cannot go on."""

from dataclasses import replace

import numpy as np
import pytest

from definitions import columns_with_noise
from oracles import make_settings
from vpem.core.blocks.batches import Kept
from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.factors import make_block, make_statistics
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.weights import N_WORST
from vpem.core.decisions.passes import BatchPass
from vpem.core.decisions.repair import MOST_REPAIRS, Repair, RepairQueue
from vpem.core.network.consensus import Consensus
from vpem.core.network.parties import make_network
from vpem.core.network.star import Star
from vpem.core.network.traffic import OVERHEAD_BYTES
from vpem.core.script.em_phases import absorb_repair, after_iteration, agree, offer_repair, restart
from vpem.core.script.state import Parameters, Progress, Run
from vpem.core.settings import Agreement
from vpem.simulation.driver import SimulatedOutcome, simulated_context
from vpem.simulation.model import Mixture, make_problem
from vpem.simulation.simulated_pass import e_step

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


def context_of(problem, mixture):
    settings = make_settings(n_components=2, tol=0.0, max_iter=100)
    agreement = Agreement(settings=settings, summation=problem.summation, seed=0)
    return simulated_context(problem, problem.channel().begin(mixture.weights), agreement)


def repair_mixture(problem, mixture, components, rows):
    parameters = Parameters(mixture.weights, mixture.blocks)
    return Mixture(mixture.density, *restart(context_of(problem, mixture), parameters, components, rows))


class Repairer:
    """The phases after an iteration's M-step, and the decision that rides on the next sum."""

    def __init__(self, problem, mixture, queue=None):
        self.context = context_of(problem, mixture)
        self.run = Run(np.full(2, np.inf), mixture.weights, mixture.blocks)
        if queue is not None:
            self.run = replace(self.run, queue=queue)

    @property
    def traffic(self):
        return self.context.channel.traffic

    @property
    def repairs(self):
        return self.run.queue.repairs(self.context.network)

    def visit(self, iteration, mixture, counts, collapsed, worst):
        """Restart what was found broken at the last visit, and find what is broken now; whether all is sound."""
        visits = BatchPass((None,), earlier=Kept(counts, np.zeros(2), ()), worst_rows=worst, number=1)
        changed = {"weights": mixture.weights, "blocks": mixture.blocks, "visits": visits, "collapsed": collapsed}
        progress = Progress(phase="iterate", run=replace(self.run, iteration=iteration, **changed))
        progress = after_iteration(self.context, progress, ())
        if progress.phase == "repair":
            offer = offer_repair(self.context, progress)
            progress = absorb_repair(self.context, progress, SimulatedOutcome(self.context, offer, "repair", 0))
        self.run = agree(self.context, progress, progress.run, np.array([0.0, 0.0, *progress.run.findings]))
        return not self.run.repaired and not self.run.queue.waiting


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


def test_one_root_finds_it_the_next_sum_tells_all_then_it_is_restarted(X, problem, mixture):
    repairer = Repairer(problem, mixture)
    full = np.full((2, 2), 25.0)
    assert not repairer.visit(1, mixture, full, ((), (1,)), WORST)
    assert repairer.run.blocks is mixture.blocks, "nobody else knew"
    assert repairer.traffic.messages == 0
    assert not repairer.visit(2, mixture, full, ((), (1,)), WORST)
    np.testing.assert_array_equal(repairer.run.blocks[0].means[1], X[7, :2])
    assert repairer.repairs == (Repair(1, 1, "b", "collapsed"),)
    assert repairer.traffic.bytes == 2 * (8 + OVERHEAD_BYTES), "one row number over one link, each way"
    after = Mixture(mixture.density, repairer.run.weights, repairer.run.blocks)
    assert repairer.visit(3, after, full, ((), ()), WORST)
    assert repairer.run.blocks is after.blocks


def test_starving_at_one_root_is_enough(problem, mixture):
    repairer = Repairer(problem, mixture)
    counts = np.array([[49.0, 1.0], [50.0, 1e-9]])
    repairer.visit(4, mixture, counts, ((), ()), WORST)
    assert repairer.repairs == (Repair(4, 1, "b", "starved", restarted=False),)


def test_after_some_restarts_a_collapse_is_an_error_and_starving_is_left_alone(X, problem, mixture):
    repairer = Repairer(problem, mixture)
    full = np.full((2, 2), 25.0)
    rows = []
    for iteration in range(MOST_REPAIRS):
        repairer.visit(2 * iteration + 1, mixture, full, ((), (1,)), WORST)
        # What it had kept collapses once more in the iteration that restarts it: that does not count.
        repairer.visit(2 * iteration + 2, mixture, full, ((), (1,)), WORST)
        rows.append(int(np.flatnonzero(X[:, 2] == repairer.run.blocks[1].means[1, 0])[0]))
    assert rows == [7, 3, 5], "each time the next worst row"
    assert repairer.visit(10, mixture, np.array([[50.0, 0.0]] * 2), ((), ()), WORST)
    with pytest.raises(CollapsedComponentError, match=r"component 1 .* party 'b' \(3 repairs did not help\)"):
        repairer.visit(11, mixture, full, ((), (1,)), WORST)


def test_no_two_components_are_put_on_one_row_and_the_rest_waits(problem, mixture):
    repairer = Repairer(problem, mixture)
    full = np.full((2, 2), 25.0)
    repairer.visit(1, mixture, full, ((0,), (1,)), WORST)
    repairer.visit(2, mixture, full, ((), ()), np.array([7]))
    assert repairer.repairs == (
        Repair(1, 0, "a", "collapsed"),
        Repair(1, 1, "b", "collapsed", restarted=False),
    )
    repairer.visit(3, mixture, full, ((), ()), WORST)
    assert [case.component for case in repairer.run.queue.restarted] == [0, 1]
    both = Repairer(problem, mixture, RepairQueue(repairer.run.queue.restarted))
    both.visit(4, mixture, full, ((), ()), WORST)
    assert both.traffic.bytes == 2 * (2 * 8 + OVERHEAD_BYTES), "two row numbers over one link, each way"


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
        scores, rows = e_step(task, task.channel(), mixture).worst
    distances = np.nansum(X**2, axis=1)
    order = np.argsort(-distances)
    expected = [*order[:1], *order[20 : 20 + N_WORST - 1]]
    np.testing.assert_allclose(distances[rows], distances[expected])
    assert 100 <= rows[0] < 120
    assert (np.diff(scores) > 0).all()
    tiny = make_problem(X * 1e-3, task.network, Star(), Gaussian())  # densities above one
    assert not np.isnan(X[e_step(tiny, tiny.channel(), mixture).worst[1]]).any()


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
