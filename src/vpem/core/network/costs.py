"""Cost of one sum or decision, from the agents' rounds: traffic, and the load of the busiest line in each round."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.network.traffic import FLOAT_BYTES, OVERHEAD_BYTES, Traffic, make_traffic

Integers = NDArray[np.int64]


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
