"""Accelerated EM: the step against naive numpy, the way back, and whole fits."""

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpem import Consensus, Differences, Star, Tree, VerticalGaussianMixture
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.decisions.acceleration import Cycle, make_point, take_point
from vpem.datasets import make_vertical_blobs

GO_ON = np.array([0.0, -3.0, 1.0])


def cycle(seed=0, **more):
    rng = np.random.default_rng(seed)
    points = [tuple(rng.normal(size=size) for size in (2, 5, 3)) for _ in range(3)]
    return Cycle(**more).passed(*points[:2]).passed(points[1], points[2]), points


@given(st.integers(0, 2**32 - 1))
def test_a_jump_is_the_formula_of_varadhan_and_roland(seed):
    now, points = cycle(seed, longest=1e9)
    assert now.is_due
    a, b, c = (np.concatenate(point) for point in points)
    r, v = b - a, (c - b) - (b - a)
    length = -np.linalg.norm(r) / np.linalg.norm(v)
    there, after = now.jump(now.sizes().sum(axis=0), GO_ON)
    if length < -1:
        np.testing.assert_allclose(np.concatenate(there), a - 2 * length * r + length**2 * v, rtol=1e-9, atol=1e-9)
    else:  # never less far than EM has gone
        np.testing.assert_allclose(np.concatenate(there), c, rtol=1e-9, atol=1e-9)
    assert after.bound == -3.0
    assert not after.is_due
    assert after.safe is points[2]


def test_a_fall_leads_back_to_where_the_jump_began():
    now, points = cycle(longest=8.0, bound=-2.0, safe=(np.ones(2),))
    there, after = now.jump(np.array([4.0, 1.0]), GO_ON)
    assert there == now.safe
    assert after.longest == 4.0
    assert after.bound == -math.inf, "the next cycle is not compared"
    there, after = now.jump(np.array([1e6, 1.0]), np.array([0.0, -1.0, 1.0]))
    assert after.longest == 32.0, "a limit that was reached grows"
    np.testing.assert_allclose(
        there[0],
        (points[0][0] + 16 * (points[1][0] - points[0][0])) + 64 * (points[2][0] - 2 * points[1][0] + points[0][0]),
    )


def test_there_is_no_way_back_to_before_a_repair():
    after = cycle(longest=8.0, bound=-2.0, safe=(np.ones(2),))[0].afresh()
    assert (after.safe, after.bound, after.n_passes, after.longest) == ((), -math.inf, 0, 8.0)


@pytest.mark.parametrize("decision", [[1.0, -3.0, 1.0], [0.0, -3.0, 0.0]])
def test_who_stops_or_repairs_does_not_jump(decision):
    now, _ = cycle()
    there, after = now.jump(np.array([4.0, 1.0]), np.array(decision))
    assert there is None
    assert after.n_passes == 0


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_parameters_survive_the_way_through_vectors(kind):
    blobs = make_vertical_blobs(300, 2, 3, 3, separation=3, random_state=0)
    density = Gaussian(covariance_type=kind)
    model = VerticalGaussianMixture(3, partition=blobs.partition, covariance_type=kind, random_state=0).fit(
        blobs.data
    )
    blocks = model.fitted_.mixture.blocks
    point = make_point(model.weights_, blocks, density)
    weights, found = take_point(point, blocks, density)
    np.testing.assert_allclose(weights, model.weights_, rtol=1e-12)
    for one, other in zip(found, blocks, strict=True):
        np.testing.assert_allclose(one.means, other.means, rtol=1e-12)
        np.testing.assert_allclose(one.covariances, other.covariances, rtol=1e-9)
    wild = (point[0], point[1] + 1e6, point[2])
    _, (stays, moves) = take_point(wild, blocks, density)
    assert stays is blocks[0], "a block that cannot be there stays where it is"
    np.testing.assert_allclose(moves.means, blocks[1].means)


SLOW = make_vertical_blobs(1200, 5, 1, 3, separation=1.2, random_state=1)


@pytest.mark.parametrize("summation", [Star(), Tree(), Differences(Star()), Differences(Tree())], ids=str)
def test_a_slow_fit_takes_fewer_iterations_to_the_same_point(summation):
    graph = "star" if summation.has_server else nx.random_labeled_tree(5, seed=0)
    arguments = {"graph": graph, "summation": summation, "tol": 1e-8, "max_iter": 3000, "random_state": 0}
    plain, fast = (
        VerticalGaussianMixture(3, accelerate=how, **arguments).fit(SLOW.data) for how in (None, "squarem")
    )
    assert plain.converged_
    assert fast.converged_
    assert fast.n_iter_ < 0.6 * plain.n_iter_
    assert abs(fast.certificate_.gain) < 1e-7
    assert fast.log_likelihood_ > plain.log_likelihood_ - 1e-5


@pytest.mark.parametrize("summation", [Star(), Tree(), Differences(Tree())], ids=str)
def test_both_engines_jump_to_the_same_place(summation):
    X = SLOW.data[:200].copy()
    X[3] = math.nan
    X[5, :2] = math.nan
    graph = "star" if summation.has_server else "path"
    arguments = {"graph": graph, "summation": summation, "max_iter": 100, "tol": 1e-9, "random_state": 0, "n_init": 2}
    one, other = (
        VerticalGaussianMixture(3, accelerate="squarem", engine=engine, **arguments).fit(X)
        for engine in ("simulation", "agents")
    )
    assert one.n_iter_ == other.n_iter_
    np.testing.assert_allclose(one.means_, other.means_, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(one.traffic_.table, other.traffic_.table)


def test_what_cannot_be_accelerated_is_said():
    X = SLOW.data
    with pytest.raises(ValueError, match="expected accelerate with sums that are the same for all parties"):
        VerticalGaussianMixture(2, graph="ring", summation=Consensus(3), accelerate="squarem").fit(X)
    with pytest.raises(ValueError, match="without batch_size"):
        VerticalGaussianMixture(2, batch_size=100, accelerate="squarem").fit(X)
    with pytest.raises(ValueError, match="expected accelerate to be one of 'squarem', got 'fast'"):
        VerticalGaussianMixture(2, accelerate="fast").fit(X)
