"""Rounds and weights shared by several summations, and the possible lead of one agent over another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpem.core.network.hubs import Hub, Position
from vpem.core.network.parties import Network
from vpem.core.network.sums import Array, Round


def flood_rounds(network: Network, position: Position, n_rounds: int) -> list[Round[Position]]:
    """Rounds in which neighbours exchange a decision."""
    neighbours = network.neighbours[position]
    return n_rounds * [Round("flood", neighbours, neighbours, False, True)]


def term_rounds(network: Network, position: Position) -> list[Round[Position]]:
    """Rounds in which roots send their terms down the trees of their hubs."""
    path, found = network.paths[position], []
    for passed in range(network.depth):
        below = tuple(network.below(position, 1)) if len(path) - 1 == passed else ()
        above = (path[-2],) if len(path) - 2 == passed else ()
        found.append(Round("terms", below, above, True, False))
    return found


def can_have_sent(
    schedules: Sequence[Sequence[Round[Position]]], sender: Position, step: int, waiting: Position, at: int
) -> bool:
    """True if an agent can have reached a step while another one still waits in its own.

    An agent never waits in a round that may miss messages.

    Parameters
    ----------
    schedules : sequence
        Rounds of each agent, by position.
    sender : int
    step : int
        Step that the sender is assumed to have reached.
    waiting : int
    at : int
        Step in which this agent waits; it has already sent its messages of that step.
    """
    here = set(range(len(schedules)))
    for now in range(step):
        sending = here if now <= at else here - {waiting}
        parts = {agent: schedules[agent][now] for agent in here}
        done = {agent for agent, part in parts.items() if part.may_miss or sending.issuperset(part.senders)}
        here = done if now < at else done - {waiting}
        if sender not in here:
            return False
    return True


def check_links(network: Network, name: str) -> None:
    """Raise ValueError if parties have no links, over which the summation of this name could average."""
    if network.is_star:
        raise ValueError(
            f"expected a graph with links between the parties for {name}, got a star, whose server adds exactly; "
            "try graph='ring', 'complete', 'path' or a networkx.Graph, or leave summation=None"
        )


def share(network: Network, hub: Hub) -> float:
    """Factor of a hub's term at its members, with which the average over all agents is the sum."""
    return len(network.parties) / len(hub.members)


def combinations(network: Network, averages: Array) -> Array:
    """Weights of the hubs' terms at each root, (n_roots, n_hubs), from the agents' weights, (n_agents, n_agents)."""
    roots = [hub.root for hub in network.hubs]
    return np.column_stack(
        [averages[np.ix_(roots, hub.members)].sum(axis=1) * share(network, hub) for hub in network.hubs]
    )
