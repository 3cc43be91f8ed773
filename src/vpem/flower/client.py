"""A party of a study on Flower, which answers the server's questions; this module does not import Flower.

A party answers every question in a new process. The platform keeps the party's state between two questions, in the
memory of the party's node. If the study has certificates, the state is sealed with the party's own key.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from vpem.core.network.parties import SERVER
from vpem.files import replacing
from vpem.flower.turns import Answer, Question, Stopped, answer, pack, unpack
from vpem.privacy.pausing import pause, resume
from vpem.privacy.sealing import SealError, close_box, open_box
from vpem.studies.fields import StudyFileError
from vpem.studies.folder import Belongs, Checkpoints, open_folder
from vpem.studies.joining import LOG, restore
from vpem.studies.ledger import noting
from vpem.studies.local_trial import find_files
from vpem.studies.match_run import load_matched, make_matching, save_matched
from vpem.studies.private import PartyFile, read_party
from vpem.studies.results import make_results, write_all
from vpem.studies.seats import Seat, matched_seat, take_seat
from vpem.studies.shared import Study
from vpem.studies.shared_file import read_study
from vpem.studies.telling import Journal, Lines, Note
from vpem.transports.datagrams import Hello
from vpem.transports.outcomes import Progress
from vpem.transports.session import Session

Config = Mapping[str, Any]
"""Config of a run or of a node: texts and numbers."""
MATCH, FIT = "match", "fit"
ASKED = "asked.json"
"""File with the number of the last answered question of each recent run."""
MOST_RUNS = 99


class Kept(msgspec.Struct, frozen=True):
    """State that the platform keeps for a party between two questions."""

    purpose: str
    number: int
    """Number of the last question."""
    digests: Mapping[str, str]
    """Digests of the study and the table."""
    sent: int
    received: int
    """Bytes received so far; `sent` counts the bytes sent."""
    session: bytes


def read_config(config: Config) -> Study:
    """Read the study of a run from its config."""
    text = config.get("study")
    if not isinstance(text, str) or not text:
        raise StudyFileError(
            f"expected the text of a study as study in the run's config, got {text!r}; vpem flower init writes it"
        )
    study = read_study(Path(str(config.get("folder") or ".")) / "study.toml", text)
    if study.server is None:
        raise StudyFileError(f'expected links = "star" for a study on Flower, got {study.shape!r}')
    return study


def needs_keys(study: Study) -> bool:
    """True if parties sign their records; the platform is responsible for the links."""
    return study.is_masked or study.match != "same" or any(one.fingerprint is not None for one in study.members)


def find_party(study: Study, node: Config, config: Config) -> PartyFile | None:
    """Return the party's file of a node, by its config or, in a simulation, by its number; None without a party."""
    if "party" in node:
        return read_party(str(node["party"]), study, has_table="table" not in node)
    number = node.get("partition-id")
    if number is None or not config.get("folder") or int(number) >= len(study.parties):
        return None
    return find_files(study, Path(str(config["folder"])))[study.names[int(number)]]


def own_study(study: Study, node: Config) -> Study:
    """Return the party's own copy of a run's study; raise StudyFileError if the two differ.

    Otherwise a run could choose the sum or the keys.
    """
    if "party" not in node:
        return study
    path = node.get("study")
    if path is None:
        raise StudyFileError(
            'expected study="..." beside party="..." in the node config, with the path of the party\'s own copy '
            "of the study, got none; without it, a run could bring any study"
        )
    own = read_study(str(path))
    if own.digest != study.digest:
        fields = own.digests.keys() | study.digests.keys()
        differing = sorted(name for name in fields if own.digests.get(name) != study.digests.get(name))
        raise StudyFileError(f"expected the study of {path}, got a run with another {', '.join(differing) or 'one'}")
    return own


@dataclass(frozen=True)
class Asked:
    """A question as a party receives it."""

    study: Study
    party: PartyFile
    question: Question
    run: str
    """Name of the run on its platform."""
    kept: bytes | None
    """State after the last question."""
    table: str | None = None
    """Path of a table that replaces the one in the party's file."""


