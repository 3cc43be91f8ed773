"""Traffic of a fit, from its exchanges: the script of the fit is run without any block.

Tests compare the result with fits of both engines, to the byte.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vpem.core.agent.meeting import meeting_traffic
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.decisions.label_exchange import Labels, packets_of
from vpem.core.network.around import default_summation
from vpem.core.network.packets import packed_bytes, packet_bytes
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.network.sums import NO_MEMORY, SINGLE, Lengths, Series, Shape
from vpem.core.network.traffic import Sendings, Traffic, find_sendings, pooling_traffic
from vpem.core.script.context import Context
from vpem.core.script.phases import DONE, PHASES, settle
from vpem.core.script.state import KEEP, Array, Progress
from vpem.core.settings import ACCELERATIONS, STARTS, Agreement, Settings

Pick = Callable[[Lengths], int]
"""Function that selects one of the possible lengths of messages."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Size and settings of the fit to plan.

    Parameters
    ----------
    n_rows : int
    n_components : int
    init_params : {"kmeans", "k-means++", "labels", "random", "random_from_data"}, default="kmeans"
    n_init : int, default=1
    batch_size : int, optional
    hops : int, default=0
        Number of hops given to the network.
    accelerate : "squarem" or None, default=None
        Needs sums that are the same for all parties, and no `batch_size`.
    """

    n_rows: int
    n_components: int
    init_params: str = "kmeans"
    n_init: int = 1
    batch_size: int | None = None
    hops: int = 0
    accelerate: str | None = None

    def __post_init__(self) -> None:
        for name, least in {"n_rows": 1, "n_components": 1, "n_init": 1, "batch_size": 1, "hops": 0}.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise ValueError(f"expected {name} to be a whole number, {least} or more, got {value!r}")
        if self.n_rows < self.n_components:
            raise ValueError(
                f"expected as many rows as components or more, got {self.n_rows} and {self.n_components}"
            )
        if self.init_params not in STARTS:
            raise ValueError(f"expected init_params to be one of {', '.join(STARTS)}, got {self.init_params!r}")
        if self.accelerate not in (None, *ACCELERATIONS):
            raise ValueError(f"expected accelerate to be None or 'squarem', got {self.accelerate!r}")
        if self.accelerate is not None and self.batch_size is not None:
            raise ValueError(f"expected no batch_size with accelerate, got {self.batch_size}; try accelerate=None")

    def allows(self, summation: Summation) -> bool:
        """True if this fit can use a summation."""
        if summation.is_masked and self.init_params == "labels":
            return False
        return self.accelerate is None or summation.is_common


class Exchange(NamedTuple):
    """A sum or, without a shape, a decision alone."""

    kind: str
    """Kind of exchange; see `vpem.core.script.phases.Phase.exchange`."""
    shape: Shape | None
    n_decisions: int = 0
    series: Series = SINGLE
    stage: int = 0
    """Stage of the sum; see `vpem.core.network.summation.Summation.stage`."""


@dataclass(frozen=True, eq=False)
class PlannedOutcome:
    """Result of an exchange in a fit that neither stops early nor repairs a component."""

    decision: Array
    shape: Shape
    n_hubs: int

    @property
    def values(self) -> Array:
        """Sum if all parties have all rows; shape (1, n_values)."""
        return np.full((1, self.shape.n_values), float(self.n_hubs))


PERIOD = 2
"""Number of iterations after which the script repeats itself: one cycle of accelerated EM."""


def fit_exchanges(
    summation: Summation, network: Network, study: Study, iterations: int, kmeans_iterations: int
) -> Counter[Exchange]:
    """Exchanges of a whole fit after the meeting and pooling, and how often each occurs.

    Every start takes the given number of iterations, and one more pass to stop. Repairs of broken components, a few
    numbers each, are not counted, nor is the last exchange of an accelerated start that converges after an even
    number of iterations.

    All starts have the same exchanges, as have all periods after the first ones. So the script runs only a few of
    them.
    """
    n_run = min(iterations, 2 * PERIOD + iterations % PERIOD)
    parts = summation, network, study
    one = run_script(*parts, n_run, kmeans_iterations, n_init=1)
    each = run_script(*parts, n_run, kmeans_iterations, n_init=2)
    each.subtract(one)
    n_periods = (iterations - n_run) // PERIOD
    if n_periods:
        period = run_script(*parts, n_run + PERIOD, kmeans_iterations, n_init=1)
        period.subtract(one)
        each.update({exchange: times * n_periods for exchange, times in period.items()})
        one.update({exchange: times * n_periods for exchange, times in period.items()})
    one.update({exchange: times * (study.n_init - 1) for exchange, times in each.items()})
    return +one


def run_script(
    summation: Summation, network: Network, study: Study, iterations: int, kmeans_iterations: int, n_init: int
) -> Counter[Exchange]:
    """Run the script of a fit without any block, and count its exchanges."""
    settings = Settings(
        n_components=study.n_components,
        density=Gaussian(),
        tol=0.0,
        max_iter=iterations,
        accelerate=study.accelerate,
    )
    agreement = Agreement(
        settings=settings,
        summation=summation,
        seed=0,
        init_params=study.init_params,
        n_init=n_init,
        batch_size=study.batch_size,
    )
    context = Context(network=network, agreement=agreement, n_rows=study.n_rows, kmeans_max_iter=kmeans_iterations)
    found: Counter[Exchange] = Counter()
    begun: set[Series] = set()
    progress = settle(context, Progress())
    while progress.phase != DONE:
        if progress.carry != KEEP:
            begun, progress = set(), replace(progress, carry=KEEP)
        phase = PHASES[progress.phase]
        offer = phase.offer(context, progress)
        stage, is_sum = 0, phase.exchange == "sum"
        if is_sum:
            is_first = offer.series not in begun
            how = summation.stage(offer.shape, offer.series, NO_MEMORY) if is_first else None
            stage = summation.later_stage(offer.shape, offer.series) if how is None else how
            begun.update([offer.series] if offer.series else [])
        decision = np.empty(0) if offer.decision is None else heard(progress.phase, len(offer.decision))
        if phase.exchange != "columns":
            shape = offer.shape if is_sum else None
            found[Exchange(phase.exchange, shape, len(decision), offer.series, stage)] += 1
        outcome: Any = PlannedOutcome(
            decision, offer.shape, len(network.hubs)
        )  # the only attributes that the script reads without a block
        progress = settle(context, phase.absorb(context, progress, outcome))
    return found


def heard(phase: str, n_numbers: int) -> Array:
    """Decision of a phase in a fit that neither stops early nor repairs a component."""
    decision = np.ones(n_numbers) if phase == "weights" else np.zeros(n_numbers)
    if phase == "iterate":
        decision[2:] = math.inf
    if phase == "jump":
        decision[2] = 1.0
    return decision


def labels_traffic(network: Network, study: Study, pick: Pick) -> tuple[Traffic, int]:
    """Traffic and busiest lines of one start from labels: packets are sent up the tree, labels down.

    Hubs have the maximum number of local clusters, unless their rows are indistinguishable.
    """
    n_rows, brought = study.n_rows, network.remember(Labels, packets_of)
    most = packet_bytes(n_rows)
    packet = pick(Lengths(packet_bytes(n_rows, 1), (most, most), most))
    outcome = packed_bytes(n_rows, study.n_components + 1)
    sendings = find_sendings(Labels(study.n_components, 0), network, values=True, decision=False)
    n_packets = np.array([len(brought[position]) for position in network.positions], dtype=np.int64)
    is_up = sendings.table[:, 2] < default_summation(network).tree(network).depth
    sizes = np.where(is_up, packet * n_packets[sendings.table[:, 0]], outcome)
    return sendings.traffic(sizes, 0), sendings.busiest(sizes, 0)


LENGTHS: dict[str, Pick] = {
    "fewest": lambda lengths: lengths.fewest,
    "usual low": lambda lengths: lengths.usual[0],
    "usual high": lambda lengths: lengths.usual[1],
    "most": lambda lengths: lengths.most,
}


def planned_traffic(
    summation: Summation,
    network: Network,
    study: Study,
    iterations: int,
    kmeans_iterations: int = 0,
    length: str = "most",
) -> tuple[Traffic, int]:
    """Traffic of a whole fit, and bytes of the busiest line, added over the rounds.

    Parameters
    ----------
    summation : Summation
    network : Network
    study : Study
    iterations : int
        Iterations of EM in each start.
    kmeans_iterations : int, default=0
        Iterations of k-means in each start with ``init_params="kmeans"``.
    length : {"fewest", "usual low", "usual high", "most"}, default="most"
        Assumed length of messages whose length depends on the data; other messages have a fixed length.
    """
    pick = LENGTHS[length]
    key = "before", summation, study.n_rows, study.hops
    total = network.remember(key, partial(_before, summation, study))
    busiest = int(total.table[:, [1, 3]].max())  # of one agent: nearly the same agent is busiest in all rounds
    parts = fit_exchanges(summation, network, study, iterations, kmeans_iterations)
    for (kind, shape, decisions, series, stage), times in parts.items():
        if kind == "labels":
            labels, busy = labels_traffic(network, study, pick)
            total, busiest = total + labels * times, busiest + busy * times
            continue
        value_bytes = 0 if shape is None else pick(summation.lengths(network, shape, series, stage))
        way = summation, shape is not None, decisions > 0, stage
        sendings = network.remember(("sendings", *way), partial(_sendings, *way))
        total += sendings.traffic(value_bytes, decisions) * times
        busiest += sendings.busiest(value_bytes, decisions) * times
    return total, busiest


def _before(summation: Summation, study: Study, network: Network) -> Traffic:
    """Traffic before the first start: meeting and pooling."""
    meeting = meeting_traffic(network, study.n_rows, study.hops, summation)
    return meeting + pooling_traffic(network, study.n_rows)


def _sendings(summation: Summation, values: bool, decision: bool, stage: int, network: Network) -> Sendings:
    return find_sendings(summation, network, values=values, decision=decision, stage=stage)
