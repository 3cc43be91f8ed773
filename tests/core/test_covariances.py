"""Estimates of covariances, and their way toward their diagonals."""

import numpy as np
import pytest
from sklearn.covariance import oas

from oracles import relative_error
from vpem.core.blocks.covariances import estimate_covariances, shrink
from vpem.core.blocks.weights import TINY_COUNT
from vpem.core.decisions.stopping import comparable_bound


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
    [found] = estimate_covariances(np.array([25.0, 25.0]), scatters, "tied", 0.0, "oas")
    [expected] = shrink(scatters.sum(axis=0)[None] / 50, np.array([50.0]), "oas")
    assert relative_error(found, expected) < 1e-12


def test_each_component_shrinks_by_its_own_rows(sample):
    covariance = np.cov(sample.T, bias=True)
    both = shrink(np.array([covariance] * 2), np.array([10.0, 1000.0]), "oas")
    for found, count in zip(both, (10.0, 1000.0), strict=True):
        np.testing.assert_allclose(found, shrink(covariance[None], np.array([count]), "oas")[0])
    assert not np.allclose(both[0], both[1])


def test_variances_do_not_shrink():
    found = estimate_covariances(np.ones(1), np.array([[1.0, 2.0]]), "diag", 0.5, 0.9)
    np.testing.assert_allclose(found, [[1.5, 2.5]])


def test_the_amount_of_oas_is_continuous_in_columns_that_hardly_vary():
    # Two groups of rows in 40 columns; 20 columns vary by eps alone: from 0.008 to 0.01 nothing may jump.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 60))
    X[200:, :40] += 2

    def amount(eps, weight=0.0):
        table = X.copy()
        table[:, 40:] *= eps
        counts = np.array([200.0])
        centred = table[200:] - table[200:].mean(axis=0)
        scatter = (centred.T @ centred)[None]
        # A row of the other group, with a responsibility of next to nothing.
        scatter += weight * (table[0] - table[200:].mean(axis=0))[:, None] * (table[0] - table[200:].mean(axis=0))
        shrunk = estimate_covariances(counts, scatter, "full", 1e-6, "oas")[0]
        return 1 - shrunk[0, 1] / (scatter[0, 0, 1] / (200 + TINY_COUNT))

    amounts = np.array([amount(eps) for eps in np.geomspace(1e-9, 1.0, 91)])
    assert (np.abs(np.diff(amounts)) < 0.02).all()
    assert amount(0.0) == pytest.approx(amounts[0], rel=1e-6)
    assert amount(0.0, weight=1e-300) == pytest.approx(amount(0.0), rel=1e-12)


def test_a_run_that_goes_up_and_down_does_not_win_by_a_peak():
    assert comparable_bound([], False) == -np.inf
    assert comparable_bound([1.0, 2.0, 3.0], True) == 3.0
    swinging = [0.0, *[5.0, 1.0] * 20, 5.0]
    assert comparable_bound(swinging, False) == 1.0
    assert comparable_bound([*range(100)], False) == 99, "a run that is cut off while it rises"
    assert comparable_bound([*swinging, *range(6, 17)], False) == 16, "what it did long ago does not count"


# "auto"


def naive_auto(covariance, common, n_rows, n_columns):
    ratio = n_rows / (n_columns + 1)
    fading = min(max(np.log(100 / ratio) / np.log(10), 0.0), 1.0)
    amount = fading * (n_columns + 1) / (n_rows + n_columns + 1)
    return (1 - amount) * covariance + amount * common


@pytest.mark.parametrize("n_rows", [[3, 200, 40], [30, 90, 2000], [5000, 6000, 40]])
def test_auto_draws_components_of_few_rows_toward_what_all_have_in_common(n_rows):
    rng, d = np.random.default_rng(0), 6
    tables = [rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) for n in n_rows]
    covariances = [np.cov(table.T, bias=True) for table in tables]
    pooled = np.average(covariances, axis=0, weights=n_rows)
    [common] = shrink(pooled[None], np.array([float(sum(n_rows))]), "oas", 1e-6)
    scatters = np.array([n * own for n, own in zip(n_rows, covariances, strict=True)])
    found = estimate_covariances(np.array(n_rows, dtype=float), scatters, "full", 1e-6, "auto")
    for own, covariance, n in zip(found, covariances, n_rows, strict=True):
        expected = naive_auto(covariance, common, n, d) + 1e-6 * np.eye(d)
        assert relative_error(own, expected) < 1e-9
        if n >= 100 * (d + 1):
            np.testing.assert_allclose(own, covariance + 1e-6 * np.eye(d), rtol=1e-12)
    assert np.linalg.eigvalsh(found).min() > 1e-4, "three rows are enough"


@pytest.mark.parametrize("kind", ["tied", "diag", "spherical"])
def test_auto_of_other_types_leaves_many_rows_alone_and_is_there_for_few(kind):
    rng = np.random.default_rng(0)
    for n_rows, is_same in ((10_000, True), (4, False)):
        counts = np.full(3, float(n_rows))
        scatters = rng.gamma(2.0, n_rows, size=(3, 5))
        if kind == "tied":
            tables = rng.normal(size=(3, n_rows, 5))
            scatters = np.einsum("kni,knj->kij", tables, tables)
        found, plain = (estimate_covariances(counts, scatters, kind, 0.0, way) for way in ("auto", None))
        assert found.shape == plain.shape
        assert np.allclose(found, plain, rtol=1e-9) == is_same
