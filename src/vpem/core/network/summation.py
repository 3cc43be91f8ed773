"""How a network adds its blocks' contributions, and agrees on decisions that every agent must share.

A summation is a small immutable description (`Star()`, `Consensus(rounds=100)`) that can be shared with every
party. Its matrix face, for simulations, is an `Adder`: all contributions in, all roots' results out. Its message
face, for agents, is a list of rounds: receivers, senders, how to combine. Nothing else in the
program knows how the sum comes about.

Decisions ride on the sums: every message carries a few bytes more, whose and/min/max is exact once as many
rounds have passed as the network is wide. Where a sum has fewer rounds, the decision gets the missing ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from numbers import Integral, Real
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.graph import laplacian_weights, metropolis_weights
from vpem.core.network.parties import Network
from vpem.core.network.traffic import Sending, Traffic, make_traffic

Array = NDArray[np.float64]


class Round(NamedTuple):
    """One agent's part in one round; agents by position."""

    kind: str
    """Of its messages."""
    receivers: tuple[int, ...]
    senders: tuple[int, ...]
    """In the order in which to add."""
    values: bool
    """Whether messages carry values."""
    decision: bool
    """Whether they carry a decision."""
    spared: frozenset[int] = frozenset()
    """Receivers whose messages carry no values all the same."""


class Adder(Protocol):
    """Adds one series of sums, such as those of one run of EM; may remember the last sum of every row."""

    @property
    def n_views(self) -> int:
        """How many different results there are: 1 if all roots get the same."""

    @property
    def is_exact(self) -> bool:
        """Whether there is one result, and it is the sum."""

    @property
    def path(self) -> str:
        """How it is computed, for people."""

    @property
    def view_of_hub(self) -> NDArray[np.intp]:
        """(n_hubs,): which result each hub's root gets."""

    def add(self, contributions: Array, rows: slice) -> Array:
        """Sum over the blocks, as each root gets it.

        Parameters
        ----------
        contributions : array of shape (n_hubs, ...)
        rows : slice
            Which rows of the table these are.

        Returns
        -------
        array of shape (n_views, ...)
        """

    def seen_by(self, view: int) -> Adder:
        """What one root gets."""

    def for_each_root(self) -> Adder:
        """The same sum with a view for every root."""


class Summation(Protocol):
    """How a network adds."""

    @property
    def has_server(self) -> bool:
        """Whether an agent without columns adds for all: the network is a star."""

    @property
    def is_common(self) -> bool:
        """Whether all agents get the same result of a sum, to the bit."""

    def check(self, network: Network) -> None:
        """Raise ValueError if this network cannot add this way."""

    def adder(self, network: Network) -> Adder:
        """Matrix face: a new series of sums."""

    def schedule(
        self,
        network: Network,
        position: int,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[int] | None = None,
    ) -> list[Round]:
        """Message face: one agent's rounds of a sum, a decision or both; only the audience needs the sum."""

    def begin(self, network: Network, position: int, term: Array) -> Array:
        """What a root begins a sum with."""

    def combine(
        self, network: Network, position: int, kind: str, values: Array | None, received: Mapping[int, Array]
    ) -> Array | None:
        """What an agent has after a round, from its own values (if any) and those that it got, in senders' order."""


@dataclass(frozen=True, eq=False)
class LinearAdder:
    """A sum without memory: every root's result is a fixed combination of the contributions."""

    matrix: Array
    """(n_views, n_hubs)"""
    view_of_hub: NDArray[np.intp]
    is_exact: bool = False
    modes: tuple[Array, Array] | None = None
    """(n_views, n_modes) and (n_modes, n_hubs), whose product the matrix is: the sum, and what it has beside it."""
    path: str = ""
    """How the sum is computed, for people."""

    @property
    def n_views(self) -> int:
        """Number of different results."""
        return len(self.matrix)

    def add(self, contributions: Array, rows: slice) -> Array:  # noqa: ARG002 (no memory: rows do not matter)
        """Combine; see `Adder.add`."""
        flat = contributions.reshape(len(contributions), -1)
        if self.modes is None:
            found = self.matrix @ flat
        else:
            left, right = self.modes
            found = left @ (right @ flat)
        return found.reshape(self.n_views, *contributions.shape[1:])

    def for_each_root(self) -> LinearAdder:
        """The same sum with a view for every root, where roots differ in something else."""
        every = np.arange(len(self.view_of_hub))
        return (
            self if self.n_views == len(every) else LinearAdder(self.matrix[self.view_of_hub], every, path=self.path)
        )

    def seen_by(self, view: int) -> LinearAdder:
        """One row of the matrix."""
        return LinearAdder(self.matrix[[view]], np.zeros_like(self.view_of_hub), self.is_exact)


