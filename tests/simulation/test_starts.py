"""Starts and vertical k-means."""

import networkx as nx
import numpy as np
import pytest
from sklearn.cluster import KMeans

from oracles import block_m_step, relative_error
from vpem.core.initial import shared_generator
from vpem.core.network import make_network
from vpem.core.summation import Consensus, Star
from vpem.simulation.em import Settings
from vpem.simulation.kmeans import kmeans, plus_plus_centres
from vpem.simulation.starts import assemble_means, make_start

PARTITION = {"a": [0, 3], "b": [1], "c": [2, 4]}


@pytest.fixture
def X():
    rng = np.random.default_rng(5)
    return rng.normal(size=(240, 5)) * [1, 2, 1, 3, 1] + 4 * rng.integers(3, size=(240, 1))


def rules(covariance_type="full"):
    return Settings(n_components=3, covariance_type=covariance_type, tol=0.0, reg_covar=1e-6, max_iter=1)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_random_is_an_m_step_from_what_the_shared_seed_gives(X, covariance_type):
    network = make_network(PARTITION, "star")
    start, traffic = make_start(X, network, Star(), rules(covariance_type), "random", shared_generator(1))
    responsibilities = shared_generator(1).random((240, 3))
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
    start, traffic = make_start(
        X, network, Star(), rules(covariance_type), "random_from_data", shared_generator(1)
    )
    means = assemble_means(network, start.blocks)
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
    found = kmeans(X, network, Star(), 3, start, shared_generator(0), tol=0.0)
    expected = KMeans(3, init=start, n_init=1, tol=0.0, algorithm="lloyd").fit(X)
    centres = np.empty((3, 5))
    for columns, part in zip(network.block_columns, found.centres, strict=True):
        centres[:, columns] = part
    assert found.converged
    assert relative_error(centres, expected.cluster_centers_) < 1e-12
    assert found.assignment.scores[0] == pytest.approx(expected.inertia_, rel=1e-12)


def test_kmeans_starts_from_the_labels_of_kmeans(X):
    network = make_network(PARTITION, "star")
    start, _ = make_start(X, network, Star(), rules(), "kmeans", shared_generator(1))
    first, _ = plus_plus_centres(X, network, Star(), 3, shared_generator(1))
    rows = np.empty((3, 5))
    for columns, part in zip(network.block_columns, first, strict=True):
        rows[:, columns] = part
    labels = KMeans(3, init=rows, n_init=1).fit(X).labels_
    for columns, block in zip(network.block_columns, start.blocks, strict=True):
        means, covariances = block_m_step(X[:, columns], np.eye(3)[labels], "full", 1e-6)
        assert relative_error(block.means, means) < 1e-9
        assert relative_error(block.covariances, covariances) < 1e-9


def test_all_parties_start_from_the_same_rows_however_few_rounds(X):
    # One round leaves every root with other distances; drawn by each alone, the rows would differ.
    network = make_network(PARTITION, "path")
    for seed in range(20):
        centres, traffic = plus_plus_centres(X, network, Consensus(1), 3, shared_generator(seed))
        rows = np.empty((3, 5))
        for columns, part in zip(network.block_columns, centres, strict=True):
            rows[:, columns] = part
        assert all((row == X).all(axis=1).any() for row in rows)
    # Sums of 240 and twice 3 * 240 numbers, one round each; three floods of 1 + 3 row numbers over two hops.
    assert traffic.bytes == 4 * 8 * (240 + 2 * 720) + 3 * 2 * 4 * 8 * 4


def test_plus_plus_needs_no_sum_for_one_cluster_and_survives_equal_rows():
    network = make_network({0: [0], 1: [1]}, nx.path_graph(2))
    same = np.ones((5, 2))
    _, traffic = plus_plus_centres(same, network, Consensus(3), 1, shared_generator(0))
    assert traffic.messages == 0
    centres, _ = plus_plus_centres(same, network, Consensus(3), 3, shared_generator(0))
    assert (np.array(centres) == 1).all()


def test_plus_plus_prefers_rows_far_apart():
    rng = np.random.default_rng(0)
    X = rng.normal(scale=0.1, size=(300, 2)) + 10 * np.repeat(np.arange(3), 100)[:, None]
    network = make_network({0: [0], 1: [1]}, "star")
    for seed in range(20):
        centres, _ = plus_plus_centres(X, network, Star(), 3, shared_generator(seed))
        assert sorted(np.round(centres[0][:, 0] / 10)) == [0, 1, 2]


def test_a_cluster_without_rows_keeps_its_centre():
    X = np.array([[0.0], [1.0], [2.0]])
    network = make_network({0: [0]}, "star")
    found = kmeans(X, network, Star(), 2, np.array([[1.0], [100.0]]), shared_generator(0))
    assert found.centres[0].tolist() == [[1.0], [100.0]]


def test_traffic_of_kmeans_is_one_sum_per_iteration_and_one_for_the_last_labels(X):
    network = make_network(PARTITION, "star")
    found = kmeans(X, network, Star(), 3, X[[0, 100, 200]], shared_generator(0))
    assert found.traffic.messages == 6 * (found.n_iter + 1)
    assert found.traffic.bytes == 6 * (found.n_iter + 1) * (8 * 240 * 3 + 1)
