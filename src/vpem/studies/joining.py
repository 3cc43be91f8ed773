"""Run one party of a study to its end: `vpem.join`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from vpem.core.agent.machine import Agent
from vpem.files import replacing
from vpem.studies.fields import StudyFileError
from vpem.studies.folder import Belongs, Checkpoints, FolderError, open_folder
from vpem.studies.ledger import noting
from vpem.studies.match_run import NOTHING, SAVED, make_matching, save_matched
from vpem.studies.private import PartyFile
from vpem.studies.results import PartyFit, Writers, make_results, write_all
from vpem.studies.row_order import PartyRows
from vpem.studies.seats import Seat, matched_seat, take_seat
from vpem.studies.shared import Study
from vpem.studies.telling import Journal, Lines, Note, Tokens
from vpem.transports.outcomes import Outcome
from vpem.transports.session import AnySession, Session
from vpem.transports.session_runner import Hello, run
from vpem.transports.wiring import open_wire

FINISHED, LOG = "finished", "log.jsonl"


class Finished(msgspec.Struct, frozen=True):
    """Record that is written when all parties are done."""

    digests: Mapping[str, str]
    """Digests of the study and the data that the results belong to."""
    sent: int
    received: int
    """Bytes received in the last run; `sent` counts the bytes sent."""


class StudyEnded(RuntimeError):  # noqa: N818 (it need not be an error)
    """A run ended before its study was done; `outcome` holds the reason."""

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


def join(
    study: str | os.PathLike[str] | Study,
    party: str | os.PathLike[str] | PartyFile | None = None,
    table: Any = None,
    *,
    insecure: bool = False,
    without: Iterable[str] = (),
    fresh: bool = False,
    families: Mapping[str, str] | str | None = None,
    progress: Callable[[Any], object] | bool = True,
    stop: Callable[[], bool] = lambda: False,
    log: str | os.PathLike[str] | None = None,
) -> PartyFit | None:
    """Take part in a study as one party, or as the server of a star, until all parties are done.

    The same call resumes an interrupted study. The party's file names the folder of results and state. Zenoh writes
    why TLS refuses a certificate to the standard output only, which this function leaves alone: the program
    `vpem join` reports it.

    Parameters
    ----------
    study : path or Study
        The file that all parties share.
    party : path or PartyFile, optional
        The party's own file; None for the server of a star.
    table : path or data frame, optional
        Table that replaces the one in the party's file.
    insecure : bool
        Use plain TCP without certificates: on one machine, or in a network that all parties trust.
    without : iterable of str
        Parties that will not return; all their neighbours must name them.
    fresh : bool
        Discard an earlier state and begin again; all parties must do so.
    families : dict, optional
        Families of the party's own columns, such as ``{"rain": "zeros"}``; they override those in its file. The
        other families are found from the columns' values, if the study has families.
    progress : bool or callable
        True prints lines; a callable receives each event (see `vpem.studies.telling`).
    stop : callable
        Returns True to end the run as soon as possible; called often.
    log : path, optional
        File that receives a line of JSON for each event; `log.jsonl` in the folder by default.

    Returns
    -------
    PartyFit or None
        The party's view of the fit; None for a server.

    Raises
    ------
    StudyEnded
        If the run ends before the study is done: a party stayed away or was refused, or the fit failed.
    StudyFileError, TableError, KeyFileError, FolderError
        If the input is not valid; raised before anything is sent.
    FolderError
        If a result cannot be written, after all parties are done; the same call writes it again.
    """
    seat = take_seat(study, party, table, insecure=insecure, fresh=fresh, families=families)
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
    """Start or resume in the party's folder, and run to the end."""
    folder = seat.party.folder
    with open_folder(folder, seat.n_bytes), Journal(folder / LOG if log is None else Path(log)) as journal:
        journal.watch = progress if callable(progress) else Lines().tell if progress else None
        for note in seat.notes:
            journal.tell(Note(note))
        if seat.tls is None:
            journal.tell(Note("plain TCP: anyone on the way can read and change what is sent (--insecure)"))
        if fresh:
            for name in ("state", "state.earlier", FINISHED, SAVED):
                (folder / name).unlink(missing_ok=True)
        if seat.unmatched is not None:
            seat = match_rows(seat, journal, stop)
        session, checkpoints = restore(seat, journal)
        if (finished := find_finished(seat, session.agent)) is not None:
            journal.tell(Note(f"the study is done; results are in {folder}"))
            journal.sent, journal.received = finished.sent, finished.received
            return _finish(seat, session.agent, journal)
        if session.is_done:  # in an earlier run, which ended before all were; the others may keep this one waiting
            with suppress(FolderError):  # raised after the run, as the others must hear that this one is done
                _finish(seat, session.agent, journal)
        outcome = None
        try:
            outcome = carry(seat, session, seat.hello(), journal, given_up, stop)
        finally:
            if session.is_done and (outcome is None or outcome.kind != "finished"):
                _finish(seat, session.agent, journal)
                journal.tell(Note(f"this party is done, its results are in {folder}; the others may not be"))
        if outcome.kind != "finished":
            raise StudyEnded(outcome, folder)
        if outcome.awaited:
            journal.tell(Note("if others are not done, run the same command again together with theirs"))
            return _finish(seat, session.agent, journal)
        finished = Finished(checkpoints.belongs.digests, journal.sent, journal.received)
        return _finish(seat, session.agent, journal, {FINISHED: partial(_mark_finished, finished)})


