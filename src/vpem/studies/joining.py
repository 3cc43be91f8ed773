"""One party of a study, run to its end: `vpem.join`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from vpem.core.agent.machine import Agent
from vpem.files import replacing
from vpem.studies.fields import StudyFileError
from vpem.studies.folder import Belongs, Checkpoints, open_folder
from vpem.studies.keys import check_keys
from vpem.studies.private import PartyFile, read_party, server_file
from vpem.studies.results import Local, PartyFit, finish, prepare
from vpem.studies.rows import read_rows
from vpem.studies.shared import Study, read_study
from vpem.studies.telling import Journal, Lines, Note
from vpem.transports.outcomes import Outcome
from vpem.transports.running import Hello, run
from vpem.transports.session import Session
from vpem.transports.zenoh import Peer, Tls, Wiring, open_wire

FINISHED, LOG = "finished", "log.jsonl"

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Finished(msgspec.Struct, frozen=True):
    """What is left when all parties are done."""

    digests: Mapping[str, str]
    """Of what the results belong to."""
    sent: int
    received: int
    """Bytes, in the last run."""


class StudyEnded(RuntimeError):  # noqa: N818 (it need not be an error)
    """A run that has ended before its study was done; `outcome` says how."""

    def __init__(self, outcome: Outcome, folder: Path):
        self.outcome, self.folder = outcome, folder
        super().__init__(_in_words(outcome, folder))


def _in_words(outcome: Outcome, folder: Path) -> str:
    remedy = {
        "gave up": f"the state is in {folder}: run the same command again when it is back, or with --without NAME",
        "interrupted": f"the state is in {folder}: run the same command to go on",
        "failed": f"to begin again after a change, run with --fresh at all parties (state: {folder})",
        "refused": "nothing was sent",
    }
    return f"{outcome.kind}: {outcome.reason}; {remedy.get(outcome.kind, '')}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Seat:
    """One agent's place in a study: what it needs to begin."""

    study: Study
    party: PartyFile
    number: int
    local: Local | None
    """None for a server."""
    tls: Tls | None
    notes: tuple[str, ...] = ()

    @cached_property
    def digests(self) -> dict[str, str]:
        """Of all that a checkpoint belongs to."""
        if self.local is None:
            return self.study.digests
        rows, scale = self.local.rows, self.local.units.scale
        table = hashlib.sha256(rows.values.data)
        table.update(repr((rows.names, None if scale is None else scale.tolist())).encode())
        return {**self.study.digests, "rows": rows.digest, "table": table.hexdigest()}

    @property
    def n_bytes(self) -> int:
        """Room for checkpoints and results, roughly: three of responsibilities, and the rows as text."""
        if self.local is None:
            return 2**20
        rows, k = len(self.local.rows), self.study.model.components
        pooled = self.local.X.nbytes if self.study.model.hops else 0
        return 2**20 + 2 * (8 * 8 * rows * k + 4 * pooled) + 25 * rows * (k + 2)

    def agent(self) -> Agent:
        """An agent that has not begun."""
        return Agent(
            self.number,
            self.study.neighbours(self.number),
            self.study.agreement(),
            None if self.local is None else self.local.X,
            name=self.study.names[self.number],
            most_hops=self.party.most_hops if self.local is not None else None,
        )

    def hello(self, purpose: str = "fit") -> Hello:
        """What neighbours compare."""
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
        """Links to the neighbours: a star's parties open them, and of two parties the one with the smaller number."""
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
    """On all interfaces at the port that others know; on this machine's own if it is only reached from there."""
    host, _, port = address.rpartition(":")
    return address if host in LOOPBACK else f"0.0.0.0:{port}"


def take_seat(
    study: str | os.PathLike[str] | Study,
    party: str | os.PathLike[str] | PartyFile | None,
    table: Any = None,
    *,
    insecure: bool = False,
) -> Seat:
    """Read and check all that an agent needs; raises before anything is sent or written.

    Parameters
    ----------
    study : path or Study
    party : path, PartyFile or None
        None: the server of a star.
    table : path or data frame, optional
        In place of the one that the party's file names.
    insecure : bool
    """
    shared = study if isinstance(study, Study) else read_study(study)
    if party is None:
        own = server_file(shared)
    else:
        own = party if isinstance(party, PartyFile) else read_party(party, shared, has_table=table is None)
    number = shared.number(own.party)
    tls, notes = None, list[str]()
    if not insecure:
        keys = own.keys
        notes += check_keys(keys.ca, keys.certificate, keys.key, shared.members[number].certificate)
        tls = Tls(ca=keys.ca, certificate=keys.certificate, key=keys.key)
    local = None
    if number < len(shared.parties):
        rows = read_rows(own, shared.salt, table)
        notes += rows.notes
        local = prepare(shared, rows)
    return Seat(study=shared, party=own, number=number, local=local, tls=tls, notes=tuple(notes))


