"""Gaps against row-by-row definitions."""

import numpy as np
import pytest

from definitions import expected_statistics, m_step, observed_contribution, patterns
from oracles import block_log_density, block_m_step, relative_error
from vpem.core.blocks.covariances import STRUCTURES
from vpem.core.blocks.factors import log_contribution, make_block
from vpem.core.blocks.gaussian import Gaussian

TYPES = sorted(STRUCTURES)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def X(rng):
    X = rng.normal(size=(80, 4)) + 5
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:3] = np.nan
    return X


def make(rng, covariance_type, n_components=2, n_columns=4):
    """A block of random parameters, and its covariances as matrices."""
    roots = rng.normal(size=(n_components, n_columns, n_columns)) + 2 * np.eye(n_columns)
    matrices = roots @ roots.transpose(0, 2, 1)
    if covariance_type == "tied":
        matrices[:] = matrices[0]
    variances = np.diagonal(matrices, axis1=1, axis2=2).copy()
    if covariance_type == "spherical":
        variances[:] = variances[:, :1]
    if covariance_type in ("diag", "spherical"):
        matrices = np.array([np.diag(own) for own in variances])
    shapes = {"full": matrices, "tied": matrices[:1], "diag": variances, "spherical": variances[:, :1]}
    return make_block(rng.normal(size=(n_components, n_columns)) + 5, shapes[covariance_type].copy()), matrices


def test_patterns_cover_each_row_once(X):
    found = list(patterns(np.asfortranarray(X)))
    assert sorted(np.concatenate([rows for _, rows in found])) == list(range(80))
    for observed, rows in found:
        np.testing.assert_array_equal(~np.isnan(X[rows]), np.broadcast_to(observed, (len(rows), 4)))
    assert len({tuple(observed) for observed, _ in found}) == len(found)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_contributions_are_marginal_densities(X, rng, covariance_type):
    block, matrices = make(rng, covariance_type)
    found = observed_contribution(X, block)
    np.testing.assert_allclose(found, block_log_density(X, block.means, matrices), rtol=1e-12, atol=1e-12)
    assert not found[:3].any(), "a row without anything adds nothing"


@pytest.mark.parametrize("covariance_type", TYPES)
def test_statistics_fill_in_what_is_missing(X, rng, covariance_type):
    block, matrices = make(rng, covariance_type)
    responsibilities = rng.dirichlet(np.ones(2), size=80)
    rule = Gaussian(covariance_type=covariance_type, reg_covar=0.0)
    found = m_step(expected_statistics(X, responsibilities, block), rule)
    means, covariances = block_m_step(X, responsibilities, covariance_type, 0.0, (block.means, matrices))
    assert relative_error(found.means, means) < 1e-12
    dense = np.broadcast_to(found.covariances, covariances.shape) if found.covariances.ndim == 3 else None
    if dense is None:
        dense = [np.diag(own) for own in np.broadcast_to(found.covariances, means.shape)]
    assert relative_error(dense, covariances) < 1e-12


@pytest.mark.parametrize("covariance_type", TYPES)
def test_the_free_energy_of_an_exact_e_step_is_the_likelihood(X, rng, covariance_type):
    # One component: its responsibilities are exact, so expected density plus entropy of the gaps is the likelihood.
    block, _ = make(rng, covariance_type, n_components=1)
    statistics = expected_statistics(X, np.ones((80, 1)), block)
    found = Gaussian(covariance_type=covariance_type).expected_log_density(statistics, block)
    assert found == pytest.approx(observed_contribution(X, block).sum(), rel=1e-12)


def test_without_gaps_nothing_is_filled_in(rng):
    X = rng.normal(size=(20, 4))
    block, _ = make(rng, "full")
    np.testing.assert_array_equal(observed_contribution(X, block), log_contribution(X, block))
    assert expected_statistics(X, np.ones((20, 2)), block).gap_entropy == 0.0


def test_a_block_without_rows_has_empty_statistics(rng):
    block, _ = make(rng, "full")
    statistics = expected_statistics(np.full((5, 4), np.nan), np.ones((5, 2)), block)
    assert not statistics.counts.any()
    assert np.isfinite(statistics.means).all()
