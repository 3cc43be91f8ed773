"""Reader of the file that all parties of a study share. It reports all problems at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vpem.core.blocks.covariances import STRUCTURES
from vpem.core.network.parties import SERVER
from vpem.core.settings import ACCELERATIONS, STARTS
from vpem.privacy.ids import RULES
from vpem.privacy.masks import ACCEPTABLE
from vpem.studies import fields
from vpem.studies.fields import Fields
from vpem.studies.linking import drawn_links, listed_links, named_links
from vpem.studies.shared import AUTO, FAMILIES, MATCHES, Member, Options, Study, must_accept
from vpem.summations import WAYS

FORMAT = 1


def read_study(path: str | os.PathLike[str], text: str | None = None) -> Study:
    """Read and check the shared file of a study.

    Parameters
    ----------
    path : path
    text : str, optional
        Content of the file, if it was obtained in another way; the path is then where the file would be.

    Raises
    ------
    StudyFileError
        All problems, line by line.
    """
    found = Fields(path, "the shared file of a study", text)
    version = found.take("vpem", fields.whole(1))
    if version is not None and version > FORMAT:
        found.add(("vpem",), f"expected format {FORMAT}, got {version}; update vpem to read this file")
    asked = _options(found)
    names, parties = _parties(found)
    shape, links, server = _network(found, names)
    way = found.take(("network", "sum"), fields.one_of(tuple(WAYS)), Study.sum)
    accept = found.take(("privacy", "accept"), _accepted, ())
    if (problem := must_accept(way, len(names), accept or ())) is not None:
        found.add(("privacy", "accept"), problem)
    rows = {
        "match": found.take(("rows", "match"), fields.one_of(MATCHES), "same"),
        "spelling": found.take(("rows", "spelling"), fields.one_of(tuple(RULES)), "text"),
        "matcher": found.take(("rows", "matcher"), fields.one_of((*names, SERVER)), None),
    }
    if rows["matcher"] == SERVER and shape != "star":
        found.add(("rows", "matcher"), 'expected a party as the matcher without links = "star"')
    rounds = found.take(("network", "rounds"), _rounds, None)
    if way != "consensus" and found.has("network", "rounds"):
        found.add(("network", "rounds"), f'expected rounds with sum = "consensus" only, got sum = "{way}"')
    if way == "consensus" and shape == "star":
        found.add(("network", "sum"), 'expected sum = "exact" or "differences" on a star, got "consensus"')
    about = {
        "name": found.take("name", fields.name),
        "seed": found.take("seed", fields.whole(0, 2**32 - 1), 0),
        "patience": found.take("patience", fields.duration, 3600.0),
        "lease": found.take("lease", fields.duration, 10.0),
        "salt": found.take(("rows", "salt"), fields.hexadecimal),
    }
    if shape == "star" and asked is not None and asked.hops:
        found.add(("model", "hops"), "expected hops = 0 on a star, whose server would hold every column")
    found.end()
    assert asked is not None, "no problems"
    own = {"shape": shape, "links": links, "sum": way, "rounds": rounds, "accept": accept, **rows}
    study = Study(**about, **own, model=asked, parties=parties, server=server, path=Path(path))
    try:
        study.agreement()
    except ValueError as error:  # values that are invalid together
        found.add(("model",), str(error))
        found.end()
    return study


def _options(found: Fields) -> Options | None:
    before = len(found.problems)
    takes: dict[str, Any] = {
        "components": fields.whole(1),
        "covariance": fields.one_of(tuple(STRUCTURES)),
        "tol": fields.number,
        "max_iter": fields.whole(0),
        "starts": fields.whole(1),
        "init": fields.one_of(STARTS),
        "accelerate": fields.one_of(ACCELERATIONS),
        "reg_covar": fields.number,
        "shrinkage": _shrinkage,
        "standardize": fields.boolean,
        "hops": fields.whole(0),
        "families": fields.one_of(FAMILIES),
    }
    found.table("model")
    values = {
        name: found.take(("model", name), check)
        for name, check in takes.items()
        if name == "components" or found.has("model", name)
    }
    if len(found.problems) > before:
        return None
    # A root cannot scale pooled columns, and a spherical covariance needs common units: neither is standardized.
    values.setdefault("standardize", values.get("covariance") != "spherical" and not values.get("hops"))
    if values["standardize"] and values.get("hops"):
        found.add(
            ("model", "standardize"), "expected standardize = false with hops: a root cannot scale others' columns"
        )
    if values.get("families") == AUTO and values.get("hops"):
        found.add(
            ("model", "hops"),
            'expected hops = 0 with families = "auto": a party\'s families and categories stay with it, and a root '
            "could not read the columns of others",
        )
    return Options(**values)


def _shrinkage(value: Any) -> float | str | None:
    if value in ("auto", "oas", "none"):
        return None if value == "none" else str(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError('expected "auto", "oas", "none" or a number from 0 to 1')
    return float(value)


def _accepted(value: Any) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
    if not found or not set(found) <= set(ACCEPTABLE):
        raise ValueError(f"expected one or some of {', '.join(map(repr, ACCEPTABLE))}")
    return found


def _rounds(value: Any) -> int | str:
    if value == "auto":
        return "auto"
    try:
        return fields.whole(1)(value)
    except ValueError:
        raise ValueError('expected a whole number, 1 or more, or "auto"') from None


def _parties(found: Fields) -> tuple[list[str], tuple[Member, ...]]:
    """Return the names, and the parties in the order of the file."""
    names = found.table("parties")
    if len(names) < 2:
        found.add(("parties",), f"expected two parties or more, as [parties.north], got {len(names)}")
    parties = []
    for name in names:
        if not fields.NAME.fullmatch(name):
            found.add(("parties", name), f"expected 1 to 64 letters, digits, - and _ as a party's name, got {name!r}")
        if name == SERVER:
            found.add(("parties", name), f"expected another name than {SERVER!r}, which a star's server has")
        found.table(("parties", name))
        parties.append(_member(found, name, ("parties", name)))
    _check_once(found, parties)
    return names, tuple(parties)


def _member(found: Fields, name: str, place: tuple[str, str]) -> Member:
    return Member(
        name,
        found.take((*place, "address"), fields.address),
        found.take((*place, "certificate"), fields.name, name),
        found.take((*place, "fingerprint"), fields.fingerprint, None),
    )


def _check_once(found: Fields, parties: list[Member]) -> None:
    for what in ("address", "certificate"):
        seen: dict[str, str] = {}
        for one in parties:
            value = getattr(one, what)
            if value is not None and value in seen:
                text = f"expected a different {what} for each party, got {value!r} for {seen[value]} and {one.name}"
                found.add(("parties", one.name, what), text)
            seen[value] = one.name


def _network(found: Fields, names: list[str]) -> tuple[str, tuple[tuple[int, int], ...], Member | None]:
    """Return the shape's name, the links and a star's server."""
    links = found.take(("network", "links"), named_links)
    n_parties = len(names)
    if links == "star":
        found.table(("network", "server"))
        server = _member(found, SERVER, ("network", "server"))
        return "star", tuple((number, n_parties) for number in range(n_parties)), server
    if found.has("network", "server"):
        found.table(("network", "server"))
        for name in ("address", "certificate", "fingerprint"):
            found.has("network", "server", name)
        found.add(("network", "server"), 'expected a server with links = "star" only')
    if isinstance(links, list):
        return "list", listed_links(found, links, names), None
    return str(links), drawn_links(str(links), n_parties), None
