"""One self-contained HTML page about a fit, for a browser that may be offline.

What the page holds of the data: no row can be read from it. The histograms of one and of two columns have rounded
quantiles as limits, not the smallest and largest values, and bins with fewer than `SMALLEST_COUNT` rows are shown as
empty. The mean and deviation of a component that stands for fewer rows than that in a column are left out. Of two
columns, ten shades are kept and no counts. Measured numbers have six significant digits. What remains are the model
and coarse counts: give the page only to people who may see those.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.rows import Table
from vpem.files import replacing
from vpem.report import cards
from vpem.report.bins import SMALLEST_COUNT, Bins, count_bins, find_limits
from vpem.report.marginals import component_curves, component_deviations, component_differences
from vpem.report.values import short

Array = NDArray[np.float64]

MOST_FEATURES = 200
"""Features in the page; of more, those whose components differ the most."""

MOST_PAIRED = 12
"""Features that are counted in pairs."""

SHADES = 9
"""Of a cell with rows; 0 is an empty one."""

ASSETS = ("page.html", "page.css", "draw.js", "features.js", "covariances.js", "fit.js", "network.js", "page.js")
"""The page, its style, and the parts of its script."""


def write_report(
    model: Any,
    X: Any,
    path: str | os.PathLike[str],
    *,
    title: str = "vpem report",
    feature_names: Sequence[str] | None = None,
) -> None:
    """Write one HTML page about a fit, whole or not at all.

    See `make_report` for what is in it.

    Parameters
    ----------
    model : VerticalGaussianMixture or VerticalMixture
        Fitted.
    X : array-like or table of shape (n_samples, n_features)
        The table that it was fitted on.
    path : path
        A file that exists is replaced.
    title : str
    feature_names : sequence of str, optional
        By default the names of the fit, or else the columns' numbers.
    """
    page = make_report(model, X, title=title, feature_names=feature_names)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        unfinished.write_bytes(page.encode())


def make_report(model: Any, X: Any, *, title: str = "vpem report", feature_names: Sequence[str] | None = None) -> str:
    """The page as text: style, script and data are in it, and nothing is loaded from elsewhere.

    It shows weights, histograms with the fitted densities, ellipses, the blocks of the covariances, how far the roots
    agree, the log-likelihood, repairs, the network, traffic and settings. No row of X can be read from it: bins have
    rounded limits, and those with fewer than 5 rows are shown as empty.

    Parameters
    ----------
    model : VerticalGaussianMixture or VerticalMixture
        Fitted.
    X : array-like or table of shape (n_samples, n_features)
        The table that it was fitted on; numpy, a data frame, or a table that streams its rows. Read twice, some rows
        at a time.
    title : str
    feature_names : sequence of str, optional
        By default the names of the fit, or else the columns' numbers.
    """
    table = _check(model, X)
    contents = json.dumps(describe(model, table, title, feature_names), allow_nan=False, separators=(",", ":"))
    assets = resources.files("vpem.report") / "assets"
    page, style, *scripts = ((assets / name).read_text(encoding="utf-8") for name in ASSETS)
    script = "\n".join(scripts)
    return Template(page).substitute(
        title=html.escape(str(title)).encode("ascii", "xmlcharrefreplace").decode(),
        # No name can end the element that holds the data: it has no "<".
        data=contents.replace("<", "\\u003c"),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
    )


def describe(model: Any, table: Table, title: str, feature_names: Sequence[str] | None) -> dict[str, Any]:
    """All that the page shows, as plain values: what each card has, one after another."""
    agents = cards.all_agents(model)
    return {
        "smallest": SMALLEST_COUNT,
        **cards.verdict_card(model),
        **cards.facts_card(model, len(table), title),
        **cards.weights_card(model),
        **_features_card(model, table, _feature_names(model, feature_names)),
        **cards.agreement_card(model),
        **cards.trajectory_card(model),
        **cards.repairs_card(model),
        **cards.network_card(model, agents),
        **cards.traffic_card(model, agents),
        **cards.settings_card(model),
    }


# Features


def _features_card(model: Any, table: Table, names: Sequence[str]) -> dict[str, Any]:
    """Histograms and parameters of the features; in the figures, 0 and 1 are the limits."""
    columns_of = [hub.columns for hub in model.hubs_]
    density, blocks = model._mixture.density, model._mixture.blocks
    deviations = component_deviations(density, blocks, columns_of)
    differences = component_differences(model.weights_, model.means_, deviations)
    ranked = np.argsort(-differences, kind="stable")
    columns = sorted(ranked[:MOST_FEATURES].tolist())
    place_of = {column: place for place, column in enumerate(columns)}
    limits = find_limits(table, columns)
    n_bins = int(np.clip(math.sqrt(len(table)), 5, 40))
    n_pair_bins = int(np.clip(math.sqrt(len(table) / 5), 4, 24))
    paired = sorted(place_of[column] for column in ranked[:MOST_PAIRED].tolist())
    bins = count_bins(table, columns, limits, n_bins, paired, n_pair_bins)
    party_of = {column: number for number, held in enumerate(model.partition_.values()) for column in held}
    hub_of = {column: number for number, hub in enumerate(model.hubs_) for column in hub.columns}
    features = [
        {
            "name": names[column],
            "party": party_of[column],
            "hub": hub_of[column],
            "limits": None if np.isnan(limits[place]).any() else limits[place].tolist(),
            "counts": bins.counts[place].tolist(),
            "observed": int(bins.observed[place]),
            **_parameters(model, column, deviations[:, column], limits[place], int(bins.observed[place])),
        }
        for place, column in enumerate(columns)
    ]
    return {
        "n_columns": len(names),
        "features": features,
        "most_different": [place_of[column] for column in ranked[:2].tolist()],
        "n_pair_bins": n_pair_bins,
        "shades": {f"{one},{other}": _shade(counts) for (one, other), counts in bins.pairs.items()},
        "correlations": [
            _triangles(density.correlations(block), held, place_of, model.weights_ * len(table) < SMALLEST_COUNT)
            for block, held in zip(blocks, columns_of, strict=True)
        ],
        "missing": _missing(bins, len(table)),
    }


def _parameters(model: Any, column: int, deviations: Array, limits: Array, observed: int) -> dict[str, Any]:
    """Means and deviations of one feature, (n_components,) each, in units of its figure; None where hidden.

    And curves, (n_components, N_POINTS), if they are not normal.

    A component that stands for fewer than `SMALLEST_COUNT` values would tell them.
    """
    span = float(limits[1] - limits[0])
    hidden = np.isnan(span) | (model.weights_ * observed < SMALLEST_COUNT)
    means = np.where(hidden, np.nan, (model.means_[:, column] - limits[0]) / span)
    found = {"means": short(means), "deviations": short(np.where(hidden, np.nan, deviations / span))}
    b, hub = next((b, hub) for b, hub in enumerate(model.hubs_) if column in hub.columns)
    mixture = model._mixture
    curves = None
    if not np.isnan(span):
        curves = component_curves(mixture.density, mixture.blocks[b], list(hub.columns).index(column), limits)
    if curves is not None:  # otherwise they follow from means and deviations
        found["curves"] = short(np.where(hidden[:, None], np.nan, curves * span))
    return found


def _triangles(
    matrices: Array | None, columns: Sequence[int], place_of: Mapping[int, int], hidden: NDArray[np.bool_]
) -> Any:
    """A block's features that are shown, and below-diagonal correlations, to three decimals, by component.

    Those of hidden components are 0.
    """
    if matrices is None:
        return None
    shown = [number for number, column in enumerate(columns) if column in place_of]
    rows, others = np.tril_indices(len(shown), -1)
    parts = matrices[:, shown][:, :, shown][:, rows, others]
    parts[hidden if len(parts) == len(hidden) else hidden.all()] = 0.0
    return {"features": [place_of[columns[number]] for number in shown], "values": np.round(parts, 3).tolist()}


def _shade(counts: NDArray[np.int64]) -> str:
    """A digit for each cell, from 0 (empty, or too few rows) to `SHADES`."""
    shades = np.ceil(SHADES * np.sqrt(counts / max(1, counts.max()))).astype(int)
    return "".join(map(str, shades.ravel().tolist()))


def _missing(bins: Bins, n_samples: int) -> Any:
    """Share of the shown features' values that are gaps."""
    return short(1 - bins.observed.sum() / (n_samples * len(bins.observed)))


