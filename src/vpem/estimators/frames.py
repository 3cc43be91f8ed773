"""Tables in and out as the libraries of data frames have them, without needing any of these libraries."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def make_frame(columns: Mapping[str, Any]) -> Any:
    """Columns as a data frame of pandas; without it of polars; without both as a table of Arrow."""
    for library in ("pandas", "polars"):
        try:
            return import_module(library).DataFrame(dict(columns))
        except ModuleNotFoundError as error:
            if error.name != library:
                raise
    pa = import_module("pyarrow")
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def like(X: Any, values: Array, changed: NDArray[np.bool_]) -> Any:
    """Values as the kind of table that X is: a data frame with its names and index, or else an array.

    Parameters
    ----------
    X : table
    values : array of shape (n_rows, n_features)
    changed : array of shape (n_features,)
        Columns in which X and the values differ; the others keep their types.
    """
    library = type(X).__module__.split(".")[0]
    if not hasattr(X, "columns") or library not in ("pandas", "polars", "pyarrow"):
        return values
    numbers = np.flatnonzero(changed)
    if library == "pandas":
        frame = X.copy()
        for number in numbers:
            frame.isetitem(number, values[:, number])
        return frame
    if library == "polars":
        series = import_module("polars").Series
        return X.with_columns([series(X.columns[number], values[:, number]) for number in numbers])
    pa = import_module("pyarrow")
    for number in numbers:
        X = X.set_column(int(number), X.column_names[number], pa.array(values[:, number]))
    return X
