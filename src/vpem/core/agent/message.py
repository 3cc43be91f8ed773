"""What agents send each other, and what can be wrong with it."""

from __future__ import annotations

from typing import Any, NamedTuple, NewType

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.traffic import OVERHEAD_BYTES

AgentNumber = NewType("AgentNumber", int)
"""An agent's number in the study, which it keeps when others go; its position in the network may change."""

EPOCH_BITS = 32
"""An epoch's rounds are numbered from `epoch << EPOCH_BITS`: no round number ever comes twice."""

KINDS = ("meet", "columns", "terms", "sum", "flood", "stop", "labels")
"""Who is there; columns on their way to a root; a root's terms on their way to its leaves; values to be added; a
decision by itself; the reason why an agent cannot go on; labels of rows, for a start."""

NO_DECISION: NDArray[np.float64] = np.empty(0)
NO_VALUES: NDArray[np.float64] = np.empty(0)


class Message(NamedTuple):
    """One message over one link. Its arrays are not changed once it has been sent."""

    epoch: int
    """Grows when agents have to meet again after a loss."""
    round: int
    """Grows with every exchange between neighbours, and never starts again."""
    sender: AgentNumber
    receiver: AgentNumber
    kind: str
    """One of `KINDS`."""
    values: NDArray[Any]
    """(n_values,): of one of `vpem.core.network.summation.DTYPES`; bytes in "meet" and "stop"."""
    decision: NDArray[np.float64] = NO_DECISION
    """(n_decisions,): the smallest of all agents' values counts, entry by entry."""
    tag: bytes = b""
    """By which the receiver knows that nothing was changed; see `vpem.core.network.summation.Summation.tag`."""

    @property
    def n_bytes(self) -> int:
        """Length on the wire."""
        return OVERHEAD_BYTES + self.values.nbytes + self.decision.nbytes


class Header(NamedTuple):
    """What a message says of itself, before its contents are read."""

    epoch: int
    round: int
    sender: AgentNumber
    receiver: AgentNumber
    kind: str
    dtype: str
    """Of the values."""
    n_values: int
    n_decisions: int


def header_of(message: Message) -> Header:
    """The header that a message has on the wire."""
    epoch, number, sender, receiver, kind, values, decision, _ = message
    dtype = values.dtype.kind + str(values.dtype.itemsize)
    return Header(epoch, number, sender, receiver, kind, dtype, len(values), len(decision))


class ProtocolError(Exception):
    """Something that must not happen between agents; nothing has changed at the agent that raises it.

    Parameters
    ----------
    agent : int
        Who raises it.
    peer : int or None
        The other agent that the error is about.
    round : int
        In which the agent is.
    problem : str
    """

    def __init__(self, agent: int, peer: int | None, round: int, problem: str):  # noqa: A002 (its name everywhere)
        self.agent, self.peer, self.round = agent, peer, round
        where = f"agent {agent}, {show_round(round)}"
        super().__init__(f"{where}: {problem}" if peer is None else f"{where}, peer {peer}: {problem}")


class LocalProtocolError(ProtocolError):
    """Our own mistake: an event that this agent cannot have now."""


class RemoteProtocolError(ProtocolError):
    """The peer's mistake: a message that it must not send. Treat the peer as lost."""


class StaleMessageError(RemoteProtocolError):
    """A message of a round that is over, or one that is here already: harmless, drop it."""


def show_round(number: int) -> str:
    """A round's number for people."""
    epoch, count = number >> EPOCH_BITS, number & ((1 << EPOCH_BITS) - 1)
    return f"round {count}" + (f" of epoch {epoch}" if epoch else "")