# Reading the arguments


class _Rows:
    """Rows of an array, a data frame or a table that streams, as arrays."""

    def __init__(self, source: Any):
        self._source = source
        self.shape: tuple[int, ...] = tuple(source.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        if hasattr(self._source, "iloc"):  # pandas; its own types may have gaps that are no numbers
            part: Array = self._source.iloc[rows].to_numpy(dtype=np.float64, na_value=np.nan)
            return part
        return np.asarray(self._source[rows], dtype=np.float64)


def _check(model: Any, X: Any) -> Table:
    """The table, if it suits the model."""
    if not hasattr(model, "weights_") or not hasattr(model, "hubs_"):
        raise TypeError(
            f"expected a fitted VerticalGaussianMixture or VerticalMixture, got {type(model).__name__} without "
            "weights_ or hubs_; try model.fit(X) first"
        )
    table = _Rows(X if hasattr(X, "shape") else np.asarray(X, dtype=np.float64))
    expected = model.means_.shape[1]
    if len(table.shape) != 2 or table.shape[1] != expected or len(table) == 0:
        raise ValueError(
            f"expected rows of {expected} columns, as in the fit, got a table of shape {table.shape}; "
            "try the table that the model was fitted on"
        )
    names = getattr(X, "column_names", getattr(X, "columns", None))
    fitted = getattr(model, "feature_names_in_", None)
    if names is not None and fitted is not None and list(names) != list(fitted):
        raise ValueError(
            f"expected the columns of the fit, {', '.join(fitted[:8])}, got {', '.join(map(str, list(names)[:8]))}; "
            "try them in the order of the fit"
        )
    return table


def _feature_names(model: Any, given: Sequence[str] | None) -> list[str]:
    n_features = model.means_.shape[1]
    if given is None:
        given = getattr(model, "feature_names_in_", [f"column {number}" for number in range(n_features)])
    if isinstance(given, str) or len(given) != n_features:
        raise ValueError(
            f"expected feature_names to be {n_features} names, one for each column, got {given!r:.80}; "
            "try a list, or leave it out"
        )
    return [str(name) for name in given]


def _hash(text: str) -> str:
    """The name by which a Content-Security-Policy allows an element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
