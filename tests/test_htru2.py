"""The paper's pulsar data, raw features, two components, k-means start, against independent implementations."""

import itertools

import networkx as nx
import numpy as np
import pytest

from vpem import VerticalGaussianMixture, VerticalKMeans
from vpem.core.decisions.initial import shared_generator
from vpem.core.network.hubs import find_hubs
from vpem.estimators.checks import HUB_TIES, shared_seed
from vpem.metrics import clustering_accuracy

# Accuracy in per cent with tol=1e-6 for each way to settle the ring's ties; those of 85.4, 85.5 and 85.9 were also
# found by an independent implementation.
RINGS = {
    ((2, 3, 4), (0, 6, 7), (1,), (5,)): 85.13,
    ((0, 1, 7), (2, 3, 4), (5, 6)): 85.27,
    ((2, 3, 4), (5, 6, 7), (0, 1)): 85.37,
    ((1, 2, 3), (5, 6, 7), (0,), (4,)): 85.53,
    ((0, 1, 2), (5, 6, 7), (3, 4)): 85.93,
    ((1, 2, 3), (4, 5, 6), (0, 7)): 86.53,
    ((0, 1, 7), (4, 5, 6), (2, 3)): 86.60,
    ((0, 1, 2), (4, 5, 6), (3,), (7,)): 86.89,
    ((1, 2, 3), (0, 6, 7), (4, 5)): 87.61,
    ((0, 1, 2), (3, 4, 5), (6, 7)): 87.75,
    ((3, 4, 5), (0, 6, 7), (1, 2)): 87.90,
    ((0, 1, 7), (3, 4, 5), (2,), (6,)): 88.33,
}


def accuracy(model, htru2):
    X, y = htru2
    return 100 * clustering_accuracy(y, model.fit_predict(X))


def mixture(**arguments):
    return VerticalGaussianMixture(2, **{"random_state": 0, "max_iter": 500, **arguments})


def test_kmeans(htru2):
    for seed in range(3):
        assert 76.45 <= accuracy(VerticalKMeans(2, random_state=seed), htru2) <= 76.75


@pytest.mark.parametrize(("tol", "full", "zero_hops"), [(1e-3, 84.3, 86.5), (1e-6, 84.6, 86.6)])
def test_full_and_zero_hops(htru2, tol, full, zero_hops):
    assert accuracy(mixture(partition=[range(8)], tol=tol), htru2) == pytest.approx(full, abs=0.05)
    assert accuracy(mixture(tol=tol), htru2) == pytest.approx(zero_hops, abs=0.05)


@pytest.mark.parametrize("hubs", RINGS, ids=str)
def test_one_hop_on_a_ring_of_eight(htru2, hubs):
    ring = nx.cycle_graph(8)
    seed = next(
        seed
        for seed in itertools.count()
        if tuple(hub.members for hub in find_hubs(ring, 1, shared_generator(shared_seed(seed), HUB_TIES))) == hubs
    )
    model = mixture(graph="ring", hops=1, tol=1e-6, random_state=seed)
    assert accuracy(model, htru2) == pytest.approx(RINGS[hubs], abs=0.05)
    assert tuple(hub.members for hub in model.hubs_) == hubs
    assert model.disagreement_ < 1e-4  # sums are exact to a millionth of the spread
    assert model.certificate_.gain < 1e-6


def test_likelihood_of_the_federated_fit_never_falls(htru2):
    model = mixture(reg_covar=0.0, tol=1e-6).fit(htru2[0])
    assert np.diff(model.lower_bounds_).min() > -1e-10