def take_question(config: Config, node: Config, run: str, content: bytes, kept: bytes | None) -> tuple[bytes, bytes]:
    """Return a node's answer to a question, and the state to keep until the next one, both as bytes.

    Errors are not raised. The message of an error stays with the party, as it may name files or values: the server
    receives only the type of the error, or the reason of a `Stopped`.

    Parameters
    ----------
    config : mapping
        Config of the run.
    node : mapping
        Config of the node: `party`, the path of the party's own file; `study`, the path of its copy of the study,
        which must equal the run's; `table`, a path that replaces the one in the party's file.
    run : str
        Name of the run on its platform.
    content : bytes
        The question.
    kept : bytes, optional
        State after the last question.
    """
    name = "this node"
    try:
        study = own_study(read_config(config), node)
        party = find_party(study, node, config)
        if party is None:
            said = 'a node has no party="..." in its node config, with the path of a party\'s own file'
            return pack(Answer(failure=said)), kept or b""
        name = party.party
        question = unpack(content, Question)
        table = str(node["table"]) if "table" in node else None
        given, left = answer_question(Asked(study, party, question, run, kept or None, table))
    except Stopped as stopped:
        return pack(Answer(failure=str(stopped))), kept or b""
    except Exception as error:
        _show(f"{name} cannot take part", error)
        said = f"{name} cannot take part ({type(error).__name__}); the output of its SuperNode says why"
        return pack(Answer(failure=said)), kept or b""
    return pack(given), left or b""


def answer_question(asked: Asked) -> tuple[Answer, bytes | None]:
    """Return a party's answer, and the state to keep until the next question."""
    is_matching = asked.question.purpose == MATCH
    study = asked.study
    seat = take_seat(study, asked.party, asked.table, insecure=not needs_keys(study), fresh=is_matching)
    with open_folder(seat.party.folder, seat.n_bytes), Journal(seat.party.folder / LOG) as journal:
        journal.watch = Lines().tell
        if asked.question.number == 0:
            for note in seat.notes:
                journal.tell(Note(note))
        return (_match if is_matching else _fit)(asked, seat, journal)


def _fit(asked: Asked, seat: Seat, journal: Journal) -> tuple[Answer, bytes | None]:
    question = asked.question
    if seat.kept is not None and seat.unmatched is not None:  # the server knows that all parties saved it
        save_matched(seat.party.folder, seat.study, seat.unmatched, seat.kept)
        seat = matched_seat(seat, seat.kept)
    if seat.local is None:
        raise StudyFileError("expected rows that were matched before the fit, got none; run it again")
    before = _find_kept(asked, seat)
    if question.number == 0:
        session, _ = restore(seat, journal)
    elif before is None:
        return Answer(is_early=True), asked.kept
    else:
        about = Belongs(study=seat.study.name, party=seat.party.party, digests=seat.digests)
        checkpoints = Checkpoints(seat.party.folder, about)
        checkpoints.glance()
        # Saved arrays are not memory-mapped: the session is paused soon, which encodes its whole state.
        session = Session.resume(seat.agent(), before.session, save_parts=lambda parts: bool(checkpoints.save(parts)))
    _answer_once(asked, seat)
    with noting(session, seat.study, seat.party.folder, FIT, journal):
        given = answer(session, seat.study.number(SERVER), question)
    sent, received = _traffic(before, question, given, seat.number)
    journal.tell(Progress(*session.stage, sent, received))
    if given.is_done:
        _write_results(seat, session, journal, sent, received)
    if question.number == 0:
        given = msgspec.structs.replace(given, hello=seat.hello())
    kept = Kept(FIT, question.number, seat.digests, sent, received, session.pause())
    return given, _close(asked, seat, kept)


def _write_results(seat: Seat, session: Session, journal: Journal, sent: int, received: int) -> None:
    """Write the results of a finished party. An error stays with it: the others must still learn that it is done."""
    assert seat.local is not None, "a party"
    folder = seat.party.folder
    try:
        _, writers = make_results(seat.study, session.agent, seat.local, folder, sent, received)
        write_all(folder, writers)
        journal.tell(Note(f"done; results are in {folder}"))
    except Exception as error:
        journal.tell(Note(f"done, but without all results: {error}"))
        _show(f"{seat.party.party} is done, but without all results", error)


