"""Read known classes of rows, which the fit does not use."""

from __future__ import annotations

from pathlib import Path

from vpem.cli.gathering import find_names, tell_notes
from vpem.reading import Form, TableError, check_known
from vpem.study import read_parties

Classes = dict[tuple[str, ...], str] | list[str | None]
"""Id to class if rows have ids, else the class of each row in order."""


def read_classes(
    tables: list[Path], id_column: str | None, parties: Path | None, label: str, form: Form | None = None
) -> Classes:
    """Read the classes from the table that has the column.

    Parameters
    ----------
    tables : list of paths
    id_column : str or None
    parties : path or None
    label : str
        Name of the column; "party.column" if several tables have it.
    form : Form, optional
        Format of the tables; properties that are not given are detected.
    """
    from vpem.reading import look_at_all, read_texts

    sources = look_at_all(tables, form)
    ids, _ = find_names(sources, id_column)
    if label in ids:
        raise TableError(f"expected --label to be a column of classes, got {label!r}, the id of the rows")
    if parties is not None:
        holders = [party for party, own in read_parties(parties).items() if label in own]
        if holders:
            raise TableError(
                f"expected --label to be a column that the fit does not use, got {label!r}, which {parties} gives to "
                f"{holders[0]}; take it out there"
            )
    found = [(source, label) for source in sources if label in source.names]
    if len(tables) > 1:
        found += [(one, name) for one in sources for name in one.names if f"{one.party}.{name}" == label]
    if not found:
        check_known(label, [name for source in sources for name in source.names], "--label: column")
    if len(found) > 1:
        names = " or ".join(f"{source.party}.{name}" for source, name in found)
        raise TableError(f"expected --label to be a column of one table, got {label!r} in {len(found)}; say {names}")
    source, column = found[0]
    notes: list[str] = []
    texts, keys = read_texts(source, column, id_column=ids, notes=notes)
    tell_notes(notes)
    there = [text for text in texts if text is not None]
    if len(set(there)) < 2:
        raise TableError(f"expected two classes or more in column {label!r}, got {len(set(there))}")
    if len(set(there)) > max(20, len(there) // 2):
        raise TableError(
            f"expected --label to be a column of classes, got {len(set(there)):,} different values in "
            f"{len(there):,} rows of {label!r}; is it an id or a measurement? use --ignore to leave it out"
        )
    if keys is None:
        return texts
    return {one: text for one, text in zip(keys, texts, strict=True) if text is not None}
