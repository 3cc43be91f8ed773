"""Counts that may be shown: numpy's histograms are the oracle, and no limit or small bin tells of a row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpem.report.bins import SMALLEST_COUNT, count_bins, find_limits, hide_small, round_outward


@pytest.fixture
def table(small_chunks):
    rng = np.random.default_rng(0)
    X = rng.normal([0.0, 100.0, -3.0, 1e6], [1.0, 0.1, 20.0, 1.0], size=(1000, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


def test_counts_are_those_of_numpy_but_for_small_bins(table):
    columns = [0, 1, 3]
    limits = find_limits(table, columns)
    bins = count_bins(table, columns, limits, 40, paired=(0, 2), n_pair_bins=5)
    for place, column in enumerate(columns):
        known = table[~np.isnan(table[:, column]), column]
        expected = np.histogram(known, bins=40, range=limits[place])[0]
        assert bins.observed[place] == len(known)
        np.testing.assert_array_equal(bins.counts[place], hide_small(expected))
        assert (expected < SMALLEST_COUNT).any(), "or else nothing was hidden"
    assert list(bins.pairs) == [(0, 2)]
    known = table[~np.isnan(table[:, [0, 3]]).any(axis=1)]
    expected = np.histogram2d(known[:, 0], known[:, 3], bins=5, range=limits[[0, 2]])[0]
    np.testing.assert_array_equal(bins.pairs[0, 2], hide_small(expected.astype(int)))


def test_small_counts_are_hidden():
    np.testing.assert_array_equal(hide_small(np.array([0, 1, 4, 5, 6])), [0, 0, 0, 5, 6])


def test_limits_are_near_the_ends_but_no_values(table):
    limits = find_limits(table, range(4))
    for (low, high), column in zip(limits, table.T, strict=True):
        assert not np.isin([low, high], column).any()
        inside = np.mean((column > low) & (column < high)) / np.mean(~np.isnan(column))
        assert 0.97 < inside < 1


def test_limits_of_a_large_table_come_from_a_sample(monkeypatch):
    monkeypatch.setattr("vpem.report.bins.SAMPLE_ROWS", 1000)
    X = np.random.default_rng(0).uniform(size=(100_000, 1))
    # The smallest of 1000 values are 0.005 +- 0.002; limits are rounded outward by at most 0.1.
    low, high = find_limits(X, [0])[0]
    assert -0.1 <= low < 0.01
    assert 0.99 < high <= 1.1


def test_a_column_with_few_values_has_no_limits():
    X = np.full((100, 2), np.nan)
    X[: SMALLEST_COUNT - 1] = 1.5
    X[SMALLEST_COUNT - 1, 1] = 2.5
    limits = find_limits(X, [0, 1])
    assert np.isnan(limits).tolist() == [[True, True], [False, False]]
    assert count_bins(X, [0, 1], limits, 5).counts[0].sum() == 0


@given(st.floats(-1e12, 1e12), st.floats(0, 1e12))
def test_rounding_goes_strictly_outward_by_a_fiftieth_at_most(low, span):
    high = low + span
    rounded_low, rounded_high = round_outward(low, high)
    assert rounded_low < low
    assert rounded_high > high
    if span > 1e-6 * max(abs(low), abs(high)):  # below, the digits of a float end
        assert rounded_high - rounded_low <= span * 1.41


@pytest.mark.parametrize("limits", [(0.0, 0.0), (3.0, 3.0), (0.0, 1e-320), (-1e308, 1e308), (1e9, 1e9 + 1)])
def test_extreme_columns_have_limits_too(limits):
    low, high = round_outward(*limits)
    assert low < limits[0]
    assert limits[1] < high
