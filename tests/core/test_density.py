"""The Gaussian family by the protocol of densities, and the records of arrays."""

import copy
import pickle

import numpy as np
import pytest
from scipy.stats import norm

from definitions import expected_statistics, observed_contribution
from oracles import fill_row, relative_error
from vpem.core.agent.agent_state import orderly
from vpem.core.blocks.arrays import Arrays, Block, Statistics
from vpem.core.blocks.factors import make_block
from vpem.core.blocks.gaussian import Gaussian

TYPES = ["full", "tied", "diag", "spherical"]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(params=TYPES)
def density(request):
    return Gaussian(covariance_type=request.param)


@pytest.fixture
def block(rng, density):
    shapes = density.shapes(3, 4)
    roots = rng.normal(size=(3, 4, 4)) + 2 * np.eye(4)
    full = roots @ roots.transpose(0, 2, 1)
    covariances = full[: shapes["covariances"][0]]
    if not density.is_matrix:
        covariances = np.diagonal(full, axis1=1, axis2=2)[:, : shapes["covariances"][1]].copy()
    return density.make({"means": rng.normal(size=(3, 4)), "covariances": covariances})


def dense(density, block):
    """Covariances as matrices; (3, 4, 4)."""
    if density.is_matrix:
        return np.broadcast_to(block.covariances, (3, 4, 4))
    return np.array([np.diag(own) for own in np.broadcast_to(block.covariances, (3, 4))])


@pytest.fixture
def X(rng):
    X = 3 * rng.normal(size=(60, 4))
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:2] = np.nan
    return X


def test_densities_and_statistics_of_one_block(density, block, X, rng):
    np.testing.assert_allclose(density.log_density(X.T, block).T, observed_contribution(X, block), rtol=1e-11)
    weights = rng.dirichlet(np.ones(3), size=60)
    found, expected = density.collect(X.T, weights.T, block), expected_statistics(X, weights, block)
    for name in ("counts", "means", "scatters", "gap_entropy"):
        np.testing.assert_allclose(found.arrays[name], expected.arrays[name], rtol=1e-9, atol=1e-9)
    twice = density.add(found, found)
    for name in ("counts", "means", "scatters", "gap_entropy"):
        np.testing.assert_allclose(twice.arrays[name], density.scale(found, 2.0).arrays[name], rtol=1e-12)


def test_parameters_are_a_vector_without_constraints(density, block, rng):
    vector = density.to_vector(block)
    assert len(vector) == density.n_parameters(3, 4)
    again = density.from_vector(vector, block)
    for name in block.arrays:
        np.testing.assert_allclose(again.arrays[name], block.arrays[name], rtol=1e-12, atol=1e-12)
    other = density.from_vector(vector + rng.normal(size=len(vector)), block)
    assert other.covariances.shape == block.covariances.shape
    np.testing.assert_allclose(density.to_vector(density.make(other.arrays)), density.to_vector(other), rtol=1e-9)


def test_marginals_gaps_and_samples(density, block, X, rng):
    matrices, points = dense(density, block), np.linspace(-3, 3, 7)
    deviations = density.deviations(block)
    np.testing.assert_allclose(deviations**2, np.diagonal(matrices, axis1=1, axis2=2), rtol=1e-12)
    found = density.marginal(block, 2, points)
    for k in range(3):
        np.testing.assert_allclose(found[k], norm.logpdf(points, block.means[k, 2], deviations[k, 2]), rtol=1e-11)
    filled = density.conditional(block, X.T)
    for k in range(3):
        rows = [fill_row(x, block.means[k], matrices[k])[0] for x in X]
        np.testing.assert_allclose(filled[k].T, rows, rtol=1e-9, atol=1e-11)
    drawn = density.sample(block, np.repeat(np.arange(3), 40_000), rng)
    for k, own in enumerate(np.split(drawn, 3)):
        assert relative_error(np.cov(own.T), matrices[k]) < 0.05
        np.testing.assert_allclose(own.mean(axis=0), block.means[k], atol=0.1)


def test_what_was_given_goes_before_what_was_found(density, block):
    assert density.complete(block, {}) is block
    means = block.means + 1
    found = density.complete(block, {"means": means})
    np.testing.assert_array_equal(found.means, means)
    np.testing.assert_array_equal(found.covariances, block.covariances)
    alone = density.complete(None, {"means": means, "covariances": block.covariances})
    np.testing.assert_array_equal(alone.whiteners, found.whiteners)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"covariance_type": "banded"}, "expected covariance_type to be one of 'full'"),
        ({"reg_covar": -1.0}, "expected reg_covar to be a finite number"),
        ({"reg_covar": True}, "expected reg_covar to be a finite number"),
        ({"shrinkage": 2.0}, "expected shrinkage to be None, 'auto', 'oas' or a number from 0 to 1"),
        ({"shrinkage": 0.5, "covariance_type": "diag"}, "expected covariance_type 'full' or 'tied' with shrinkage"),
    ],
)
def test_settings_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        Gaussian(**arguments)


@pytest.mark.parametrize(
    "covariance", [[[1.0, 0.5], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]]]
)
def test_arrays_that_are_no_parameters_are_refused(covariance):
    with pytest.raises(ValueError, match="expected"):
        Gaussian().make({"means": np.zeros((1, 2)), "covariances": np.array([covariance])})


def test_records_of_arrays():
    record = Statistics(counts=np.arange(3.0), entropy=2.5)
    assert record.entropy.shape == ()
    np.testing.assert_array_equal(record.counts, [0, 1, 2])
    with pytest.raises(AttributeError, match=r"expected one of counts, entropy, got 'means'"):
        _ = record.means
    with pytest.raises(AttributeError, match="no change"):
        record.counts = 3
    assert repr(record) == "Statistics(counts: (3,), entropy: ())"
    for again in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert type(again) is Statistics
        np.testing.assert_array_equal(again.counts, record.counts)
    assert not hasattr(Arrays.__new__(Arrays), "anything"), "not even before it has arrays"


def test_saved_records_are_in_the_usual_order():
    block = make_block(np.zeros((2, 3)), np.ones((2, 3)))
    assert orderly(block) is block
    turned = Block(means=np.zeros((3, 2)).T, scales=np.ones(2))
    found = orderly((turned,))[0]
    assert isinstance(found, Block)
    assert found.means.flags.c_contiguous
    assert found.scales is turned.scales