NEGLIGIBLE = 1e-14
"""Size of a mode, per hub, that would change a sum by less than the rounding of its terms."""


def exact_adder(n_hubs: int, path: str = "the exact sum") -> LinearAdder:
    """The exact sum, the same for every root."""
    return LinearAdder(np.ones((1, n_hubs)), np.zeros(n_hubs, dtype=np.intp), is_exact=True, path=path)


def linear_adder(matrix: Array) -> LinearAdder:
    """A sum of which every root gets its own combination, (n_roots, n_hubs), by the shortest way.

    What the matrix has beside the exact sum are a few modes, which averaging has not yet made to vanish: often none
    that rounding would leave, or so few that they are cheaper than the matrix.
    """
    n_roots, n_hubs = matrix.shape
    left, sizes, right = np.linalg.svd(matrix - 1.0, full_matrices=False)
    n_modes = int((sizes > NEGLIGIBLE * n_hubs).sum())
    if n_modes == 0:
        return exact_adder(n_hubs, "the exact sum, from which the rounds differ by less than rounding")
    if 3 * n_modes < n_roots:
        ones = np.ones((n_roots, 1)), np.ones((1, n_hubs))
        modes = np.hstack([ones[0], left[:, :n_modes] * sizes[:n_modes]]), np.vstack([ones[1], right[:n_modes]])
        path = f"the exact sum and {n_modes} of {n_roots - 1} modes, as the others are below rounding"
        return LinearAdder(matrix, np.arange(n_roots), modes=modes, path=path)
    return LinearAdder(matrix, np.arange(n_roots), path=f"a matrix of {n_roots} roots by {n_hubs} hubs")


@dataclass(frozen=True)
class Star:
    """A server adds the parties' terms and returns the exact sum (Algorithm 1)."""

    has_server: ClassVar[bool] = True
    is_common: ClassVar[bool] = True

    def check(self, network: Network) -> None:
        """Raise ValueError if there is no server."""
        if network.graph is not None:
            raise ValueError(
                "expected graph='star' for the summation Star(), got a graph without a server; "
                "try graph='star', or Consensus() on this graph"
            )

    def adder(self, network: Network) -> Adder:
        """Exact sum, one view for all."""
        return exact_adder(len(network.hubs))

    def schedule(
        self,
        network: Network,
        position: int,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[int] | None = None,
    ) -> list[Round]:
        """Up to the server and down again."""
        kind, server = "sum" if values else "flood", len(network.parties)
        parties = tuple(range(server))
        if position == server:
            spared = frozenset() if audience is None else frozenset(parties) - audience
            return [Round(kind, (), parties, values, decision), Round(kind, parties, (), values, decision, spared)]
        hears = values and (audience is None or position in audience)
        return [Round(kind, (server,), (), values, decision), Round(kind, (), (server,), hears, decision)]

    def begin(self, network: Network, position: int, term: Array) -> Array:  # noqa: ARG002 (a party's own term)
        """The term as it is."""
        return term

    def combine(
        self,
        network: Network,
        position: int,
        kind: str,  # noqa: ARG002 (the receiver knows whether it is up or down)
        values: Array | None,
        received: Mapping[int, Array],
    ) -> Array | None:
        """The server adds; the parties take its sum."""
        if not received:
            return values
        if position == len(network.parties):
            return add_in_order(received.values())
        (total,) = received.values()
        return total


