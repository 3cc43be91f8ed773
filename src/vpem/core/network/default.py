"""Default summation of a network, and summations by name."""

from __future__ import annotations

from typing import Literal

from vpem.core.network.consensus import Consensus
from vpem.core.network.differences import Differences
from vpem.core.network.parties import Network
from vpem.core.network.running import RunningSums
from vpem.core.network.star import Star
from vpem.core.network.summation import Summation
from vpem.core.network.tree import Tree

WAYS = ("exact", "differences", "consensus", "running")


def default_summation(network: Network) -> Star | Tree:
    """Return the exact sum: by the server on a star, by a spanning tree on other graphs."""
    return Star() if network.is_star else Tree()


def named_summation(way: str, rounds: int | Literal["auto"] | None = None, *, is_star: bool) -> Summation:
    """Return the summation of a name in `WAYS`; rounds are those of consensus."""
    exact = Star() if is_star else Tree()
    ways: dict[str, Summation] = {"exact": exact, "differences": Differences(exact), "consensus": Consensus(rounds)}
    return {**ways, "running": RunningSums()}[way]
