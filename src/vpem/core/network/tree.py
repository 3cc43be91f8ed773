"""The exact sum of a spanning tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.graph import hop_distances
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Array, Memory, Place, Round, Summation, add_in_order


class SpanningTree(NamedTuple):
    """A shallow tree that every agent finds by itself from the same links."""

    top: Position
    above: dict[Position, Position]
    """Each agent's parent; the root has none."""
    below: dict[Position, tuple[Position, ...]]
    """Each agent's children, in ascending order."""
    levels: dict[Position, int]
    """Hops from the root."""
    depth: int


@dataclass(frozen=True)
class Tree(Summation):
    """Terms go up a spanning tree, which adds them, and the exact sum comes down again: 2 (N - 1) messages.

    The tree is grown from an agent in the middle of the network, hop by hop: no tree of the graph is shallower. All
    links must last; for links that lose messages, see `RunningSums`.
    """

    @property
    def is_common(self) -> bool:
        """The sum comes down from one agent."""
        return True

    def tree(self, network: Network) -> SpanningTree:
        """The tree that sums take."""
        found: SpanningTree = network.remember(Tree, grow)
        return found

    def schedule(
        self,
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[Position] | None = None,  # noqa: ARG002 (the sum passes through all)
    ) -> list[Round[Position]]:
        """Up, one level in each round, and down again; a decision takes the same way."""
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
        """The term; an agent without one adds nothing to what comes from below."""
        return {"values": np.zeros(place.shape.n_values) if term is None else term}

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """On the way up, add; on the way down, take the sum."""
        if step < self.tree(place.network).depth:
            return {"values": add_in_order([state["values"], *received.values()])}
        (total,) = received.values()
        return {"values": total}

    def matrix(self, network: Network) -> Array:
        """All terms count once, for everybody."""
        return np.ones((1, len(network.hubs)))


def grow(network: Network) -> SpanningTree:
    """A spanning tree from the middle of the network; of several middles, the agent of the lowest position."""
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
