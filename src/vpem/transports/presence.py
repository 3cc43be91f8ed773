"""Who is there, who is done, and when an agent may leave; as statuses between neighbours tell. No clock or socket.

Every agent counts beats. Neighbours pass on the highest count that they have heard of each agent, so that all know
which agents live, however far away. An agent that was started again goes on above the count that others tell it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vpem.transports.datagrams import Status

FAR_LEASES = 3
"""An agent without a link to this one counts as away when it was not heard of for so many leases."""


@dataclass(frozen=True)
class Awaited:
    """An agent that is not there."""

    name: str
    seconds: float
    """Since when."""


class Presence:
    """What one agent knows of all.

    Parameters
    ----------
    number : int
        This agent's.
    names : mapping
        Names of all agents by number, without those that were given up.
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
        self._shown: set[int] = set()
        """Neighbours that know that all are done."""
        self._complete_at: float | None = None

    def connect(self, peer: int, now: float) -> None:
        """There is a link to a neighbour."""
        self._here.add(peer)
        self._heard[peer] = now

    def disconnect(self, peer: int, now: float) -> None:
        """The link to a neighbour has ended."""
        self._here.discard(peer)
        self._heard[peer] = now

    def finish(self, now: float) -> bool:
        """Note that this agent is done; returns whether that was new."""
        return self._add({self.number}, now)

    def hear(self, peer: int, status: Status, now: float) -> bool:
        """Take a neighbour's status; returns whether there is something new to tell at once."""
        for number, beat in status.beats.items():
            if number in self._beats and beat > self._beats[number]:
                self._beats[number] = beat
                self._heard[number] = now
        if self.names.keys() <= set(status.done):
            self._shown.add(peer)
        return self._add(set(status.done), now)

    def status(self) -> Status:
        """What to tell the neighbours now."""
        self._beats[self.number] = self._beats.get(self.number, 0) + 1
        return Status(done=tuple(sorted(self.done)), beats=dict(self._beats))

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
        """Whether all are done, and every neighbour knows it or has been silent for a lease since."""
        if self._complete_at is None:
            return False
        return all(
            peer in self._shown
            or (peer not in self._here and now - max(self._complete_at, self._heard[peer]) > self.lease)
            for peer in self.neighbours
        )

    def awaited(self, now: float) -> list[Awaited]:
        """Agents that are not done and not there: neighbours, or if all of these are there, agents farther away."""
        missing = [number for number in sorted(self.names) if number not in self.done and number != self.number]
        near = [number for number in missing if number in self.neighbours and number not in self._here]
        far = [
            number
            for number in missing
            if number not in self.neighbours and now - self._heard[number] > FAR_LEASES * self.lease
        ]
        return [Awaited(self.names[number], now - self._heard[number]) for number in near or far]
