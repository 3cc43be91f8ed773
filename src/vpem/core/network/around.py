"""Sums that go around a star or a tree with other messages, and the choice between the two."""

from __future__ import annotations

from dataclasses import dataclass

from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.star import Star
from vpem.core.network.summation import Summation
from vpem.core.network.sums import Audience, Round
from vpem.core.network.tree import Tree


@dataclass(frozen=True)
class Around(Summation):
    """Base class of `Differences` and `Masked`, which become exact as EM converges."""

    around: Star | Tree

    def check_around(self, why: str) -> None:
        """Raise ValueError unless the sum goes around a star or a tree."""
        if not isinstance(self.around, Star | Tree):
            raise ValueError(
                f"expected Star() or Tree() in {type(self).__name__}, got {self.around!r}; averages {why}"
            )

    @property
    def has_server(self) -> bool:
        """True around a star."""
        return self.around.has_server

    @property
    def is_common(self) -> bool:
        """True: all agents get the same total."""
        return True

    @property
    def is_lossy(self) -> bool:
        """True: the likelihood does not follow from log-ratios."""
        return True

    def check(self, network: Network) -> None:
        """Raise ValueError as `Star` and `Tree` do."""
        self.around.check(network)

    def error_factor(self, network: Network) -> float:  # noqa: ARG002 (on all networks)
        """Return 0: the remainder of rounding is sent with the next sum."""
        return 0.0

    def schedule(
        self, network: Network, position: Position, *, values: bool, decision: bool, audience: Audience = None
    ) -> list[Round[Position]]:
        """Rounds of `Star` or `Tree`."""
        return self.around.schedule(network, position, values=values, decision=decision, audience=audience)


def default_summation(network: Network) -> Star | Tree:
    """Return the exact sum: by the server on a star, by a spanning tree on other graphs."""
    return Star() if network.is_star else Tree()
