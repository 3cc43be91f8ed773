"""One round of an exchange: the messages that an agent sends, and how it combines those that it received.

`send` and `take` do not depend on the algorithm: they handle records, columns, sums and decisions.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.agent import meeting
from vpem.core.agent.agent_state import AgentState, Exchange
from vpem.core.agent.identity import Identity
from vpem.core.agent.meeting import MOST_AGENTS, Record
from vpem.core.agent.message import NO_DECISION, NO_VALUES, AgentNumber, Message, RemoteProtocolError
from vpem.core.network.hubs import Position
from vpem.core.network.summation import outgoing
from vpem.core.network.sums import Memory, Round, WrongMessageError
from vpem.core.script.state import Array


@contextmanager
def blaming(identity: Identity, state: AgentState) -> Iterator[None]:
    """Convert a summation's error about a message or a greeting into a protocol error that names the sender."""
    try:
        yield
    except WrongMessageError as error:
        peer = identity.roles(state).numbers[error.sender]
        raise RemoteProtocolError(identity.number, peer, state.round, str(error)) from None


def send(identity: Identity, state: AgentState, now: Round[AgentNumber]) -> list[Message]:
    """Return the messages of a round."""
    exchange = state.exchange
    assert exchange is not None, "a round belongs to an exchange"
    values: NDArray[Any] = NO_VALUES
    if now.kind == "meet":
        values = meeting.encode_records(state.records[number] for number in state.learnt)
    elif now.receivers and now.kind == "columns":
        values = np.hstack([exchange.pieces[origin] for origin in sorted(exchange.pieces)]).ravel()
    elif now.receivers and now.values:
        with blaming(identity, state):
            summation, place = identity.summation(state), identity.place(state)
            values = outgoing(summation, place, exchange.step, now.kind, exchange.state)
    values.flags.writeable = False
    decision = exchange.decision if now.decision and exchange.decision is not None else NO_DECISION
    where = state.epoch, state.round, identity.number
    messages = [
        Message(*where, receiver, now.kind, NO_VALUES if receiver in now.spared else values, decision)
        for receiver in now.receivers
    ]
    if not identity.agreement.summation.has_tags:
        return messages
    return [message._replace(tag=_tag(identity, state, message, message.receiver)) for message in messages]


def _tag(identity: Identity, state: AgentState, message: Message, peer: AgentNumber) -> bytes:
    """Return the authentication tag of a message on the link with a peer."""
    if message.kind == "meet":  # keys are not known yet
        return b""
    summation = identity.agreement.summation
    with blaming(identity, state):
        return summation.tag(identity.place(state), identity.roles(state).position_of[peer], message.parts())


def _check_tags(identity: Identity, state: AgentState, messages: list[Message]) -> None:
    """Raise RemoteProtocolError if a tag is wrong: the message was altered, or sent for another round or agent."""
    for message in messages:
        if not hmac.compare_digest(message.tag, _tag(identity, state, message, message.sender)):
            raise RemoteProtocolError(
                identity.number,
                message.sender,
                state.round,
                "expected a message that its sender has written for this round, got one that was altered, or was "
                "written for another",
            )


def take(identity: Identity, draft: AgentState, now: Round[AgentNumber], arrived: Mapping[int, Message]) -> None:
    """End a round: combine the messages in the order of the round's senders, without those reported missing."""
    exchange = draft.exchange
    assert exchange is not None, "a round belongs to an exchange"
    messages = [arrived[sender] for sender in now.senders if sender in arrived]
    if now.kind != "meet" and identity.agreement.summation.has_tags:
        _check_tags(identity, draft, messages)
    changed: dict[str, Any] = {}
    if now.kind == "meet":
        _learn(identity, draft, messages)
    elif now.kind == "columns":
        changed = {"pieces": _collect(identity, draft, exchange, messages)}
    else:
        memory, decision = _combine(identity, draft, exchange, now, messages)
        changed = {"state": memory, "decision": decision}
    draft.exchange = exchange._replace(step=exchange.step + 1, sent=False, **changed)
    draft.mailbox = {number: box for number, box in draft.mailbox.items() if number != draft.round}
    draft.missing = {number: peers for number, peers in draft.missing.items() if number != draft.round}
    draft.round += 1


def _learn(identity: Identity, draft: AgentState, messages: list[Message]) -> None:
    """Add the records of agents that were unknown, after checking them."""
    new: dict[int, Record] = {}
    for message in messages:

        def error(problem: str, peer: int = message.sender) -> RemoteProtocolError:
            return RemoteProtocolError(identity.number, peer, draft.round, problem)

        if message.kind != "meet":  # an early message, valid only in a later exchange
            raise error(f"expected 'meet', got {message.kind!r}")
        try:
            found = meeting.decode_records(message.values)
        except ValueError as cause:
            raise error(f"expected records of agents, got bytes that are none ({cause})") from None
        for record in found:
            known = new.get(record.number) or draft.records.get(record.number)
            if known is None:
                try:
                    if identity.credentials is not None:
                        content = meeting.signed_content(record, draft.epoch, identity.credentials.study)
                        identity.credentials.verify(record.name, content, record.proof)
                except ValueError as cause:
                    raise error(
                        f"expected {record.name!r} to have signed its record, got another ({cause})"
                    ) from None
                new[record.number] = record
                if draft.records.keys().isdisjoint(record.neighbours) or len(new) > MOST_AGENTS:
                    raise error(f"expected records of neighbours of those who are known, got one of {record.name!r}")
            elif known != record:
                raise error(f"expected one record of agent {record.number}, got two that differ")
    draft.records, draft.learnt = {**draft.records, **new}, tuple(sorted(new))


def _collect(
    identity: Identity, draft: AgentState, exchange: Exchange, messages: list[Message]
) -> dict[Position, Array]:
    """Return the columns to hold after a round: all so far at a root, only those to pass on at other agents."""
    context = identity.context(draft)
    pieces: dict[Position, Array] = {}
    widths = [len(columns) for columns in context.roles.network.columns]
    for message in messages:
        origins = context.roles.network.below(context.roles.position_of[message.sender], exchange.step)
        ends = np.cumsum([widths[origin] for origin in origins])
        table = message.values.reshape(-1, ends[-1])
        pieces |= dict(zip(origins, np.split(table, ends[:-1], axis=1), strict=True))
    return {**exchange.pieces, **pieces} if context.is_root else pieces


def _combine(
    identity: Identity, draft: AgentState, exchange: Exchange, now: Round[AgentNumber], messages: list[Message]
) -> tuple[Memory, Array | None]:
    """Combine values by the summation, and decisions by their minimum."""
    memory, decision = exchange.state, exchange.decision
    if now.values and now.senders:
        roles = identity.roles(draft)
        received = {roles.position_of[message.sender]: message.values for message in messages}
        with blaming(identity, draft):
            memory = identity.summation(draft).combine(identity.place(draft), exchange.step, memory, received)
    if now.decision and decision is not None and messages:
        decision = np.minimum.reduce([decision, *(message.decision for message in messages)])
    return memory, decision
