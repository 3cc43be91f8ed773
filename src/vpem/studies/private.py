"""A party's own file: where its table, its keys and its results are; no other party sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vpem.core.network.parties import SERVER
from vpem.reading.dialect import Form
from vpem.studies import fields
from vpem.studies.fields import Fields, StudyFileError
from vpem.studies.shared import Study


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Files of certificates: of the study's authority, and the party's own with its key."""

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, kw_only=True)
class PartyFile:
    """What one party has, and where; made by `read_party` or `server_file`. Paths are whole."""

    party: str
    folder: Path
    """Of state and results."""
    keys: Keys
    table: Path | None = None
    """None for a server, or if the table is given otherwise."""
    id: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    """Those to fit, in this order; None: all that are not ignored."""
    ignore: tuple[str, ...] = ()
    most_hops: int | None = None
    """How far its columns may travel; as far as agreed, if not given."""
    listen: str | None = None
    """Host and port to listen at; the port of its address on all interfaces, if not given."""
    form: Form | None = None
    families: Mapping[str, str] = field(default_factory=dict)
    """Of columns, by name; the party finds those that are left out from its values."""
    path: Path | None = None


def read_party(path: str | os.PathLike[str], study: Study | None = None, *, has_table: bool = True) -> PartyFile:
    """Read and check a party's file.

    Parameters
    ----------
    path : path
    study : Study, optional
        In which the party must be.
    has_table : bool
        Whether the file must name one.
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


def _family(value: Any) -> str:
    """A family's text; what belongs to it may be found from the values."""
    try:
        return next(iter(checked_families({"": value}).values()))
    except (TypeError, ValueError) as error:
        raise ValueError(str(error).partition(", got ")[0]) from None


def checked_families(given: Any) -> dict[str, str]:
    """Families of columns by name; an error if there is none of that name."""
    from vpem.estimators.families import checked_family  # takes a while

    if not isinstance(given, Mapping):
        raise TypeError(f"expected families as a dict, such as {{'rain': 'zeros'}}, got {given!r}")
    return {str(name): checked_family(text) for name, text in given.items()}


def default_keys(home: Path, name: str) -> Keys:
    """Where `vpem keys` writes, beside a file."""
    return Keys(
        ca=home / "keys" / "ca.pem", certificate=home / "keys" / f"{name}.pem", key=home / "keys" / f"{name}.key"
    )


def server_file(study: Study) -> PartyFile:
    """What the server of a star has if no file says otherwise: keys and a folder beside the shared file."""
    if study.server is None:
        raise StudyFileError(f'{study.path}: expected links = "star" for a server, got {study.shape!r}')
    home = Path.cwd() if study.path is None else study.path.resolve().parent
    return PartyFile(party=SERVER, folder=home / "server-results", keys=default_keys(home, SERVER))
