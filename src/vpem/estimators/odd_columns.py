"""Columns that do not look like measurements: ids of the rows, copies, codes for missing values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr

from vpem.core.blocks.families import GAUSSIAN
from vpem.core.blocks.structure import FAMILIES
from vpem.verdict import CodeFacts

Array = NDArray[np.float64]

FEWEST_ROWS = 40
"""Smallest number of values for the checks of a column."""
TWINS = 1 - 1e-9
"""Smallest absolute correlation at which a column repeats another one."""
MOST_PAIRS = 200
"""Largest number of pairs of columns of a block that are compared value by value."""
EVEN = 1.0
"""Limit on the distance from a uniform distribution, times the square root of the number of values
(Kolmogorov-Smirnov test)."""
DIGITS = 10
"""Digits of a value that survive the division by the column's deviation and the multiplication back."""
FEWEST_CODES, FEWEST_VALUES = 3, 12
"""Smallest number of rows with a code, and of distinct values without codes in its column."""
FAR_USUAL, FAR_ANY = 1.0, 5.0
"""Smallest distance of a code from all other values, in units of their range: for values that look like a code
(99, -999, 8888), and for any other value."""


def check_columns(
    X: Array, first_rows: Array, blocks: Iterable[NDArray[np.intp]], families: Sequence[str] = ()
) -> dict[str, Any]:
    """Return facts about single columns, by the field names of `Facts`.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Some rows, in the units of the table.
    first_rows : array of shape (n_first, n_features)
        Consecutive rows.
    blocks : iterable of arrays of int
        Columns of each party, or of parties that pool their columns.
    families : sequence of str, optional
        Family of each column; by default all are Gaussian.
    """
    kinds = [own.partition(":")[0] for own in families] or [GAUSSIAN] * X.shape[1]
    numbers = [c for c, kind in enumerate(kinds) if kind == GAUSSIAN or FAMILIES[kind].may_have_codes]
    return {
        "row_names": tuple(str(c) for c in range(X.shape[1]) if names_rows(first_rows[:, c])),
        "twins": find_twins(X, blocks),
        "codes": find_codes(X, numbers),
    }


def names_rows(values: Array) -> bool:
    """True if a column's values, in the order of the rows, look like ids or row numbers."""
    values = values[~np.isnan(values)]
    whole = np.round(values)
    if len(values) < FEWEST_ROWS or (np.abs(values - whole) > 1e-9 * np.maximum(np.abs(whole), 1.0)).any():
        return False
    ordered = np.sort(whole)
    steps = np.diff(ordered)
    if (steps <= 0).any():
        return False
    even = (ordered - ordered[0]) / (ordered[-1] - ordered[0])
    distance = np.abs(even - np.linspace(0.0, 1.0, len(even))).max()
    return bool((steps == steps[0]).all() or distance < EVEN / np.sqrt(len(even)))


def find_twins(X: Array, blocks: Iterable[NDArray[np.intp]]) -> tuple[tuple[str, str], ...]:
    """Pairs of columns of one block that are linear functions of each other."""
    found: list[tuple[str, str]] = []
    for held in blocks:
        part = standardize(X[:, held])
        correlations = np.triu(np.abs(part.T @ part) / max(len(part), 1), 1)
        least = 0.5 if np.isnan(X[:, held]).any() else TWINS - 1e-6  # gaps become means, which lowers the correlation
        pairs = np.argwhere(correlations > least)
        for one, other in pairs[np.argsort(-correlations[tuple(pairs.T)])][:MOST_PAIRS]:
            pair = X[:, held[[one, other]]]
            pair = pair[~np.isnan(pair).any(axis=1)]
            if len(pair) >= FEWEST_ROWS and pair.std(axis=0).all() and abs(pearsonr(*pair.T).statistic) > TWINS:
                found.append((str(held[one]), str(held[other])))
    return tuple(found)


def find_codes(X: Array, columns: Sequence[int]) -> tuple[CodeFacts, ...]:
    """Values that are codes and not measurements, such as -999 for a gap.

    A code is a value of several rows, far from all others, at one end of the column's range.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Rows in the units of the table.
    columns : sequence of int
        Columns of numbers, not of categories.
    """
    found: list[CodeFacts] = []
    for column in columns:
        own = X[~np.isnan(X[:, column]), column]
        if len(own) < FEWEST_ROWS:
            continue
        values, counts = np.unique(_rounded(own), return_counts=True)
        first, last = _body(values, counts)
        low, high = float(values[first]), float(values[last - 1])
        for place in (*range(first), *range(last, len(values))):
            value = float(values[place])
            if (low - value if place < first else value - high) > FAR_USUAL * (high - low):
                found.append(CodeFacts(str(column), value, float(counts[place]) / len(own)))
    return tuple(found)


def _body(values: Array, counts: NDArray[np.intp]) -> tuple[int, int]:
    """Start and end of the values that are not codes, as positions in `values`."""
    first, last = 0, len(values)
    while last - first > FEWEST_VALUES and _is_usual_code(values[first]) and counts[first] >= FEWEST_CODES:
        first += 1
    while last - first > FEWEST_VALUES and _is_usual_code(values[last - 1]) and counts[last - 1] >= FEWEST_CODES:
        last -= 1
    if last - first <= FEWEST_VALUES:
        return first, last
    inner, own = values[first:last], counts[first:last]
    often = np.maximum(FEWEST_CODES, 3 * np.median(own))  # in grouped data every value occurs several times
    if inner[0] != 0 and own[0] >= often and inner[1] - inner[0] > FAR_ANY * (inner[-1] - inner[1]):
        return first + 1, last
    if inner[-1] != 0 and own[-1] >= often and inner[-1] - inner[-2] > FAR_ANY * (inner[-2] - inner[0]):
        return first, last - 1
    return first, last


def _is_usual_code(value: float) -> bool:
    """True if a number consists of two or more equal digits 9, 8 or 7, such as 99, -999 or 8888."""
    text = f"{abs(value):.0f}"
    return float(text) == abs(value) and len(text) > 1 and text in (len(text) * digit for digit in "987")


def _rounded(values: Array) -> Array:
    """Round to `DIGITS` digits."""
    size = np.floor(np.log10(np.maximum(np.abs(values), 1e-300)))
    unit = 10.0 ** np.clip(size - DIGITS, -300, 300)
    rounded: Array = np.round(values / unit) * unit
    return np.where(np.abs(values) >= 1, np.round(rounded, DIGITS), rounded)


def standardize(X: Array) -> Array:
    """Scale columns to mean 0 and deviation 1; gaps become means."""
    is_there = ~np.isnan(X)
    counts = np.maximum(is_there.sum(axis=0), 1)
    moved = np.where(is_there, X - np.where(is_there, X, 0.0).sum(axis=0) / counts, 0.0)
    spread = np.sqrt(np.square(moved).sum(axis=0) / counts)
    scaled: Array = moved / np.where(spread > 0, spread, 1.0)
    return scaled
