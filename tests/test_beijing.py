"""Twelve stations of Beijing, six pollutants each on a log scale, with the gaps that they have."""

import numpy as np
import pytest

from vpem import VerticalGaussianMixture


@pytest.fixture(scope="module")
def air(beijing):
    """Hours by stations and pollutants, on a log scale, and which columns are whose."""
    return np.log(beijing.data), beijing.partition


def test_all_hours_that_any_station_saw(air):
    X, partition = air
    whole = np.stack([~np.isnan(X[:, held]).any(axis=1) for held in partition.values()])
    assert len(X) == 35_064
    assert whole.all(axis=0).sum() == 17_186, "hours that are complete"
    # Absent rows: a station that lacks a pollutant counts as absent.
    absent = X.copy()
    for held, there in zip(partition.values(), whole, strict=True):
        absent[np.ix_(~there, held)] = np.nan
    hours = whole.any(axis=0)
    assert hours.sum() == 34_839
    common = {"n_components": 3, "partition": partition, "random_state": 0, "reg_covar": 0.0, "tol": 0.05}
    model = VerticalGaussianMixture(**common).fit(absent[hours])
    assert model.converged_
    assert np.diff(model.lower_bounds_).min() > -1e-10
    assert np.isfinite(model.score_samples(absent[hours])).all()
    assert model.repairs_ == []


@pytest.mark.long
def test_partly_observed_hours_add_to_them(air):
    X, partition = air
    hours = ~np.isnan(X).all(axis=1)
    assert hours.sum() == 34_984
    model = VerticalGaussianMixture(
        3, partition=partition, random_state=0, reg_covar=0.0, tol=0.05, init_params="k-means++"
    ).fit(X[hours])
    assert model.converged_
    assert np.diff(model.lower_bounds_).min() > -1e-10
