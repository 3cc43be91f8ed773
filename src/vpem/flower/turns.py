"""Star on a platform that only lets its server ask questions: a party answers each one in a separate process.

This module is independent of the platform: questions and answers are records of bytes. A question carries the
server's frames for a party. The answer carries the party's frames, and the platform stores the party's whole state
until the next question. The first question is sent to all nodes: it opens the meeting, and asks each node for its
identity. After it, each sum of a star is one question to all parties: the question carries the total of the last sum,
and the answers carry the terms of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from vpem.core.agent.message import Frame
from vpem.transports.datagrams import Hello, mismatch
from vpem.transports.session import AnySession

MOST_REPEATS = 10
"""Maximum number of repeats of a question that arrived before the platform had stored the state of the last one."""


class Question(msgspec.Struct, frozen=True):
    """Question of the server to a node."""

    number: int
    """Number of the question in this run. 0 opens the run: a party resumes from its last checkpoint, or starts."""
    frames: dict[int, list[bytes]]
    """Frames by party. The first question has those for all parties, as the party of each node is not yet known."""
    purpose: str = "fit"
    """Step of the study: "fit", or "match" before it."""


class Answer(msgspec.Struct, frozen=True):
    """Answer of a node to the server."""

    frames: list[bytes] = []
    hello: Hello | None = None
    """Identity of the party, and the fields that all parties must share; only in the first answer."""
    matched: str | None = None
    """Digest of the rows that an earlier matching has found; only in the first answer of a matching."""
    is_done: bool = False
    is_early: bool = False
    """True if the party does not have its state after the last question yet, and must be asked again."""
    failure: str | None = None
    """Reason why the study cannot continue, or None."""


class Stopped(RuntimeError):  # noqa: N818 (it need not be an error)
    """Raised if a run ends before its study is done; the next run resumes the study."""


class Failed(Stopped):
    """Raised if the agents have found that the study cannot continue."""


class Opened(NamedTuple):
    """Run whose parties are known."""

    node_of: Mapping[int, int]
    """Node of each party."""
    answers: Mapping[int, Answer]
    """First answers, by party."""


Ask = Callable[[Mapping[int, Question]], Mapping[int, Answer]]
"""Function that sends questions, by node, and returns the answers of all these nodes."""
Record = TypeVar("Record", Question, Answer)


def pack(record: Question | Answer) -> bytes:
    """Encode a record as bytes."""
    return msgspec.msgpack.encode(record)


def unpack(content: bytes | memoryview, kind: type[Record]) -> Record:
    """Inverse of `pack`; raise ValueError if the bytes are not such a record."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"expected {kind.__name__.lower()}s of this version of vpem, got other bytes ({error}); update the older"
        ) from None


def answer(session: AnySession, server: int, question: Question) -> Answer:
    """Pass the frames of a question to a party's session, and return the answer."""
    found: list[Frame] = []
    if question.number == 0:
        found += session.start() + session.connect(server)
    for content in question.frames.get(session.number, ()):
        found += session.receive(server, content)
    if server in session.losses:
        return Answer(failure=f"the server sent what it must not: {session.losses[server]}")
    return Answer([frame.content for frame in found], is_done=session.is_done, failure=session.failure)


def find_parties(own: Hello, answers: Mapping[int, Answer], names: Mapping[int, str]) -> dict[int, int]:
    """Return the node of each party; raise Stopped with all problems if nodes do not match each other or the study.

    Parameters
    ----------
    own : Hello
        Hello of the server.
    answers : mapping
        First answers, by node. A node that is not a party, and reports the reason, is ignored if no party is missing.
    names : mapping
        Names of the parties, by number.
    """
    problems, found, hellos = list[str](), dict[int, int](), list[Hello]()
    for node, given in answers.items():
        hello = given.hello
        if hello is None:
            continue
        if names.get(hello.number) != hello.name:
            problems.append(f"expected a party of the study ({', '.join(names.values())}), got {hello.name!r}")
        elif hello.number in found:
            problems.append(f"expected one node of {hello.name}, got two; each party has one")
        problems += [text for other in [own, *hellos] if (text := mismatch(other, hello)) is not None]
        hellos.append(hello)
        found.setdefault(hello.number, node)
    missing = [name for number, name in names.items() if number not in found]
    if missing:
        said = [given.failure for given in answers.values() if given.hello is None and given.failure is not None]
        problems += [f"expected a node of each party, got none of {', '.join(missing)}", *said]
    if problems:
        raise Stopped("; ".join(dict.fromkeys(problems)))
    return found


