"""VerticalKMeans as a scikit-learn estimator."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from oracles import contents, relative_error
from vpem import Consensus, VerticalKMeans
from vpem.core.agent.meeting import meeting_traffic
from vpem.core.network.parties import make_network

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(3)
    return rng.normal(size=(200, 4)) + 6 * rng.integers(3, size=(200, 1)) * [1, -1, 1, 1]


@pytest.mark.parametrize("arguments", [{}, {"graph": "ring"}, {"partition": {"a": [3, 0], "b": [1, 2]}}])
def test_it_finds_what_kmeans_finds(X, arguments):
    found = VerticalKMeans(3, random_state=0, **arguments).fit(X)
    expected = KMeans(3, n_init=5, random_state=0).fit(X)
    assert found.inertia_ == pytest.approx(expected.inertia_, rel=1e-9)
    order, other = (model.cluster_centers_[:, 0].argsort() for model in (found, expected))
    assert relative_error(found.cluster_centers_[order], expected.cluster_centers_[other]) < 1e-9
    np.testing.assert_array_equal(found.labels_, found.predict(X))
    assert found.score(X) == -found.inertia_
    assert found.traffic_.bytes > 0


def test_restarts_keep_the_best_and_flood_which_it_is(X):
    one = VerticalKMeans(3, init="random", n_init=1, random_state=2).fit(X)
    ten = VerticalKMeans(3, init="random", random_state=2).fit(X)
    assert ten.inertia_ < 0.9 * one.inertia_, "the first start of this seed is a bad one"
    # Two messages for each of four parties in each sum of 8 * 200 * 3 + 8 bytes, and in ten floods of 8 bytes.
    network = make_network({number: [number] for number in range(4)}, "star")
    meeting = contents(meeting_traffic(network, 200, 0))
    assert (contents(ten.traffic_) - meeting - 10 * 8 * 8) % (8 * 4808) == 0
    assert contents(one.traffic_) - meeting == 8 * (one.n_iter_ + 1) * 4808


def test_few_rounds_still_give_one_answer(X):
    model = VerticalKMeans(3, graph="path", summation=Consensus(2), random_state=0).fit(X)
    assert np.isfinite(model.inertia_)
    assert model.labels_.shape == (200,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 201}, "n_samples >= n_clusters"),
        ({"init": "kmeans++"}, "one of 'k-means\\+\\+', 'random'"),
        ({"init": np.zeros((2, 4))}, r"init of shape \(8, 4\)"),
        ({"n_init": "often"}, "n_init"),
        ({"max_iter": 0}, "max_iter"),
    ],
)
def test_bad_arguments_say_what_was_expected(X, arguments, message):
    with pytest.raises(ValueError, match=message):
        VerticalKMeans(**arguments).fit(X)


def test_too_few_iterations_warn(X):
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 "):
        VerticalKMeans(8, max_iter=1, tol=0, random_state=0).fit(X)
