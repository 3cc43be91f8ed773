"""A star on a platform that only lets its server ask: every party answers each question in a process of its own.

No platform here: questions and answers are records of bytes. A question brings a party the frames that the server has
for it; the answer has those that the party sends back, and its whole state goes to where the platform keeps it until
the next question. One sum of a star is one question to all parties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from vpem.transports.datagrams import Hello, mismatch
from vpem.transports.session import Frame, Session


class Question(msgspec.Struct, frozen=True):
    """What the server sends to one party."""

    frames: list[bytes]
    begins: bool = False
    """Whether this is the first one of a run: the party goes on from its last checkpoint, or begins."""


class Answer(msgspec.Struct, frozen=True):
    """What a party sends back."""

    frames: list[bytes]
    is_done: bool = False
    failure: str | None = None
    """Why the study cannot go on, if it cannot."""


class Stopped(RuntimeError):  # noqa: N818 (it need not be an error)
    """A run that has ended before its study was done."""


Record = TypeVar("Record", Question, Answer, Hello)


def pack(record: Question | Answer | Hello) -> bytes:
    """A record as bytes."""
    return msgspec.msgpack.encode(record)


def unpack(content: bytes, kind: type[Record]) -> Record:
    """Inverse of `pack`; ValueError for bytes that are no such record."""
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(
            f"expected a {kind.__name__.lower()} of this version of vpem, got other bytes ({error})"
        ) from None


def answer(session: Session, server: int, question: Question) -> Answer:
    """Let a party's session take what the server has sent."""
    found: list[Frame] = []
    if question.begins:
        found += session.start() + session.connect(server)
    for frame in question.frames:
        found += session.receive(server, frame)
    if server in session.losses:
        return Answer([], failure=f"the server sent what it must not: {session.losses[server]}")
    agent = session.agent
    return Answer([frame.content for frame in found], agent.is_done, agent.failure)


def check_hellos(own: Hello, hellos: Mapping[str, Hello], names: Mapping[int, str]) -> dict[int, str]:
    """Which node is which party; ValueError, all problems at once, if they do not fit each other or the study."""
    problems, found = [], dict[int, str]()
    for node, hello in hellos.items():
        if names.get(hello.number) != hello.name:
            problems.append(f"expected a party of the study ({', '.join(names.values())}), got {hello.name!r}")
        elif hello.number in found:
            problems.append(f"expected one node of {hello.name}, got two; each party has one")
        found.setdefault(hello.number, node)
    missing = [name for number, name in names.items() if number not in found]
    if missing:
        problems.append(f"expected a node of each party, got none of {', '.join(missing)}")
    others = list(hellos.values())
    for place, hello in enumerate(others):
        texts = (mismatch(other, hello) for other in [own, *others[:place]])
        problems += [text for text in texts if text is not None]
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return found


def drive(
    session: Session,
    ask: Callable[[dict[int, Question]], dict[int, Answer]],
    watch: Callable[[int], object] = lambda _: None,
) -> int:
    """Run the server's session until it and all parties are done; returns how many questions that took.

    Parameters
    ----------
    session : Session
        One that has not started.
    ask : callable
        Sends each party its question, and returns all answers.
    watch : callable
        Called after each question with its number.

    Raises
    ------
    Stopped
        If a party's agent, or the server's, has found that the study cannot go on.
    """
    parties = session.agent.neighbours
    found = session.start()
    for party in parties:
        found += session.connect(party)
    done: set[int] = set()
    number = 0
    while len(done) < len(parties) or not session.agent.is_done:
        questions = {
            party: Question([frame.content for frame in found if frame.receiver == party], number == 0)
            for party in parties
            if number == 0 or any(frame.receiver == party for frame in found)
        }
        if not questions:
            raise Stopped("all parties wait for each other; run it again to go on from the last checkpoints")
        answers, found = ask(questions), []
        number += 1
        for party, given in sorted(answers.items()):
            if given.failure is not None:
                raise Stopped(given.failure)
            if given.is_done:
                done.add(party)
            for frame in given.frames:
                found += session.receive(party, frame)
            if party in session.losses:
                raise Stopped(f"{session.agent.name}: agent {party} sent what it must not: {session.losses[party]}")
        if session.agent.failure is not None:
            raise Stopped(session.agent.failure)
        watch(number)
    return number
