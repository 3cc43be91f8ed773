"""Reports of a run over a wire (presence of neighbours, problems, progress), and its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vpem.transports.presence import Awaited


@dataclass(frozen=True)
class Here:
    """A neighbour has a link."""

    name: str


@dataclass(frozen=True)
class Away:
    """A neighbour's link has ended."""

    name: str
    reason: str


@dataclass(frozen=True)
class Wrong:
    """A neighbour has sent an invalid frame, and its link is restarted."""

    name: str
    reason: str


@dataclass(frozen=True)
class Problem:
    """The wire has reported a refusal or another problem."""

    text: str
    count: int = 1
    """Number of occurrences so far; not all of them are reported."""


@dataclass(frozen=True)
class Waiting:
    """The agent has had nothing to do for a while and waits for these agents; if empty, the wait is over."""

    awaited: tuple[Awaited, ...]


@dataclass(frozen=True)
class Progress:
    """Progress of the agent."""

    phase: str
    start: int
    iteration: int
    bound: float | None
    sent: int
    """Bytes sent so far, on all links."""
    received: int
    waited: float = 0.0
    """Seconds so far in which the agent only waited for others."""


Told = Here | Away | Wrong | Problem | Waiting | Progress


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run.

    Attributes
    ----------
    kind : str
    reason : str
        Reason in words; empty if the run has finished and all agents are known to be done.
    awaited : tuple of Awaited
        Agents that were absent at the end.
    """

    kind: Literal["finished", "gave up", "failed", "refused", "interrupted"]
    reason: str = ""
    awaited: tuple[Awaited, ...] = ()
