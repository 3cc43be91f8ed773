"""Errors for tables with columns that are not numeric: they name the columns and a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vpem.estimators import frames

MOST_COLUMNS = 5
"""Largest number of columns that a message names."""
LATER = "leave such columns out, or turn them into numbers"


def refuse_dates(X: Any, *, takes_words: bool) -> None:
    """Raise ValueError for dates and times, which some libraries convert silently; list columns of words as well."""
    if isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        raise ValueError(f"expected numbers, got dates or times of type {X.dtype}; {LATER}")
    kind = frames.kind_of(X)
    if kind not in frames.LIBRARIES or not hasattr(type(X), "columns"):
        return
    columns = frames.columns_in(X, kind)
    dates = [repr(name) for name, column in columns.items() if _is_date(column, kind)]
    if dates:
        words = [] if takes_words else _find_others(columns)[0]
        first = dates[0]
        how = f"table[{first}] = vpem.tables.date_numbers(table[{first}], 'days') (or 'weekday', 'hour')"
        _refuse(words, dates, "dates or times", f": {how}")


def refuse_words(X: Any) -> None:
    """Raise ValueError for columns with values other than numbers and gaps; name the estimator that takes words."""
    kind = frames.kind_of(X)
    is_frame = kind in frames.LIBRARIES and hasattr(type(X), "columns")
    if is_frame:
        words, others = _find_others(frames.columns_in(X, kind))
    elif isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUS":
        words, others = _find_others({number: X[:, number] for number in range(X.shape[1])})
    else:
        return
    if words or (others and is_frame):
        _refuse(words, others, "other values")


def _refuse(words: list[str], others: list[str], what: str, how: str = "") -> None:
    """Raise ValueError for all columns at once."""
    parts, remedies = [], []
    if words:
        parts.append(f"words in {_listed(words)}")
        remedies.append("VerticalMixture(families='auto') takes words as categories")
    if others:
        parts.append(f"{what} in {_listed(others)}")
    remedies.append(f"{LATER}{how}" if others else "or leave such columns out")
    raise ValueError("; ".join([f"expected numbers, got {' and '.join(parts)}", *remedies]))


def _find_others(columns: Mapping[Any, Any]) -> tuple[list[str], list[str]]:
    """Columns with words, and with values that are neither words nor numbers; each with the first such value."""
    words: list[str] = []
    others: list[str] = []
    for name, column in columns.items():
        for cell in frames.cells_of(column):
            if not _is_number(cell):
                (words if isinstance(cell, str) else others).append(f"{name!r} ({cell!r:.40})")
                break
    return words, others


def _is_date(column: Any, kind: str) -> bool:
    if kind == "pyarrow":
        from pyarrow.types import is_temporal

        return bool(is_temporal(column.type))
    if kind == "polars":
        return bool(column.dtype.is_temporal())
    return getattr(column.dtype, "kind", "") in "mM" or str(column.dtype).startswith("period")


def _is_number(cell: Any) -> bool:
    """True if a cell is a number, a gap or the text of a number."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_COLUMNS} more" if len(names) > MOST_COLUMNS else ""
    return f"column{'s' if len(names) > 1 else ''} {', '.join(names[:MOST_COLUMNS])}{more}"
