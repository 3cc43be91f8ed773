"""Count a table's rows in bins that are coarse enough to be shown to others.

The counts do not reveal any row: limits are rounded quantiles, never the smallest or largest value of a column, and
bins with few rows count as empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.rows import Table, row_chunks

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

SMALLEST_COUNT = 5
"""Bins with fewer rows are shown as empty."""

TAIL = 0.005
"""Share of a column's values omitted at each end; larger in short tables, so that no limit depends on one row."""

SAMPLE_ROWS = 20_000
SAMPLE_VALUES = 2**22
"""Maximum numbers of rows and of values in the sample for the quantiles."""


class Bins(NamedTuple):
    """Histograms of a table's columns."""

    observed: Counts
    """Shape (n_features,): number of values that are not missing."""
    counts: Counts
    """Shape (n_features, n_bins): counts in bins of equal width between the limits; 0 for too few values."""
    pairs: dict[tuple[int, int], Counts]
    """Pair of features to counts of shape (n_pair_bins, n_pair_bins), with the first feature's bins as rows."""


def find_limits(X: Table, columns: Sequence[int]) -> Array:
    """Return the limits of columns' histograms: rounded quantiles of a sample of the rows.

    Returns
    -------
    array of shape (len(columns), 2)
        Lower and upper limit. NaN for a column with fewer than `SMALLEST_COUNT` values in the sample.
    """
    sample = _sample_rows(X, columns)
    limits = np.full((len(columns), 2), np.nan)
    for number, column in enumerate(sample.T):
        values = column[~np.isnan(column)]
        if len(values) >= SMALLEST_COUNT:
            tail = max(TAIL, min(0.05, SMALLEST_COUNT / len(values)))
            low, high = np.quantile(values, [tail, 1 - tail])
            limits[number] = round_outward(float(low), float(high))
    return limits


def round_outward(low: float, high: float) -> tuple[float, float]:
    """Round two numbers outward, to two digits of their distance; the results lie strictly outside of them.

    >>> round_outward(0.1234, 9.87)
    (0.1, 9.9)
    >>> round_outward(-3.0, 12.0)
    (-4.0, 13.0)
    """
    span = high - low
    if not span > 1e-12 * max(abs(low), abs(high)):  # a single value
        span = max(abs(low), abs(high)) or 1.0
    span = min(max(span, 1e-300), 1e300)
    digits = 1 - math.floor(math.log10(span))
    step = 10.0**-digits
    below, above = (math.ceil(low / step) - 1) * step, (math.floor(high / step) + 1) * step
    while round(below, digits) >= low:  # rounding errors of the division
        below -= step
    while round(above, digits) <= high:
        above += step
    return round(below, digits), round(above, digits)


def count_bins(
    X: Table,
    columns: Sequence[int],
    limits: Array,
    n_bins: int,
    paired: Sequence[int] = (),
    n_pair_bins: int = 1,
) -> Bins:
    """Count values in bins, in one pass over the rows; gaps and values outside the limits are not counted.

    Parameters
    ----------
    X : Table
        Rows of shape (n_samples, n_features); may have gaps (NaN).
    columns : sequence of int
        Column numbers to count.
    limits : array of shape (len(columns), 2)
    n_bins : int
        Number of bins of each column.
    paired : sequence of int
        Indices into `columns` of the columns to count in pairs.
    n_pair_bins : int
        Number of bins of each column of a pair.
    """
    lows, spans = limits[:, 0], limits[:, 1] - limits[:, 0]
    observed = np.zeros(len(columns), dtype=np.int64)
    counts = np.zeros((len(columns), n_bins + 1), dtype=np.int64)
    pairs = {pair: np.zeros((n_pair_bins + 1) ** 2, dtype=np.int64) for pair in combinations(paired, 2)}
    for chunk in _chunks(X, columns):
        observed += (~np.isnan(chunk)).sum(axis=0)
        places = (chunk - lows) / spans
        numbers = _bin_numbers(places, n_bins) + np.arange(len(columns)) * (n_bins + 1)
        counts += np.bincount(numbers.ravel(), minlength=counts.size).reshape(counts.shape)
        numbers = _bin_numbers(places, n_pair_bins)
        for (one, other), table in pairs.items():
            table += np.bincount(numbers[:, one] * (n_pair_bins + 1) + numbers[:, other], minlength=table.size)
    tables = {pair: table.reshape(n_pair_bins + 1, -1)[:-1, :-1] for pair, table in pairs.items()}
    return Bins(observed, hide_small(counts[:, :-1]), {pair: hide_small(table) for pair, table in tables.items()})


def count_categories(X: Table, sizes: Mapping[int, int]) -> dict[int, Counts]:
    """Count the rows of each category; `sizes` maps columns to n_categories, the result to counts (n_categories,)."""
    found = {column: np.zeros(size, dtype=np.int64) for column, size in sizes.items()}
    for chunk in _chunks(X, list(found)) if found else ():
        for codes, own in zip(chunk.T, found.values(), strict=True):
            own += np.bincount(codes[~np.isnan(codes)].astype(np.intp), minlength=len(own))
    return found


def hide_small(counts: Counts) -> Counts:
    """Set counts below `SMALLEST_COUNT` to 0."""
    return np.where(counts < SMALLEST_COUNT, 0, counts)


def _bin_numbers(places: Array, n_bins: int) -> NDArray[np.intp]:
    """Return the bin of each place in [0, 1); `n_bins` for places outside and for gaps."""
    inside = (places >= 0) & (places < 1)
    return np.where(inside, places * n_bins, n_bins).astype(np.intp)


def _chunks(X: Table, columns: Sequence[int]) -> Iterator[Array]:
    n_samples, n_features = X.shape
    everything = list(columns) == list(range(n_features))
    for rows in row_chunks(0, n_samples, n_features):
        chunk = np.asarray(X[rows], dtype=np.float64)
        yield chunk if everything else chunk[:, columns]


def _sample_rows(X: Table, columns: Sequence[int]) -> Array:
    """Return rows at equal distances, shape (n_rows, len(columns)), small compared with memory."""
    most = max(1000, min(SAMPLE_ROWS, SAMPLE_VALUES // max(1, len(columns))))
    step = -(-len(X) // most)
    parts, start = [], 0
    for chunk in _chunks(X, columns):
        parts.append(chunk[-start % step :: step].copy())
        start += len(chunk)
    return np.concatenate(parts)
