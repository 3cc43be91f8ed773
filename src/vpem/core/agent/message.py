"""Messages between agents, and protocol errors."""

from __future__ import annotations

from typing import Any, NamedTuple, NewType

import msgspec
import numpy as np
from numpy.typing import NDArray

from vpem.core.network.sums import DTYPES
from vpem.core.network.traffic import OVERHEAD_BYTES

AgentNumber = NewType("AgentNumber", int)
"""Number of an agent in the study. It stays the same when others leave; the position in the network may change."""

EPOCH_BITS = 32
"""Rounds of an epoch are numbered from `epoch << EPOCH_BITS`, so that no round number is used twice."""

KINDS = ("meet", "columns", "terms", "sum", "flood", "stop", "labels")
"""Kinds of messages, in this order: records of a meeting; columns on their way to a root; a root's terms on their way
to its leaves; values to be added; a decision alone; the reason for which an agent ended the study; labels of rows,
for a start."""

NO_DECISION: NDArray[np.float64] = np.empty(0)
NO_VALUES: NDArray[np.float64] = np.empty(0)


MAGIC, VERSION = b"vpem", 4
"""First bytes of a message on the wire."""
TAGGED_BYTES, TAG_BYTES = 48, 16
"""Length of the header on the wire without the tag, and of the tag that follows it."""


class Message(NamedTuple):
    """One message over one link. Its arrays must not change after it was sent."""

    epoch: int
    """Epoch, which increases when agents meet again, for example after a loss."""
    round: int
    """Round, which increases with every exchange between neighbours and is never reset."""
    sender: AgentNumber
    receiver: AgentNumber
    kind: str
    """One of `KINDS`."""
    values: NDArray[Any]
    """Shape (n_values,), with one of `vpem.core.network.sums.DTYPES`; bytes in "meet" and "stop"."""
    decision: NDArray[np.float64] = NO_DECISION
    """Shape (n_decisions,): the network finds the minimum over all agents, entry by entry."""
    tag: bytes = b""
    """Authentication tag; see `vpem.core.network.summation.Summation.tag`."""

    def parts(self) -> tuple[bytes, memoryview, memoryview]:
        """Return header, values and decision as they are on the wire; the tag covers these bytes."""
        header = header_of(self)
        codes = KINDS.index(header.kind), DTYPES.index(header.dtype)
        fields = msgspec.msgpack.encode((*header[:4], *codes, header.n_values, header.n_decisions))
        start = MAGIC + bytes([VERSION, len(fields)]) + fields
        return start.ljust(TAGGED_BYTES, b"\0"), little(self.values).data, little(self.decision).data

    @property
    def n_bytes(self) -> int:
        """Length of the message on the wire, in bytes."""
        return OVERHEAD_BYTES + self.values.nbytes + self.decision.nbytes


class Frame(NamedTuple):
    """Bytes to send to one neighbour."""

    receiver: int
    content: bytes


class Header(NamedTuple):
    """Header of a message, which is read before its contents."""

    epoch: int
    round: int
    sender: AgentNumber
    receiver: AgentNumber
    kind: str
    dtype: str
    """Type of the values."""
    n_values: int
    n_decisions: int


def little(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in the memory layout in which it is sent or saved."""
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))


def header_of(message: Message) -> Header:
    """Return the header that a message has on the wire."""
    epoch, number, sender, receiver, kind, values, decision, _ = message
    dtype = values.dtype.kind + str(values.dtype.itemsize)
    return Header(epoch, number, sender, receiver, kind, dtype, len(values), len(decision))


class ProtocolError(Exception):
    """Violation of the protocol between agents; the state of the agent that raises it is unchanged.

    Parameters
    ----------
    agent : int
        Agent that raises it.
    peer : int or None
        Other agent that the error concerns.
    round : int
        Current round of the agent.
    problem : str
    """

    def __init__(self, agent: int, peer: int | None, round: int, problem: str):  # noqa: A002 (its name everywhere)
        self.agent, self.peer, self.round = agent, peer, round
        where = f"agent {agent}, {show_round(round)}"
        super().__init__(f"{where}: {problem}" if peer is None else f"{where}, peer {peer}: {problem}")


class LocalProtocolError(ProtocolError):
    """Our own mistake: an event that is invalid in the current state of this agent."""


class RemoteProtocolError(ProtocolError):
    """The peer's mistake: a message that it must not send. Treat the peer as lost."""


class StaleMessageError(RemoteProtocolError):
    """A message of a round that is over, or a duplicate: harmless, drop it."""


def show_round(number: int) -> str:
    """Return a readable name of a round."""
    epoch, count = number >> EPOCH_BITS, number & ((1 << EPOCH_BITS) - 1)
    return f"round {count}" + (f" of epoch {epoch}" if epoch else "")
