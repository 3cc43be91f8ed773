"""Approximate sums by averaging between neighbours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy

from vpem.core.network.compressed_consensus import tracking
from vpem.core.network.compressed_consensus.chebyshev import Averaging
from vpem.core.network.failures import Failures, link_pairs
from vpem.core.network.graph import contraction, laplacian_weights, metropolis_weights
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.quantization import whole_numbers
from vpem.core.network.rounds import check_links, combinations, flood_rounds, share, term_rounds
from vpem.core.network.summation import Summation
from vpem.core.network.sums import (
    NO_MEMORY,
    SINGLE,
    Array,
    Audience,
    Lengths,
    Memory,
    Payload,
    Place,
    Round,
    Series,
    Shape,
)

NEGLIGIBLE_ERROR = 1e-6
"""Error of a sum relative to the spread of the terms, for which rounds are planned if none are given."""

AUTO: Literal["auto"] = "auto"

PAPER_ROUNDS = 100
"""Rounds for each sum in the paper's experiments."""

SMALLEST_CONTRACTION = 1e-9
"""Contraction below which one round averages exactly up to rounding, as on a complete graph."""


@dataclass(frozen=True)
class Consensus(Summation):
    """Average with neighbours for a number of rounds (Algorithm 2, equation 6).

    The agents of a hub start from `N Q / |H|`, so that the average is the sum over hubs. The result of a root
    differs from the exact sum, and from the results of other roots, by about `rho ** rounds` times the spread of the
    terms (`rho = vpem.core.network.graph.contraction(W)`).

    With ``rounds="auto"`` (`vpem.core.network.compressed_consensus`), rounds have momentum, each sum of EM continues
    from the last one, and messages contain quantized changes in place of whole numbers. The sum over agents is
    preserved, and all earlier errors shrink by a factor of about `1 / (2 N)` in every sum. Sums become exact as EM
    converges. Each agent stores one number per row and component for itself, one for each of its neighbours, and one
    more. The first sum of a fit has no earlier sum to continue from, and takes more rounds. K-means and predictions
    send whole numbers. If the free energy per row nevertheless falls by more than 0.01, all agents roll back two
    iterations, discard their carry, and from then on use 1.5 times as many rounds.

    With `failures`, links fail in some rounds. Both ends of a link know whether it works in a round, and weights are
    recomputed on the working links, so that averages are preserved. This is for experiments: messages over a failed
    link count as traffic, but are not used. For messages that are really lost, see `RunningSums`.

    Parameters
    ----------
    rounds : int, "auto" or None, default=None
        None: as many as the graph needs for an error factor of 1e-6, and at least its diameter. "auto": far fewer;
        see above. Both follow from the links, so that every agent computes the same number.
    weights : {"metropolis", "laplacian"}, default="metropolis"
        Metropolis weights, or `I - alpha L`.
    alpha : float, optional
        For "laplacian": in (0, 2 / lambda_max); by default the fastest constant. It has no effect with "auto".
    failures : Failures, optional
        Links that fail in some rounds. Needs a number of rounds.
    """

    rounds: int | Literal["auto"] | None = None
    weights: str = "metropolis"
    alpha: float | None = None
    failures: Failures | None = None

    def __post_init__(self) -> None:
        rounds = self.rounds
        is_number = isinstance(rounds, Integral) and not isinstance(rounds, bool) and rounds >= 1
        if rounds is not None and not (isinstance(rounds, str) and rounds == AUTO) and not is_number:
            raise ValueError(f"expected rounds to be None, 'auto' or a whole number, 1 or more, got {rounds!r}")
        if self.weights not in ("metropolis", "laplacian"):
            raise ValueError(f"expected weights 'metropolis' or 'laplacian', got {self.weights!r}")
        if self.alpha is not None and self.weights != "laplacian":
            raise ValueError(
                f"expected no alpha with weights='metropolis', got {self.alpha}; try weights='laplacian'"
            )
        if self.alpha is not None and not (isinstance(self.alpha, Real) and 0 < float(self.alpha) < math.inf):
            raise ValueError(f"expected alpha to be None or a positive number, got {self.alpha!r}")
        if self.failures is not None:
            if not isinstance(self.failures, Failures):
                raise ValueError(f"expected failures to be None or Failures(...), got {self.failures!r}")
            if not is_number:
                raise ValueError(
                    f"expected a number of rounds where links fail, got {rounds!r}: how many are needed follows from "
                    "the links only if they last; try Consensus(100, failures=...), or RunningSums(failures=...)"
                )

    def variants(self) -> list[Summation]:
        """Return consensus with the paper's rounds, with those that the graph needs, and with "auto"."""
        return [Consensus(PAPER_ROUNDS), Consensus(), Consensus(AUTO)]

    @property
    def n_stages(self) -> int:
        """Number of stages; see `stage`."""
        return tracking.N_STAGES if self.rounds == AUTO else 1

    @property
    def is_lossy(self) -> bool:
        """True for quantized changes: the likelihood of their sums is not that of the parameters."""
        return self.rounds == AUTO

    @property
    def is_guarded(self) -> bool:
        """True if sums continue from the last one, as they may lag too far behind."""
        return self.rounds == AUTO

    def check(self, network: Network) -> None:
        """Raise ValueError if parties have no links, or if averaging with this alpha does not converge."""
        check_links(network, "Consensus")
        if self.alpha is not None:
            self.mixing_matrix(network)
        if self.failures is not None:
            self.failures.check(network)

    def mixing_matrix(self, network: Network) -> Array:
        """Weights W of one round; shape (n_agents, n_agents)."""
        if self.weights == "metropolis":
            return metropolis_weights(network.links)
        return laplacian_weights(network.links, self.alpha)

    def n_rounds(self, network: Network, stage: int = 0) -> int:
        """Number of rounds of averaging in one sum: as given, or as many as the graph needs."""
        if self.rounds is None:
            return max(network.diameter, self._rounds_needed(network, NEGLIGIBLE_ERROR))
        if self.rounds == AUTO:
            return tracking.n_rounds(network, stage, self._averaging(network, stage))
        return int(self.rounds)

    def error_factor(self, network: Network) -> float | None:
        """Return `rho ** rounds`; see `Summation`. 0 with "auto", as the error shrinks with every sum."""
        if self.failures is not None:
            return None
        if self.rounds == AUTO:
            return 0.0
        return self._contraction(network) ** self.n_rounds(network)

    def rounds_needed(self, network: Network, tolerance: float) -> int | None:
        """Number of rounds for an error factor of at most `tolerance`; None with "auto" or failures."""
        is_known = self.rounds != AUTO and self.failures is None
        return self._rounds_needed(network, tolerance) if is_known else None

    def _rounds_needed(self, network: Network, tolerance: float) -> int:
        rho = self._contraction(network)
        if rho <= tolerance:
            return 1
        # Processors differ in the last digits of rho: round up only if the excess is larger than that.
        return math.ceil(math.log(tolerance) / math.log(rho) - 1e-6)

    def _contraction(self, network: Network) -> float:
        """Factor by which one round shrinks the error, from the cached eigenvalues of W."""

        def find(network: Network) -> float:
            rho = contraction(self.mixing_matrix(network))
            return rho if rho > SMALLEST_CONTRACTION else 0.0

        key = "contraction", self.weights, self.alpha
        return float(network.remember(key, find))

    def _averaging(self, network: Network, stage: int = 0) -> Averaging:
        """Weights and reach of the rounds of a stage, cached."""
        is_coded = stage >= tracking.BEGUN

        def find(network: Network) -> Averaging:
            W = self.mixing_matrix(network)
            return tracking.averaging_in(stage, W) if self.rounds == AUTO else Averaging(W)

        key = "averaging", self.weights, self.alpha, self.rounds == AUTO, is_coded
        averaging: Averaging = network.remember(key, find)
        return averaging

    def _weights_left(self, network: Network, position: Position, links: NDArray[np.int64]) -> Array:
        """Return an agent's weights, (n_agents,), on the working links, (n_links, 2).

        A Laplacian constant that averages over all links also averages over fewer.
        """
        own = links[(links == position).any(axis=1)]
        peers = own.sum(axis=1) - position
        degrees, weights = np.bincount(links.ravel(), minlength=len(network.parties)), np.zeros(len(network.parties))
        if self.weights == "metropolis":
            weights[peers] = 1.0 / (1 + np.maximum(degrees[position], degrees[peers]))
        else:
            weights[peers] = self._averaging(network).weights[position, peers]
        weights[position] = 1.0 - weights.sum()
        return weights

    def _momentum(self, network: Network, number: int, stage: int = 0) -> float:
        """Momentum of a round of averaging."""
        if self.rounds != AUTO or number == 0:
            return 1.0
        is_coded = stage >= tracking.BEGUN

        def find(network: Network) -> list[float]:
            stages = range(tracking.BEGUN, self.n_stages) if is_coded else range(tracking.BEGUN)
            most = max(self.n_rounds(network, one) for one in stages)
            return self._averaging(network, stage).momenta(most)

        momenta: list[float] = network.remember(("momenta", self, is_coded), find)
        return momenta[number]

    def stage(self, shape: Shape, series: Series, carry: Memory) -> int:
        """Stage of a single sum, a sum of k-means, the first sum of EM, or a later one after some rollbacks."""
        return tracking.stage_of(shape, series, carry) if self.rounds == AUTO else 0

    def later_stage(self, shape: Shape, series: Series) -> int:
        """Stage of the later sums of a series; those of EM continue from the last one."""
        is_tracked = self.rounds == AUTO and series.is_em
        return tracking.TRACKED if is_tracked else self.stage(shape, series, NO_MEMORY)

    def retreat(self, carry: Memory) -> Memory:
        """Discard the carry except for the number of rollbacks."""
        return {"retreats": tracking.retreats_of(carry) + 1}

    def schedule(
        self, network: Network, position: Position, *, values: bool, decision: bool, audience: Audience = None
    ) -> list[Round[Position]]:
        """Send terms down the hub's tree, average, then flood the decision in the additional rounds that it needs."""
        return self.schedule_in(0, network, position, values=values, decision=decision, audience=audience)

    def schedule_in(
        self,
        stage: int,
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: Audience = None,  # noqa: ARG002 (who takes part sees the sum)
    ) -> list[Round[Position]]:
        """Rounds of one agent in a stage; see `schedule`."""
        neighbours = network.neighbours[position]
        found: list[Round[Position]] = []
        if not neighbours:
            return []
        n_rounds = 0
        if values:
            n_rounds = self.n_rounds(network, stage)
            found = term_rounds(network, position) if stage < tracking.BEGUN else []
            found += n_rounds * [Round("sum", neighbours, neighbours, True, decision)]
        return found + (flood_rounds(network, position, max(0, network.diameter - n_rounds)) if decision else [])

    def payload(self, network: Network | None, shape: Shape) -> Payload:
        """Double precision of fixed length; with "auto", bytes of variable length."""
        if self.rounds != AUTO:
            return Payload(shape.n_values)
        n_agents = tracking.MOST_AGENTS if network is None else len(network.positions)
        return Payload(max(tracking.most_coded(n_agents, shape), 8 * shape.n_values), "u1", is_fixed=False)

    def lengths(self, network: Network, shape: Shape, series: Series = SINGLE, stage: int = 0) -> Lengths:  # noqa: ARG002
        """Zero to one byte per entry for quantized changes; other sums send whole numbers."""
        if self.rounds == AUTO and series.is_em:
            return tracking.lengths(len(network.positions), shape)
        n_bytes = 8 * shape.n_values
        return Lengths(n_bytes, (n_bytes, n_bytes), n_bytes)

    def carried_bytes(self, network: Network, position: Position, shape: Shape) -> int:
        """Bytes of the carry of an agent: with "auto", its own copy and those of its neighbours; otherwise 0."""
        return tracking.carried_bytes(network, position, shape) if self.rounds == AUTO else 0

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:
        """Scale the hub's term so that the average over all agents is the sum over hubs."""
        if self._is_tracked(place):
            stage = np.array([self.stage(place.shape, place.series, carry)])
            return {**tracking.begin(place, carry, term), "stage": stage}
        if term is None:
            return {}
        network = place.network
        return {"values": term * share(network, network.hub(place.position))}

    def message(self, place: Place, step: int, state: Memory) -> NDArray[Any]:  # noqa: ARG002 (all are the same)
        """Term on its way down the hub's tree, current average, or its quantized change."""
        if self._is_tracked(place):
            return state["out"]
        return np.ascontiguousarray(state["values"]).view(np.uint8) if self.rounds == AUTO else state["values"]

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """Store the root's term, or average with the agent's own row of weights."""
        network = place.network
        if self._is_tracked(place):
            stage = int(state["stage"][0])
            averaging, n_rounds = self._averaging(network, stage), self.n_rounds(network, stage)
            momentum = self._momentum(network, step, stage)
            return tracking.combine(place, step, n_rounds, momentum, averaging, state, received)
        if self.rounds == AUTO:
            received = {sender: whole_numbers(place, sender, values) for sender, values in received.items()}
        if step < network.depth:
            (term,) = received.values()
            return {"values": term}
        weights, values = self._averaging(network).weights[place.position], state["values"]
        if self.failures is not None:
            broken = self.failures.links(network, place.count, step - network.depth)
            weights = self._weights_left(network, place.position, link_pairs(network)[~broken])
        momentum = self._momentum(network, step - network.depth)
        total = (momentum * weights[place.position]) * values
        for peer, theirs in received.items():
            if weights[peer]:
                daxpy(theirs, total, a=momentum * weights[peer])  # in place, and in one pass
        if momentum != 1.0:
            daxpy(state["before"], total, a=1.0 - momentum)
        return {"values": total, "before": values} if self.rounds == AUTO else {"values": total}

    def end(self, place: Place, state: Memory) -> tuple[Array, Memory]:
        """Return the sum and the carry from which the next one continues."""
        return tracking.end(place, state) if self._is_tracked(place) else (state["values"], NO_MEMORY)

    def _is_tracked(self, place: Place) -> bool:
        return self.rounds == AUTO and place.series.is_em

    def matrix(self, network: Network) -> Array | None:
        """Return all rounds at once: the roots' rows of `W ** rounds`, summed over each hub's members."""
        if self.rounds == AUTO or self.failures is not None:
            return None
        averaging = np.linalg.matrix_power(self.mixing_matrix(network), self.n_rounds(network))
        return combinations(network, averaging)
