"""A star on a platform that only lets its server ask: every party answers each question in a process of its own.

No platform here: questions and answers are records of bytes. A question brings a party the frames that the server has
for it; the answer has those that the party sends back, and its whole state goes to where the platform keeps it until
the next question. The first question goes to all nodes: it opens the meeting, and asks who is there. After it, one
sum of a star is one question to all parties: the total of the last sum goes down, the terms of the next come up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from vpem.transports.datagrams import Hello, mismatch
from vpem.transports.session import Frame, Session

MOST_REPEATS = 10
"""How often a question is asked again that came before the platform had kept what the last one left."""


class Question(msgspec.Struct, frozen=True):
    """What the server sends."""

    number: int
    """In this run; 0 begins it: a party goes on from its last checkpoint, or begins."""
    frames: dict[int, list[bytes]]
    """By party; in the first question those for all, as no one knows yet which node is which party."""
    purpose: str = "fit"
    """What is run: the fit, or "match" before it."""


class Answer(msgspec.Struct, frozen=True):
    """What a node sends back."""

    frames: list[bytes] = []
    hello: Hello | None = None
    """In the first answer: who it is, and what must be the same everywhere."""
    matched: str | None = None
    """In the first answer of a matching: digest of the rows that an earlier one has found."""
    is_done: bool = False
    is_early: bool = False
    """Whether the party does not have yet what the last question has left: ask again."""
    failure: str | None = None
    """Why the study cannot go on, if it cannot."""


class Stopped(RuntimeError):  # noqa: N818 (it need not be an error)
    """A run that has ended before its study was done; the next one goes on."""


class Failed(Stopped):
    """A study that cannot go on, as its agents have found."""


class Opened(NamedTuple):
    """A run whose parties are known."""

    node_of: Mapping[int, int]
    """By party."""
    answers: Mapping[int, Answer]
    """Their first ones, by party."""


Ask = Callable[[Mapping[int, Question]], Mapping[int, Answer]]
"""Sends questions, by node, and returns the answers of all of them."""
Record = TypeVar("Record", Question, Answer)


def pack(record: Question | Answer) -> bytes:
    """A record as bytes."""
    return msgspec.msgpack.encode(record)


def unpack(content: bytes | memoryview, kind: type[Record]) -> Record:
    """Inverse of `pack`; ValueError for bytes that are no such record."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"expected {kind.__name__.lower()}s of this version of vpem, got other bytes ({error}); update the older"
        ) from None


def answer(session: Session, server: int, question: Question) -> Answer:
    """Let a party's session take what the server has sent."""
    found: list[Frame] = []
    if question.number == 0:
        found += session.start() + session.connect(server)
    for content in question.frames.get(session.agent.number, ()):
        found += session.receive(server, content)
    if server in session.losses:
        return Answer(failure=f"the server sent what it must not: {session.losses[server]}")
    agent = session.agent
    return Answer([frame.content for frame in found], is_done=agent.is_done, failure=agent.failure)


def find_parties(own: Hello, answers: Mapping[int, Answer], names: Mapping[int, str]) -> dict[int, int]:
    """Which node is which party; Stopped, with all problems at once, if they do not fit each other or the study.

    Parameters
    ----------
    own : Hello
        Of the server.
    answers : mapping
        First ones, by node; a node that is no party, and says why not, is left out if no party is missing.
    names : mapping
        Of the parties, by number.
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


def open_run(session: Session, own: Hello, names: Mapping[int, str], nodes: Iterable[int], ask: Ask) -> Opened:
    """Ask all nodes who they are, and let the parties' sessions and the server's begin.

    Parameters
    ----------
    session : Session
        The server's; one that has not started.
    own : Hello
        What the server says of itself.
    names : mapping
        Of the parties, by number.
    nodes : iterable of int
        Among which the parties are.
    ask : callable

    Raises
    ------
    Stopped
        If a party is missing, or has another study or other rows.
    """
    found = session.start()
    for party in session.agent.neighbours:
        found += session.connect(party)
    opening = Question(0, _by_party(found), own.purpose)
    answers = _ask(ask, dict.fromkeys(nodes, opening))
    node_of = find_parties(own, answers, names)
    return Opened(node_of, {party: answers[node] for party, node in node_of.items()})


def drive(
    session: Session,
    opened: Opened,
    names: Mapping[int, str],
    ask: Ask,
    *,
    purpose: str = "fit",
    watch: Callable[[int, Mapping[int, Answer]], object] = lambda _, __: None,
) -> int:
    """Run the server's session until it and all parties are done; returns how many questions that took.

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
        If a party does not go on; Failed if a party's agent, or the server's, has found that the study cannot.
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
            if len(done) == len(node_of) and session.agent.is_done:
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
    """All answers; a party that was asked too early is asked again."""
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


def _take(session: Session, given: Mapping[int, Answer], names: Mapping[int, str]) -> list[Frame]:
    """Give the server's session what the parties have sent; Stopped if the study cannot go on."""
    found: list[Frame] = []
    for party, one in sorted(given.items()):
        for content in one.frames:
            if party in session.connected:
                found += session.receive(party, content)
        if party in session.losses:
            raise Stopped(f"{names[party]} sent what it must not: {session.losses[party]}")
    if session.agent.failure is not None:
        raise Failed(session.agent.failure)
    for party, one in sorted(given.items()):
        if one.failure is not None:
            raise Stopped(f"{names[party]}: {one.failure}")
    return found
