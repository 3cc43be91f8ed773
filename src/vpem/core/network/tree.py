"""Exact sums on a spanning tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.graph import hop_distances
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation, add_in_order
from vpem.core.network.sums import Array, Audience, Memory, Place, Round


class SpanningTree(NamedTuple):
    """A shallow tree that every agent computes from the same links."""

    top: Position
    above: dict[Position, Position]
    """Parent of each agent except the root."""
    below: dict[Position, tuple[Position, ...]]
    """Children of each agent, in ascending order."""
    levels: dict[Position, int]
    """Number of hops from the root."""
    depth: int


@dataclass(frozen=True)
class Tree(Summation):
    """Add terms up a spanning tree, and broadcast the exact sum down: 2 (N - 1) messages.

    The tree is grown by breadth-first search from an agent in the centre of the network: no spanning tree of the
    graph is shallower. All links must last; for links that lose messages, see `RunningSums`.
    """

    @property
    def is_common(self) -> bool:
        """True: all agents receive the sum of the root."""
        return True

    def tree(self, network: Network) -> SpanningTree:
        """Return the spanning tree of a network."""
        found: SpanningTree = network.remember(Tree, grow)
        return found

    def schedule(
        self,
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: Audience = None,  # noqa: ARG002 (the sum passes through all)
    ) -> list[Round[Position]]:
        """Send terms up, one level in each round, and the sum down; a decision takes the same rounds."""
        tree = self.tree(network)
        kind, depth, level = "sum" if values else "flood", tree.depth, tree.levels[position]
        idle: Round[Position] = Round(kind, (), (), values, decision)
        rounds = 2 * depth * [idle]
        if position in tree.above:
            parent = (tree.above[position],)
            rounds[depth - level] = Round(kind, parent, (), values, decision)
            rounds[depth + level - 1] = Round(kind, (), parent, values, decision)
        if children := tree.below[position]:
            rounds[depth - level - 1] = Round(kind, (), children, values, decision)
            rounds[depth + level] = Round(kind, children, (), values, decision)
        return rounds

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:  # noqa: ARG002 (every sum by itself)
        """Start from the term; an agent without a term starts from zeros."""
        return {"values": np.zeros(place.shape.n_values) if term is None else term}

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """Add on the way up; store the received sum on the way down."""
        if step < self.tree(place.network).depth:
            return {"values": add_in_order([state["values"], *received.values()], place.pool)}
        (total,) = received.values()
        return {"values": total}

    def matrix(self, network: Network) -> Array:
        """Return one row of ones: every root gets the exact sum."""
        return np.ones((1, len(network.hubs)))


def grow(network: Network) -> SpanningTree:
    """Grow a spanning tree from the centre of the network; of several centres, from that of the lowest position."""
    import networkx as nx

    farthest = hop_distances(network.links).max(axis=1)
    middle = min(zip(farthest.tolist(), network.links, strict=True))[1]
    above = {child: parent for parent, child in nx.bfs_edges(network.links, middle, sort_neighbors=sorted)}
    below: dict[Position, list[Position]] = {position: [] for position in network.positions}
    for child, parent in sorted(above.items()):
        below[parent].append(child)
    levels = nx.single_source_shortest_path_length(network.links, middle)
    children = {parent: tuple(own) for parent, own in below.items()}
    return SpanningTree(middle, above, children, levels, max(levels.values()))
