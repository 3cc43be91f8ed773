"""A party's own file: the paths of its table, keys and results. No other party sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vpem.core.network.parties import SERVER
from vpem.reading.date_parts import is_part
from vpem.reading.dialect import Form
from vpem.reading.gap_words import GapWords, check_gaps
from vpem.reading.problems import TableError
from vpem.studies import fields
from vpem.studies.fields import Fields, StudyFileError
from vpem.studies.shared import Study


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Paths of the authority's certificate, and of the party's own certificate and key."""

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, kw_only=True)
class PartyFile:
    """Content of a party's own file, with absolute paths. Made by `read_party` or `server_file`."""

    party: str
    folder: Path
    """Folder of the state and the results."""
    keys: Keys
    table: Path | None = None
    """Path of the table; None for a server, or if the table is passed as an argument."""
    id: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    """Columns to fit, in this order; None: all that are not ignored."""
    ignore: tuple[str, ...] = ()
    most_hops: int | None = None
    """Largest number of hops that its columns may travel; None: as many as the study allows."""
    listen: str | None = None
    """Host and port to listen at; None: the port of its address, on all interfaces."""
    form: Form | None = None
    families: Mapping[str, str] = field(default_factory=dict)
    """Column name to family. Families of other columns are found from their values."""
    path: Path | None = None


def read_party(path: str | os.PathLike[str], study: Study | None = None, *, has_table: bool = True) -> PartyFile:
    """Read and check a party's file.

    Parameters
    ----------
    path : path
    study : Study, optional
        Study that must contain the party.
    has_table : bool
        True if the file must name a table.
    """
    found = Fields(path, "a party's own file")
    home = Path(path).resolve().parent
    party = found.take("party", fields.name)
    if party is not None and study is not None and party not in study.names:
        found.add(("party",), f"expected a party of the study ({', '.join(study.names)}), got {party!r}")
    needs = has_table and party != SERVER
    none: Any = fields.MISSING if needs else None
    table = found.take("table", fields.text, none)
    form = {
        "header": found.take(("form", "header"), fields.boolean, None),
        "separator": found.take(("form", "separator"), fields.text, None),
        "decimal": found.take(("form", "decimal"), fields.text, None),
        "encoding": found.take(("form", "encoding"), fields.text, None),
        "gaps": found.take(("form", "gaps"), _gaps, None),
    }
    about = {
        "id": found.take("id", fields.names, fields.MISSING if needs else ()),
        "columns": found.take("columns", fields.names, None),
        "ignore": found.take("ignore", fields.names, ()),
        "most_hops": found.take("most_hops", fields.whole(0), None),
        "listen": found.take("listen", fields.address, None),
    }
    if about["columns"] and about["ignore"]:
        found.add(("ignore",), "expected columns or ignore, got both; columns alone says what is fitted")
    families = {name: found.take(("families", name), _family) for name in found.table("families")}
    form["dates"] = {name: found.take(("dates", name), _part_of_date, "days") for name in found.table("dates")}
    folder = found.take("folder", fields.text, "results")
    found.table("keys")
    files = default_keys(home, party or "")
    keys = {
        name: found.take(("keys", name), lambda value: home / fields.text(value), getattr(files, name))
        for name in ("ca", "certificate", "key")
    }
    found.end()
    return PartyFile(
        **about,
        party=party,
        folder=home / folder,
        keys=Keys(**keys),
        table=None if table is None else home / table,
        form=Form(**form),
        families=families,
        path=Path(path),
    )


def _part_of_date(value: Any) -> str:
    """Validate the conversion of a date column to numbers."""
    if not is_part(str(value)):
        raise ValueError(
            "expected days, weekday or hour, with :dmy or :mdy behind it if day and month can be mistaken"
        )
    return str(value)


def _gaps(value: Any) -> GapWords | None:
    """Validate the words for gaps: a list, or a table of columns with lists."""
    try:
        return check_gaps(value)
    except TableError as error:
        raise ValueError(str(error).partition(", got ")[0]) from None


def _family(value: Any) -> str:
    """Validate a family's text. Parameters that it leaves out are found from the values."""
    try:
        return next(iter(checked_families({"": value}).values()))
    except (TypeError, ValueError) as error:
        raise ValueError(str(error).partition(", got ")[0]) from None


def checked_families(given: Any) -> dict[str, str]:
    """Validate families by column name; raise an error for an unknown family."""
    from vpem.estimators.family_choice import checked_family  # slow to import

    if not isinstance(given, Mapping):
        raise TypeError(f"expected families as a dict, such as {{'rain': 'zeros'}}, got {given!r}")
    return {str(name): checked_family(text) for name, text in given.items()}


def default_keys(home: Path, name: str) -> Keys:
    """Return the paths to which `vpem keys` writes, in the folder `keys` of `home`."""
    return Keys(
        ca=home / "keys" / "ca.pem", certificate=home / "keys" / f"{name}.pem", key=home / "keys" / f"{name}.key"
    )


def server_file(study: Study) -> PartyFile:
    """Return the defaults for the server of a star: keys and results below the folder of the shared file."""
    if study.server is None:
        raise StudyFileError(f'{study.path}: expected links = "star" for a server, got {study.shape!r}')
    home = Path.cwd() if study.path is None else study.path.resolve().parent
    return PartyFile(party=SERVER, folder=home / "server-results", keys=default_keys(home, SERVER))
