"""Card about features: histograms of the rows, fitted parameters, and the information of each feature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.rows import Table
from vpem.meaning import Profile
from vpem.model.fitted import Fitted
from vpem.report.bins import SMALLEST_COUNT, Bins, count_bins, count_categories, find_limits
from vpem.report.cluster_cards import profile_of
from vpem.report.marginals import component_curves
from vpem.report.values import short

Array = NDArray[np.float64]

MOST_FEATURES = 200
"""Maximum number of features in the page; the most informative ones are shown."""

MOST_PAIRED = 12
"""Maximum number of features that are counted in pairs."""

MOST_CATEGORIES = 20
"""Maximum number of categories of a column in the page; the others are merged."""

SHADES = 9
"""Number of shades of cells with rows; shade 0 is an empty cell."""


def features_card(fitted: Fitted, shown: Fitted, table: Table, names: Sequence[str]) -> dict[str, Any]:
    """Return histograms, parameters and profiles of the features; figures are scaled to limits of 0 and 1.

    Parameters
    ----------
    fitted : Fitted
    shown : Fitted
        The fit without its small components, from which profiles are computed.
    table : Table
    names : sequence of str
    """
    profile, nats = shown.profile, [one.nats for one in shown.column_information]
    ranked = np.argsort(-np.array(nats), kind="stable")
    columns = sorted(ranked[:MOST_FEATURES].tolist())
    place_of = {column: place for place, column in enumerate(columns)}
    limits = find_limits(table, columns)
    sizes = _sizes(profile, columns, limits)
    n_bins = int(np.clip(math.sqrt(len(table)), 5, 40))
    n_pair_bins = int(np.clip(math.sqrt(len(table) / 5), 4, 24))
    paired = sorted(place_of[column] for column in ranked[:MOST_PAIRED].tolist())
    bins = count_bins(table, columns, limits, n_bins, paired, n_pair_bins)
    shares = count_categories(table, sizes)
    families = dict(enumerate(fitted.families or ()))
    party_of = {column: number for number, held in enumerate(fitted.partition.values()) for column in held}
    hub_of = {column: number for number, hub in enumerate(fitted.hubs) for column in hub.columns}
    features = []
    for place, column in enumerate(columns):
        observed = int(bins.observed[place])
        hidden = np.isnan(limits[place]).any() | (fitted.weights * observed < SMALLEST_COUNT)
        features.append(
            {
                "name": names[column],
                "party": party_of[column],
                "hub": hub_of[column],
                "limits": None if np.isnan(limits[place]).any() else limits[place].tolist(),
                "counts": bins.counts[place].tolist(),
                "observed": observed,
                "family": families.get(column),
                **_parameters(fitted, column, limits[place], hidden),
                **profile_of(profile, nats[column], column, hidden),
            }
        )
        if column in shares:
            features[-1] |= _categories(fitted, profile, column, shares[column], hidden)
    density, blocks = fitted.mixture.density, fitted.mixture.blocks
    small = fitted.weights * len(table) < SMALLEST_COUNT
    return {
        "n_columns": len(names),
        "features": features,
        "ranked": [place_of[column] for column in ranked[:MOST_FEATURES].tolist()],
        "n_pair_bins": n_pair_bins,
        "shades": {f"{one},{other}": _shade(counts) for (one, other), counts in bins.pairs.items()},
        "correlations": [
            _triangles(density.correlations(block), hub.columns, place_of, small)
            for block, hub in zip(blocks, fitted.hubs, strict=True)
        ],
        "missing": _missing(bins, len(table)),
    }


def _sizes(profile: Profile, columns: Sequence[int], limits: Array) -> dict[int, int]:
    """Return the number of categories of columns; set the limits of their figures independently of the rows."""
    found = {}
    for place, column in enumerate(columns):
        if column in profile.categories:
            found[column] = profile.categories[column].shape[1]
            limits[place] = -0.5, found[column] - 0.5
    return found


def _categories(
    fitted: Fitted, profile: Profile, column: int, counts: NDArray[np.int64], hidden: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return names and shares, of rows and within components, of one column's categories.

    Categories with few rows are merged. "typical" is the category in a component's cell: the named category whose
    share is farthest above everyone's. Its distance gives the colour of the cell.
    """
    labels = fitted.coding.labels.get(column) or [str(number) for number in range(len(counts))]
    few = counts < SMALLEST_COUNT
    order = [number for number in np.argsort(-counts, kind="stable").tolist() if not few[number]]
    shown, own = order[:MOST_CATEGORIES], profile.categories[column]
    total = max(1, int(counts.sum()))
    rest = 1.0 - own[:, shown].sum(axis=1)
    parts = np.concatenate([own[:, shown], np.maximum(rest, 0.0)[:, None]], axis=1)
    unlike = profile.unlike(column)[:, shown] if shown else np.zeros((len(own), 1))
    found = profile_of(profile, 0.0, column, hidden, unlike.max(axis=1))
    return {
        "distances": found["distances"],
        "typical": None if found["distances"] is None else unlike.argmax(axis=1).tolist(),
        "labels": [*(str(labels[number])[:60] for number in shown), "others"],
        "shares": short([*(counts[shown] / total), max(0.0, 1.0 - counts[shown].sum() / total)]),
        "component_shares": short(np.where(hidden[:, None], np.nan, parts)),
    }


