"""One agent's seat in a study: its files, read and checked before anything is sent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.machine import Agent
from vpem.privacy.matching import Matched
from vpem.studies.certificates import KeyFileError, check_keys, look
from vpem.studies.credentials import CertificateCredentials
from vpem.studies.fields import StudyFileError
from vpem.studies.match_run import Unmatched, load_matched, read_unmatched
from vpem.studies.party_columns import Local, prepare, wanted_codes
from vpem.studies.private import PartyFile, checked_families, read_party, server_file
from vpem.studies.row_order import PartyRows, read_rows
from vpem.studies.shared import AUTO, Study
from vpem.studies.shared_file import read_study
from vpem.transports.session_runner import Hello
from vpem.transports.wiring import Peer, Tls, Wiring

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, kw_only=True, eq=False)
class Seat:
    """Everything that one agent of a study needs to start."""

    study: Study
    party: PartyFile
    number: int
    local: Local | None
    """The party's own rows and columns; None for a server."""
    tls: Tls | None
    notes: tuple[str, ...] = ()
    unmatched: Unmatched | None = None
    """Table whose rows must be matched before the fit; None if there is nothing to match."""
    kept: Matched | None = None
    """Result of a matching, if this party does not know yet whether all parties have saved it."""

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digests of the study, rows and table that a checkpoint belongs to."""
        if self.local is None:
            return self.study.digests
        rows, scale = self.local.rows, self.local.units.scale
        table = hashlib.sha256(rows.values.data)
        table.update(repr((rows.names, None if scale is None else scale.tolist())).encode())
        found = {**self.study.digests, "rows": rows.digest, "table": table.hexdigest()}
        if self.local.families:
            categories = {column: list(own) for column, own in sorted(self.local.coding.labels.items())}
            found["choice of families"] = hashlib.sha256(repr((self.local.families, categories)).encode()).hexdigest()
        return found

    @property
    def n_bytes(self) -> int:
        """Approximate bytes of checkpoints and results: three sets of responsibilities, and the rows as text."""
        if self.local is None:
            return 2**20
        rows, k = len(self.local.rows), self.study.model.components
        pooled = self.local.X.nbytes if self.study.model.hops else 0
        return 2**20 + 2 * (8 * 8 * rows * k + 4 * pooled) + 25 * rows * (k + 2)

    def agent(self) -> Agent:
        """Return an agent that has not started."""
        return Agent(
            self.number,
            self.study.neighbours(self.number),
            self.study.agreement(self.party.party, () if self.local is None else self.local.families),
            None if self.local is None else self.local.X,
            name=self.study.names[self.number],
            most_hops=self.party.most_hops if self.local is not None else None,
            credentials=self.credentials,
            keys=None if self.local is None else self.known_by(self.local.rows),
        )

    def known_by(self, rows: PartyRows) -> NDArray[np.int64] | None:
        """Return the keys that identify rows if sums are masked; else None."""
        return rows.row_keys if self.study.is_masked else None

    @cached_property
    def credentials(self) -> CertificateCredentials | None:
        """Credentials with which the agent signs its own record; None without certificates."""
        if self.tls is None:
            return None
        names = {member.name: member.certificate for member in self.study.members}
        fingerprints = {member.name: member.fingerprint for member in self.study.members}
        files = self.tls.ca, self.tls.certificate, self.tls.key
        return CertificateCredentials(*files, self.study.digest, names, fingerprints)

    def hello(self, purpose: str = "fit") -> Hello:
        """Return the hello, whose fields neighbours compare."""
        rows = None if self.local is None else self.local.rows
        return Hello(
            name=self.study.names[self.number],
            number=self.number,
            fields=self.study.digests,
            rows=None if rows is None else len(rows),
            order=None if rows is None else rows.digest,
            purpose=purpose,
        )

    def wiring(self) -> Wiring:
        """Return the links to the neighbours. The agent with the smaller number opens each link.

        So the parties of a star open the links to its server.
        """
        members, me = self.study.members, self.number
        peers = tuple(
            Peer(
                number=peer,
                name=members[peer].name,
                address=members[peer].address,
                certificate=members[peer].certificate,
                connect=me < peer,
            )
            for peer in self.study.neighbours(me)
        )
        listen = None if all(peer.connect for peer in peers) else self.party.listen or _listening(members[me].address)
        lease = self.study.lease
        return Wiring(study=self.study.name, number=me, listen=listen, peers=peers, tls=self.tls, lease=lease)


def _listening(address: str) -> str:
    """Return the port of the address on all interfaces, or the address itself if it is a loopback address."""
    host, _, port = address.rpartition(":")
    return address if host in LOOPBACK else f"0.0.0.0:{port}"


def take_seat(
    study: str | os.PathLike[str] | Study,
    party: str | os.PathLike[str] | PartyFile | None,
    table: Any = None,
    *,
    insecure: bool = False,
    fresh: bool = False,
    families: Mapping[str, str] | str | None = None,
) -> Seat:
    """Read and check everything that an agent needs; raise an error before anything is sent or written.

    Parameters
    ----------
    study : path or Study
    party : path, PartyFile or None
        None stands for the server of a star.
    table : path or data frame, optional
        Replaces the table that the party's file names.
    insecure : bool
    fresh : bool
        Ignore the saved result of an earlier matching.
    families : dict, optional
        Families of the party's columns, which override those of its file.
    """
    shared = study if isinstance(study, Study) else read_study(study)
    if party is None:
        own = server_file(shared)
    else:
        own = party if isinstance(party, PartyFile) else read_party(party, shared, has_table=table is None)
    if families and families != AUTO:
        own = replace(own, families={**own.families, **checked_families(families)})
    number = shared.number(own.party)
    tls, notes = None, list[str]()
    if not insecure:
        keys = own.keys
        member = shared.members[number]
        notes += check_keys(keys.ca, keys.certificate, keys.key, member.certificate)
        if member.fingerprint not in (None, look(keys.certificate).fingerprint):
            raise KeyFileError(
                f"{keys.certificate}: expected the key that the study pins, {member.fingerprint}, "
                f"got {look(keys.certificate).fingerprint}; use that key, or have the study changed at all parties"
            )
        tls = Tls(ca=keys.ca, certificate=keys.certificate, key=keys.key)
    if insecure and (shared.is_masked or shared.match != "same"):
        raise StudyFileError(
            f"{shared.path or shared.name}: expected certificates for masks and for matching rows, got --insecure, "
            'with which any agent could pose as another; make keys with vpem keys, or say sum = "differences"'
        )
    local, is_party = None, number < len(shared.parties)
    codes = wanted_codes(shared, own)
    if shared.match != "same":
        unmatched = read_unmatched(own, shared, table, codes) if is_party else Unmatched()
        notes += unmatched.notes
        seat = Seat(
            study=shared, party=own, number=number, local=None, tls=tls, notes=tuple(notes), unmatched=unmatched
        )
        found, is_final = (None, False) if fresh else load_matched(own.folder, shared, unmatched)
        return replace(seat, kept=found) if found is None or not is_final else matched_seat(seat, found)
    if is_party:
        rows = read_rows(own, shared.salt, table, codes=codes)
        notes += rows.notes
        local = prepare(shared, rows, own)
        notes += local.notes
    return Seat(study=shared, party=own, number=number, local=local, tls=tls, notes=tuple(notes))


def matched_seat(seat: Seat, found: Matched) -> Seat:
    """Return the seat with its rows matched."""
    unmatched = seat.unmatched
    if unmatched is None or unmatched.rows is None:
        return replace(seat, unmatched=None)
    rows = unmatched.placed(found)
    local = prepare(seat.study, rows, seat.party)
    return replace(seat, unmatched=None, local=local, notes=(*rows.notes, *local.notes))
