"""What a run over a wire tells: who is here, how far it is, how it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vpem.core.agent.machine import Agent
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
    """A neighbour has sent what it must not, and its link is begun again."""

    name: str
    reason: str


@dataclass(frozen=True)
class Problem:
    """The wire has refused something, or had other troubles."""

    text: str


@dataclass(frozen=True)
class Progress:
    """How far the agent is."""

    phase: str
    start: int
    iteration: int
    bound: float | None
    sent: int
    """Bytes so far, on all links."""
    received: int
    waited: float = 0.0
    """Seconds so far in which the agent had nothing to do but to wait for others."""


def progress_of(agent: Agent, sent: int, received: int, waited: float = 0.0) -> Progress:
    """How far an agent is."""
    progress = agent.state.progress
    run = progress.run
    bound = run.history[-1] if run is not None and run.history else None
    phase, iteration = agent.held_up or progress.phase, 0 if run is None else run.iteration
    return Progress(phase, progress.start, iteration, bound, sent, received, waited)


Told = Here | Away | Wrong | Problem | Progress


@dataclass(frozen=True)
class Outcome:
    """How a run has ended.

    Attributes
    ----------
    kind : str
    reason : str
        In words; empty if it has finished.
    awaited : tuple of Awaited
        Agents that were not there in the end.
    """

    kind: Literal["finished", "gave up", "failed", "refused", "interrupted"]
    reason: str = ""
    awaited: tuple[Awaited, ...] = ()
