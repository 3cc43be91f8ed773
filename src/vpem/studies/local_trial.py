"""Try a study out: run all its parties on one machine, each as if it were alone."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from vpem.core.network.parties import SERVER
from vpem.files import replacing
from vpem.studies.certificates import make_authority, make_request, sign
from vpem.studies.fields import Fields, StudyFileError
from vpem.studies.private import PartyFile, read_party, server_file
from vpem.studies.shared import Study
from vpem.studies.study_text import study_text

COPY, AUTHORITY = "study-here.toml", "authority"


def find_files(study: Study, folder: Path) -> dict[str, PartyFile]:
    """Find the parties' own files in a folder and its subfolders."""
    found: dict[str, PartyFile] = {}
    for path in sorted([*folder.glob("*.toml"), *folder.glob("*/*.toml")]):
        try:
            party = Fields(path, "a party's own file").content.get("party")
        except StudyFileError:
            continue
        if party in study.names and party not in found:
            found[party] = read_party(path, study)
    if study.server is not None and SERVER not in found:
        found[SERVER] = server_file(study)
    missing = [name for name in study.names if name not in found]
    if missing:
        raise StudyFileError(
            f"{folder}: expected a file with party = ... for each party, found none for {', '.join(missing)}"
        )
    return found


def local_copy(study: Study, folder: Path) -> Path:
    """Write a copy of the shared file with addresses on this machine, at free ports. Return its path."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in study.names]
    addresses = {
        name: f"127.0.0.1:{holder.getsockname()[1]}" for name, holder in zip(study.names, holders, strict=True)
    }
    for holder in holders:
        holder.close()
    with replacing(folder / COPY) as unfinished:
        unfinished.write_text(study_text(study.at(addresses)), encoding="utf-8")
    return folder / COPY


def make_keys(study: Study, files: Mapping[str, PartyFile]) -> list[str]:
    """Make keys for the parties without keys, signed by an authority for this machine alone. Return their names."""
    without = [name for name, own in files.items() if not own.keys.key.exists()]
    if not without:
        return []
    home = (study.path or Path("study.toml")).resolve().parent / AUTHORITY
    if not (home / "ca.key").exists():
        make_authority(home, f"{study.name} on this machine")
    for name in without:
        own, folder = files[name].keys, files[name].keys.key.parent
        member = study.members[study.number(name)]
        made, request = make_request(folder, member.certificate, ["127.0.0.1", "localhost"])
        if made != own.key:
            made.rename(own.key)
        sign(request, home, own.certificate)
        own.ca.write_bytes((home / "ca.pem").read_bytes())
    return without
