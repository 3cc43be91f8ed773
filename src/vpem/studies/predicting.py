"""Score new rows: all parties together, with the model that they have fitted."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.identity import model_checkpoint
from vpem.core.agent.machine import Agent
from vpem.files import replacing
from vpem.model.category_codes import UNSEEN
from vpem.studies.fields import StudyFileError
from vpem.studies.folder import open_folder
from vpem.studies.joining import LOG, StudyEnded, carry, restore
from vpem.studies.party_columns import new_values
from vpem.studies.private import PartyFile
from vpem.studies.row_order import PartyRows, read_rows
from vpem.studies.seats import Seat, take_seat
from vpem.studies.shared import Study
from vpem.studies.telling import Journal, Lines, Note
from vpem.transports import wire
from vpem.transports.saving import lasting
from vpem.transports.session import Session

Array = NDArray[np.float64]

REQUEST = "request"
"""Name of the file with the digest of the current or last request."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Responsibilities and log-densities of new rows, in the order of the party's table."""

    ids: dict[str, list[str]]
    responsibilities: Array
    """Shape (n_rows, n_components). NaN for rows that too few parties have for a masked sum."""
    log_densities: Array
    """Shape (n_rows,): log-density of all columns, or of the scaled columns if the study scales them. NaN for the
    same rows."""

    @property
    def n_left_out(self) -> int:
        """Number of rows without scores."""
        return int(np.isnan(self.log_densities).sum())


def predict(
    study: str | os.PathLike[str] | Study,
    party: str | os.PathLike[str] | PartyFile | None,
    new: Any = None,
    *,
    n_rows: int | None = None,
    families: Mapping[str, str] | str | None = None,
    insecure: bool = False,
    without: Iterable[str] = (),
    progress: Callable[[Any], object] | bool = True,
    stop: Callable[[], bool] = lambda: False,
) -> Scores | None:
    """Score new rows together with the other parties.

    All parties must take part, each with its columns of the same rows.

    Parameters
    ----------
    study, party : path, or the object that was read
        As for `vpem.join`, with which the model was fitted. None as the party stands for the server of a star.
    new : path or data frame
        The new rows, with the party's id columns. If the table has no column of the fit, all values of the party are
        missing.
    n_rows : int, optional
        Number of new rows, for a server.
    families, insecure, without, progress, stop :
        As for `vpem.join`.

    Returns
    -------
    Scores or None
        None for a server.
    """
    seat, without = take_seat(study, party, insecure=insecure, families=families), tuple(without)
    given_up = [seat.study.number(name) for name in without]
    if given_up and seat.study.is_masked:
        raise StudyFileError(
            f"expected all parties of the fit in a masked prediction, got it without {', '.join(without)}: two sums "
            "of the same rows that differ by a party tell what that party has added; fit again without it"
        )
    rows = _new_rows(seat, new)
    if rows is None and n_rows is None:
        raise StudyFileError("expected the number of new rows for a server, got none; try --rows N")
    count = len(rows) if rows is not None else int(n_rows or 0)
    values, unseen = (None, []) if rows is None or seat.local is None else new_values(seat.local, rows)
    folder = seat.party.folder
    with open_folder(folder, seat.n_bytes), Journal(folder / LOG) as journal:
        journal.watch = progress if callable(progress) else Lines().tell if progress else None
        if unseen:
            journal.tell(Note(f"{UNSEEN}: {'; '.join(unseen)}"))
        session, checkpoints = restore(seat, journal)
        session = _ready(seat, session, _digest(rows, count, values), checkpoints.save)
        state = session.agent.state
        is_asked = state.progress.n_predictions > 0 or 0 in state.requests
        keys = None if rows is None else seat.known_by(rows)
        ask = None if is_asked else partial(_ask, session, values, count, keys)
        hello = _hello(seat, count, rows)
        outcome = carry(seat, session, hello, journal, given_up, stop, ask)
        if outcome.kind != "finished":
            raise StudyEnded(outcome, folder)
    found = session.agent.prediction
    if rows is None or found is None or found.responsibilities is None or found.log_densities is None:
        return None
    return Scores(rows.keys, rows.as_in_table(found.responsibilities), rows.as_in_table(found.log_densities))


def _ask(session: Session, values: Array | None, n_rows: int, keys: Any) -> list[Any]:
    return list(session.predict(values, n_rows, keys))


def _hello(seat: Seat, n_rows: int, rows: PartyRows | None) -> Any:
    """Return the hello of a prediction, in which the new rows replace those of the fit."""
    order = None if rows is None else rows.digest
    about = {"rows": None if rows is None else n_rows, "order": order}
    return msgspec.structs.replace(seat.hello(f"predict {n_rows} rows"), **about)


def _new_rows(seat: Seat, new: Any) -> PartyRows | None:
    if seat.local is None:
        return None
    if new is None:
        raise StudyFileError("expected a table of new rows, got none; one with the ids alone will do")
    study = seat.study
    spelling = None if study.match == "same" else study.spelling
    codes = study.has_families and seat.local.words
    names = seat.local.rows.names
    return read_rows(seat.party, study.salt, new, columns=names, spelling=spelling, codes=codes)


def _digest(rows: PartyRows | None, n_rows: int, values: Array | None) -> str:
    """Return the digest of a request."""
    if rows is None:
        return str(n_rows)
    return hashlib.sha256(rows.digest.encode() + (b"" if values is None else values.tobytes())).hexdigest()


def _ready(seat: Seat, session: Session, request: str, save: Callable[[list[wire.Part]], object]) -> Session:
    """Return a session at the end of the fit, or resume the same request if it was interrupted.

    A refused request fails by itself: the study is still usable.
    """
    path: Path = seat.party.folder / REQUEST
    state = session.agent.state
    number = model_checkpoint(state)
    if not number:
        raise StudyFileError(f"{seat.party.folder}: expected a finished fit, got none; run vpem join first")
    if state.failure is None and path.exists() and path.read_text() == request:
        return session
    seen, state = state.progress.seen, state.copy()
    state.requests, state.failure = {}, None
    *kept, last = (point for point in state.checkpoints if point.number <= number)
    # `seen` outlives requests: it records which rows were summed before, and with how many parties.
    state.progress = replace(last.progress, prediction=None, seen=seen)
    state.checkpoints = (*kept, replace(last, progress=state.progress))
    agent: Agent = session.agent.restored(state)
    save(wire.StateEncoder().parts(lasting(state)))  # before the file that marks it as this request's
    with replacing(path) as unfinished:
        unfinished.write_text(request)
    return Session(agent, save_parts=save)
