"""Twelve stations of Beijing, six pollutants each on a log scale, with the gaps that they have."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vpem import VerticalGaussianMixture

POLLUTANTS = ["PM2.5", "PM10", "SO2", "NO2", "CO", "O3"]


@pytest.fixture(scope="module")
def air():
    """Hours by stations and pollutants, and which columns are whose."""
    folder = Path(os.environ.get("VPEM_DATA", "")) / "beijing-air"
    files = sorted(folder.glob("*.csv.gz")) if os.environ.get("VPEM_DATA") else []
    if not files:
        pytest.skip("no beijing-air: set VPEM_DATA to the folder that holds it")
    tables = {path.name.split(".")[0]: np.log(pd.read_csv(path, usecols=POLLUTANTS)[POLLUTANTS]) for path in files}
    partition = {station: [6 * number + k for k in range(6)] for number, station in enumerate(tables)}
    return np.hstack(list(tables.values())), partition


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
