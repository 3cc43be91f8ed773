"""Traffic of a run: messages, bytes and rounds, per agent and in total.

Bytes are those of whole messages in the wire format: numbers of 8 bytes, a header and a checksum. The overhead of a
transport (TCP, TLS) is not included.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FLOAT_BYTES = 8

OVERHEAD_BYTES = 68
"""Bytes of every message in addition to its contents: a header of 64 and a checksum of 4; see
`vpem.transports.wire`."""


class Sending(NamedTuple):
    """Number of messages from one agent to another, and the bytes of their contents."""

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
    """Messages and bytes by agent, and number of rounds; supports `+`, and `*` by a number of repetitions."""

    agents: tuple[Hashable, ...]
    table: NDArray[np.int64]
    """Shape (n_agents, 4): the fields of `AgentTraffic`."""
    rounds: int
    """Number of sequential exchanges between neighbours, each of which takes one latency."""

    @property
    def messages(self) -> int:
        """Number of messages sent by all agents; a relayed message counts at every hop."""
        return int(self.table[:, 0].sum())

    @property
    def bytes(self) -> int:
        """Number of bytes sent by all agents."""
        return int(self.table[:, 1].sum())

    @property
    def per_agent(self) -> dict[Hashable, AgentTraffic]:
        """Traffic of each agent by name, including the server of a star."""
        return {agent: AgentTraffic(*row) for agent, row in zip(self.agents, self.table.tolist(), strict=True)}

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.agents, self.table + other.table, self.rounds + other.rounds)

    def __mul__(self, times: int) -> Traffic:
        return Traffic(self.agents, self.table * times, self.rounds * times)

    def __repr__(self) -> str:
        return f"Traffic(messages={self.messages:,}, bytes={self.bytes:,}, rounds={self.rounds:,})"


def make_traffic(agents: tuple[Hashable, ...], sendings: Iterable[Sending] = (), rounds: int = 0) -> Traffic:
    """Return the traffic of some sendings, including headers; zero without any."""
    table = np.zeros((len(agents), len(AgentTraffic._fields)), dtype=np.int64)
    for sender, receiver, messages, contents in sendings:
        n_bytes = contents + OVERHEAD_BYTES * messages
        table[sender, :2] += messages, n_bytes
        table[receiver, 2:] += messages, n_bytes
    return Traffic(agents, table, rounds)