@dataclass(frozen=True)
class Consensus:
    """Neighbours average with each other for a fixed number of rounds (Algorithm 2, equation 6).

    The agents of a hub start from `N Q / |H|`, so that the average is the sum over hubs. What a root gets
    differs from the exact sum, and from root to root, by a factor of about `rho ** rounds` of the spread
    (`rho = vpem.core.network.graph.contraction(W)`).

    Parameters
    ----------
    rounds : int, default=100
    weights : {"metropolis", "laplacian"}, default="metropolis"
        Metropolis weights, or `I - alpha L`.
    alpha : float, optional
        For "laplacian": in (0, 2 / lambda_max); by default the fastest constant.
    """

    rounds: int = 100
    weights: str = "metropolis"
    alpha: float | None = None
    has_server: ClassVar[bool] = False
    is_common: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.rounds, Integral) or isinstance(self.rounds, bool) or self.rounds < 1:
            raise ValueError(f"expected rounds to be a whole number, 1 or more, got {self.rounds!r}")
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
        if network.graph is None:
            raise ValueError(
                "expected a graph with links between the parties for Consensus, got a star, whose server adds "
                "exactly; try graph='ring', 'complete', 'path' or a networkx.Graph, or leave summation=None"
            )
        if self.alpha is not None:
            self.mixing_matrix(network)

    def mixing_matrix(self, network: Network) -> Array:
        """One round's weights W; (n_agents, n_agents)."""
        if self.weights == "metropolis":
            return metropolis_weights(network.graph)
        return laplacian_weights(network.graph, self.alpha)

    def adder(self, network: Network) -> Adder:
        """All rounds at once: `W ** rounds`, of which a root needs its own row, summed over each hub's members."""
        n_agents = len(network.parties)
        averaging = np.linalg.matrix_power(self.mixing_matrix(network), int(self.rounds))
        roots = [hub.root for hub in network.hubs]
        matrix = np.column_stack(
            [
                averaging[np.ix_(roots, hub.members)].sum(axis=1) * (n_agents / len(hub.members))
                for hub in network.hubs
            ]
        )
        return linear_adder(matrix)

    def schedule(
        self,
        network: Network,
        position: int,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[int] | None = None,  # noqa: ARG002 (who takes part sees the sum)
    ) -> list[Round]:
        """Down the hub's tree, then as many rounds of averaging as agreed, then what the decision still lacks."""
        neighbours, found = network.neighbours[position], []
        if not neighbours:
            return []
        n_rounds = 0
        if values:
            path, n_rounds = network.paths[position], int(self.rounds)
            for passed in range(network.depth):
                below = tuple(network.below(position, 1)) if len(path) - 1 == passed else ()
                above = (path[-2],) if len(path) - 2 == passed else ()
                found.append(Round("terms", below, above, True, False))
            found += n_rounds * [Round("sum", neighbours, neighbours, True, decision)]
        if decision:
            found += max(0, network.diameter - n_rounds) * [Round("flood", neighbours, neighbours, False, True)]
        return found

    def begin(self, network: Network, position: int, term: Array) -> Array:
        """The hub's term, so that the average over its members and all others is the sum over hubs."""
        return term * (len(network.parties) / len(network.hub(position).members))

    def combine(
        self, network: Network, position: int, kind: str, values: Array | None, received: Mapping[int, Array]
    ) -> Array | None:
        """The root's terms as they are; averages by the agent's own row of weights."""
        if not received:
            return values
        if kind == "terms":
            (term,) = received.values()
            return term
        assert values is not None, "averaging begins when everybody has a term"
        weights = _mixing_matrix(self, network)[position]
        return add_in_order([weights[position] * values, *(weights[peer] * own for peer, own in received.items())])


@lru_cache(maxsize=8)
def _mixing_matrix(consensus: Consensus, network: Network) -> Array:
    return consensus.mixing_matrix(network)


def add_in_order(terms: Iterable[Array]) -> Array:
    """Sum from the first to the last, so that all orders of arrival give the same bits."""
    first, *others = terms
    total = first.copy()
    for term in others:
        total += term
    return total


def sum_traffic(summation: Summation, network: Network, value_bytes: int, decision_bytes: int) -> Traffic:
    """Traffic of one sum of `value_bytes` per agent, on which a decision rides; from the agents' schedules."""
    return _schedule_traffic(summation, network, value_bytes, decision_bytes, values=True)


def flood_traffic(summation: Summation, network: Network, decision_bytes: int) -> Traffic:
    """Traffic of a decision that has no sum to ride on."""
    return _schedule_traffic(summation, network, 0, decision_bytes, values=False)


def _schedule_traffic(
    summation: Summation, network: Network, value_bytes: int, decision_bytes: int, *, values: bool
) -> Traffic:
    sendings, n_rounds = [], 0
    for sender in range(len(network.agents)):
        schedule = summation.schedule(network, sender, values=values, decision=decision_bytes > 0)
        n_rounds = max(n_rounds, len(schedule))
        for _, group in groupby(schedule, key=id):  # many rounds are one and the same
            part, *others = group
            times = 1 + len(others)
            for receiver in part.receivers:
                n_bytes = value_bytes * (part.values and receiver not in part.spared) + decision_bytes * part.decision
                sendings.append(Sending(sender, receiver, times, times * n_bytes))
    return make_traffic(network.agents, sendings, n_rounds)
