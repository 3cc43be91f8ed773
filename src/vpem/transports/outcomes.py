"""Reports of a run over a wire (presence of neighbours, problems, progress), and its outcome. No clock or socket."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from vpem.transports.presence import Awaited

AGAIN_SECONDS = 60.0
"""Seconds between the first and the second report of a problem; each later interval is twice as long."""
MOST_SECONDS = 60.0
"""Maximum number of seconds between two reports of a wait."""
MOST_KINDS = 1000
"""Maximum number of problems that are distinguished; further ones are not reported."""


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


class Repeats:
    """Problems, each reported once and, if it recurs, again after a while with its count."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._due: dict[str, tuple[float, float]] = {}
        """Time of the next report of a problem, and the pause after that report."""

    def take(self, text: str, now: float) -> list[Problem]:
        """Count a problem, and return it if a report is due."""
        kind = re.sub(r"\d+", "", text)  # ports differ from one attempt to the next
        if kind not in self._counts and len(self._counts) >= MOST_KINDS:
            return []
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        due, pause = self._due.get(kind, (now, AGAIN_SECONDS))
        if now < due:
            return []
        self._due[kind] = now + pause, 2 * pause
        return [Problem(text, count)]


class Waits:
    """Schedule of the reports that an agent waits: after a lease, then at growing intervals.

    Parameters
    ----------
    lease, now : float
    """

    def __init__(self, lease: float, now: float):
        self._lease = lease
        self.since = now
        """Time at which the agent last had something to do."""
        self._pause = lease
        self._due = now + lease
        self._is_told = False

    def move(self, now: float) -> None:
        """Note that the agent has something to do."""
        self.since, self._pause, self._due = now, self._lease, now + self._lease

    def look(self, awaited: list[Awaited], now: float) -> list[Waiting]:
        """Return the wait if a report is due; an empty one ends the wait that was reported before."""
        if not awaited:
            was_told, self._is_told = self._is_told, False
            return [Waiting(())] if was_told else []
        if now < self._due:
            return []
        self._due, self._pause, self._is_told = now + self._pause, min(2 * self._pause, MOST_SECONDS), True
        return [Waiting(tuple(awaited))]
