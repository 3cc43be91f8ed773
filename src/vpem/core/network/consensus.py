"""The approximate sum of neighbours that average with each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy

from vpem.core.network.graph import contraction, laplacian_weights, metropolis_weights
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Array, Memory, Place, Round, Summation, flood_rounds

NEGLIGIBLE_ERROR = 1e-6
"""Share of the spread of the terms that a sum may be wrong by, where no rounds are given."""

SMALLEST_CONTRACTION = 1e-9
"""Below it, one round averages to rounding, as on a complete graph."""


@dataclass(frozen=True)
class Consensus(Summation):
    """Neighbours average with each other for some rounds (Algorithm 2, equation 6).

    The agents of a hub start from `N Q / |H|`, so that the average is the sum over hubs. What a root gets
    differs from the exact sum, and from root to root, by a factor of about `rho ** rounds` of the spread
    (`rho = vpem.core.network.graph.contraction(W)`).

    Parameters
    ----------
    rounds : int or None, default=None
        None: as many as the graph needs for an error factor of 1e-6, and at least its diameter. The number follows
        from the links, so that every agent finds the same one.
    weights : {"metropolis", "laplacian"}, default="metropolis"
        Metropolis weights, or `I - alpha L`.
    alpha : float, optional
        For "laplacian": in (0, 2 / lambda_max); by default the fastest constant.
    """

    rounds: int | None = None
    weights: str = "metropolis"
    alpha: float | None = None

    def __post_init__(self) -> None:
        rounds = self.rounds
        if rounds is not None and (not isinstance(rounds, Integral) or isinstance(rounds, bool) or rounds < 1):
            raise ValueError(f"expected rounds to be None or a whole number, 1 or more, got {rounds!r}")
        if self.weights not in ("metropolis", "laplacian"):
            raise ValueError(f"expected weights 'metropolis' or 'laplacian', got {self.weights!r}")
        if self.alpha is not None and self.weights != "laplacian":
            raise ValueError(
                f"expected no alpha with weights='metropolis', got {self.alpha}; try weights='laplacian'"
            )
        if self.alpha is not None and not (isinstance(self.alpha, Real) and 0 < float(self.alpha) < math.inf):
            raise ValueError(f"expected alpha to be None or a positive number, got {self.alpha!r}")

    def check(self, network: Network) -> None:
        """Raise ValueError if there are no links between parties, or alpha does not average over them."""
        if network.is_star:
            raise ValueError(
                "expected a graph with links between the parties for Consensus, got a star, whose server adds "
                "exactly; try graph='ring', 'complete', 'path' or a networkx.Graph, or leave summation=None"
            )
        if self.alpha is not None:
            self.mixing_matrix(network)

    def mixing_matrix(self, network: Network) -> Array:
        """One round's weights W; (n_agents, n_agents)."""
        if self.weights == "metropolis":
            return metropolis_weights(network.links)
        return laplacian_weights(network.links, self.alpha)

    def n_rounds(self, network: Network) -> int:
        """Rounds of averaging in one sum: as given, or as many as the graph needs."""
        if self.rounds is not None:
            return int(self.rounds)
        return max(network.diameter, self.rounds_needed(network, NEGLIGIBLE_ERROR))

    def error_factor(self, network: Network) -> float:
        """`rho ** rounds`; see `Summation`."""
        return self._contraction(network) ** self.n_rounds(network)

    def rounds_needed(self, network: Network, tolerance: float) -> int:
        """Rounds after which the error factor is at most `tolerance`."""
        rho = self._contraction(network)
        if rho <= tolerance:
            return 1
        # A little less than a whole number is that number: processors differ in the last digits of rho.
        return math.ceil(math.log(tolerance) / math.log(rho) - 1e-6)

    def _contraction(self, network: Network) -> float:
        """Factor by which one round shrinks what is left; (n_agents, n_agents) eigenvalues, found once."""

        def find(network: Network) -> float:
            rho = contraction(self.mixing_matrix(network))
            return rho if rho > SMALLEST_CONTRACTION else 0.0

        key = "contraction", self.weights, self.alpha
        return float(network.remember(key, find))

    def schedule(
        self,
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[Position] | None = None,  # noqa: ARG002 (who takes part sees the sum)
    ) -> list[Round[Position]]:
        """Down the hub's tree, then as many rounds of averaging as agreed, then what the decision still lacks."""
        neighbours = network.neighbours[position]
        found: list[Round[Position]] = []
        if not neighbours:
            return []
        n_rounds = 0
        if values:
            path, n_rounds = network.paths[position], self.n_rounds(network)
            for passed in range(network.depth):
                below = tuple(network.below(position, 1)) if len(path) - 1 == passed else ()
                above = (path[-2],) if len(path) - 2 == passed else ()
                found.append(Round("terms", below, above, True, False))
            found += n_rounds * [Round("sum", neighbours, neighbours, True, decision)]
        return found + (flood_rounds(network, position, max(0, network.diameter - n_rounds)) if decision else [])

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:  # noqa: ARG002 (every sum by itself)
        """The hub's term, so that the average over its members and all others is the sum over hubs."""
        if term is None:
            return {}
        network = place.network
        return {"values": term * (len(network.parties) / len(network.hub(place.position).members))}

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """The root's terms as they are; averages by the agent's own row of weights."""
        if step < place.network.depth:
            (term,) = received.values()
            return {"values": term}
        weights = place.network.remember(self, self.mixing_matrix)[place.position]
        total = weights[place.position] * state["values"]
        for peer, theirs in received.items():
            daxpy(theirs, total, a=weights[peer])  # in place, and in one pass
        return {"values": total}

    def matrix(self, network: Network) -> Array:
        """All rounds at once: `W ** rounds`, of which a root needs its own row, summed over each hub's members."""
        n_agents = len(network.parties)
        averaging = np.linalg.matrix_power(self.mixing_matrix(network), self.n_rounds(network))
        roots = [hub.root for hub in network.hubs]
        return np.column_stack(
            [
                averaging[np.ix_(roots, hub.members)].sum(axis=1) * (n_agents / len(hub.members))
                for hub in network.hubs
            ]
        )
