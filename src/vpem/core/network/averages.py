"""Helpers shared by the summations that average between neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.hubs import Hub
from vpem.core.network.parties import Network

Array = NDArray[np.float64]


def check_links(network: Network, name: str) -> None:
    """Raise ValueError if parties have no links, over which the summation of this name could average."""
    if network.is_star:
        raise ValueError(
            f"expected a graph with links between the parties for {name}, got a star, whose server adds exactly; "
            "try graph='ring', 'complete', 'path' or a networkx.Graph, or leave summation=None"
        )


def share(network: Network, hub: Hub) -> float:
    """Factor of a hub's term at its members, with which the average over all agents is the sum."""
    return len(network.parties) / len(hub.members)


def combinations(network: Network, averages: Array) -> Array:
    """Weights of the hubs' terms at each root, (n_roots, n_hubs), from the agents' weights, (n_agents, n_agents)."""
    roots = [hub.root for hub in network.hubs]
    return np.column_stack(
        [averages[np.ix_(roots, hub.members)].sum(axis=1) * share(network, hub) for hub in network.hubs]
    )
