"""Traffic of a run (messages, bytes and rounds, per agent and in total), of one sum, and of pooled columns.

Bytes are those of whole messages in the wire format: numbers of 8 bytes, a header and a checksum. The overhead of a
transport (TCP, TLS) is not included.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.network.sums import Round

Integers = NDArray[np.int64]

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


@dataclass(frozen=True, eq=False)
class Sendings:
    """All messages of one sum or decision, without their lengths."""

    network: Network
    table: Integers
    """Shape (n, 6): sender, receiver, first round, number of rounds, 1 if with values, 1 if with a decision."""
    rounds: int

    def sizes(self, value_bytes: int | Integers, n_decisions: int) -> Integers:
        """Bytes of each message's contents, (n,), from the bytes of its values: one number for all, or (n,)."""
        found: Integers = value_bytes * self.table[:, 4] + FLOAT_BYTES * n_decisions * self.table[:, 5]
        return found

    def traffic(self, value_bytes: int | Integers, n_decisions: int) -> Traffic:
        """Traffic of all messages, from the bytes of the values in each message."""
        times, total = self.table[:, 3], make_traffic(self.network.agents, rounds=self.rounds)
        sizes = times * (OVERHEAD_BYTES + self.sizes(value_bytes, n_decisions))
        for side in (0, 1):  # senders, receivers
            np.add.at(total.table[:, 2 * side], self.table[:, side], times)
            np.add.at(total.table[:, 2 * side + 1], self.table[:, side], sizes)
        return total

    def busiest(self, value_bytes: int | Integers, n_decisions: int) -> int:
        """Bytes that the busiest agent of each round sends or receives, whichever is more, added over the rounds.

        Divided by the bandwidth, this is the transfer time if each agent has one line, which sends and receives at
        the same time.
        """
        if not len(self.table):
            return 0
        firsts, ends = self.table[:, 2], self.table[:, 2] + self.table[:, 3]
        edges = np.unique(np.concatenate([firsts, ends]))  # all rounds between two edges are equal
        begin, end = np.searchsorted(edges, firsts), np.searchsorted(edges, ends)
        row = np.repeat(np.arange(len(self.table)), end - begin)
        place = np.arange(len(row)) - np.repeat(np.cumsum(end - begin) - (end - begin), end - begin) + begin[row]
        n_bytes = OVERHEAD_BYTES + self.sizes(value_bytes, n_decisions)[row]
        most = np.zeros(len(edges), dtype=np.int64)
        for side in (0, 1):
            keys, where = np.unique(place * len(self.network.agents) + self.table[row, side], return_inverse=True)
            loads = np.zeros(len(keys), dtype=np.int64)
            np.add.at(loads, where, n_bytes)
            np.maximum.at(most, keys // len(self.network.agents), loads)
        return int((most[:-1] * np.diff(edges)).sum())


def find_sendings(
    summation: Summation, network: Network, *, values: bool, decision: bool, stage: int = 0
) -> Sendings:
    """Find all messages of a sum, a decision, or both."""
    found, n_rounds = [], 0
    for sender in network.positions:
        schedule = summation.schedule_in(stage, network, sender, values=values, decision=decision)
        n_rounds, first = max(n_rounds, len(schedule)), 0
        for _, group in groupby(schedule, key=id):  # many rounds are the same object
            part, *others = group
            times = 1 + len(others)
            found += [
                (sender, receiver, first, times, part.values and receiver not in part.spared, part.decision)
                for receiver in part.receivers
            ]
            first += times
    return Sendings(network, np.array(found, dtype=np.int64).reshape(-1, 6), n_rounds)


def column_rounds(network: Network, position: Position) -> list[Round[Position]]:
    """Rounds of a party in pooling: it sends its own columns first, then forwards those of the last round."""
    path, found = network.paths[position], []
    for passed in range(network.depth):
        above = (path[-2],) if len(path) > 1 and network.below(position, passed) else ()
        below = tuple(child for child in network.below(position, 1) if network.below(child, passed))
        found.append(Round("columns", above, below, True, False))
    return found


def n_columns_sent(network: Network, position: Position, step: int) -> int:
    """Number of columns that a party sends in a round."""
    return sum(len(network.columns[origin]) for origin in network.below(position, step))


def pooling_traffic(network: Network, n_rows: int) -> Traffic:
    """Traffic of pooling: members send their columns to the root; relays forward those of a round in one message."""
    if network.depth == 0:
        return make_traffic(network.agents)
    sendings = [
        Sending(sender, receiver, 1, FLOAT_BYTES * n_rows * n_columns_sent(network, sender, step))
        for sender in network.positions
        for step, part in enumerate(column_rounds(network, sender))
        for receiver in part.receivers
    ]
    return make_traffic(network.agents, sendings, network.depth)
