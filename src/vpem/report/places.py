"""Layout of the agents of a network."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MANY_AGENTS = 60
"""Number of agents above which a faster layout is used."""


def place_agents(graph: nx.Graph, agents: Sequence[Hashable], given: Any = None) -> Array:
    """Return the agents' places: the attribute `pos` if all nodes have it, else a layout of the graph.

    Parameters
    ----------
    graph : networkx.Graph
        Graph whose nodes are the agents.
    agents : sequence
    given : networkx.Graph, optional
        Graph whose `pos` is used if `graph` has none, with the agents' names or 0, 1, ... as nodes. Other types are
        ignored.

    Returns
    -------
    array of shape (n_agents, 2)
        Scaled to [0, 1] along the longer axis, with the same scale along the other.
    """
    known = nx.get_node_attributes(graph, "pos")
    if isinstance(given, nx.Graph) and not known:
        known = nx.get_node_attributes(given, "pos")
        if set(known) != set(agents) and set(known) == set(range(len(agents))):
            known = {agent: known[number] for number, agent in enumerate(agents)}
    if set(known) == set(agents):
        places = np.array([known[agent][:2] for agent in agents], dtype=np.float64)
    else:
        places = _layout(graph, agents)
    places -= places.min(axis=0)
    return places / (places.max() or 1.0)


def _layout(graph: nx.Graph, agents: Sequence[Hashable]) -> Array:
    """Compute a layout: a star as a circle, other graphs by their links; turned to be wider than high."""
    centre = max(graph, key=graph.degree)
    if len(agents) > 2 and graph.number_of_edges() == graph.degree(centre) == len(agents) - 1:  # a star
        found = nx.circular_layout([agent for agent in agents if agent != centre])
        found[centre] = np.zeros(2)
    elif len(agents) > MANY_AGENTS:
        found = nx.spring_layout(graph, seed=0)
    else:
        found = nx.kamada_kawai_layout(graph)
    places = np.array([found[agent] for agent in agents], dtype=np.float64)
    places -= places.mean(axis=0)
    _, spreads, axes = np.linalg.svd(places)
    if len(agents) > 2 and spreads[0] < 1.2 * spreads[1]:  # about as wide as high, so turning does not help
        return places
    turned: Array = places @ axes.T
    return turned
