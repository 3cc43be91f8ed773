"""Estimates of covariances, and their way toward their diagonals."""

import numpy as np
import pytest
from sklearn.covariance import oas

from oracles import relative_error
from vpem.core.covariances import CovarianceRule, estimate_covariances, shrink


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    return rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6)) * 10 ** rng.uniform(-3, 3, 6)


def test_a_given_amount_shrinks_only_what_is_off_the_diagonal(sample):
    covariance = np.cov(sample.T, bias=True)
    [found] = shrink(covariance[None], np.array([50.0]), 0.3)
    np.testing.assert_allclose(np.diag(found), np.diag(covariance))
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(found[off], 0.7 * covariance[off])
    [same], [diagonal] = (shrink(covariance[None], np.array([50.0]), amount) for amount in (0.0, 1.0))
    np.testing.assert_array_equal(same, covariance)
    np.testing.assert_array_equal(diagonal, np.diag(np.diag(covariance)))


def test_oas_is_scikit_learns_for_standardized_columns(sample):
    deviations = sample.std(axis=0)
    standardized, _ = oas((sample - sample.mean(axis=0)) / deviations)
    [found] = shrink(np.cov(sample.T, bias=True)[None], np.array([50.0]), "oas")
    assert relative_error(found / np.outer(deviations, deviations), standardized) < 1e-12


def test_oas_of_one_column_of_none_and_of_constants():
    np.testing.assert_array_equal(shrink(np.array([[[2.0]]]), np.array([5.0]), "oas"), [[[2.0]]])
    assert np.isfinite(shrink(np.zeros((1, 2, 2)), np.array([5.0]), "oas")).all()
    singular = np.ones((1, 3, 3))
    assert np.linalg.eigvalsh(shrink(singular, np.array([4.0]), "oas"))[0, 0] > 0.1


def test_tied_covariances_shrink_by_all_rows(sample):
    scatters = np.array([np.cov(half.T, bias=True) * 25 for half in (sample[:25], sample[25:])])
    rule = CovarianceRule(covariance_type="tied", reg_covar=0.0, shrinkage="oas")
    [found] = estimate_covariances(np.array([25.0, 25.0]), scatters, rule)
    [expected] = shrink(scatters.sum(axis=0)[None] / 50, np.array([50.0]), "oas")
    assert relative_error(found, expected) < 1e-12


def test_each_component_shrinks_by_its_own_rows(sample):
    covariance = np.cov(sample.T, bias=True)
    both = shrink(np.array([covariance] * 2), np.array([10.0, 1000.0]), "oas")
    for found, count in zip(both, (10.0, 1000.0), strict=True):
        np.testing.assert_allclose(found, shrink(covariance[None], np.array([count]), "oas")[0])
    assert not np.allclose(both[0], both[1])


def test_variances_do_not_shrink():
    rule = CovarianceRule(covariance_type="diag", reg_covar=0.5, shrinkage=0.9)
    np.testing.assert_allclose(estimate_covariances(np.ones(1), np.array([[1.0, 2.0]]), rule), [[1.5, 2.5]])
