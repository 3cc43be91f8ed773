"""Curves and correlations of the features against the dense covariance."""

import numpy as np
import pytest

from vpem import VerticalGaussianMixture
from vpem.datasets import make_vertical_blobs
from vpem.report.marginals import component_curves


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("n_components", [2, 3])  # 2 is the blocks' width too: shapes alone do not tell
def test_curves_are_normal_and_correlations_those_of_the_dense_covariance(covariance_type, n_components):
    blobs = make_vertical_blobs(200, 2, 2, n_components, random_state=0)
    model = VerticalGaussianMixture(
        n_components, partition=blobs.partition, covariance_type=covariance_type, random_state=0
    ).fit(blobs.data)
    dense = model.covariance_matrix()
    columns = [hub.columns for hub in model.hubs_]
    density, blocks = model.fitted_.mixture.density, model.fitted_.mixture.blocks
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
