"""All exchanges of a fit, one after the other, from its numbers of iterations; what each one sends, by its schedule.

The tests compare with fits of both engines, to the byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from vpem.core.agent.meeting import meeting_traffic
from vpem.core.blocks.batches import batch_slices
from vpem.core.decisions.acceleration import N_DECISIONS, SIZES, n_jumps
from vpem.core.decisions.initial import n_candidates
from vpem.core.decisions.labels import Labels, packets_of
from vpem.core.network.costs import Sendings, find_sendings
from vpem.core.network.default import default_summation
from vpem.core.network.packets import packed_bytes, packet_bytes
from vpem.core.network.parties import Network
from vpem.core.network.pooling import pooling_traffic
from vpem.core.network.summation import ITERATE, NO_MEMORY, Lengths, Shape, Summation
from vpem.core.network.traffic import Traffic
from vpem.core.settings import ACCELERATIONS, STARTS, n_decisions

Pick = Callable[[Lengths], int]
"""Which of the lengths that messages may have."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is to be fitted.

    Parameters
    ----------
    n_rows : int
    n_components : int
    init_params : {"kmeans", "k-means++", "labels", "random", "random_from_data"}, default="kmeans"
    n_init : int, default=1
    batch_size : int, optional
    hops : int, default=0
        As they were given to the network.
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
        """Whether a fit can add so."""
        return self.accelerate is None or summation.is_common


class Exchange(NamedTuple):
    """A sum or, without a shape, a decision by itself."""

    shape: Shape | None
    n_decisions: int = 0
    series: str = ""
    times: int = 1
    stage: int = 0
    """See `vpem.core.network.summation.Summation.stage`."""


def in_stages(summation: Summation, part: Exchange) -> list[Exchange]:
    """The first sum of a series, and those after it, which may have other rounds."""
    if part.shape is None:
        return [part]
    first = summation.stage(part.shape, part.series, NO_MEMORY)
    later = summation.later_stage(part.shape, part.series)
    return [part._replace(times=1, stage=first), part._replace(times=part.times - 1, stage=later)]


def start_exchanges(summation: Summation, network: Network, study: Study, kmeans_iterations: int) -> list[Exchange]:
    """Exchanges of one start, before EM; see `vpem.simulation.starts`, and `labels_traffic` for labels."""
    n_rows, n_components = study.n_rows, study.n_components
    if study.init_params not in ("kmeans", "k-means++"):
        return []
    found = []
    if n_components > 1:  # k-means++: the first row, then candidates for each of the others
        n_tries, n_others = n_candidates(n_components), n_components - 1
        found += [
            Exchange(Shape(n_rows, 1)),
            Exchange(None, 1 + n_tries, times=n_others + 1),
            Exchange(Shape(n_rows, n_tries), times=n_others),
        ]
    moves = kmeans_iterations if study.init_params == "kmeans" else 0
    found.append(Exchange(Shape(n_rows, n_components), 1, "cluster", times=moves + 1))
    if not summation.is_common and len(network.hubs) > 1:
        found.append(Exchange(None, n_components))
    return found


def labels_traffic(network: Network, study: Study, pick: Pick) -> tuple[Traffic, int]:
    """Traffic and busiest lines of one start from labels: packets go up, labels come down.

    Hubs have as many local clusters as they may have, unless their rows cannot be told apart.
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


def pass_exchanges(summation: Summation, study: Study) -> list[Exchange]:
    """Exchanges of one pass of EM over all rows; see `vpem.simulation.em`."""
    batches = batch_slices(study.n_rows, study.batch_size or study.n_rows)
    found = []
    for number, batch in enumerate(batches):
        is_first, is_last = number == 0, number == len(batches) - 1
        has_energy = is_first if summation.is_lossy else is_last and study.batch_size is not None
        shape = Shape(batch.stop - batch.start, study.n_components, int(has_energy))
        found.append(Exchange(shape, n_decisions(study.n_components) * is_first, ITERATE))
    return found


def fit_exchanges(
    summation: Summation, network: Network, study: Study, iterations: int, kmeans_iterations: int
) -> list[Exchange]:
    """Exchanges of a whole fit after the meeting and pooling, the same ones together.

    Every start takes so many iterations; one pass more tells all to stop. Repairs of broken components, a few
    numbers each, come on top. So does the last exchange of an accelerated start that ends by itself after an even
    number of iterations: if no more are allowed, there is none.
    """
    one_start = start_exchanges(summation, network, study, kmeans_iterations)
    one_pass = [part._replace(times=iterations + 1) for part in pass_exchanges(summation, study)]
    jumps = 0 if study.accelerate is None else n_jumps(iterations)
    between = [Exchange(SIZES, N_DECISIONS, times=jumps)] if jumps else []
    counts: dict[Exchange, int] = {}
    for part in [one for whole in (*one_start, *one_pass, *between) for one in in_stages(summation, whole)]:
        alone = part._replace(times=1)
        counts[alone] = counts.get(alone, 0) + part.times * study.n_init
    return [part._replace(times=times) for part, times in counts.items() if times > 0]


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
    """Traffic of a whole fit, and bytes of the busiest line, added up over the rounds.

    Parameters
    ----------
    summation : Summation
    network : Network
    study : Study
    iterations : int
        Of EM, in each start.
    kmeans_iterations : int, default=0
        Of k-means, in each start with ``init_params="kmeans"``.
    length : {"fewest", "usual low", "usual high", "most"}, default="most"
        Of messages whose length depends on the data; others have one length.
    """
    pick = LENGTHS[length]
    key = "before", summation, study.n_rows, study.hops
    total = network.remember(key, partial(_before, summation, study))
    busiest = int(total.table[:, [1, 3]].max())  # of one agent: it is nearly the same one in all rounds
    parts = fit_exchanges(summation, network, study, iterations, kmeans_iterations)
    for shape, decisions, series, times, stage in parts:
        value_bytes = 0 if shape is None else pick(summation.lengths(network, shape, series))
        way = summation, shape is not None, decisions > 0, stage
        sendings = network.remember(("sendings", *way), partial(_sendings, *way))
        total += sendings.traffic(value_bytes, decisions) * times
        busiest += sendings.busiest(value_bytes, decisions) * times
    if study.init_params == "labels":
        labels, busy = labels_traffic(network, study, pick)
        total, busiest = total + labels * study.n_init, busiest + busy * study.n_init
    return total, busiest


def _before(summation: Summation, study: Study, network: Network) -> Traffic:
    """What agents send before the first start."""
    meeting = meeting_traffic(network, study.n_rows, study.hops, summation)
    return meeting + pooling_traffic(network, study.n_rows)


def _sendings(summation: Summation, values: bool, decision: bool, stage: int, network: Network) -> Sendings:
    return find_sendings(summation, network, values=values, decision=decision, stage=stage)
