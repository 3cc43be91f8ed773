"""What one choice of a summation costs: bytes, messages, rounds, time and memory, from and to."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, NamedTuple

from vpem.core.blocks.batches import batch_slices
from vpem.core.network.consensus import Consensus
from vpem.core.network.differences import Differences
from vpem.core.network.parties import Network
from vpem.core.network.running import RunningSums
from vpem.core.network.star import Star
from vpem.core.network.summation import Shape, Summation
from vpem.core.network.tree import Tree
from vpem.planning.exchanges import Study, planned_traffic

PAPER_ROUNDS = 100
"""Rounds of consensus for each sum in the paper's experiments."""


class Range(NamedTuple):
    """From and to."""

    low: float
    high: float


class Line(NamedTuple):
    """What each agent has: it sends and gets at the same time, all neighbours together this fast."""

    bandwidth: float = 12.5e6
    """Bytes a second."""
    latency: float = 0.02
    """Seconds until a message arrives."""

    def seconds(self, rounds: int, busiest: int) -> float:
        """Every round waits for its slowest message; what agents compute is not counted."""
        return rounds * self.latency + busiest / self.bandwidth


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a fit with one summation takes."""

    summation: Summation
    bytes: Range
    """Sent by all agents: bounds for these numbers of iterations."""
    usual_bytes: Range
    """The same with messages as long as they were on real tables; `bytes` if their length is fixed."""
    messages: Range
    rounds: Range
    seconds: Range
    """With messages of the usual length."""
    memory: int | None
    """Bytes that links remember from sum to sum, at the agent that has most; None: not known."""
    error_factor: float | None
    """Of each sum; 0: exact. See `Summation.error_factor`."""
    is_lossy: bool
    """Whether sums become exact only as EM settles."""

    @property
    def is_exact_later(self) -> bool:
        """Whether sums are exact only once parameters change little."""
        return self.is_lossy or self.summation.is_guarded

    @property
    def name(self) -> str:
        """As in Python, without what is the default."""
        return short_name(self.summation)

    @property
    def has_fixed_length(self) -> bool:
        """Whether the bytes follow from the numbers of iterations alone."""
        return self.bytes == self.usual_bytes


def estimate(
    summation: Summation,
    network: Network,
    study: Study,
    *,
    iterations: tuple[int, int],
    kmeans_iterations: tuple[int, int],
    line: Line = Line(),  # noqa: B008 (it cannot be changed)
) -> Estimate:
    """What a fit takes, between the fewest and the most iterations."""
    fewest, most = ((iterations[end], kmeans_iterations[end]) for end in (0, 1))
    parts = summation, network, study
    ends = {
        "fewest": planned_traffic(*parts, *fewest, "fewest"),
        "usual low": planned_traffic(*parts, *fewest, "usual low"),
        "usual high": planned_traffic(*parts, *most, "usual high"),
        "most": planned_traffic(*parts, *most, "most"),
    }
    low, high = ends["usual low"], ends["usual high"]
    return Estimate(
        summation=summation,
        bytes=Range(ends["fewest"][0].bytes, ends["most"][0].bytes),
        usual_bytes=Range(low[0].bytes, high[0].bytes),
        messages=Range(low[0].messages, high[0].messages),
        rounds=Range(low[0].rounds, high[0].rounds),
        seconds=Range(*(line.seconds(traffic.rounds, busiest) for traffic, busiest in (low, high))),
        memory=link_memory(summation, network, study),
        error_factor=summation.error_factor(network),
        is_lossy=summation.is_lossy,
    )


def link_memory(summation: Summation, network: Network, study: Study) -> int | None:
    """Bytes that the agent with the largest memory keeps from sum to sum."""
    batches = batch_slices(study.n_rows, study.batch_size or study.n_rows)
    shapes = [Shape(batch.stop - batch.start, study.n_components) for batch in batches]
    most = 0
    for position in network.positions:
        own = 0
        for shape in {*shapes}:
            kept = summation.carried_bytes(network, position, shape)
            if kept is None:
                return None
            own += kept * shapes.count(shape)
        most = max(most, own)
    return most


def choices(network: Network, rounds: int | Literal["auto"] | None = None) -> list[Summation]:
    """Summations that are possible on a network; with a number of rounds, consensus with so many too."""
    if network.is_star:
        return [Star(), Differences(Star())]
    averages = [Consensus(PAPER_ROUNDS), Consensus(), Consensus("auto")]
    if rounds is not None and rounds not in ("auto", PAPER_ROUNDS):
        averages.append(Consensus(rounds))
    return [Tree(), Differences(Tree()), *averages, RunningSums()]


def short_name(value: Any) -> str:
    """A dataclass as one writes it, without what is the default.

    Examples
    --------
    >>> short_name(Differences(Tree()))
    'Differences(Tree())'
    """
    given, is_first = [], True
    for part in fields(value):
        own = getattr(value, part.name)
        if own != part.default:
            given.append(
                ("" if is_first else f"{part.name}=") + (short_name(own) if is_dataclass(own) else repr(own))
            )
        is_first = is_first and own != part.default  # after one that is left out, others need their names
    return f"{type(value).__name__}({', '.join(given)})"