def join(
    study: str | os.PathLike[str] | Study,
    party: str | os.PathLike[str] | PartyFile | None = None,
    table: Any = None,
    *,
    insecure: bool = False,
    without: Iterable[str] = (),
    fresh: bool = False,
    progress: Callable[[Any], object] | bool = True,
    stop: Callable[[], bool] = lambda: False,
    log: str | os.PathLike[str] | None = None,
) -> PartyFit | None:
    """Take part in a study as one party, or as the server of a star, until all parties are done.

    What was interrupted goes on with the same call. Results and state are in the folder that the party's file names.

    Parameters
    ----------
    study : path or Study
        The file that all parties share.
    party : path or PartyFile, optional
        The party's own file; None: the server of a star.
    table : path or data frame, optional
        In place of the table that the party's file names.
    insecure : bool
        Plain TCP without certificates: on one machine, or in a network that all parties trust.
    without : iterable of str
        Parties that will not come back; all their neighbours must say so.
    fresh : bool
        Forget an earlier state, and begin again; all parties must.
    progress : bool or callable
        True: print lines; a callable gets what happens (`vpem.studies.telling`).
    stop : callable
        Whether to end as soon as possible; asked often.
    log : path, optional
        File for a line of JSON of everything that happens; `log.jsonl` in the folder, if not given.

    Returns
    -------
    PartyFit or None
        The party's view of the fit; None for a server.

    Raises
    ------
    StudyEnded
        If the run has ended otherwise: a party stayed away, or was refused, or the fit failed.
    StudyFileError, TableError, KeyFileError, FolderError
        Before anything is sent.
    """
    seat = take_seat(study, party, table, insecure=insecure)
    given_up = [seat.study.number(name) for name in without]
    if seat.number in given_up:
        raise StudyFileError(f"expected other parties to go on without, got {seat.party.party!r}, which is this one")
    return _take_part(seat, given_up, fresh, progress, stop, log)


def _take_part(
    seat: Seat,
    given_up: list[int],
    fresh: bool,
    progress: Callable[[Any], object] | bool,
    stop: Callable[[], bool],
    log: str | os.PathLike[str] | None,
) -> PartyFit | None:
    """Go on in the party's folder until the run ends."""
    folder = seat.party.folder
    with open_folder(folder, seat.n_bytes), Journal(folder / LOG if log is None else Path(log)) as journal:
        journal.watch = progress if callable(progress) else Lines().tell if progress else None
        for note in seat.notes:
            journal.tell(Note(note))
        if seat.tls is None:
            journal.tell(Note("plain TCP: anyone on the way can read and change what is sent (--insecure)"))
        if fresh:
            for name in ("state", "state.earlier", FINISHED):
                (folder / name).unlink(missing_ok=True)
        session, checkpoints = restore(seat, journal)
        ended = _Ending(seat, session, journal)
        if (finished := find_finished(seat, session.agent)) is not None:
            journal.tell(Note(f"the study is done; results are in {folder}"))
            journal.sent, journal.received = finished.sent, finished.received
            return ended.fit()
        outcome = carry(seat, session, seat.hello(), journal, given_up, stop, ended.write)
        if outcome.kind != "finished":
            raise StudyEnded(outcome, folder)
        finished = Finished(checkpoints.belongs.digests, journal.sent, journal.received)
        with replacing(folder / FINISHED) as unfinished:
            unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(finished)))
        return ended.fit()


class _Ending:
    """Writes the results once, as soon as the agent is done."""

    def __init__(self, seat: Seat, session: Session, journal: Journal):
        self.seat, self.session, self.journal = seat, session, journal
        self._fit: PartyFit | None = None

    def write(self) -> list[Any]:
        """Results, before any other agent is told that this one is done."""
        self.fit()
        return []

    def fit(self) -> PartyFit | None:
        seat = self.seat
        if self._fit is None and seat.local is not None:
            traffic = self.journal.sent, self.journal.received
            self._fit = finish(seat.study, self.session.agent, seat.local, seat.party.folder, *traffic)
        return self._fit


def restore(seat: Seat, journal: Journal) -> tuple[Session, Checkpoints]:
    """A session that goes on from the last whole checkpoint, or a new one."""
    about = Belongs(study=seat.study.name, party=seat.party.party, digests=seat.digests)
    checkpoints = Checkpoints(seat.party.folder, about)
    saved, agent = checkpoints.load(), seat.agent()
    for note in checkpoints.notes:
        journal.tell(Note(note))
    if saved is None:
        return Session(agent, save_parts=checkpoints.save), checkpoints
    journal.tell(Note("going on from the last checkpoint"))
    return Session.restore(agent, saved, save_parts=checkpoints.save), checkpoints


def find_finished(seat: Seat, agent: Agent) -> Finished | None:
    """What an earlier run has left that has seen that all parties were done."""
    path = seat.party.folder / FINISHED
    if not path.exists() or not agent.is_done:
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Finished)
    except msgspec.DecodeError:
        return None
    return found if found.digests == seat.digests else None


def carry(
    seat: Seat,
    session: Session,
    hello: Hello,
    journal: Journal,
    without: Iterable[int],
    stop: Callable[[], bool],
    then: Callable[[], list[Any]] | None,
) -> Outcome:
    """Run a session over the study's links until it ends."""
    study = seat.study
    journal.begin(study, seat.number, set(without))
    wire = open_wire(seat.wiring())
    try:
        outcome = run(
            session,
            wire,
            hello,
            names=dict(enumerate(study.names)),
            patience=study.patience,
            lease=study.lease,
            watch=journal.tell,
            stop=stop,
            then=then,
            without=tuple(without),
        )
    finally:
        wire.close()
    journal.tell(outcome)
    return outcome
