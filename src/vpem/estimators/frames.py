"""Tables in and out as the libraries of data frames have them, without needing any of these libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def like(X: Any, values: Array, changed: NDArray[np.bool_], labels: Mapping[int, Sequence[str]] | None = None) -> Any:
    """Values as the kind of table that X is: a data frame with its names and index, or else an array.

    Parameters
    ----------
    X : table
    values : array of shape (n_rows, n_features)
    changed : array of shape (n_features,)
        Columns in which X and the values differ; the others keep their types.
    labels : mapping, optional
        Column to what its codes stand for, where the table has words.
    """
    library = type(X).__module__.split(".")[0]
    if not hasattr(X, "columns") or library not in ("pandas", "polars", "pyarrow"):
        return values
    numbers: list[int] = np.flatnonzero(changed).tolist()
    columns: dict[int, Any] = {number: values[:, number] for number in numbers}
    for number in columns:
        if labels is not None and number in labels and _has_words(X, number):
            columns[number] = np.array(labels[number], dtype=object)[values[:, number].astype(np.intp)].tolist()
    if library == "pandas":
        frame = X.copy()
        for number in numbers:
            frame.isetitem(number, columns[number])
        return frame
    if library == "polars":
        series = import_module("polars").Series
        return X.with_columns([series(X.columns[number], columns[number]) for number in numbers])
    pa = import_module("pyarrow")
    for number in numbers:
        X = X.set_column(number, X.column_names[number], pa.array(columns[number]))
    return X


def _has_words(X: Any, number: int) -> bool:
    """Whether a column of a data frame holds no numbers."""
    if hasattr(X, "iloc"):
        kind = X.dtypes.iloc[number]
    else:
        kind = X.schema.field(number).type if hasattr(X, "column_names") else X.dtypes[number]
    return not any(word in str(kind).lower() for word in ("int", "float", "double", "decimal"))
