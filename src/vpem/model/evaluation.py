"""Rows under a fitted mixture: their components and densities, unusual rows, expected values, new rows.

All functions use the assembled model and are exact. Tables have numbers, with the codes of the fit for categories.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem import meaning
from vpem.core.blocks.overall import check_sizes, has_too_large, too_large
from vpem.core.blocks.sweep import em_pass
from vpem.core.blocks.weights import LOWEST, normalize
from vpem.core.rows import Table, row_chunks
from vpem.model.fitted import Fitted
from vpem.simulation.threads import one_blas_thread

Array = NDArray[np.float64]

NO_VALUES = "expected rows with some values, got gaps (NaN) only"


def evaluate(fitted: Fitted, table: Table) -> Iterator[tuple[Array, Array, NDArray[np.bool_]]]:
    """Yield responsibilities, log-densities and a mask of the rows with some value, in chunks of rows."""
    log_weights = np.log(fitted.weights)
    density, columns = fitted.mixture.density, fitted.network.block_columns
    packed = density.pack(fitted.mixture.blocks, density.layout(list(map(len, columns)), len(log_weights)))
    views = np.zeros(len(columns), dtype=np.int64)
    halves = em_pass(packed, np.concatenate(columns), None, log_weights[None], views)
    for rows in row_chunks(0, len(table), halves.values_per_row):
        chunk = table[rows]
        if has_too_large(chunk):
            check_sizes(fitted.network, np.fmax.reduce(np.abs(chunk), axis=0))
        with one_blas_thread():
            sums = [halves.contribute(tile)[0].T for tile in halves.tiles(chunk, rows.start)]
        found = normalize(np.concatenate(sums) + log_weights)
        for row in np.flatnonzero(~(found[1] > LOWEST)):  # clipped: all components would seem equally likely
            raise _too_far(fitted, chunk[row], rows.start + row)
        is_there: NDArray[np.bool_] = np.asarray(~np.isnan(chunk).all(axis=1))
        yield *found, is_there


def evaluate_all(fitted: Fitted, table: Table) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return what `evaluate` yields, for all rows together."""
    responsibilities, log_densities, is_there = map(np.concatenate, zip(*evaluate(fitted, table), strict=True))
    return responsibilities, log_densities, is_there


def _too_far(fitted: Fitted, row: NDArray[np.floating], number: int) -> ValueError:
    """Make the error for a row whose squared distances from all components overflow."""
    density, names = fitted.mixture.density, fitted.column_names
    deviations = np.empty((fitted.n_components, fitted.n_features))
    blocks = list(zip(fitted.network.block_columns, fitted.mixture.blocks, strict=True))
    for columns, block in blocks:
        wrong = density.complaint(block, row[columns].astype(np.float64), [names[column] for column in columns])
        if wrong is not None:
            return ValueError(f"row {number}: {wrong}")
    for columns, block in blocks:
        with np.errstate(over="ignore"):
            deviations[:, columns] = np.abs(row[columns] - density.means(block)) / density.deviations(block)
    farthest = np.nan_to_num(deviations.min(axis=0))
    column = int(farthest.argmax())
    party = next(party for party, held in fitted.partition.items() if column in held)
    why = f", {farthest[column]:.1g} standard deviations from every component; leave out row {number}"
    return too_large(row[column], column, party, why)


class Fit(NamedTuple):
    """Fit of a mixture to some rows. Rows without any value are ignored."""

    score: float
    """Mean log-density per row."""
    bic: float
    aic: float
    icl: float
    """Equal to `bic` unless it was asked for."""


def measure_fit(fitted: Fitted, table: Table, *, with_icl: bool = False) -> Fit:
    """Measure how well a mixture fits rows."""
    scores, present, entropy = [], [], 0.0
    for responsibilities, log_densities, is_there in evaluate(fitted, table):
        scores.append(log_densities)
        present.append(is_there)
        if with_icl:
            own = responsibilities[is_there]
            entropy -= float((own * np.log(np.maximum(own, np.finfo(float).tiny))).sum())
    n_rows, total = int(np.concatenate(present).sum()), float(np.concatenate(scores).sum())
    if not n_rows:
        raise ValueError(NO_VALUES)
    bic = -2 * total + fitted.n_parameters * math.log(n_rows)
    return Fit(total / n_rows, bic, -2 * total + 2 * fitted.n_parameters, bic + 2 * entropy)


