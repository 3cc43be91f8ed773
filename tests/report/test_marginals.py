"""Deviations, correlations and differences against the equations written naively."""

import numpy as np
import pytest

from vpem import VerticalGaussianMixture
from vpem.datasets import make_vertical_blobs
from vpem.report.marginals import component_curves, component_deviations, component_differences


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("n_components", [2, 3])  # 2 is the blocks' width too: shapes alone do not tell
def test_deviations_and_correlations_are_those_of_the_dense_covariance(covariance_type, n_components):
    blobs = make_vertical_blobs(200, 2, 2, n_components, random_state=0)
    model = VerticalGaussianMixture(
        n_components, partition=blobs.partition, covariance_type=covariance_type, random_state=0
    ).fit(blobs.data)
    dense = model.covariance_matrix()
    columns = [hub.columns for hub in model.hubs_]
    density, blocks = model._mixture.density, model._mixture.blocks
    deviations = component_deviations(density, blocks, columns)
    np.testing.assert_allclose(deviations**2, np.diagonal(dense, axis1=1, axis2=2))
    for block, held in zip(blocks, columns, strict=True):
        assert component_curves(density, block, 1, np.array([-3.0, 3.0])) is None, "they are normal curves"
        found = density.correlations(block)
        if covariance_type in ("diag", "spherical"):
            assert found is None
            continue
        for component in range(n_components):
            expected = dense[component][np.ix_(held, held)]
            expected = expected / np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
            np.testing.assert_allclose(found[component % len(found)], expected)


def test_differences_are_the_share_of_the_variance_between_components():
    rng = np.random.default_rng(0)
    weights, means, deviations = np.array([0.25, 0.75]), np.array([[0.0, 1.0], [4.0, 1.0]]), np.full((2, 2), 0.5)
    rows = rng.choice(2, size=200_000, p=weights)
    X = rng.normal(means[rows], deviations[rows])
    differences = component_differences(weights, means, deviations)
    # 3 / 3.25; the sample's share deviates by about 0.001.
    np.testing.assert_allclose(differences, 1 - 0.25 / X.var(axis=0), atol=5e-3)
    assert differences[1] == 0
