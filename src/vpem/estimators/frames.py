"""Reading and making data frames of several libraries, none of which is required."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

LIBRARIES = ("pandas", "polars", "pyarrow")

ARRAY, COLUMNS, OTHER = "array", "columns", "other"
"""Kinds of tables that are not data frames: arrays and lists; dicts of columns; paths, joined and streamed tables."""


def kind_of(X: Any) -> str:
    """Return the library of a data frame, one of `LIBRARIES`, or else `ARRAY`, `COLUMNS` or `OTHER`."""
    library = getattr(X, "frame_library", type(X).__module__.split(".")[0])
    # Test the class: polars warns on access to the columns of a lazy frame.
    if library in LIBRARIES and (hasattr(type(X), "columns") or hasattr(X, "frame_library")):
        return str(library)
    if isinstance(X, Mapping):
        return COLUMNS
    return OTHER if hasattr(X, "streams_rows") or isinstance(X, str | os.PathLike) else ARRAY


def collected(X: Any) -> Any:
    """Collect lazy frames of polars; return other tables as they are."""
    if isinstance(X, Mapping) and not hasattr(X, "shape"):  # some sparse arrays are dicts too
        return {name: collected(own) for name, own in X.items()}
    is_lazy = hasattr(type(X), "collect") and hasattr(type(X), "collect_schema")
    return X.collect() if is_lazy else X


def with_nan(X: Any) -> Any:
    """Return a pandas data frame with NaN in place of NA among texts, which numpy cannot read as a number."""
    dtypes = X.dtypes if kind_of(X) == "pandas" else ()
    columns = {n: X.iloc[:, n].astype(object) for n, dtype in enumerate(dtypes) if str(dtype) == "string"}
    found = {n: column.where(column.notna(), float("nan")) for n, column in columns.items()}
    return replace_columns(X, "pandas", found) if found else X


def make_frame(columns: Mapping[str, Any], kind: str = OTHER) -> Any:
    """Make a table of the given kind from columns.

    For `OTHER`, it is a pandas data frame, else a polars data frame, else an Arrow table, as installed.
    """
    if kind == COLUMNS:
        return dict(columns)
    for library in LIBRARIES if kind not in LIBRARIES else (kind,):
        try:
            module = import_module(library)
        except ModuleNotFoundError as error:
            if error.name != library:
                raise
            continue
        return module.table(dict(columns)) if library == "pyarrow" else module.DataFrame(dict(columns))
    raise ModuleNotFoundError(f"expected pandas, polars or pyarrow to make a table, found none of them ({kind})")


def columns_in(X: Any, kind: str) -> dict[str, Any]:
    """Columns of a data frame, or of a dict of columns, by name."""
    if kind == "pandas":
        return {str(name): X.iloc[:, number] for number, name in enumerate(X.columns)}
    if kind == "polars":
        return {name: X.get_column(name) for name in X.columns}
    if kind == "pyarrow":
        return dict(zip(X.column_names, X.columns, strict=True))
    return {str(name): values for name, values in X.items()}


def replace_columns(X: Any, kind: str, columns: Mapping[int, Any]) -> Any:
    """Return a data frame in which some columns, by number, are replaced."""
    if kind == "pandas":
        frame = X.copy()
        for number, column in columns.items():
            frame.isetitem(number, column.set_axis(X.index))
        return frame
    if kind == "polars":
        return X.with_columns([column.alias(X.columns[number]) for number, column in columns.items()])
    schema = X.schema
    for number, column in columns.items():
        X = X.set_column(number, X.column_names[number], column)
    # The metadata hold the old types, and pandas would convert the columns to them.
    return X if X.schema.equals(schema) else X.replace_schema_metadata(None)


def cells_of(column: Any) -> list[Any]:
    """Values of a column, as a list."""
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def has_doubles(column: Any, kind: str) -> bool:
    """True if a column has type float64."""
    name = {"pandas": "float64", "polars": "Float64", "pyarrow": "double"}.get(kind)
    return str(getattr(column, "type" if kind == "pyarrow" else "dtype", None)) == name


def typed(values: Any, like: Any, kind: str) -> Any:
    """Make a column of a table of this kind; it has the type of the column `like` if that can hold the values."""
    if kind == COLUMNS:
        return np.array(values) if isinstance(like, np.ndarray) else values
    if like is None:
        return getattr(import_module(kind), "array" if kind == "pyarrow" else "Series")(values)
    dtype = like.type if kind == "pyarrow" else like.dtype
    if kind == "pandas" and hasattr(dtype, "categories"):
        new = [value for value in dict.fromkeys(values) if not _is_gap(value) and value not in dtype.categories]
        dtype = type(dtype)([*dtype.categories, *new], ordered=dtype.ordered)
    module = import_module(kind)
    make = module.array if kind == "pyarrow" else module.Series
    more: dict[str, Any] = {"type": dtype} if kind == "pyarrow" else {"dtype": dtype}
    try:
        found = make(values, **more)
        # Some libraries truncate fractions, or turn None into False, without an error.
        if all(map(_is_same, cells_of(found), values)):
            return found
    except Exception as error:  # polars has its own error classes
        if not isinstance(error, TypeError | ValueError | OverflowError) and kind != "polars":
            raise
    return make(values, strict=False) if kind == "polars" else make(values)


def _is_gap(value: Any) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _is_same(found: Any, expected: Any) -> bool:
    """True if two values are equal, up to rounding to float32, or both are gaps."""
    if _is_gap(found) or _is_gap(expected):
        return _is_gap(found) and _is_gap(expected)
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-6)
    return bool(found == expected)
