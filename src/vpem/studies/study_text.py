"""Text of a study's files, with comments, for `vpem study init` and for copies with other addresses."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

from vpem.core.blocks.families import GAUSSIAN
from vpem.studies.shared import Member, Options, Study

COMMENTS = {
    "components": "how many components",
    "covariance": "full, tied, diag or spherical, within each party's columns",
    "tol": "change of the log-likelihood per row below which the fit ends",
    "max_iter": "iterations at most",
    "starts": "of which the best is kept",
    "init": "kmeans, k-means++, labels (few bytes), random, random_from_data",
    "accelerate": "squarem: extrapolate, for fewer iterations",
    "reg_covar": "added to every variance",
    "shrinkage": "auto, oas, none, or a number from 0 to 1",
    "standardize": "divide each column by its own deviation for the fit",
    "hops": "hops within which parties pool their columns at a root; 0: no column is sent",
    "families": "gaussian; auto: also words, counts, amounts with zeros, hours: each party decides on its columns",
}


def new_salt() -> str:
    """Return a random salt from the operating system."""
    return secrets.token_hex(16)


def study_text(study: Study) -> str:
    """Return the text of a study's shared file."""
    links: Any = study.shape
    if study.shape == "list":
        links = [[study.names[one], study.names[other]] for one, other in study.links]
    lines = [
        "# A study: all parties have the same copy of this file. Check it with: vpem study check study.toml",
        "vpem = 1  # format of this file",
        f"name = {_plain(study.name)}",
        f"seed = {study.seed}  # all parties draw the same random numbers",
        f"patience = {_time(study.patience)}  # how long the others wait for a party that is away",
        f"lease = {_time(study.lease)}  # silence after which a link has ended",
        "",
        "[model]  # as the options of vpem fit",
        *_model_lines(study.model),
        "",
        "[network]",
        f"links = {_plain(links)}  # star (with a server), tree, ring, path, complete, or pairs of parties",
        f"sum = {_plain(study.sum)}  # masked; plain: differences (few bytes), exact, consensus",
        *([] if study.rounds is None else [f"rounds = {_plain(study.rounds)}"]),
    ]
    if study.server is not None:
        lines += ["", "[network.server]  # adds what the parties send, and has no columns"]
        lines += _member_lines(study.server)
    lines += [
        "",
        "[rows]  # ids are compared as digests or tokens with this salt; keep it among the parties",
        f"salt = {_plain(study.salt)}",
        f"match = {_plain(study.match)}  # same ids everywhere; or inner, outer: common rows are found first",
    ]
    if study.match != "same":
        lines.append(f"spelling = {_plain(study.spelling)}  # of ids: text, number or exact")
        lines += [] if study.matcher is None else [f"matcher = {_plain(study.matcher)}  # gets the tokens"]
    if study.accept:
        lines += ["", "[privacy]", f"accept = {_plain(list(study.accept))}"]
    for party in study.parties:
        lines += ["", f"[parties.{party.name}]", *_member_lines(party)]
    return "\n".join(lines) + "\n"


def _model_lines(asked: Options) -> list[str]:
    found = []
    for part in fields_of(asked):
        value = getattr(asked, part.name)
        if part.name == "shrinkage" and value is None:
            value = "none"
        start = "" if value is not None else "# "
        shown = '"squarem"' if value is None else _plain(value)
        found.append(f"{start}{part.name} = {shown}  # {COMMENTS[part.name]}")
    return found


def _member_lines(member: Member) -> list[str]:
    shown = "" if member.fingerprint is None else member.fingerprint
    return [
        f"address = {_plain(member.address)}  # where the others reach it",
        f"certificate = {_plain(member.certificate)}  # common name of its certificate",
        f"{'' if shown else '# '}fingerprint = {_plain(shown)}  # of its key: vpem keys show",
    ]


def party_text(
    party: str, table: str, ids: Sequence[str], ignore: Sequence[str] = (), folder: str = "results"
) -> str:
    """Return the text of a party's own file, to which its paths are relative."""
    from vpem.core.blocks.structure import FAMILIES  # slow to import

    families = [text for name, own in FAMILIES.items() for text in own.examples or (name,)]
    lines = [
        "# This file stays with the party. Paths are relative to it.",
        f"party = {_plain(party)}",
        f"table = {_plain(table)}  # CSV, Excel or Parquet",
        f"id = {_plain(list(ids))}  # the columns that name the rows, the same rows at all parties",
        f"ignore = {_plain(list(ignore))}" if ignore else '# ignore = ["name"]  # columns to leave out',
        '# columns = ["age", "dose"]  # or those to fit',
        "# most_hops = 0  # how far its columns may travel, whatever the study says",
        f"folder = {_plain(folder)}  # for the state and the results",
        '# listen = "0.0.0.0:7450"  # if not the port of its address, on all interfaces',
        "",
        "# [form]  # how the CSV file is written, where it is not to be found out",
        '# gaps = ["NA", "?", "-999"]  # words that are gaps, in place of the usual ones',
        "",
        '# [families]  # with families = "auto" in the study; what is not said is found from the values',
        f'# rain = "zeros"  # {", ".join([*families, GAUSSIAN])}',
        "",
        "# [dates]  # the numbers that columns of dates become",
        '# visited = "days"  # since 1970; or weekday, hour',
        "",
        "[keys]  # made with vpem keys; the key never leaves this machine",
        'ca = "keys/ca.pem"',
        f"certificate = {_plain(f'keys/{party}.pem')}",
        f"key = {_plain(f'keys/{party}.key')}",
    ]
    return "\n".join(lines) + "\n"


def server_text(folder: str = "results") -> str:
    """Return the text of the own file of a star's server, which has no table."""
    return (
        "# The server's own file: vpem join study.toml --server --party server.toml\n"
        f'party = "server"\nfolder = {_plain(folder)}\n\n'
        '[keys]\nca = "keys/ca.pem"\ncertificate = "keys/server.pem"\nkey = "keys/server.key"\n'
    )


def _plain(value: Any) -> str:
    """Format a value as TOML, which equals JSON for strings, lists, numbers and booleans."""
    return json.dumps(value, ensure_ascii=False)


def _time(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f'"{seconds / size:g}{unit}"'
    return f'"{seconds:g}s"'


def write_new(path: Path, text: str) -> None:
    """Write a new file; raise FileExistsError if it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise FileExistsError(f"expected to write {path}, got a file that is there; move it away first") from None
