"""What agents can see of each other's terms, from the schedule that they follow.

A message holds what its sender has gathered by then: its own term, and what has come to it. With masks it is readable
only when all terms are in it. What an agent sees are such sums; it knows its own term, and can subtract sums from
each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation

MASKED, TOTAL, OWN = "masked", "the total of all parties", "the sender's own terms"


class Sighting(NamedTuple):
    """One message of a sum."""

    step: int
    sender: Position
    receiver: Position
    blocks: frozenset[Position]
    """Roots whose terms are in it."""
    readable: bool
    """Whether the receiver can read their sum."""

    @property
    def form(self) -> str:
        """What it is, for people."""
        if not self.readable:
            return MASKED
        if self.blocks == {self.sender}:
            return OWN
        return f"terms of {len(self.blocks)} parties together"


def sightings(summation: Summation, network: Network) -> Iterator[Sighting]:
    """All messages with values of one sum, in the order of their rounds."""
    roots = frozenset(hub.root for hub in network.hubs)
    held = {position: frozenset({position}) & roots for position in network.positions}
    schedules = [summation.schedule(network, position, values=True, decision=False) for position in network.positions]
    for step, parts in enumerate(zip(*schedules, strict=True)):
        before = dict(held)
        for sender, part in zip(network.positions, parts, strict=True):
            for receiver in part.receivers if part.values else ():
                if receiver not in part.spared:
                    readable = not summation.is_masked or before[sender] == roots
                    yield Sighting(step, sender, receiver, before[sender], readable)
                    held[receiver] |= before[sender]


def forms(summation: Summation, network: Network) -> dict[tuple[Position, Position], str]:
    """What sums are on each link, from a sender to a receiver, for people."""
    found: dict[tuple[Position, Position], list[str]] = {}
    n_blocks = len(network.hubs)
    for one in sightings(summation, network):
        form = TOTAL if one.readable and len(one.blocks) == n_blocks else one.form
        own = found.setdefault((one.sender, one.receiver), [])
        if form not in own:
            own.append(form)
    return {link: own[0] if len(own) == 1 else f"{own[0]}, then mixtures" for link, own in found.items()}


def seen_alone(summation: Summation, network: Network, observer: Position) -> list[Position]:
    """Roots whose terms an agent can work out, each by itself, from what it sees of one sum.

    Sums are equations; a term is known if it follows from them. Averages with real weights count as sums.
    """
    return seen_together(summation, network, [observer])


def seen_together(summation: Summation, network: Network, observers: list[Position]) -> list[Position]:
    """The same for agents that tell each other what they see."""
    roots = [hub.root for hub in network.hubs]
    rows = [np.array([float(root == observer) for root in roots]) for observer in observers]
    rows += [
        np.array([float(root in one.blocks) for root in roots])
        for one in sightings(summation, network)
        if one.readable and one.receiver in observers
    ]
    known = np.array(rows)
    rank = np.linalg.matrix_rank(known)
    return [
        root
        for place, root in enumerate(roots)
        if root not in observers and np.linalg.matrix_rank(np.vstack([known, np.eye(len(roots))[place]])) == rank
    ]
