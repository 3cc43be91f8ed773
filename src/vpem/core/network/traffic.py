"""What a run sends: messages, bytes and rounds, per agent and in all.

Counted are whole messages as the wire format has them: numbers of 8 bytes, and a header and a checksum for each. What
a transport wraps around them (TCP, TLS) comes on top.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FLOAT_BYTES = 8

OVERHEAD_BYTES = 68
"""Of every message, beside its contents: a header of 64 bytes and a checksum of 4; see `vpem.transports.wire`."""


class Sending(NamedTuple):
    """Messages from one agent to another, by number; their contents' bytes."""

    sender: int
    receiver: int
    messages: int
    bytes: int


class AgentTraffic(NamedTuple):
    """One agent's share of the traffic."""

    messages_sent: int
    bytes_sent: int
    messages_received: int
    bytes_received: int


@dataclass(frozen=True, eq=False)
class Traffic:
    """Messages and bytes by agent, and rounds one after another; traffics add up, and repeat by `*`."""

    agents: tuple[Hashable, ...]
    table: NDArray[np.int64]
    """(n_agents, 4): the fields of `AgentTraffic`."""
    rounds: int
    """Exchanges between neighbours that must follow each other: what latency is paid for."""

    @property
    def messages(self) -> int:
        """Messages sent by all agents; a relayed message counts at every hop."""
        return int(self.table[:, 0].sum())

    @property
    def bytes(self) -> int:
        """Bytes sent by all agents."""
        return int(self.table[:, 1].sum())

    @property
    def per_agent(self) -> dict[Hashable, AgentTraffic]:
        """Each agent's share, by name; a star has one agent more, the server."""
        return {agent: AgentTraffic(*row) for agent, row in zip(self.agents, self.table.tolist(), strict=True)}

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.agents, self.table + other.table, self.rounds + other.rounds)

    def __mul__(self, times: int) -> Traffic:
        return Traffic(self.agents, self.table * times, self.rounds * times)

    def __repr__(self) -> str:
        return f"Traffic(messages={self.messages:,}, bytes={self.bytes:,}, rounds={self.rounds:,})"


def make_traffic(agents: tuple[Hashable, ...], sendings: Iterable[Sending] = (), rounds: int = 0) -> Traffic:
    """Traffic of some sendings, headers included; without any, the zero to start adding from."""
    table = np.zeros((len(agents), len(AgentTraffic._fields)), dtype=np.int64)
    for sender, receiver, messages, contents in sendings:
        n_bytes = contents + OVERHEAD_BYTES * messages
        table[sender, :2] += messages, n_bytes
        table[receiver, 2:] += messages, n_bytes
    return Traffic(agents, table, rounds)
