"""Ding et al.'s k-means: against a naive grid, its inequality, and centralized k-means."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from vpem import DistributedDimensionKMeans
from vpem.core.network.traffic import OVERHEAD_BYTES
from vpem.datasets import make_vertical_blobs

CASES = given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3), st.integers(2, 4))


@settings(max_examples=25)
@CASES
def test_not_worse_than_nine_times_centralized_kmeans(seed, n_parties, n_columns, n_clusters):
    data = make_vertical_blobs(150, n_parties, n_columns, n_clusters, separation=1.5, random_state=seed)
    found = DistributedDimensionKMeans(n_clusters, partition=data.partition, random_state=0).fit(data.data)
    best = KMeans(n_clusters, n_init=10, random_state=0).fit(data.data).inertia_
    # Rows to cells, cells to centres: the triangle inequality holds for any k-means, optimal or not.
    assert np.sqrt(found.inertia_) <= np.sqrt(found.local_inertia_) + np.sqrt(found.grid_inertia_) + 1e-9
    # Each party's optimum costs no more than its share of the whole optimum; ten starts come near it.
    assert found.local_inertia_ <= 1.01 * best
    assert best * 0.99 <= found.inertia_ <= 9 * best


@settings(max_examples=25)
@CASES
def test_the_grid_is_what_the_parties_clusters_span(seed, n_parties, n_columns, n_clusters):
    data = make_vertical_blobs(100, n_parties, n_columns, n_clusters, random_state=seed)
    X, partition = data.data, list(data.partition.values())
    found = DistributedDimensionKMeans(n_clusters, partition=partition, n_init=1, random_state=0).fit(X)
    # Every cell of the whole grid, most of them empty.
    seeds = np.random.RandomState(0)
    local = [KMeans(n_clusters, n_init=1, random_state=seeds.randint(2**31)).fit(X[:, held]) for held in partition]
    points, weights, rows_of = [], [], []
    for cell in product(range(n_clusters), repeat=n_parties):
        inside = np.all([one.labels_ == c for one, c in zip(local, cell, strict=True)], axis=0)
        if inside.any():
            points.append(np.concatenate([one.cluster_centers_[c] for one, c in zip(local, cell, strict=True)]))
            weights.append(inside.sum())
            rows_of.append(inside)
    last = KMeans(n_clusters, n_init=1, random_state=seeds.randint(2**31)).fit(points, sample_weight=weights)
    assert found.n_cells_ == len(points)
    np.testing.assert_allclose(found.cluster_centers_, last.cluster_centers_)
    for label, inside in zip(last.labels_, rows_of, strict=True):
        assert (found.labels_[inside] == label).all()


def test_one_party_is_plain_kmeans():
    data = make_vertical_blobs(300, 1, 3, 3, random_state=0)
    found = DistributedDimensionKMeans(3, partition=data.partition, random_state=0).fit(data.data)
    assert found.inertia_ == pytest.approx(KMeans(3, n_init=10, random_state=0).fit(data.data).inertia_, rel=1e-6)
    assert (found.predict(data.data) == found.labels_).all()


def test_one_message_from_each_party_and_no_more():
    data = make_vertical_blobs(1000, 4, 2, 3, random_state=0)
    sent = DistributedDimensionKMeans(3, partition=data.partition, random_state=0).fit(data.data).traffic_
    assert (sent.rounds, sent.messages) == (1, 4)
    # Three centres of two columns, a byte for each row, a header.
    assert sent.bytes == 4 * (3 * 2 * 8 + 1000 + OVERHEAD_BYTES)
    assert sent.per_agent["party 1"].messages_received == 0
    many = DistributedDimensionKMeans(3, partition=data.partition, n_local_clusters=300, n_init=1, random_state=0)
    assert many.fit(data.data).traffic_.bytes == 4 * (300 * 2 * 8 + 2 * 1000 + OVERHEAD_BYTES)


def test_a_finer_grid_comes_nearer():
    data = make_vertical_blobs(600, 4, 1, 3, separation=1.0, random_state=3)
    coarse, fine = (
        DistributedDimensionKMeans(3, partition=data.partition, n_local_clusters=n, random_state=0).fit(data.data)
        for n in (3, 12)
    )
    assert fine.local_inertia_ < coarse.local_inertia_
    assert fine.inertia_ < 1.05 * KMeans(3, n_init=10, random_state=0).fit(data.data).inertia_


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_local_clusters": 0}, "n_local_clusters"),
        ({"n_clusters": 4, "n_local_clusters": 1}, "different combinations"),
        ({"n_clusters": 21}, "expected n_samples >= n_clusters"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        DistributedDimensionKMeans(**arguments).fit(np.random.default_rng(0).normal(size=(20, 2)))


def test_a_column_with_few_values():
    X = np.column_stack([np.repeat([0.0, 1.0], 10), np.arange(20.0)])
    assert len(set(DistributedDimensionKMeans(4, random_state=0).fit(X).labels_)) == 4
