"""One block against its naive definition."""

import numpy as np
import pytest
from scipy.special import logsumexp

from definitions import m_step
from oracles import block_log_density, block_m_step, relative_error
from vpem.core.blocks.covariances import STRUCTURES, n_covariance_parameters
from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.factors import add_statistics, block_statistics, log_contribution, make_block
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.weights import make_weights, normalize

TYPES = sorted(STRUCTURES)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def dense(block, n_components):
    """A block's covariances as whole matrices."""
    n_columns = block.means.shape[1]
    if block.covariances.ndim == 3:
        return np.broadcast_to(block.covariances, (n_components, n_columns, n_columns))
    return np.array([np.diag(v) for v in np.broadcast_to(block.covariances, (n_components, n_columns))])


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("n_columns", [1, 4])
@pytest.mark.parametrize("n_components", [1, 3])
def test_m_step_and_contribution_follow_the_equations(covariance_type, n_columns, n_components, rng):
    X = rng.normal(size=(60, n_columns)) * 3 + 10
    responsibilities = rng.dirichlet(np.ones(n_components), size=60)
    statistics = block_statistics(X, responsibilities, is_matrix=STRUCTURES[covariance_type].is_matrix)
    block = m_step(statistics, Gaussian(covariance_type=covariance_type, reg_covar=1e-3))
    means, covariances = block_m_step(X, responsibilities, covariance_type, 1e-3)
    assert relative_error(block.means, means) < 1e-12
    assert relative_error(dense(block, n_components), covariances) < 1e-12
    # The log-densities are of order 10, and whitening costs a few digits at most.
    assert relative_error(log_contribution(X, block), block_log_density(X, means, covariances)) < 1e-12


@pytest.mark.parametrize("is_matrix", [True, False])
def test_statistics_of_two_sets_add_up(rng, is_matrix):
    X, responsibilities = rng.normal(size=(50, 3)), rng.dirichlet(np.ones(2), size=50)
    responsibilities[:20, 1] = 0.0  # a component without rows in the first set
    whole = block_statistics(X, responsibilities, is_matrix=is_matrix)
    halves = (
        block_statistics(X[rows], responsibilities[rows], is_matrix=is_matrix) for rows in (np.s_[:20], np.s_[20:])
    )
    found = add_statistics(*halves)
    for name, expected in whole.arrays.items():
        np.testing.assert_allclose(found.arrays[name], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_a_large_offset_costs_no_digits(rng, offset):
    # Squares of 1e8 leave nothing of a variance of 1 in float64; deviations from the rows' own mean keep it.
    X = rng.normal(size=(1000, 2)) + offset
    parts = (block_statistics(X[rows], np.ones((500, 1)), is_matrix=True) for rows in (np.s_[:500], np.s_[500:]))
    block = m_step(add_statistics(*parts), Gaussian(reg_covar=0.0))
    # What is left is the rounding of the two means, offset * 1e-16, times the gap between them.
    assert relative_error(block.covariances[0], np.cov((X - offset).T, bias=True)) < 1e-12 + offset * 1e-17


def test_a_row_beyond_all_densities_is_no_nan():
    block = make_block(np.zeros((2, 1)), np.ones((2, 1)))
    responsibilities, log_likelihoods = normalize(log_contribution(np.array([[0.0], [1e200]]), block))
    np.testing.assert_array_equal(responsibilities, 0.5)
    assert log_likelihoods[1] == -1e300, "finite, as a network would make NaN of zero times infinity"


def test_normalize_stays_finite_where_densities_underflow():
    log_joint = np.array([[-1e5, -1e5 - 1.0], [3.0, -np.inf]])
    responsibilities, log_likelihoods = normalize(log_joint)
    np.testing.assert_allclose(log_likelihoods, logsumexp(log_joint, axis=1), rtol=1e-14)
    np.testing.assert_allclose(responsibilities[1], [1.0, 0.0])
    np.testing.assert_allclose(responsibilities.sum(axis=1), 1.0, rtol=1e-14)


def test_weights_are_shares_of_the_counts():
    np.testing.assert_allclose(make_weights(np.array([[1.0, 3.0], [2.0, 2.0]])), [[0.25, 0.75], [0.5, 0.5]])
    assert make_weights(np.array([0.0, 5.0]))[0] > 0, "an empty component keeps a weight whose log is finite"


@pytest.mark.parametrize(
    "covariances",
    [
        np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]]),
        np.array([[[1.0, 0.0], [0.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]]]),
        np.array([[1.0, 1.0], [1.0, 0.0]]),
        np.array([[1.0], [np.inf]]),
    ],
    ids=["singular", "nan", "zero variance", "infinite"],
)
def test_a_collapsed_component_is_named(covariances):
    with pytest.raises(CollapsedComponentError, match=r"component 1 has collapsed.*try fewer") as caught:
        make_block(np.zeros((2, 2)), covariances)
    assert caught.value.component == 1


@pytest.mark.parametrize(("covariance_type", "expected"), [("full", 18), ("tied", 6), ("diag", 9), ("spherical", 3)])
def test_free_parameters_of_three_components_in_three_columns(covariance_type, expected):
    assert n_covariance_parameters(3, 3, covariance_type) == expected
