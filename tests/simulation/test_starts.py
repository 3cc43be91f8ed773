"""Starts and vertical k-means."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from oracles import block_m_step, contents, make_settings, mixing_weights, relative_error
from vpem.core.decisions.initial import START, shared_generator
from vpem.core.network.consensus import Consensus
from vpem.core.network.parties import make_network
from vpem.core.network.star import Star
from vpem.core.script.context import Distances
from vpem.core.script.state import Progress
from vpem.core.settings import Agreement
from vpem.simulation import fit as simulated
from vpem.simulation.model import make_problem
from vpem.simulation.simulated_pass import RowSum, kmeans_halves

PARTITION = {"a": [0, 3], "b": [1], "c": [2, 4]}

pytestmark = [pytest.mark.processors, pytest.mark.usefixtures("small_chunks")]


@pytest.fixture
def X():
    rng = np.random.default_rng(5)
    return rng.normal(size=(240, 5)) * [1, 2, 1, 3, 1] + 4 * rng.integers(3, size=(240, 1))


def agreed(settings, summation, seed, kind="kmeans"):
    return Agreement(settings=settings, summation=summation, seed=seed, init_params=kind)


def make_start(X, network, summation, settings, kind, seed):
    task = make_problem(X, network, summation, settings.density)
    channel = task.channel()
    return simulated.make_start(task, channel, agreed(settings, summation, seed, kind)).mixture, channel.traffic


def kmeans(X, network, summation, n_clusters, init, seed, **limits):
    """A run, the last labels, and what it all has sent."""
    task = make_problem(X, network, summation)
    channel, settings = task.channel(), replace(rules(), n_components=n_clusters)
    driver = simulated.kmeans_driver(task, channel, agreed(settings, summation, seed), **limits)
    found = simulated.kmeans(driver, init)
    halves = kmeans_halves(task, channel, settings.density, Distances(found.centres))
    labelled = RowSum(task, task.channel(), halves).collect(halves.together(True))
    return found, labelled, channel.traffic


def plus_plus_centres(X, network, summation, n_clusters, seed):
    task = make_problem(X, network, summation)
    channel, settings = task.channel(), replace(rules(), n_components=n_clusters)
    driver = simulated.kmeans_driver(task, channel, agreed(settings, summation, seed))
    return driver.run(Progress(phase="start"), until=("cluster",)).clustering.centres, channel.traffic


def rules(covariance_type="full"):
    return make_settings(n_components=3, covariance_type=covariance_type, tol=0.0, reg_covar=1e-6, max_iter=1)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_random_is_an_m_step_from_what_the_shared_seed_gives(X, covariance_type):
    network = make_network(PARTITION, "star")
    start, traffic = make_start(X, network, Star(), rules(covariance_type), "random", 1)
    responsibilities = shared_generator(1, START, 0).random((240, 3))
    responsibilities /= responsibilities.sum(axis=1, keepdims=True)
    for columns, block in zip(network.block_columns, start.blocks, strict=True):
        means, covariances = block_m_step(X[:, columns], responsibilities, covariance_type, 1e-6)
        assert relative_error(block.means, means) < 1e-12
        variances = np.diagonal(covariances, axis1=1, axis2=2)
        expected = covariances if covariance_type in ("full", "tied") else variances
        assert relative_error(np.broadcast_to(block.covariances, expected.shape), expected) < 1e-12
    assert relative_error(start.weights[0], responsibilities.mean(axis=0)) < 1e-12
    assert traffic.messages == traffic.rounds == 0


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_random_from_data_takes_rows_and_overall_covariances(X, covariance_type):
    network = make_network(PARTITION, "star")
    start, traffic = make_start(X, network, Star(), rules(covariance_type), "random_from_data", 1)
    means = network.assemble([block.means for block in start.blocks])
    assert all((mean == X).all(axis=1).any() for mean in means)
    assert len(np.unique(means, axis=0)) == 3
    assert start.weights.tolist() == [[1 / 3] * 3]
    for columns, block in zip(network.block_columns, start.blocks, strict=True):
        whole = np.atleast_2d(np.cov(X[:, columns].T, bias=True)) + 1e-6 * np.eye(len(columns))
        expected = {
            "full": np.array([whole] * 3),
            "tied": whole[None],
            "diag": np.array([np.diag(whole)] * 3),
            "spherical": np.full((3, 1), np.diag(whole).mean()),
        }[covariance_type]
        assert block.covariances.shape == expected.shape
        assert relative_error(block.covariances, expected) < 1e-12
    assert traffic.messages == 0


def test_vertical_lloyd_on_a_star_is_lloyd(X):
    network = make_network(PARTITION, "star")
    start = X[[0, 100, 200]]
    found, labelled, _ = kmeans(X, network, Star(), 3, start, 0, tol=0.0)
    expected = KMeans(3, init=start, n_init=1, tol=0.0, algorithm="lloyd").fit(X)
    assert found.converged
    assert relative_error(network.assemble(found.centres), expected.cluster_centers_) < 1e-12
    assert labelled.scores[0] == pytest.approx(expected.inertia_, rel=1e-12)


def test_kmeans_starts_from_the_labels_of_kmeans(X):
    network = make_network(PARTITION, "star")
    start, _ = make_start(X, network, Star(), rules(), "kmeans", 1)
    first, _ = plus_plus_centres(X, network, Star(), 3, 1)
    labels = KMeans(3, init=network.assemble(first), n_init=1).fit(X).labels_
    for columns, block in zip(network.block_columns, start.blocks, strict=True):
        means, covariances = block_m_step(X[:, columns], np.eye(3)[labels], "full", 1e-6)
        assert relative_error(block.means, means) < 1e-9
        assert relative_error(block.covariances, covariances) < 1e-9


def test_the_first_root_draws_for_all_from_the_distances_that_it_sees(X):
    # One round leaves every root with other distances; drawn by each alone, the rows would differ.
    network = make_network(PARTITION, "path")
    W = mixing_weights(nx.path_graph(3), "metropolis")

    def seen_by(root, rows):
        """Three times what one literal round of averaging leaves at a root."""
        terms = [cdist(X[:, held], X[np.ix_(rows, held)], "sqeuclidean") for held in PARTITION.values()]
        return sum(3 * W[root, agent] * term for agent, term in enumerate(terms))

    picked_by = {}
    for root in range(3):
        picked_by[root] = []
        for seed in range(20):
            rng = shared_generator(seed, START, 0)
            picked = [int(rng.choice(240, size=1, replace=False)[0])]
            closest = seen_by(root, picked)[:, 0]
            while len(picked) < 3:
                cumulated = np.cumsum(closest)
                candidates = np.searchsorted(cumulated, rng.random(3) * cumulated[-1], side="right")
                distances = np.minimum(seen_by(root, candidates), closest[:, None])
                best = distances.sum(axis=0).argmin()
                picked.append(int(candidates[best]))
                closest = distances[:, best]
            picked_by[root].append(X[picked])
    assert not np.array_equal(picked_by[0], picked_by[1])
    found = []
    for seed in range(20):
        centres, traffic = plus_plus_centres(X, network, Consensus(1), 3, seed)
        found.append(network.assemble(centres))
    np.testing.assert_array_equal(found, picked_by[0])
    # Sums of 240 and twice 3 * 240 numbers, one round each; three floods of 1 + 3 row numbers over two hops.
    assert contents(traffic) == 4 * 8 * (240 + 2 * 720) + 3 * 2 * 4 * 8 * 4


def test_all_roots_start_from_the_weights_that_the_first_sees(X):
    network = make_network(PARTITION, "path")
    start, traffic = make_start(X, network, Consensus(2), rules(), "kmeans", 1)
    _, labelled, sent = kmeans(X, network, Consensus(2), 3, "k-means++", 1)
    counts = labelled.counts
    assert np.ptp(counts, axis=0).max() > 0, "the example must have roots that count differently"
    np.testing.assert_allclose(start.weights, [counts[0] / 240])
    assert contents(traffic) - contents(sent) == 4 * 2 * 8 * 3, "three numbers over four directed links, twice"


def test_sums_that_are_not_exact_do_not_send_kmeans_round_in_circles():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 100))
    network = make_network({n: [n] for n in range(100)}, "path")
    found, *_ = kmeans(X, network, Consensus(100), 3, "k-means++", 0)
    assert not found.converged
    assert found.n_iter < 200, "left alone, it goes on to the limit of 300"


def test_plus_plus_needs_no_sum_for_one_cluster_and_survives_equal_rows():
    network = make_network({0: [0], 1: [1]}, nx.path_graph(2))
    same = np.ones((5, 2))
    _, traffic = plus_plus_centres(same, network, Consensus(3), 1, 0)
    assert traffic.messages == 0
    centres, _ = plus_plus_centres(same, network, Consensus(3), 3, 0)
    assert (np.array(centres) == 1).all()


def test_plus_plus_prefers_rows_far_apart():
    rng = np.random.default_rng(0)
    X = rng.normal(scale=0.1, size=(300, 2)) + 10 * np.repeat(np.arange(3), 100)[:, None]
    network = make_network({0: [0], 1: [1]}, "star")
    for seed in range(20):
        centres, _ = plus_plus_centres(X, network, Star(), 3, seed)
        assert sorted(np.round(centres[0][:, 0] / 10)) == [0, 1, 2]


def test_a_cluster_without_rows_keeps_its_centre():
    X = np.array([[0.0], [1.0], [2.0]])
    network = make_network({0: [0]}, "star")
    found, *_ = kmeans(X, network, Star(), 2, np.array([[1.0], [100.0]]), 0)
    assert found.centres[0].tolist() == [[1.0], [100.0]]


def test_traffic_of_kmeans_is_one_sum_per_iteration_and_one_for_the_last_labels(X):
    network = make_network(PARTITION, "star")
    found, _, sent = kmeans(X, network, Star(), 3, X[[0, 100, 200]], 0)
    assert sent.messages == 6 * (found.n_iter + 1)
    assert contents(sent) == 6 * (found.n_iter + 1) * (8 * 240 * 3 + 8)
