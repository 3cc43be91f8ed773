"""Greedy h-hop clustering of agents into hubs, which pool their columns at a root."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType

import numpy as np

if TYPE_CHECKING:
    import networkx as nx

Position = NewType("Position", int)
"""Position of an agent in its network: 0, ..., N-1 for the parties, N for the server of a star."""

HubNumber = NewType("HubNumber", int)
"""Number of a hub, which is also that of its block."""


@dataclass(frozen=True)
class Hub:
    """Agents that pool their columns at one of them; with 0 hops, every agent is its own hub."""

    root: Position
    members: tuple[Position, ...]
    """All agents of the hub in ascending order, including the root."""


def find_hubs(graph: nx.Graph, hops: int, rng: np.random.Generator) -> tuple[Hub, ...]:
    """Remove the largest h-hop neighbourhood from the residual graph until no agent remains.

    Distances are those in the residual graph, as in the paper, so that data never passes through another hub.

    Parameters
    ----------
    graph : networkx.Graph
        Nodes 0, ..., N-1.
    hops : int
        Maximum number of hops over which columns are pooled, 0 or more.
    rng : numpy.random.Generator
        Generator that breaks ties. Agents that share its seed find the same hubs.

    Returns
    -------
    tuple of Hub
        Hubs in descending order of size (the order of extraction), and then by the number of their root.
    """
    residual = graph.copy()
    reach = {node: _within(residual, node, hops) for node in residual}
    hubs = []
    while reach:
        largest = max(map(len, reach.values()))
        ties = sorted(node for node, members in reach.items() if len(members) == largest)
        root = Position(int(rng.choice(ties)))
        members = reach[root]
        hubs.append(Hub(root, tuple(map(Position, sorted(members)))))
        residual.remove_nodes_from(members)
        reach = {
            node: old if old.isdisjoint(members) else _within(residual, node, hops)
            for node, old in reach.items()
            if node not in members
        }
    return tuple(sorted(hubs, key=lambda hub: (-len(hub.members), hub.root)))


def relay_paths(graph: nx.Graph, hub: Hub) -> dict[Position, list[Position]]:
    """Shortest path inside the hub from the root to each member, including both ends; agents in between are relays.

    The paths form one tree, the same for every agent that knows the graph.
    """
    import networkx as nx

    inside = graph.subgraph(hub.members)
    paths = {hub.root: [hub.root]}
    for parent, child in nx.bfs_edges(inside, hub.root, sort_neighbors=sorted):
        paths[child] = [*paths[parent], child]
    return paths


def _within(graph: nx.Graph, node: int, hops: int) -> set[int]:
    import networkx as nx

    return set(nx.single_source_shortest_path_length(graph, node, cutoff=hops))