def open_run(session: AnySession, own: Hello, names: Mapping[int, str], nodes: Iterable[int], ask: Ask) -> Opened:
    """Ask all nodes for their identity, and start the sessions of the parties and the server.

    Parameters
    ----------
    session : AnySession
        Session of the server, which has not started.
    own : Hello
        Hello of the server.
    names : mapping
        Names of the parties, by number.
    nodes : iterable of int
        Nodes that include those of the parties.
    ask : callable

    Raises
    ------
    Stopped
        If a party is missing, or has a different study or different rows.
    """
    found = session.start()
    for party in session.neighbours:
        found += session.connect(party)
    opening = Question(0, _by_party(found), own.purpose)
    answers = _ask(ask, dict.fromkeys(nodes, opening))
    node_of = find_parties(own, answers, names)
    return Opened(node_of, {party: answers[node] for party, node in node_of.items()})


def drive(
    session: AnySession,
    opened: Opened,
    names: Mapping[int, str],
    ask: Ask,
    *,
    purpose: str = "fit",
    watch: Callable[[int, Mapping[int, Answer]], object] = lambda _, __: None,
) -> int:
    """Run the server's session until it and all parties are done; return the number of questions.

    Parameters
    ----------
    session, names, ask :
        As for `open_run`.
    opened : Opened
    purpose : str
    watch : callable
        Called after each question with its number and the parties' answers.

    Raises
    ------
    Stopped
        If a party does not continue. Failed if a party's agent, or the server's, has found that the study cannot.
    """
    node_of, given = opened
    number, done = 0, set[int]()
    while True:
        found = _take(session, given, names)
        done |= {party for party, one in given.items() if one.is_done}
        watch(number, given)
        number += 1
        frames = _by_party(found)
        if not frames:
            if len(done) == len(node_of) and session.is_done:
                return number
            raise Stopped("all agents wait for each other; run it again to go on from the last checkpoints")
        done -= frames.keys()
        questions = {node_of[party]: Question(number, {party: some}, purpose) for party, some in frames.items()}
        answers = _ask(ask, questions)
        given = {party: answers[node_of[party]] for party in frames}


def _by_party(found: Iterable[Frame]) -> dict[int, list[bytes]]:
    frames: dict[int, list[bytes]] = {}
    for frame in found:
        frames.setdefault(frame.receiver, []).append(frame.content)
    return frames


def _ask(ask: Ask, questions: Mapping[int, Question]) -> Mapping[int, Answer]:
    """Return all answers; repeat the question to a party that was asked too early."""
    answers = dict(ask(questions))
    for _ in range(MOST_REPEATS):
        again = {node: questions[node] for node, given in answers.items() if given.is_early}
        if not again:
            return answers
        answers |= ask(again)
    raise Stopped(
        "a party has lost its state, as its node was started again during the run; run it again to go on from the "
        "last checkpoints"
    )


def _take(session: AnySession, given: Mapping[int, Answer], names: Mapping[int, str]) -> list[Frame]:
    """Pass the parties' frames to the server's session; raise Stopped if the study cannot continue."""
    found: list[Frame] = []
    for party, one in sorted(given.items()):
        for content in one.frames:
            if party in session.connected:
                found += session.receive(party, content)
        if party in session.losses:
            raise Stopped(f"{names[party]} sent what it must not: {session.losses[party]}")
    if session.failure is not None:
        raise Failed(session.failure)
    for party, one in sorted(given.items()):
        if one.failure is not None:
            raise Stopped(f"{names[party]}: {one.failure}")
    return found
