"""Self-contained HTML page about a fit, for a browser that may be offline.

The page does not reveal any row. The histograms of one and of two columns have rounded quantiles as limits, not the
smallest and largest values, and bins with fewer than `SMALLEST_COUNT` rows are shown as empty. If a component stands
for fewer rows than that in a column, its mean and deviation are omitted, and so is "everyone" if the component
contributes to it. Shares of sure and of confused labels never describe fewer rows. Histograms of two columns hold ten
shades and no counts. Measured numbers have six significant digits. The page still contains the model and coarse
counts: give it only to people who may see those.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.rows import Table
from vpem.meaning import Certainty
from vpem.model.evaluation import find_certainty
from vpem.model.fitted import Fitted
from vpem.report import cards, cluster_cards
from vpem.report.bins import SMALLEST_COUNT
from vpem.report.feature_cards import features_card
from vpem.report.sheet import fill_sheet, write_sheet
from vpem.verdict import Wording, in_python

Array = NDArray[np.float64]

SCRIPTS = (
    "draw.js",
    "cards.js",
    "verdict.js",
    "profiles.js",
    "certainty.js",
    "features.js",
    "covariances.js",
    "rows.js",
    "fit.js",
    "network.js",
    "page.js",
)
"""Assets that form the page's script."""


def write_report(
    model: Any,
    X: Any,
    path: str | os.PathLike[str],
    *,
    title: str = "vpem report",
    feature_names: Sequence[str] | None = None,
    wording: Wording = in_python,
) -> None:
    """Write one HTML page about a fit; the file is replaced atomically.

    See `make_report` for its content.

    Parameters
    ----------
    model : VerticalGaussianMixture or VerticalMixture
        Fitted.
    X : array-like or table of shape (n_samples, n_features)
        The table that the model was fitted to.
    path : path
        An existing file is replaced.
    title : str
    feature_names : sequence of str, optional
        By default the names of the fit, or else the columns' numbers.
    wording : callable, default=vpem.verdict.in_python
        Wording of settings in findings; alternatives are `in_program` and `in_study`.
    """
    write_sheet(make_report(model, X, title=title, feature_names=feature_names, wording=wording), path)


def make_report(
    model: Any,
    X: Any,
    *,
    title: str = "vpem report",
    feature_names: Sequence[str] | None = None,
    wording: Wording = in_python,
) -> str:
    """Return the HTML of a page that contains its style, script and data, and loads nothing.

    The page shows the verdict on the fit, profiles of the components, the parties and columns that distinguish them,
    the certainty of labels, histograms with the fitted densities, ellipses, the blocks of the covariances, rows of
    each party and gaps of each column, the log-likelihood, the agreement of the roots, repairs, the network, traffic
    and settings. It does not reveal any row of X: bins have rounded limits, and those with fewer than 5 rows are
    shown as empty.

    Parameters
    ----------
    model : VerticalGaussianMixture or VerticalMixture
        Fitted.
    X : array-like or table of shape (n_samples, n_features)
        The table that the model was fitted to: numpy, a data frame, or a table that streams its rows. It is read
        three times, in chunks of rows.
    title : str
    feature_names : sequence of str, optional
        By default the names of the fit, or else the columns' numbers.
    """
    return fill_sheet("page.html", SCRIPTS, title, describe(model, X, title, feature_names, wording))


def describe(
    model: Any, X: Any, title: str, feature_names: Sequence[str] | None = None, wording: Wording = in_python
) -> dict[str, Any]:
    """Return the content of the page of `make_report` as plain values."""
    has_families = getattr(getattr(model, "fitted_", None), "families", None) is not None
    table = model.read(X) if has_families else _check(model, X)
    return contents(model.fitted_, table, title, feature_names, wording)


def write_page(fitted: Fitted, table: Table, path: str | os.PathLike[str], **about: Any) -> None:
    """Write the page of a fit; `about` has the other arguments of `contents`."""
    write_sheet(fill_sheet("page.html", SCRIPTS, about["title"], contents(fitted, table, **about)), path)


def contents(
    fitted: Fitted,
    table: Table,
    title: str,
    feature_names: Sequence[str] | None = None,
    wording: Wording = in_python,
    *,
    certainty: Certainty | None = None,
    others: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the content of all cards as plain values.

    Parameters
    ----------
    fitted : Fitted
    table : Table of shape (n_samples, n_features)
        Rows of the fit, with its codes of categories.
    title, feature_names, wording :
        As for `make_report`.
    certainty : Certainty, optional
        Certainty of the rows' labels, if it does not follow from the fit alone.
    others : sequence of str
        The other parties, for one party's part of a study; the page then omits facts that it cannot know.
    """
    agents, shown = cards.all_agents(fitted), cluster_cards.without_small(fitted, len(table))
    return {
        "smallest": SMALLEST_COUNT,
        **cards.fit_cards(fitted, len(table), title, others, agents, wording),
        **cluster_cards.importance_card(shown, len(table)),
        **cluster_cards.certainty_card(
            find_certainty(fitted, table) if certainty is None else certainty, fitted.weights
        ),
        **features_card(fitted, shown, table, _feature_names(fitted, feature_names)),
        **cards.rows_card(fitted.rows),
        **cards.network_card(fitted, agents),
    }


# Reading the arguments


class _Rows:
    """Rows of an array, a data frame or a streaming table as arrays, with the column names of the fit."""

    streams_rows = True

    def __init__(self, source: Any, column_names: Sequence[str]):
        self._source, self.column_names = source, column_names
        self.shape: tuple[int, ...] = tuple(source.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Array:
        if hasattr(self._source, "iloc"):  # pandas, whose extension types may have NA for gaps
            part: Array = self._source.iloc[rows].to_numpy(dtype=np.float64, na_value=np.nan)
            return part
        return np.asarray(self._source[rows], dtype=np.float64)


def _check(model: Any, X: Any) -> Table:
    """Validate the table against the model and return it."""
    if not hasattr(model, "weights_") or not hasattr(model, "hubs_"):
        raise TypeError(
            f"expected a fitted VerticalGaussianMixture or VerticalMixture, got {type(model).__name__} without "
            "weights_ or hubs_; try model.fit(X) first"
        )
    names = getattr(model, "feature_names_in_", [str(number) for number in range(model.means_.shape[1])])
    table = _Rows(X if hasattr(X, "shape") else np.asarray(X, dtype=np.float64), names)
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


def _feature_names(fitted: Fitted, given: Sequence[str] | None) -> list[str]:
    n_features = fitted.n_features
    if given is None:
        given = fitted.names or [f"column {number}" for number in range(n_features)]
    if isinstance(given, str) or len(given) != n_features:
        raise ValueError(
            f"expected feature_names to be {n_features} names, one for each column, got {given!r:.80}; "
            "try a list, or leave it out"
        )
    return [str(name) for name in given]
