"""Sums by averaging between neighbours over links that lose messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.failures import Failures
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.rounds import check_links, combinations, flood_rounds, share, term_rounds
from vpem.core.network.summation import Summation
from vpem.core.network.sums import NO_MEMORY, Array, Audience, Memory, Payload, Place, Round, Shape, WrongMessageError

NEGLIGIBLE = 1e-10
"""Error of a sum relative to the spread of the terms, for which rounds are planned if none are given."""

SMALLEST_RATE = 1e-9
"""Rate below which one round averages exactly up to rounding."""

LARGEST = 1e290
"""Bound on the numbers in a message, so that no sum of them overflows."""

MOST_ROUNDS = 2**16
"""Maximum number of rounds of a sum."""

NO_CHANCE = 1e-9
"""Probability below which the silence of a link is not attributed to chance."""

LONG = 100.0
"""Longest mean outage, in rounds, that is attributed to chance."""

LEAST_SHARE = 0.125
"""Share of its minimum weight without losses below which an agent holds its mass."""


@dataclass(frozen=True)
class RunningSums(Summation):
    """Average over links that lose messages without notice to either end (ratio consensus with running sums).

    An agent of hub H starts with the mass `N Q / |H|` and the weight 1. In every round it splits both equally between
    itself and its neighbours. In place of a share, it sends the total of all shares so far, the same to all
    neighbours. A receiver adds the increase since the last total that it received. The next message thus makes up for
    a lost one, whereas a lost share would be lost for good. At every agent, mass divided by weight converges to the
    sum.

    An agent that receives nothing for many rounds has given away nearly all of its weight. It then holds its mass and
    repeats the same totals until mass arrives from its neighbours. An outage of any length thus costs rounds, but no
    precision.

    The messages of the last round must arrive, as must those of the decisions, which follow in small rounds of their
    own: over a link that loses messages, the engine retransmits them. All mass is then at the agents again, and the
    exact sum is a weighted mean of their results. So the error of a result is at most the largest difference between
    results. If a link has failed for most of a sum, results differ, and `disagreement_` and the verdict of a fit
    report it.

    Every link must work now and then. An agent that has received nothing from a neighbour before the last round of a
    sum ends the study and names the neighbour, if there were too many rounds for outages of 100 rounds on average to
    explain it.

    Parameters
    ----------
    rounds : int, optional
        None: as many as the graph needs for an error factor of 1e-10, with an allowance for losses.
    loss : float, default=0.1
        Planned share of lost messages, from 0 to less than 1. If more are lost, sums become less exact.
    outage : float, optional
        Planned mean number of consecutive rounds in which a link loses messages, 1 or more. None: messages are lost
        independently, so that it is `1 / (1 - loss)`. If outages are longer, sums become less exact.
    failures : Failures, optional
        Losses to simulate. None for agents on links that really lose messages.
    """

    rounds: int | None = None
    loss: float = 0.1
    failures: Failures | None = None
    outage: float | None = None

    burst: ClassVar[int] = MOST_ROUNDS
    """Number of rounds that an agent can send without a reply: up to the end of the sum."""

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
        least, outage = max(1.0, loss / (1.0 - loss)), self.outage
        is_number = isinstance(outage, Real) and not isinstance(outage, bool)
        if outage is not None and not (is_number and least <= float(outage) < math.inf):
            raise ValueError(
                f"expected outage, a number of rounds, to be {least:g} or more with loss={loss:g}, got {outage!r}; "
                "try outage=None"
            )

    def check(self, network: Network) -> None:
        """Raise ValueError if parties have no links, or if a failure is listed for a link that does not exist."""
        check_links(network, "RunningSums")
        if self.failures is not None:
            self.failures.check(network)

    def rate(self, network: Network) -> float:
        """Factor by which one round shrinks the error with the planned loss: that of the mean, at least `sqrt(loss)`.

        The mean follows `z <- M z`, where z has an entry for each agent and each link. Lost mass waits on its link,
        and each round delivers it with probability `1 / outage`. An eigenvalue x of M is one of `D + f K`, with the
        shares D that agents keep, the shares K that they give, and `f = 1 - loss + loss (1 - s) / (x - s)`,
        `s = 1 - 1 / outage`. In the mean square, the contribution of single losses shrinks like the probability that
        a link fails again.
        """

        def find(network: Network) -> float:
            shares = np.array([1.0 / (1 + len(peers)) for peers in network.neighbours])
            given = np.zeros((len(shares), len(shares)))
            for one, other in network.links.edges:
                given[one, other] = given[other, one] = math.sqrt(shares[one] * shares[other])
            return _rate(shares, given, float(self.loss), self._failing_again)

        return float(network.remember(("running", self.loss, self.outage), find))

    @property
    def _failing_again(self) -> float:
        """Planned probability that a link which has just failed fails again in the next round."""
        return float(self.loss) if self.outage is None else 1.0 - 1.0 / float(self.outage)

    def n_rounds(self, network: Network) -> int:
        """Number of rounds of averaging in one sum: as given, or as many as the graph needs."""
        return self._rounds_needed(network, NEGLIGIBLE) if self.rounds is None else int(self.rounds)

    def error_factor(self, network: Network) -> float:
        """Average error of a sum with the planned loss, relative to the spread of the terms."""
        return self.rate(network) ** self.n_rounds(network)

    def rounds_needed(self, network: Network, tolerance: float) -> int:
        """Number of rounds for an error factor of at most `tolerance`, with an allowance for chance."""
        return self._rounds_needed(network, tolerance)

    def _rounds_needed(self, network: Network, tolerance: float) -> int:
        """Rounds that follow from the rate, plus (as measured) half of those that the losses of a link would take."""
        rate = self.rate(network)
        if rate <= tolerance:
            return max(1, network.diameter)
        needed = math.log(tolerance) / math.log(rate)
        if self.loss > 0:
            needed += 0.5 * math.log(tolerance) / math.log(math.sqrt(self.loss))
        # Processors differ in the last digits of the rate: round up only if the excess is larger than that.
        return max(network.diameter, math.ceil(needed - 1e-6))

    def schedule(
        self,
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: Audience = None,  # noqa: ARG002 (who takes part sees the sum)
    ) -> list[Round[Position]]:
        """Send terms down the hub's tree, then average; only the last round and the decision need all messages.

        A sum ends with a round without values even without a decision, so that no agent starts the next sum before
        its neighbours have finished this one.
        """
        neighbours = network.neighbours[position]
        if not neighbours:
            return []
        floods = flood_rounds(network, position, network.diameter) if decision else []
        if not values:
            return floods
        averaging = Round("sum", neighbours, neighbours, True, False, may_miss=True)
        rounds = (self.n_rounds(network) - 1) * [averaging] + [averaging._replace(may_miss=False)]
        end = floods or [Round("flood", neighbours, neighbours, False, False)]
        return [*term_rounds(network, position), *rounds, *end]

    def payload(self, network: Network | None, shape: Shape) -> Payload:  # noqa: ARG002 (on all networks)
        """Mass and weight, in double precision."""
        return Payload(shape.n_values + 1)

    def carried_bytes(self, network: Network, position: Position, shape: Shape) -> int:  # noqa: ARG002 (likewise)
        """Return 0: sums are independent of each other."""
        return 0

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:  # noqa: ARG002 (every sum by itself)
        """State of a root: the scaled term of its hub, with weight 1."""
        if term is None:
            return {}
        network = place.network
        scale = share(network, network.hub(place.position))
        return self._begun(place, np.append(term * scale, 1.0))

    def _begun(self, place: Place, term: Array) -> Memory:
        """State of an agent that has received its hub's term."""
        begun = self._split(place, term)
        return {**begun, "term": term} if place.network.depth else begun

    def _split(self, place: Place, mass: Array, told: Array | None = None) -> Memory:
        """State of an agent that has this mass and has sent these totals, after it gives away its next shares.

        The agent gives away the increase of the rounded totals and keeps the exact remainder.
        """
        network = place.network
        n_others, most = len(network.neighbours[place.position]), network.remember(_most_links, _most_links)
        before = np.zeros_like(mass) if told is None else told
        if mass[-1] < LEAST_SHARE * (1 + n_others) / (1 + most):
            return {"mass": mass, "told": before}
        after = before + mass / (1 + n_others)
        return {"mass": mass - n_others * (after - before), "told": after}

    def message(self, place: Place, step: int, state: Memory) -> NDArray[Any]:
        """Term on its way down the hub's tree, then the total of all shares."""
        return state["term"] if step < place.network.depth else state["told"]

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """Add the increase of the neighbours' totals to the mass; split it again unless this is the last round."""
        network = place.network
        if step < network.depth:
            (term,) = received.values()
            return self._begun(place, term)
        number = step - network.depth
        is_last = number + 1 == self.n_rounds(network)
        mass, heard = state["mass"].copy(), {}
        for peer, theirs in received.items():
            if is_last or not self._loses(place, number, peer):
                name = f"heard {peer}"
                self._check_total(place, peer, theirs, state.get(name))
                mass += theirs - state[name] if name in state else theirs
                heard[name] = theirs
        if is_last:
            return {**state, "mass": mass}
        kept = {name: array for name, array in state.items() if name != "term"}
        return {**kept, **heard, **self._split(place, mass, state["told"])}

    def _loses(self, place: Place, number: int, peer: Position) -> bool:
        """True if a message is lost in the simulation, in this round of averaging."""
        return self.failures is not None and self.failures.loses(
            place.network, place.count, number, peer, place.position
        )

    def _check_total(self, place: Place, peer: Position, total: Array, before: Array | None) -> None:
        """Raise WrongMessageError for a total that no agent can have reached."""
        weight, least = total[-1], 0.0 if before is None else before[-1]
        most = len(place.network.parties) * (1.0 + self.n_rounds(place.network))
        is_right = weight > 0 and least <= weight <= most
        if not is_right or not np.abs(total[:-1]).max(initial=0.0) < LARGEST:
            raise WrongMessageError(
                peer,
                f"expected a total of finite numbers whose weight grows from {least:g}, to {most:g}, got {weight:g}",
            )

    def _check_silence(self, place: Place, state: Memory) -> None:
        """Raise ValueError if a neighbour was silent until the last round, and chance cannot explain it."""
        network, n_rounds = place.network, self.n_rounds(place.network) - 1
        silent = [peer for peer in network.neighbours[place.position] if f"heard {peer}" not in state]
        failing_again = max(self._failing_again, 1.0 - 1.0 / LONG)
        if silent and failing_again**n_rounds < NO_CHANCE:
            raise ValueError(
                f"expected some messages from every neighbour in {n_rounds} rounds, got none from "
                f"party {network.parties[silent[0]]!r}; take this link out of the graph if it does not work"
            )

    def end(self, place: Place, state: Memory) -> tuple[Array, Memory]:
        """Return mass divided by weight."""
        self._check_silence(place, state)
        mass = state["mass"]
        return mass[:-1] / mass[-1], NO_MEMORY

    def matrix(self, network: Network) -> Array | None:
        """Return all rounds at once, without losses: masses are linear in the terms, weights independent of them."""
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


def _most_links(network: Network) -> int:
    """Largest number of neighbours of an agent."""
    return max(map(len, network.neighbours))


def _rate(shares: Array, given: Array, loss: float, failing_again: float) -> float:
    """Compute `RunningSums.rate` from shares (n_agents,) kept and, symmetrized, (n_agents, n_agents) given."""
    from scipy.optimize import brentq

    if len(shares) == 1:
        return 0.0
    kept = np.diag(shares)
    eigenvalues = np.linalg.eigvalsh(kept + given)
    found = max(abs(float(eigenvalues[0])), abs(float(eigenvalues[-2])), math.sqrt(loss))

    def excess(value: float) -> float:
        factor = 1.0 - loss + loss * (1.0 - failing_again) / (value - failing_again)
        return float(np.linalg.eigvalsh(kept + factor * given)[-2]) - value

    least = max(found, failing_again + SMALLEST_RATE)
    if loss > 0 and least < 1.0 and excess(least) > 0:  # larger still
        found = float(brentq(excess, least, 1.0, xtol=1e-12))
    return found if found > SMALLEST_RATE else 0.0
