"""The exact sum of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Array, Memory, Place, Round, Summation, add_in_order
from vpem.core.network.tree import SpanningTree


@dataclass(frozen=True)
class Star(Summation):
    """A server adds the parties' terms and returns the exact sum (Algorithm 1)."""

    @property
    def has_server(self) -> bool:
        """It adds."""
        return True

    @property
    def is_common(self) -> bool:
        """The server tells all the same."""
        return True

    def tree(self, network: Network) -> SpanningTree:
        """The server on top of all parties."""
        found: SpanningTree = network.remember(Star, _under_the_server)
        return found

    def check(self, network: Network) -> None:
        """Raise ValueError if there is no server."""
        if not network.is_star:
            raise ValueError(
                f"expected graph='star' for the summation {type(self).__name__}(), got a graph without a server; "
                "try graph='star', or Tree() on this graph"
            )

    def schedule(
        self,
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[Position] | None = None,
    ) -> list[Round[Position]]:
        """Up to the server and down again."""
        kind, server, parties = "sum" if values else "flood", network.server, network.positions[:-1]
        if position == server:
            spared = frozenset() if audience is None else frozenset(parties) - audience
            return [Round(kind, (), parties, values, decision), Round(kind, parties, (), values, decision, spared)]
        hears = values and (audience is None or position in audience)
        return [Round(kind, (server,), (), values, decision), Round(kind, (), (server,), hears, decision)]

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:  # noqa: ARG002 (every sum by itself)
        """The term as it is; a server has none."""
        return {} if term is None else {"values": term}

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:  # noqa: ARG002 (up or down, it is the same)
        """The server adds; the parties take its sum."""
        first = next(iter(received.values()))
        return {"values": add_in_order(received.values()) if place.position == place.network.server else first}

    def matrix(self, network: Network) -> Array:
        """All terms count once, for everybody."""
        return np.ones((1, len(network.hubs)))


@dataclass(frozen=True)
class ExactSum(Star):
    """The sum of terms that are in one place already, whatever the network: nothing is sent."""

    @property
    def has_server(self) -> bool:
        """None is needed."""
        return False

    def check(self, network: Network) -> None:
        """Any network will do."""

    def schedule(self, *_: Any, **__: Any) -> list[Round[Position]]:
        """No rounds."""
        return []


def _under_the_server(network: Network) -> SpanningTree:
    parties, server = network.positions[:-1], network.server
    below = {**dict.fromkeys(parties, ()), server: tuple(parties)}
    levels = {**dict.fromkeys(parties, 1), server: 0}
    return SpanningTree(server, dict.fromkeys(parties, server), below, levels, 1)
