"""Presence of agents from neighbours' statuses: which are alive, which are done, and when an agent may leave.

No clock or socket. Every agent counts beats. Neighbours pass on the highest count that they have received for each
agent, so that all agents know which agents are alive at any distance. A restarted agent continues above the count
that it learns from others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vpem.transports.datagrams import Status

MOST_WORDS = 120
"""Maximum number of characters of a neighbour's reported activity."""
FAR_LEASES = 3
"""Number of leases without news after which an agent that is not a neighbour counts as away."""


@dataclass(frozen=True)
class Awaited:
    """Agent that is absent, or from which something is missing."""

    name: str
    seconds: float
    """Seconds for which the agent has been awaited."""
    said: str = ""
    """Last activity that the agent reported; empty if it has not reported any."""
    heard: float | None = None
    """Seconds since the agent was last heard; None if it never was."""
    refused: str = ""
    """Reason why the agent was refused a link; empty if it was not."""


class Presence:
    """Knowledge of one agent about all agents.

    Parameters
    ----------
    number : int
        Number of this agent.
    names : mapping
        Names of all agents by number, except those that were given up.
    neighbours : iterable of int
    lease, now : float
    """

    def __init__(self, number: int, names: Mapping[int, str], neighbours: Iterable[int], lease: float, now: float):
        self.number, self.names, self.lease = number, dict(names), lease
        self.neighbours = frozenset(neighbours) & names.keys()
        self.done: frozenset[int] = frozenset()
        self._here: set[int] = set()
        """Neighbours with a link."""
        self._heard = dict.fromkeys(names, now)
        self._beats = dict.fromkeys(names, 0)
        self.doing = ""
        """Activity of this agent, in words for its neighbours."""
        self._said: dict[int, tuple[str, float]] = {}
        """Last reported activity and the time of the report, by neighbour."""
        self._shown: set[int] = set()
        """Neighbours that know that all agents are done."""
        self._complete_at: float | None = None

    def connect(self, peer: int, now: float) -> None:
        """Note a new link to a neighbour."""
        self._here.add(peer)
        self._heard[peer] = now

    def disconnect(self, peer: int, now: float) -> None:
        """Note the end of the link to a neighbour."""
        self._here.discard(peer)
        self._heard[peer] = now

    def finish(self, now: float) -> bool:
        """Note that this agent is done; return True if that is new."""
        return self._add({self.number}, now)

    def hear(self, peer: int, status: Status, now: float) -> bool:
        """Process a neighbour's status; return True if it has news to announce at once."""
        doing = "".join(letter for letter in status.doing[:MOST_WORDS] if letter.isprintable())
        self._said[peer] = doing, now
        for number, beat in status.beats.items():
            if number in self._beats and beat > self._beats[number]:
                self._beats[number] = beat
                self._heard[number] = now
        if self.names.keys() <= set(status.done):
            self._shown.add(peer)
        return self._add(set(status.done), now)

    def status(self) -> Status:
        """Count a beat, and return the status to send to the neighbours."""
        self._beats[self.number] = self._beats.get(self.number, 0) + 1
        return Status(done=tuple(sorted(self.done)), beats=dict(self._beats), doing=self.doing)

    def _add(self, done: set[int], now: float) -> bool:
        new = (done & self.names.keys()) - self.done
        self.done |= new
        if new and self._is_complete:
            self._complete_at = now
        return bool(new)

    @property
    def _is_complete(self) -> bool:
        return self.names.keys() <= self.done

    def may_leave(self, now: float) -> bool:
        """True if all agents are done, and every neighbour knows it or has been silent for a lease since."""
        if self._complete_at is None:
            return False
        return all(
            peer in self._shown
            or (peer not in self._here and now - max(self._complete_at, self._heard[peer]) > self.lease)
            for peer in self.neighbours
        )

    def awaited(self, now: float) -> list[Awaited]:
        """Return absent agents that are not done: neighbours or, if all of these are present, agents farther away."""
        missing = self.unfinished()
        near = [number for number in missing if number in self.neighbours and number not in self._here]
        far = [
            number
            for number in missing
            if number not in self.neighbours and now - self._heard[number] > FAR_LEASES * self.lease
        ]
        return [self.describe(number, self._heard[number], now) for number in near or far]

    def unfinished(self) -> list[int]:
        """Return the other agents that are not known to be done."""
        return [number for number in sorted(self.names) if number not in self.done and number != self.number]

    def describe(self, number: int, since: float, now: float) -> Awaited:
        """Return the information about an agent that has been awaited since a given time."""
        said, at = self._said.get(number, ("", None))
        if at is None and self._beats.get(number):  # other agents have passed on its beats
            at = self._heard[number]
        return Awaited(self.names[number], now - since, said, None if at is None else now - at)
