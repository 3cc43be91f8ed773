"""Rounds that several sums have, and how far agents that follow them can be apart."""

from __future__ import annotations

from collections.abc import Sequence

from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Round


def flood_rounds(network: Network, position: Position, n_rounds: int) -> list[Round[Position]]:
    """Rounds in which neighbours tell each other a decision."""
    neighbours = network.neighbours[position]
    return n_rounds * [Round("flood", neighbours, neighbours, False, True)]


def term_rounds(network: Network, position: Position) -> list[Round[Position]]:
    """Rounds in which roots' terms go down the trees of their hubs."""
    path, found = network.paths[position], []
    for passed in range(network.depth):
        below = tuple(network.below(position, 1)) if len(path) - 1 == passed else ()
        above = (path[-2],) if len(path) - 2 == passed else ()
        found.append(Round("terms", below, above, True, False))
    return found


def can_have_sent(
    schedules: Sequence[Sequence[Round[Position]]], sender: Position, step: int, waiting: Position, at: int
) -> bool:
    """Whether an agent can have come as far as a step while another one still waits in its own.

    Nothing holds an agent up in a round that may miss messages.

    Parameters
    ----------
    schedules : sequence
        Each agent's rounds, by position.
    sender : int
    step : int
        In which the sender is thought to be.
    waiting : int
    at : int
        The step in which it waits; it has sent what it sends there.
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
