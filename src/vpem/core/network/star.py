"""Exact sums at a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation, add_in_order
from vpem.core.network.sums import Array, Audience, Memory, Place, Round
from vpem.core.network.tree import SpanningTree


@dataclass(frozen=True)
class Star(Summation):
    """Add the parties' terms at a server, which returns the exact sum (Algorithm 1)."""

    @property
    def has_server(self) -> bool:
        """True: the server adds."""
        return True

    @property
    def is_common(self) -> bool:
        """True: the server sends the same sum to all parties."""
        return True

    def tree(self, network: Network) -> SpanningTree:
        """Return the tree whose root is the server."""
        found: SpanningTree = network.remember(Star, _under_the_server)
        return found

    def check(self, network: Network) -> None:
        """Raise ValueError if the network has no server."""
        if not network.is_star:
            raise ValueError(
                f"expected graph='star' for the summation {type(self).__name__}(), got a graph without a server; "
                "try graph='star', or Tree() on this graph"
            )

    def schedule(
        self, network: Network, position: Position, *, values: bool, decision: bool, audience: Audience = None
    ) -> list[Round[Position]]:
        """Send terms to the server, and the sum back to the parties."""
        kind, server, parties = "sum" if values else "flood", network.server, network.positions[:-1]
        if position == server:
            spared = frozenset() if audience is None else frozenset(parties) - audience
            return [Round(kind, (), parties, values, decision), Round(kind, parties, (), values, decision, spared)]
        hears = values and (audience is None or position in audience)
        return [Round(kind, (server,), (), values, decision), Round(kind, (), (server,), hears, decision)]

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:  # noqa: ARG002 (every sum by itself)
        """Start from the term; the server has none."""
        return {} if term is None else {"values": term}

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:  # noqa: ARG002 (up or down, it is the same)
        """Add at the server; store its sum at the parties."""
        if place.position == place.network.server:
            return {"values": add_in_order(received.values(), place.pool)}
        (total,) = received.values()
        return {"values": total}

    def matrix(self, network: Network) -> Array:
        """Return one row of ones: every root gets the exact sum."""
        return np.ones((1, len(network.hubs)))


@dataclass(frozen=True)
class ExactSum(Star):
    """Add terms that are already in one place, on any network; nothing is sent."""

    @property
    def has_server(self) -> bool:
        """False: no server is needed."""
        return False

    def check(self, network: Network) -> None:
        """Accept any network."""

    def schedule(self, *_: Any, **__: Any) -> list[Round[Position]]:
        """Return no rounds."""
        return []


def _under_the_server(network: Network) -> SpanningTree:
    parties, server = network.positions[:-1], network.server
    below = {**dict.fromkeys(parties, ()), server: tuple(parties)}
    levels = {**dict.fromkeys(parties, 1), server: 0}
    return SpanningTree(server, dict.fromkeys(parties, server), below, levels, 1)