def match_rows(seat: Seat, journal: Journal, stop: Callable[[], bool]) -> Seat:
    """Find the common rows together with the other parties; return the seat for the fit."""
    unmatched, folder = seat.unmatched, seat.party.folder
    assert unmatched is not None, "there is something to match"
    shown = -1

    def tell(done: int, total: int) -> None:
        nonlocal shown
        if (percent := 100 * done // max(total, 1)) != shown:
            shown = percent
            journal.tell(Tokens(done, total))

    keep = partial(save_matched, folder, seat.study, unmatched)
    matching = make_matching(
        seat.study,
        seat.number,
        unmatched,
        seat.credentials,
        tell=tell,
        saved=seat.kept,
        save=partial(keep, is_final=False),
    )
    hello = msgspec.structs.replace(seat.hello("match"), rows=None, order=None)
    outcome = carry(seat, matching, hello, journal, (), stop, follow=matching.follow)
    if outcome.kind != "finished":
        raise StudyEnded(outcome, folder)
    keep(matching.matched, is_final=True)
    found = matched_seat(seat, matching.matched or NOTHING)
    for note in found.notes:
        if found.local is not None and note not in seat.notes:
            journal.tell(Note(note))
    return found


def match(
    study: str | os.PathLike[str] | Study,
    party: str | os.PathLike[str] | PartyFile | None = None,
    table: Any = None,
    *,
    fresh: bool = False,
    families: Mapping[str, str] | str | None = None,
    progress: Callable[[Any], object] | bool = True,
    stop: Callable[[], bool] = lambda: False,
) -> PartyRows | None:
    """Find the common rows of all parties, without a fit; the parameters are those of `join`.

    Returns
    -------
    PartyRows or None
        The party's rows in the order of the common table; None for a server.
    """
    seat = take_seat(study, party, table, fresh=fresh, families=families)
    if seat.study.match == "same":
        raise StudyFileError(
            f'{seat.study.path or seat.study.name}: expected match = "inner" or "outer" in [rows], got "same", '
            "with which all parties bring the same ids"
        )
    folder = seat.party.folder
    with open_folder(folder, seat.n_bytes), Journal(folder / LOG) as journal:
        journal.watch = progress if callable(progress) else Lines().tell if progress else None
        for note in seat.notes:
            journal.tell(Note(note))
        if seat.unmatched is not None:
            seat = match_rows(seat, journal, stop)
    return None if seat.local is None else seat.local.rows


def _finish(seat: Seat, agent: Agent, journal: Journal, first: Writers | None = None) -> PartyFit | None:
    """Write the results of a finished agent, and other files before; return the results, None for a server."""
    folder, fit = seat.party.folder, None
    try:
        write_all(folder, first or {})
    finally:
        if seat.local is not None:
            fit, writers = make_results(seat.study, agent, seat.local, folder, journal.sent, journal.received)
            write_all(folder, writers)
    return fit


def _mark_finished(finished: Finished, path: Path) -> None:
    with replacing(path) as unfinished:
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(finished)))


def restore(seat: Seat, journal: Journal) -> tuple[Session, Checkpoints]:
    """Return a session that resumes from the last valid checkpoint, or a new one, and its checkpoints."""
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
    """Return the record of an earlier run in which all parties were done, for the same data; None without one."""
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
    session: AnySession,
    hello: Hello,
    journal: Journal,
    without: Iterable[int],
    stop: Callable[[], bool],
    then: Callable[[], list[Any]] | None = None,
    follow: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run a session over the study's links until it ends, and record in the ledger what it sent."""
    study = seat.study
    journal.begin(study, seat.number, set(without))
    noted = noting(session, study, seat.party.folder, hello.purpose, journal)
    with noted, closing(open_wire(seat.wiring())) as wire:
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
            follow=follow,
        )
    journal.tell(outcome)
    return outcome
