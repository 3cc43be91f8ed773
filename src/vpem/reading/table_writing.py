"""Write tables to files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vpem.files import check_outputs, replacing

TABLES = (".csv", ".parquet")
"""File endings of the supported formats."""


def write(path: str | os.PathLike[str], columns: Mapping[str, Iterable[Any]]) -> None:
    """Write columns as CSV or Parquet, by the file's ending; the file is replaced atomically."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    path = Path(path)
    check_outputs([path], endings=TABLES)
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    with replacing(path) as unfinished:
        if path.suffix.lower() == ".parquet":
            pq.write_table(table, unfinished)
        else:
            pa_csv.write_csv(table, unfinished)


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, with underscores appended until no column has it."""
    taken = set(taken)
    while name in taken:
        name += "_"
    return name
