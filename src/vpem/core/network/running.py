"""The sum of neighbours that average with each other over links that lose messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.averages import check_links, combinations, share
from vpem.core.network.failures import Failures
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.rounds import flood_rounds, term_rounds
from vpem.core.network.summation import (
    NO_MEMORY,
    Array,
    Memory,
    Payload,
    Place,
    Round,
    Shape,
    Summation,
    WrongMessageError,
)

NEGLIGIBLE = 1e-10
"""Share of the spread of the terms that a sum may be wrong by, where no rounds are given."""

SMALLEST_RATE = 1e-9
"""Below it, one round averages to rounding."""

LARGEST = 1e290
"""Numbers in a message, so that no sum of them is infinite."""

MOST_ROUNDS = 2**16
"""Of a sum."""

NO_CHANCE = 1e-9
"""Chance below which it is not bad luck that nothing has come over a link."""


@dataclass(frozen=True)
class RunningSums(Summation):
    """Averages over links that lose messages, of which neither end needs to know (ratio consensus, running sums).

    An agent of hub H begins with the mass `N Q / |H|` and the weight 1. In every round it splits both equally between
    itself and its neighbours. It does not send a share, but the total of all shares so far, the same to all
    neighbours. A receiver adds what has changed since the total that it has seen last. So what a lost message should
    have brought comes with the next one, and no mass is lost for good, as it would be if shares were sent. Mass
    divided by weight tends to the sum at every agent.

    Every link must work now and then: what is sent over one that never does is lost for good. If an agent has heard
    nothing from a neighbour in a whole sum, and that is no bad luck, it ends the study, and names the neighbour.

    Only rounds with values can miss messages. Decisions follow in rounds of their own, which are small and must
    arrive: over a link that loses messages, the engine sends these again.

    Parameters
    ----------
    rounds : int, optional
        None: as many as the graph needs for an error factor of 1e-10, with an allowance for losses.
    loss : float, default=0.1
        Share of messages that may get lost, for which rounds are planned; from 0 to less than 1. If more are lost,
        sums become less exact.
    failures : Failures, optional
        Losses to simulate. Agents on links that really lose messages have none.
    """

    rounds: int | None = None
    loss: float = 0.1
    failures: Failures | None = None

    burst: ClassVar[int] = MOST_ROUNDS
    """An agent that hears nothing goes on all the same, to the end of the sum."""

    def __post_init__(self) -> None:
        rounds, loss = self.rounds, self.loss
        if rounds is not None and (
            not isinstance(rounds, Integral) or isinstance(rounds, bool) or not 1 <= rounds <= MOST_ROUNDS
        ):
            raise ValueError(f"expected rounds to be None or a whole number, 1 to {MOST_ROUNDS}, got {rounds!r}")
        if not isinstance(loss, Real) or isinstance(loss, bool) or not 0 <= loss < 1:
            raise ValueError(f"expected loss, a share of messages, from 0 to less than 1, got {loss!r}")
        if self.failures is not None and not isinstance(self.failures, Failures):
            raise ValueError(f"expected failures to be None or Failures(...), got {self.failures!r}")

    def check(self, network: Network) -> None:
        """Raise ValueError if there are no links between parties, or failures are listed of others."""
        check_links(network, "RunningSums")
        if self.failures is not None:
            self.failures.check(network)

    def rate(self, network: Network) -> float:
        """Factor by which one round shrinks what is left, with the planned loss: on average, or by `sqrt(loss)`.

        Averages follow `z <- M z` with agents and links as unknowns: on a link waits what was lost, which each round
        delivers with probability `1 - loss`. An eigenvalue x of M is one of `D + f K`, with the shares D that agents
        keep, those K that they give, and `f = (1 - loss) x / (x - loss)`. What single losses add to that shrinks like
        the chance that a link fails again, in the mean square.
        """

        def find(network: Network) -> float:
            shares = np.array([1.0 / (1 + len(peers)) for peers in network.neighbours])
            given = np.zeros((len(shares), len(shares)))
            for one, other in network.links.edges:
                given[one, other] = given[other, one] = math.sqrt(shares[one] * shares[other])
            return _rate(shares, given, float(self.loss))

        return float(network.remember(("running", self.loss), find))

    def n_rounds(self, network: Network) -> int:
        """Rounds of averaging in one sum: as given, or as many as the graph needs."""
        return self._rounds_needed(network, NEGLIGIBLE) if self.rounds is None else int(self.rounds)

    def error_factor(self, network: Network) -> float:
        """What the rounds leave, on average, of the spread of the terms with the planned loss."""
        return self.rate(network) ** self.n_rounds(network)

    def rounds_needed(self, network: Network, tolerance: float) -> int:
        """Rounds that leave at most `tolerance`, with an allowance for bad luck."""
        return self._rounds_needed(network, tolerance)

    def _rounds_needed(self, network: Network, tolerance: float) -> int:
        """As the rate says and, as measured, half of the rounds that a link's losses alone would take."""
        rate = self.rate(network)
        if rate <= tolerance:
            return max(1, network.diameter)
        needed = math.log(tolerance) / math.log(rate)
        if self.loss > 0:
            needed += 0.5 * math.log(tolerance) / math.log(math.sqrt(self.loss))
        # A little less than a whole number is that number: processors differ in the last digits of the rate.
        return max(network.diameter, math.ceil(needed - 1e-6))

    def schedule(
        self,
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[Position] | None = None,  # noqa: ARG002 (who takes part sees the sum)
    ) -> list[Round[Position]]:
        """Down the hub's tree, rounds that may miss messages, and the decision in rounds that may not.

        A sum ends with one of these even if there is nothing to decide: no agent begins the next sum before its
        neighbours have ended this one.
        """
        neighbours = network.neighbours[position]
        if not neighbours:
            return []
        floods = flood_rounds(network, position, network.diameter) if decision else []
        if not values:
            return floods
        averaging = Round("sum", neighbours, neighbours, True, False, may_miss=True)
        end = floods or [Round("flood", neighbours, neighbours, False, False)]
        return [*term_rounds(network, position), *(self.n_rounds(network) * [averaging]), *end]

    def payload(self, network: Network | None, shape: Shape) -> Payload:  # noqa: ARG002 (on all networks)
        """Mass, and its weight."""
        return Payload(shape.n_values + 1)

    def carried_bytes(self, network: Network, position: Position, shape: Shape) -> int:  # noqa: ARG002 (likewise)
        """Every sum by itself."""
        return 0

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:  # noqa: ARG002 (every sum by itself)
        """The hub's term with the weight of one agent."""
        if term is None:
            return {}
        network = place.network
        scale = share(network, network.hub(place.position))
        return self._split(place, np.append(term * scale, 1.0))

    def _split(self, place: Place, mass: Array) -> Memory:
        """State of an agent that has its hub's term."""
        share = mass / (1 + len(place.network.neighbours[place.position]))
        return {"mass": mass, "share": share, "told": share}

    def message(self, place: Place, step: int, state: Memory) -> NDArray[Any]:
        """The term on its way down the hub's tree, then the total of all shares."""
        return state["mass"] if step < place.network.depth else state["told"]

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """Keep the own share, add what neighbours' totals have grown by, and split that again."""
        network, position = place.network, place.position
        if step < network.depth:
            (term,) = received.values()
            return self._split(place, term)
        mass, heard = state["share"].copy(), {}
        for peer, theirs in received.items():
            if self.failures is None or not self.failures.loses(
                network, place.count, step - network.depth, peer, position
            ):
                name = f"heard {peer}"
                self._check_total(place, peer, theirs, state.get(name))
                mass += theirs - state[name] if name in state else theirs
                heard[name] = theirs
        mass /= 1 + len(network.neighbours[position])
        kept = {name: array for name, array in state.items() if name != "mass"}
        return {**kept, "share": mass, "told": state["told"] + mass, **heard}

    def _check_total(self, place: Place, peer: Position, total: Array, before: Array | None) -> None:
        """Raise WrongMessageError for a running total that no agent can have come to."""
        weight, least = total[-1], 0.0 if before is None else before[-1]
        most = len(place.network.parties) * (1.0 + self.n_rounds(place.network))
        if not least < weight <= most or not np.abs(total[:-1]).max(initial=0.0) < LARGEST:
            raise WrongMessageError(
                peer,
                f"expected a total of finite numbers whose weight grows from {least:g}, to {most:g}, got {weight:g}",
            )

    def end(self, place: Place, state: Memory) -> tuple[Array, Memory]:
        """Mass divided by weight."""
        network, share = place.network, state["share"]
        silent = [peer for peer in network.neighbours[place.position] if f"heard {peer}" not in state]
        if silent and self.loss ** self.n_rounds(network) < NO_CHANCE:
            raise ValueError(
                f"expected some messages from every neighbour in {self.n_rounds(network)} rounds, got none from "
                f"party {network.parties[silent[0]]!r}; take this link out of the graph if it does not work"
            )
        return share[:-1] / share[-1], NO_MEMORY

    def matrix(self, network: Network) -> Array | None:
        """All rounds at once, if nothing is lost: masses are linear in the terms, and weights the same for all."""
        if self.failures is not None:
            return None
        n_agents = len(network.parties)
        shares = np.array([1.0 / (1 + len(peers)) for peers in network.neighbours])
        given = np.eye(n_agents)
        for one, other in network.links.edges:
            given[one, other] = given[other, one] = 1.0
        after = np.linalg.matrix_power(given * shares, self.n_rounds(network) if n_agents > 1 else 1)
        after /= after.sum(axis=1, keepdims=True)
        return combinations(network, after)


def _rate(shares: Array, given: Array, loss: float) -> float:
    """See `RunningSums.rate`; (n_agents,) kept by each agent and, made symmetric, (n_agents, n_agents) given."""
    from scipy.optimize import brentq

    if len(shares) == 1:
        return 0.0
    kept = np.diag(shares)
    eigenvalues = np.linalg.eigvalsh(kept + given)
    found = max(abs(float(eigenvalues[0])), abs(float(eigenvalues[-2])), math.sqrt(loss))

    def excess(value: float) -> float:
        factor = (1.0 - loss) * value / (value - loss)
        return float(np.linalg.eigvalsh(kept + factor * given)[-2]) - value

    if loss > 0 and found < 1.0 and excess(found) > 0:  # larger still
        found = float(brentq(excess, found, 1.0, xtol=1e-12))
    return found if found > SMALLEST_RATE else 0.0
