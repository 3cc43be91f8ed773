"""Where to draw the agents of a network."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MANY_AGENTS = 60
"""Above this a faster layout is used."""


def place_agents(graph: nx.Graph, agents: Sequence[Hashable], given: Any = None) -> Array:
    """Places from the attribute `pos`, where the nodes have it; else from the links.

    Parameters
    ----------
    graph : networkx.Graph
        Its nodes are the agents.
    agents : sequence
    given : networkx.Graph, optional
        Another graph whose `pos` will do, with the agents' names or 0, 1, ... as nodes; anything else is ignored.

    Returns
    -------
    array of shape (n_agents, 2)
        From 0 to 1 in the larger direction, from 0 to less in the other.
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
    """Circles where the links allow it; wider than high."""
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
    if len(agents) > 2 and spreads[0] < 1.2 * spreads[1]:  # as wide as high: no way to turn it is better
        return places
    turned: Array = places @ axes.T
    return turned