def _parameters(fitted: Fitted, column: int, limits: Array, hidden: NDArray[np.bool_]) -> dict[str, Any]:
    """Return means and deviations of one feature, shape (n_components,), in units of its figure; None if hidden.

    Curves of shape (n_components, N_POINTS) are added if the densities are not normal. Components that stand for
    fewer than `SMALLEST_COUNT` values are hidden, because their parameters would reveal these values.
    """
    span, density = float(limits[1] - limits[0]), fitted.mixture.density
    b, hub = next((b, hub) for b, hub in enumerate(fitted.hubs) if column in hub.columns)
    block, place = fitted.mixture.blocks[b], list(hub.columns).index(column)
    means, deviations = density.means(block)[:, place], density.deviations(block)[:, place]
    found = {
        "means": short(np.where(hidden, np.nan, (means - limits[0]) / span)),
        "deviations": short(np.where(hidden, np.nan, deviations / span)),
    }
    curves = None
    if not np.isnan(span):
        curves = component_curves(density, block, place, limits)
    if curves is not None:  # normal curves follow from means and deviations
        found["curves"] = short(np.where(hidden[:, None], np.nan, curves * span))
    return found


def _triangles(
    matrices: Array | None, columns: Sequence[int], place_of: Mapping[int, int], hidden: NDArray[np.bool_]
) -> Any:
    """Return a block's shown features and each component's below-diagonal correlations, to three decimals.

    Correlations of hidden components are 0.
    """
    if matrices is None:
        return None
    shown = [number for number, column in enumerate(columns) if column in place_of]
    rows, others = np.tril_indices(len(shown), -1)
    parts = matrices[:, shown][:, :, shown][:, rows, others]
    parts[hidden if len(parts) == len(hidden) else hidden.all()] = 0.0
    return {"features": [place_of[columns[number]] for number in shown], "values": np.round(parts, 3).tolist()}


def _shade(counts: NDArray[np.int64]) -> str:
    """Return a digit for each cell, from 0 (empty, or too few rows) to `SHADES`."""
    shades = np.ceil(SHADES * np.sqrt(counts / max(1, counts.max()))).astype(int)
    return "".join(map(str, shades.ravel().tolist()))


def _missing(bins: Bins, n_samples: int) -> Any:
    """Return the share of gaps among the shown features' values."""
    return short(1 - bins.observed.sum() / (n_samples * len(bins.observed)))
