"""Self-contained HTML page that compares several models."""

from __future__ import annotations

import os
from importlib import metadata
from typing import Any

import numpy as np

from vpem.meaning import Comparison
from vpem.report.bins import SMALLEST_COUNT
from vpem.report.cards import plain_findings
from vpem.report.sheet import fill_sheet, write_sheet
from vpem.report.values import short

SCRIPTS = ("draw.js", "cards.js", "verdict.js", "compare.js")
"""Assets that form the page's script."""
OF_ROWS = ("log_likelihood", "bic", "aic")
"""Facts that depend on the rows on which the models are compared."""


def write_comparison(found: Comparison, path: str | os.PathLike[str], *, title: str = "Models side by side") -> None:
    """Write one HTML page that compares models; the file is replaced atomically.

    Parameters
    ----------
    found : Comparison
        Result of `vpem.meaning.compare_models`.
    path : path
        An existing file is replaced.
    title : str
    """
    write_sheet(make_comparison(found, title=title), path)


def make_comparison(found: Comparison, *, title: str = "Models side by side") -> str:
    """Return the HTML of a page with verdicts, likelihoods, criteria, traffic and the agreement of labels.

    The page loads nothing and does not reveal any row: numbers about fewer than 5 rows are omitted.

    Parameters
    ----------
    found : Comparison
        Result of `vpem.meaning.compare_models`.
    title : str
    """
    on_rows = found.agreement is not None and found.n_rows >= SMALLEST_COUNT
    return fill_sheet(
        "compare.html",
        SCRIPTS,
        title,
        {
            "title": str(title),
            "names": found.names,
            "facts": [_plain(facts, on_rows) for facts in found.facts],
            "findings": [plain_findings(own) for own in found.findings],
            "trajectories": short(found.trajectories),
            "agreement": np.round(found.agreement, 3).tolist() if on_rows and found.agreement is not None else None,
            "rows": found.n_rows if on_rows else 0,
            "same_columns": found.same_columns,
            "refusal": found.refusal,
            "version": metadata.version("vpem"),
        },
    )


def _plain(facts: dict[str, Any], on_rows: bool) -> dict[str, Any]:
    """Return the facts of one model as plain values; facts about rows are None unless `on_rows`."""
    known = {name: None if name in OF_ROWS and not on_rows else value for name, value in facts.items()}
    return {name: short(value) if isinstance(value, float) else value for name, value in known.items()}
