"""Known classes of rows, which a fit does not see."""

from __future__ import annotations

from pathlib import Path

from vpem.reading import TableError, check_known, column_names, read_texts
from vpem.study import read_parties

Classes = dict[str, str] | list[str | None]
"""By id where rows have ids, else in the order of the rows."""


def read_classes(tables: list[Path], id_column: str | None, parties: Path | None, label: str) -> Classes:
    """Classes from the one table that has the column.

    Parameters
    ----------
    tables : list of paths
    id_column : str or None
    parties : path or None
    label : str
        Name of the column; with several tables that have it, "party.column".
    """
    if label == id_column:
        raise TableError(f"expected --label to be a column of classes, got {label!r}, the id of the rows")
    if parties is not None:
        holders = [party for party, own in read_parties(parties).items() if label in own]
        if holders:
            raise TableError(
                f"expected --label to be a column that the fit does not use, got {label!r}, which {parties} gives to "
                f"{holders[0]}; take it out there"
            )
    known = {path: column_names(path) for path in tables}
    found = [(path, label) for path in tables if label in known[path]]
    if len(tables) > 1:
        found += [(path, name) for path in tables for name in known[path] if f"{path.stem}.{name}" == label]
    if not found:
        check_known(label, [name for own in known.values() for name in own], "--label: column")
    if len(found) > 1:
        names = " or ".join(f"{path.stem}.{name}" for path, name in found)
        raise TableError(f"expected --label to be a column of one table, got {label!r} in {len(found)}; say {names}")
    (path, column) = found[0]
    texts, ids = read_texts(path, column, id_column=id_column)
    there = [text for text in texts if text is not None]
    if len(set(there)) < 2:
        raise TableError(f"expected two classes or more in column {label!r}, got {len(set(there))}")
    if len(set(there)) > max(20, len(there) // 2):
        raise TableError(
            f"expected --label to be a column of classes, got {len(set(there)):,} different values in "
            f"{len(there):,} rows of {label!r}; is it an id or a measurement? use --ignore to leave it out"
        )
    if ids is None:
        return texts
    return {one: text for one, text in zip(ids, texts, strict=True) if text is not None}
