"""Rounds shared by several summations, and the possible lead of one agent over another."""

from __future__ import annotations

from collections.abc import Sequence

from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.sums import Round


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
