"""Estimated cost of a fit with one summation: ranges of bytes, messages, rounds and time, and memory."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, NamedTuple

from vpem.core.blocks.batches import batch_slices
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.network.sums import Shape
from vpem.planning.planner import Study, planned_traffic
from vpem.summations import WAYS, named_summation


class Range(NamedTuple):
    """Lower and upper end of an estimate."""

    low: float
    high: float


class Line(NamedTuple):
    """Line of each agent, shared by all its neighbours; it sends and receives at the same time."""

    bandwidth: float = 12.5e6
    """Bytes per second."""
    latency: float = 0.02
    """Seconds until a message arrives."""

    def seconds(self, rounds: int, busiest: int) -> float:
        """Duration of the exchanges: every round waits for its slowest message. Computation is not counted."""
        return rounds * self.latency + busiest / self.bandwidth


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Estimated cost of a fit with one summation."""

    summation: Summation
    bytes: Range
    """Bounds on the bytes sent by all agents, for the given numbers of iterations."""
    usual_bytes: Range
    """Bytes with messages of the lengths measured on real tables; `bytes` if their length is fixed."""
    messages: Range
    rounds: Range
    seconds: Range
    """Duration with messages of the usual length."""
    memory: int | None
    """Maximum over agents of the bytes kept from sum to sum for its links; None if unknown."""
    error_factor: float | None
    """Error factor of each sum; 0: exact. See `Summation.error_factor`."""
    is_lossy: bool
    """True if sums become exact only as EM converges."""

    @property
    def is_exact_later(self) -> bool:
        """True if sums are exact only once parameters change little."""
        return self.is_lossy or self.summation.is_guarded

    @property
    def name(self) -> str:
        """Summation as a Python expression, without default arguments."""
        return short_name(self.summation)

    @property
    def has_fixed_length(self) -> bool:
        """True if the bytes follow from the numbers of iterations alone."""
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
    """Estimate the cost of a fit, between the fewest and the most iterations."""
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
    """Return the summations that are possible on a network, and consensus with `rounds` rounds if given."""
    found: list[Summation] = []
    for way in WAYS:
        one = named_summation(way, is_star=network.is_star)
        try:
            one.check(network)
        except ValueError:
            continue
        found += one.variants()
        if way == "consensus" and rounds is not None:
            found.append(named_summation(way, rounds, is_star=network.is_star))
    return list(dict.fromkeys(found))


def short_name(value: Any) -> str:
    """Format a dataclass as a Python expression, without default arguments.

    Examples
    --------
    >>> from vpem import Differences, Tree
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
        is_first = is_first and own != part.default  # after an omitted argument, others are passed by keyword
    return f"{type(value).__name__}({', '.join(given)})"
