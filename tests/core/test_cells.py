"""The clustering of cells, beside k-means on points, and local clusters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from oracles import examples, relative_error
from vpem.core.decisions import cells as cells_module
from vpem.core.decisions.cells import (
    NO_LABEL,
    cluster_cells,
    find_places,
    label_rows,
    log_densities,
    look_up,
    make_cells,
)
from vpem.core.decisions.local_clusters import describe_rows, local_clusters, nearest
from vpem.core.network.packets import ABSENT, MOST_LOCAL, LocalLabels


def hubs(seed=0, n_rows=200, widths=(1, 2, 3), n_local=4, absent=0.0):
    """Local labels of random centres, and the centres."""
    rng = np.random.default_rng(seed)
    centres = [rng.normal(size=(n_local, width)) for width in widths]
    found = []
    for own in centres:
        codes = rng.integers(n_local, size=n_rows).astype(np.uint8)
        codes[rng.random(n_rows) < absent] = ABSENT
        squares = np.square(own[:, None] - own).sum(axis=2)
        found.append(LocalLabels(codes, squares, rng.random(n_local)))
    return found, centres


def cells_of(found, widths):
    codes = np.column_stack([own.codes for own in found])
    return make_cells(codes[(codes != ABSENT).any(axis=1)], found, widths)


def points_of(cells, centres):
    return np.hstack([own[cells.codes[:, hub]] for hub, own in enumerate(centres)])


@pytest.mark.parametrize("seed", range(5))
def test_weighted_k_means_is_that_of_the_points(seed):
    found, centres = hubs(seed)
    cells = cells_of(found, [1, 2, 3])
    points, rng = points_of(cells, centres), np.random.default_rng(seed)
    inertias = []
    for _ in range(20):
        shares, inertia = cluster_cells(cells, 3, rng)
        labels = shares.argmax(axis=1)
        means = np.array(
            [np.average(points[labels == k], axis=0, weights=cells.weights[labels == k]) for k in range(3)]
        )
        direct = cells.weights @ np.square(points - means[labels]).sum(axis=1)
        assert relative_error(inertia, direct) < 1e-10, "the objective is that of the points"
        again = KMeans(3, init=means, n_init=1, tol=0).fit(points, sample_weight=cells.weights)
        assert relative_error(again.inertia_, inertia) < 1e-10, "scikit-learn finds nothing to move"
        inertias.append(inertia)
    best = KMeans(3, n_init=50, random_state=0).fit(points, sample_weight=cells.weights).inertia_
    assert min(inertias) < best * (1 + 1e-9)


@pytest.mark.parametrize("absent", [0.0, 0.3])
def test_distances_with_gaps_are_those_of_what_is_there(absent):
    found, centres = hubs(1, absent=absent)
    cells = cells_of(found, [1, 2, 3])
    shares = np.eye(2)[np.random.default_rng(0).integers(2, size=len(cells.weights))]
    profiles = cells.profiles(shares, np.zeros((3, ABSENT + 1, 2)))
    expected = np.zeros((len(cells.weights), 2))
    for hub, own in enumerate(centres):
        is_there = cells.codes[:, hub] != ABSENT
        points = own[np.where(is_there, cells.codes[:, hub], 0)]
        for k in range(2):
            weights = cells.weights * shares[:, k] * is_there
            expected[:, k] += is_there * np.square(points - weights @ points / weights.sum()).sum(axis=1)
    np.testing.assert_allclose(cells.sums(cells.squares(profiles)), expected, atol=1e-12)


@examples(30)
@given(seed=st.integers(0, 50), n=st.integers(1, 15), width=st.integers(1, 6))
def test_places_have_the_distances(seed, n, width):
    points = np.random.default_rng(seed).normal(size=(n, width))
    squares = np.square(points[:, None] - points).sum(axis=2)
    places = find_places(squares, width)
    np.testing.assert_allclose(np.square(places[:, None] - places).sum(axis=2), squares, atol=1e-10)


def test_log_densities_are_means_over_rows_of_gaussians():
    # Each local cluster's rows as points: its centre plus and minus a step along each axis.
    found, centres = hubs(2, widths=(2,), n_local=5)
    cells = cells_of(found, [2])
    profiles = cells.profiles(np.ones((len(cells.weights), 1)), np.zeros((1, ABSENT + 1, 1)))
    steps = [np.sqrt(spread) * np.vstack([np.eye(2), -np.eye(2)]) for spread in found[0].spreads]
    rows = np.array([centre + step for centre, step in zip(centres[0], steps, strict=True)])
    weights = np.repeat(profiles[0, :5, 0] / 4, 4)
    mean = weights @ rows.reshape(-1, 2)
    deviations = rows - mean
    covariance = (weights[:, None] * deviations.reshape(-1, 2)).T @ deviations.reshape(-1, 2)
    squares = np.einsum("lpi,ij,lpj->lp", deviations, np.linalg.inv(covariance), deviations)
    expected = -0.5 * (squares.mean(axis=1) + np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(log_densities(cells, profiles)[0, :5, 0], expected, atol=1e-10)


def test_look_up_adds():
    rng = np.random.default_rng(0)
    codes, tables = rng.integers(4, size=(30, 3)).astype(np.uint8), rng.normal(size=(3, 4, 2))
    np.testing.assert_allclose(look_up(codes, tables), sum(tables[b][codes[:, b]] for b in range(3)), atol=1e-14)


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 7])
def test_labels_are_used_even_if_there_are_fewer_cells(n_clusters):
    codes = np.array([0, 1] * 20 + [ABSENT], dtype=np.uint8)
    own = LocalLabels(codes, np.array([[0.0, 4.0], [4.0, 0.0]]), np.zeros(2))
    labels = label_rows([own], [1], n_clusters, seed=0)
    assert labels[-1] == NO_LABEL, "a row that no hub has"
    assert set(labels[:-1]) == set(range(n_clusters))
    if n_clusters == 2:
        assert len(set(labels[0:-1:2])) == 1


def test_fewer_rows_than_clusters_and_no_rows_at_all():
    few = LocalLabels(np.array([0, ABSENT, ABSENT, ABSENT], dtype=np.uint8), np.zeros((1, 1)), np.zeros(1))
    assert label_rows([few], [1], 3, seed=0).tolist()[1:] == [NO_LABEL] * 3
    none = few._replace(codes=np.full(4, ABSENT, dtype=np.uint8))
    assert label_rows([none], [1], 3, seed=0).tolist() == [NO_LABEL] * 4


def test_rows_beyond_the_sample_are_labelled_too(monkeypatch):
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=3000)
    X = 8 * rng.normal(size=(3, 4))[truth] + rng.normal(size=(3000, 4))
    monkeypatch.setattr(cells_module, "MOST_CELLED", 300)
    found = describe_rows(X, [np.array([b]) for b in range(4)], [3000] * 4, range(4), seed=1)
    labels = label_rows(found, [1] * 4, 3, seed=1)
    pairs = {(t, label) for t, label in zip(truth, labels, strict=True)}
    counts = sorted((np.sum((truth == t) & (labels == label)) for t, label in pairs), reverse=True)
    assert sum(counts[:3]) > 0.97 * 3000


# Local clusters


def test_local_clusters_depend_on_the_block_alone():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 6)) * [1, 10, 100, 1, 1, 1] + 1000
    X[rng.random(X.shape) < 0.1] = np.nan
    blocks, hub_numbers = [np.array([0, 2]), np.array([1]), np.array([5, 3, 4])], [0, 1, 2]
    counts = [int((~np.isnan(X[:, held])).sum(axis=0).max()) for held in blocks]
    together = describe_rows(X, blocks, counts, hub_numbers, seed=5)
    for held, count, hub, expected in zip(blocks, counts, hub_numbers, together, strict=True):
        own = np.asfortranarray(X[:, held])
        (alone,) = describe_rows(own, [np.arange(len(held))], [count], [hub], seed=5)
        for got, other in zip(alone, expected, strict=True):
            assert got.tobytes() == other.tobytes()


def test_units_play_no_part():
    X = np.random.default_rng(0).normal(size=(500, 2))
    one, other = (describe_rows(X * unit, [np.arange(2)], [500], [0], seed=1)[0] for unit in (1.0, [1024.0, 0.5]))
    np.testing.assert_array_equal(one.codes, other.codes)
    np.testing.assert_allclose(one.distances, other.distances)


def test_no_more_clusters_than_values():
    XT = np.repeat([[1.0, 2.0, 7.0]], 10, axis=0).reshape(1, -1)
    _, centres = local_clusters(XT, np.random.default_rng(0))
    assert len(centres) == 3
    _, centres = local_clusters(np.random.default_rng(0).normal(size=(2, 400)), np.random.default_rng(0))
    assert len(centres) == MOST_LOCAL
    scales, centres = local_clusters(np.ones((1, 5)), np.random.default_rng(0))
    assert (len(centres), scales.tolist()) == (1, [1.0])


def test_a_column_of_which_the_sample_has_nothing_tells_nothing():
    XT = np.vstack([np.arange(30.0), np.full(30, np.nan)])
    scales, centres = local_clusters(XT, np.random.default_rng(0))
    assert np.isfinite(centres).all()
    codes, squares = nearest(np.array([[3.0, np.nan], [1e9, np.nan]]) / scales[:, None], centres)
    assert codes[1] == ABSENT
    assert codes[0] < len(centres)
    assert squares[0] < 1
