"""Pooling of a hub's columns at its root."""

from __future__ import annotations

from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.sums import Round
from vpem.core.network.traffic import FLOAT_BYTES, Sending, Traffic, make_traffic


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
