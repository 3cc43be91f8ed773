"""What the sums of neighbours that average with each other have in common."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.hubs import Hub
from vpem.core.network.parties import Network

Array = NDArray[np.float64]


def check_links(network: Network, name: str) -> None:
    """Raise ValueError if there are no links between parties, over which a sum of this name could average."""
    if network.is_star:
        raise ValueError(
            f"expected a graph with links between the parties for {name}, got a star, whose server adds exactly; "
            "try graph='ring', 'complete', 'path' or a networkx.Graph, or leave summation=None"
        )


def share(network: Network, hub: Hub) -> float:
    """By which a hub's members multiply its term, so that the average over all agents is the sum."""
    return len(network.parties) / len(hub.members)


def combinations(network: Network, averages: Array) -> Array:
    """What each root gets of the hubs' terms, (n_roots, n_hubs), of averages (n_agents, n_agents) over agents."""
    roots = [hub.root for hub in network.hubs]
    return np.column_stack(
        [averages[np.ix_(roots, hub.members)].sum(axis=1) * share(network, hub) for hub in network.hubs]
    )
