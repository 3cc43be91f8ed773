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
import platform
from collections.abc import Hashable, Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.density import Density
from vpem.core.rows import Table
from vpem.files import replacing
from vpem.report.bins import SMALLEST_COUNT, Bins, count_bins, find_limits
from vpem.report.marginals import component_curves, component_deviations, component_differences
from vpem.report.places import place_agents

Array = NDArray[np.float64]

MOST_FEATURES = 120
"""Features in the page; of more, those whose components differ the most."""

MOST_PAIRED = 12
"""Features that are counted in pairs."""

SHADES = 9
"""Of a cell with rows; 0 is an empty one."""

ASSETS = ("page.html", "page.css", "draw.js", "features.js", "page.js")


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

    It shows the network, the log-likelihood, weights, histograms with the fitted densities, ellipses, the blocks of
    the covariances, traffic, repairs and settings. No row of X can be read from it: bins have rounded limits, and
    those with fewer than 5 rows are shown as empty.

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
    """All that the page shows, as plain values."""
    params = model.get_params()
    certificate = getattr(model, "certificate_", None)
    agents = [*model.partition_, *(node for node in model.graph_ if node not in model.partition_)]
    return {
        "title": str(title),
        "rows": len(table),
        "tol": _short(params.get("tol")),
        "batches": params.get("batch_size") is not None,
        "iterations": int(model.n_iter_),
        "converged": bool(model.converged_),
        "lower_bounds": _short(model.lower_bounds_),
        "weights": _short(model.weights_),
        "hub_weights": _short(model.hub_weights_),
        "disagreement": _short(model.disagreement_),
        "gain": None if certificate is None else _short(certificate.gain),
        "smallest": SMALLEST_COUNT,
        **_describe_network(model, agents, params.get("graph")),
        **_describe_features(model, table, _feature_names(model, feature_names)),
        "traffic": {
            "messages": model.traffic_.messages,
            "bytes": model.traffic_.bytes,
            "rounds": model.traffic_.rounds,
            "agents": [list(model.traffic_.per_agent[agent]) for agent in agents],
        },
        "repairs": [
            [repair.iteration, repair.component, str(repair.party), repair.reason, repair.restarted]
            for repair in model.repairs_
        ],
        "settings": [[name, _say(value)] for name, value in params.items()],
        "versions": {
            "vpem": metadata.version("vpem"),
            "numpy": np.__version__,
            "networkx": nx.__version__,
            "Python": platform.python_version(),
        },
    }


# The network


def _describe_network(model: Any, agents: Sequence[Hashable], graph: Any) -> dict[str, Any]:
    """Agents by number: the parties, and after them the server of a star."""
    number_of = {agent: number for number, agent in enumerate(agents)}
    hub_of = {member: number for number, hub in enumerate(model.hubs_) for member in hub.members}
    return {
        "agents": [
            {
                "name": str(agent),
                "place": _short(place),
                "hub": hub_of.get(agent),
                "columns": len(model.partition_.get(agent, ())),
            }
            for agent, place in zip(agents, place_agents(model.graph_, agents, graph), strict=True)
        ],
        "links": [[number_of[one], number_of[other]] for one, other in model.graph_.edges],
        "hubs": [
            {
                "root": number_of[hub.root],
                "members": [number_of[member] for member in hub.members],
                "columns": len(hub.columns),
            }
            for hub in model.hubs_
        ],
    }


# Features


def _describe_features(model: Any, table: Table, names: Sequence[str]) -> dict[str, Any]:
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
    found = {"means": _short(means), "deviations": _short(np.where(hidden, np.nan, deviations / span))}
    b, hub = next((b, hub) for b, hub in enumerate(model.hubs_) if column in hub.columns)
    mixture = model._mixture
    curves = None
    if not np.isnan(span):
        curves = component_curves(mixture.density, mixture.blocks[b], list(hub.columns).index(column), limits)
    if curves is not None:  # otherwise they follow from means and deviations
        found["curves"] = _short(np.where(hidden[:, None], np.nan, curves * span))
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
    return _short(1 - bins.observed.sum() / (n_samples * len(bins.observed)))


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


def _say(value: Any) -> str:
    """A setting in a few words; never what an array, a list or a table holds, which may be rows."""
    if value is None or isinstance(value, bool | int | str | np.bool_ | np.integer):
        return str(value)[:200]
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if isinstance(value, nx.Graph):
        return f"graph with {len(value)} agents, {value.number_of_edges()} links"
    if hasattr(value, "shape"):
        return f"array of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"{len(value)} parties"
    if hasattr(value, "schedule") or isinstance(value, Density):  # a small description of a few numbers
        return repr(value)[:200]
    if isinstance(value, Sequence):
        return f"list of {len(value)}"
    return type(value).__name__


def _short(value: Any) -> Any:
    """Numbers with six significant digits, in lists as deep as the array; None for what is not finite."""
    if value is None:
        return None
    if isinstance(value, np.ndarray | list | tuple):
        return [_short(part) for part in value]
    number = float(value)
    return float(f"{number:.6g}") if math.isfinite(number) else None


def _hash(text: str) -> str:
    """The name by which a Content-Security-Policy allows an element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
