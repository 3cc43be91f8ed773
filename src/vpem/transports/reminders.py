"""Schedules of repeated reports of a run: refusals that recur, and waits that last. No clock or socket."""

from __future__ import annotations

import re

from vpem.transports.outcomes import Problem, Waiting
from vpem.transports.presence import Awaited

AGAIN_SECONDS = 60.0
"""Seconds between the first and the second report of a problem; each later interval is twice as long."""
MOST_SECONDS = 60.0
"""Maximum number of seconds between two reports of a wait."""
MOST_KINDS = 1000
"""Maximum number of problems that are distinguished; further ones are not reported."""


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