def find_certainty(fitted: Fitted, table: Table) -> meaning.Certainty:
    """Summarize how certain the labels of some rows are."""
    responsibilities = np.concatenate([found[is_there] for found, _, is_there in evaluate(fitted, table)])
    if not len(responsibilities):
        raise ValueError(NO_VALUES)
    return meaning.make_certainty(responsibilities)


def unusual_rows(fitted: Fitted, table: Table, n_rows: int) -> dict[str, Any]:
    """Return the rows that fit worst: the columns of `VerticalMixture.unusual_rows`, with numbers of columns."""
    responsibilities, log_densities, is_there = evaluate_all(fitted, table)
    tails, scores = meaning.typicality(*fitted.parts, np.asarray(table[:], dtype=np.float64), log_densities)
    worst = np.lexsort((scores, tails))[:n_rows]
    worst = worst[is_there[worst]]
    labels = responsibilities[worst].argmax(axis=1)
    found = fitted.profile
    rows = np.asarray(table[worst], dtype=np.float64)
    spread = np.where(found.deviations > 0, found.deviations, 1.0)
    distances = (rows - found.means[labels]) / spread[labels]
    for column, own in found.categories.items():
        # The distance at which a Gaussian density, relative to its peak, equals the category's probability.
        codes = np.nan_to_num(rows[:, column]).astype(np.intp)
        surprise = np.sqrt(-2 * np.log(np.maximum(own[labels, codes], 1e-300)))
        distances[:, column] = np.where(np.isnan(rows[:, column]), np.nan, surprise)
    farthest = np.nan_to_num(np.abs(distances), nan=-1.0).argmax(axis=1)
    return {
        "row": worst,
        "tail_probability": tails[worst],
        "score": scores[worst],
        "log_density": log_densities[worst],
        "component": labels,
        "column": farthest,
        "distance": distances[np.arange(len(worst)), farthest],
    }


def pooling_gains(fitted: Fitted, table: Table) -> dict[tuple[int, int], float]:
    """Bound the gains of pooling the columns of two blocks, by pairs of block numbers."""
    responsibilities = np.concatenate([found for found, _, _ in evaluate(fitted, table)])
    X = np.asarray(table[0 : len(responsibilities)], dtype=np.float64)
    _, density, blocks, columns = fitted.parts
    pairs = zip(blocks, columns, strict=True)
    return meaning.pooling_gains(
        [density.log_density(X[:, own].T, block).T for block, own in pairs], responsibilities
    )


def impute(fitted: Fitted, table: Table) -> tuple[Array, Array]:
    """Return rows with expected values in their gaps, and these values' deviations; (n_rows, n_features) each."""
    _, density, blocks, columns = fitted.parts
    start, filled, deviations = 0, np.empty(table.shape), np.empty(table.shape)
    for responsibilities, _, _ in evaluate(fitted, table):
        # Expected values are computed for every component, so memory grows with their number: use small chunks.
        for own in row_chunks(0, len(responsibilities), table.shape[1] * responsibilities.shape[1]):
            rows = slice(start + own.start, start + own.stop)
            part = np.asarray(table[rows], dtype=np.float64)
            filled[rows], deviations[rows] = meaning.impute_rows(
                density, blocks, columns, part, responsibilities[own]
            )
        start += len(responsibilities)
    return fitted.coding.decode(filled), deviations


def draw(fitted: Fitted, n_rows: int, seed: int) -> tuple[Array, NDArray[np.intp]]:
    """Draw rows, as numbers and codes, and their components."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(fitted.n_components), rng.multinomial(n_rows, fitted.weights))
    X = np.empty((len(labels), fitted.n_features))
    for columns, block in zip(fitted.network.block_columns, fitted.mixture.blocks, strict=True):
        X[:, columns] = fitted.mixture.density.sample(block, labels, rng)
    return fitted.coding.decode(X), labels


def in_cells(fitted: Fitted, X: Array) -> list[Any]:
    """Convert drawn rows to columns, (n_rows,) each, with words, booleans and integers in place of codes."""
    found: list[Any] = [fitted.coding.in_cells(number, values) for number, values in enumerate(X.T)]
    density = fitted.mixture.density
    for columns, block in zip(fitted.network.block_columns, fitted.mixture.blocks, strict=True):
        for place, column in enumerate(columns):
            is_count = density.values(block, place) is not None and column not in fitted.coding.labels
            found[column] = found[column].astype(np.int64) if is_count else found[column]
    return found


def in_words(fitted: Fitted, X: Array) -> dict[str, Any]:
    """Convert rows to columns by name, (n_rows,) each, with words in place of codes."""
    return {name: fitted.coding.in_words(place, X[:, place]) for place, name in enumerate(fitted.column_names)}
