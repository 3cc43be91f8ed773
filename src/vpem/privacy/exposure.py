"""Exposure of each agent's terms to other agents, derived from the schedule that they follow.

A message contains the sum of the terms that its sender has so far: its own, and those that it has received. With
masks it is readable only when it contains all terms. An agent sees such sums, knows its own term, and can subtract
sums from each other.
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
    """One message of a sum, as its receiver sees it."""

    step: int
    sender: Position
    receiver: Position
    blocks: frozenset[Position]
    """Roots whose terms it contains."""
    readable: bool
    """True if the receiver can read the sum of these terms."""

    @property
    def form(self) -> str:
        """Readable description of the message."""
        if not self.readable:
            return MASKED
        if self.blocks == {self.sender}:
            return OWN
        return f"terms of {len(self.blocks)} parties together"


def sightings(summation: Summation, network: Network) -> Iterator[Sighting]:
    """Yield all messages with values of one sum, in the order of their rounds."""
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
    """Return a readable description of the sums on each link, from a sender to a receiver."""
    found: dict[tuple[Position, Position], list[str]] = {}
    n_blocks = len(network.hubs)
    for one in sightings(summation, network):
        form = TOTAL if one.readable and len(one.blocks) == n_blocks else one.form
        own = found.setdefault((one.sender, one.receiver), [])
        if form not in own:
            own.append(form)
    return {link: own[0] if len(own) == 1 else f"{own[0]}, then mixtures" for link, own in found.items()}


def seen_alone(summation: Summation, network: Network, observer: Position) -> list[Position]:
    """Roots whose individual terms an agent can compute from the messages of one sum.

    Each readable sum is a linear equation; a term is exposed if it follows from these equations. Averages with real
    weights count as sums.
    """
    return seen_together(summation, network, [observer])


def seen_together(summation: Summation, network: Network, observers: list[Position]) -> list[Position]:
    """Roots whose individual terms several agents can compute if they share what they see; see `seen_alone`."""
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
