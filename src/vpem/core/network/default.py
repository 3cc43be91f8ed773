"""How a network adds where nothing was chosen."""

from __future__ import annotations

from vpem.core.network.parties import Network
from vpem.core.network.star import Star
from vpem.core.network.tree import Tree


def default_summation(network: Network) -> Star | Tree:
    """The exact sum: of the server on a star, of a spanning tree on other graphs."""
    return Star() if network.is_star else Tree()
