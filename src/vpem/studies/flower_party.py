"""A party of a study on Flower, without Flower itself: what it does with a question.

Every question comes to a party in a new process. What it must know from the last one is kept by the platform, in the
memory of the party's node. Where the study has certificates, it is sealed under the party's own key.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from vpem.core.network.parties import SERVER
from vpem.files import replacing
from vpem.privacy.pausing import pause, resume
from vpem.privacy.sealing import SealError, close_box, open_box
from vpem.studies.fields import StudyFileError
from vpem.studies.folder import Belongs, Checkpoints, open_folder
from vpem.studies.joining import LOG, restore
from vpem.studies.ledger import Ledger
from vpem.studies.local import find_files
from vpem.studies.matching import MatchSession, load_matched, make_matching, save_matched
from vpem.studies.private import PartyFile, read_party
from vpem.studies.results import finish
from vpem.studies.seats import Seat, take_seat
from vpem.studies.shared import Study
from vpem.studies.shared_file import read_study
from vpem.studies.telling import Journal, Lines, Note
from vpem.transports.datagrams import Hello
from vpem.transports.flower import Answer, Question, Stopped, answer, pack, unpack
from vpem.transports.outcomes import progress_of
from vpem.transports.session import Session

Config = Mapping[str, Any]
"""Of a run, or of a node: texts and numbers."""
MATCH, FIT = "match", "fit"
ASKED = "asked.json"
"""Which questions were answered last, of the last runs."""
MOST_RUNS = 99


class Kept(msgspec.Struct, frozen=True):
    """What the platform keeps for a party between two questions."""

    purpose: str
    number: int
    """Of the last question."""
    digests: Mapping[str, str]
    """Of the study and the table."""
    sent: int
    received: int
    """Bytes so far."""
    session: bytes


def read_config(config: Config) -> Study:
    """The study of a run."""
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
    """Whether parties sign what they tell of themselves; links are the platform's affair."""
    return study.is_masked or study.match != "same" or any(one.fingerprint is not None for one in study.members)


def find_party(study: Study, node: Config, config: Config) -> PartyFile | None:
    """Which party a node is, by its own config, or in a simulation by its number; None if it is none."""
    if "party" in node:
        return read_party(str(node["party"]), study, has_table="table" not in node)
    number = node.get("partition-id")
    if number is None or not config.get("folder") or int(number) >= len(study.parties):
        return None
    return find_files(study, Path(str(config["folder"])))[study.names[int(number)]]


def own_study(study: Study, node: Config) -> Study:
    """The party's own copy of a run's study; StudyFileError if they differ: a run must choose no sum, and no keys."""
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
    """A question as it has come to a party."""

    study: Study
    party: PartyFile
    question: Question
    run: str
    """Names the run on its platform."""
    kept: bytes | None
    """What the last question has left."""
    table: str | None = None
    """In place of the one that the party's file names."""


def take_question(config: Config, node: Config, run: str, content: bytes, kept: bytes | None) -> tuple[bytes, bytes]:
    """A node's answer to a question, as bytes, and what is to be kept until the next one; raises nothing.

    What went wrong stays with the party, as it may name its files or values: the server only hears that it did.

    Parameters
    ----------
    config : mapping
        Of the run.
    node : mapping
        Of the node: `party`, the path of the party's own file; `study`, that of its copy of the study, which the run
        must have too; `table`, in place of the file's.
    run : str
        Names the run on its platform.
    content : bytes
        The question.
    kept : bytes, optional
        What the last question has left.
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
        sys.stderr.write(f"{name} cannot take part: {error}\n")
        if not isinstance(error, ValueError | OSError | ImportError):
            traceback.print_exc()
        said = f"{name} cannot take part ({type(error).__name__}); the output of its SuperNode says why"
        return pack(Answer(failure=said)), kept or b""
    return pack(given), left or b""


def answer_question(asked: Asked) -> tuple[Answer, bytes | None]:
    """A party's answer, and what is to be kept until the next question."""
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
    question, ledger = asked.question, Ledger(seat.study.names)
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
        # What was saved stays in memory: the session is soon paused, and all of it handed out.
        session = Session.resume(seat.agent(), before.session, save_parts=lambda parts: bool(checkpoints.save(parts)))
    session.note = ledger.note
    _answer_once(asked, seat)
    try:
        given = answer(session, seat.study.number(SERVER), question)
    finally:
        for problem in ledger.write(seat.party.folder, FIT):
            journal.tell(Note(problem))
    sent, received = _traffic(before, question, given, seat.number)
    tell_progress(session, journal, sent, received)
    if given.is_done:
        assert seat.local is not None, "a party"
        finish(seat.study, session.agent, seat.local, seat.party.folder, sent, received)
        journal.tell(Note(f"done; results are in {seat.party.folder}"))
    if question.number == 0:
        given = msgspec.structs.replace(given, hello=seat.hello())
    kept = Kept(FIT, question.number, seat.digests, sent, received, session.pause())
    return given, _close(asked, seat, kept)


def _match(asked: Asked, seat: Seat, journal: Journal) -> tuple[Answer, bytes | None]:
    """One step of finding the common rows."""
    question, ledger, unmatched = asked.question, Ledger(seat.study.names), seat.unmatched
    if unmatched is None:
        raise Stopped("there is nothing to match in this study")
    before = _find_kept(asked, seat)
    matching = make_matching(seat.study, seat.number, unmatched, seat.credentials)
    if question.number > 0:
        if before is None:
            return Answer(is_early=True), asked.kept
        resume(matching, before.session)
    _answer_once(asked, seat)
    session: Any = MatchSession(matching, ledger)
    try:
        given = answer(session, seat.study.number(SERVER), question)
    finally:
        for problem in ledger.write(seat.party.folder, MATCH):
            journal.tell(Note(problem))
    if given.is_done:
        save_matched(seat.party.folder, seat.study, unmatched, matching.matched)
    if question.number == 0:
        found = load_matched(seat.party.folder, seat.study, unmatched)
        given = msgspec.structs.replace(
            given, hello=hello_of_match(seat), matched=None if found is None else found.digest
        )
    sent, received = _traffic(before, question, given, seat.number)
    return given, _close(asked, seat, Kept(MATCH, question.number, seat.digests, sent, received, pause(matching)))


def hello_of_match(seat: Seat) -> Hello:
    """What an agent says of itself before rows are matched."""
    return msgspec.structs.replace(seat.hello(MATCH), rows=None, order=None)


def _traffic(before: Kept | None, question: Question, given: Answer, number: int) -> tuple[int, int]:
    """Bytes sent and received so far, with this question and its answer."""
    sent, received = (0, 0) if before is None else (before.sent, before.received)
    return sent + sum(map(len, given.frames)), received + sum(map(len, question.frames.get(number, ())))


def _find_kept(asked: Asked, seat: Seat) -> Kept | None:
    """What the last question of this run has left; None if it is not there, or not yet.

    Raises
    ------
    Stopped
        If it is of another table, or if this question, or a later one, was answered before.
    """
    question = asked.question
    if question.number == 0 or not asked.kept:
        return None
    content = asked.kept
    if seat.credentials is not None:
        try:
            content = open_box(seat.credentials.secret(b"state"), asked.run.encode(), asked.kept)
        except SealError:  # of another run, which this one has not followed yet
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
    """Write down that a question will be answered; Stopped if it has been, or a later one.

    What the platform keeps could come back older than it was; two answers from one state might show more than one.
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


def tell_progress(session: Session, journal: Journal, sent: int, received: int) -> None:
    """Say how far an agent is."""
    journal.tell(progress_of(session.agent, sent, received))