def _show(what: str, error: Exception) -> None:
    """Write an error to the output of the node; with its traceback if it is not one of the user's."""
    sys.stderr.write(f"{what}: {error}\n")
    if not isinstance(error, ValueError | OSError | ImportError):
        traceback.print_exc()


def _match(asked: Asked, seat: Seat, journal: Journal) -> tuple[Answer, bytes | None]:
    """Answer one question of the matching of rows."""
    question, unmatched = asked.question, seat.unmatched
    if unmatched is None:
        raise Stopped("there is nothing to match in this study")
    before = _find_kept(asked, seat)
    keep = partial(save_matched, seat.party.folder, seat.study, unmatched, is_final=False)
    matching = make_matching(seat.study, seat.number, unmatched, seat.credentials, save=keep)
    if question.number > 0:
        if before is None:
            return Answer(is_early=True), asked.kept
        resume(matching, before.session)
    _answer_once(asked, seat)
    with noting(matching, seat.study, seat.party.folder, MATCH, journal):
        given = answer(matching, seat.study.number(SERVER), question)
    if question.number == 0:
        found, _ = load_matched(seat.party.folder, seat.study, unmatched)
        given = msgspec.structs.replace(
            given, hello=hello_of_match(seat), matched=None if found is None else found.digest
        )
    sent, received = _traffic(before, question, given, seat.number)
    return given, _close(asked, seat, Kept(MATCH, question.number, seat.digests, sent, received, pause(matching)))


def hello_of_match(seat: Seat) -> Hello:
    """Return the greeting of an agent before rows are matched."""
    return msgspec.structs.replace(seat.hello(MATCH), rows=None, order=None)


def _traffic(before: Kept | None, question: Question, given: Answer, number: int) -> tuple[int, int]:
    """Return the bytes sent and received so far, including this question and its answer."""
    sent, received = (0, 0) if before is None else (before.sent, before.received)
    return sent + sum(map(len, given.frames)), received + sum(map(len, question.frames.get(number, ())))


def _find_kept(asked: Asked, seat: Seat) -> Kept | None:
    """Return the state after the last question of this run; None if the platform does not have it (yet).

    Raises
    ------
    Stopped
        If it belongs to another study or table, or if this question, or a later one, was answered before.
    """
    question = asked.question
    if question.number == 0 or not asked.kept:
        return None
    content = asked.kept
    if seat.credentials is not None:
        try:
            content = open_box(seat.credentials.secret(b"state"), asked.run.encode(), asked.kept)
        except SealError:  # the state of another run: this run has not stored one yet
            return None
    found = msgspec.msgpack.decode(content, type=Kept)
    if found.purpose != question.purpose or found.number < question.number - 1:
        return None
    if found.number >= question.number:
        raise Stopped(f"question {question.number} was answered before; run it again")
    if found.digests != seat.digests:
        raise Stopped("the study or the table has changed during the run; run it again with the old one")
    return found


def _answer_once(asked: Asked, seat: Seat) -> None:
    """Record that a question will be answered; raise Stopped if it, or a later one, was answered before.

    The platform could return an older state; two answers from one state might reveal more than one answer does.
    """
    path, question, before = seat.party.folder / ASKED, asked.question, list[tuple[str, str, int]]()
    if path.is_file():
        before = msgspec.json.decode(path.read_bytes(), type=list[tuple[str, str, int]])
    if any(
        (run, purpose) == (asked.run, question.purpose) and number >= question.number
        for run, purpose, number in before
    ):
        raise Stopped(f"question {question.number} was answered before; run it again")
    others = [one for one in before if one[:2] != (asked.run, question.purpose)][-MOST_RUNS:]
    with replacing(path) as unfinished:
        unfinished.write_bytes(msgspec.json.encode([*others, (asked.run, question.purpose, question.number)]))


def _close(asked: Asked, seat: Seat, kept: Kept) -> bytes:
    content = msgspec.msgpack.encode(kept)
    if seat.credentials is None:
        return content
    return close_box(seat.credentials.secret(b"state"), asked.run.encode(), content)
