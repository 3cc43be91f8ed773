"""Agents that match rows while processes die and links end: without clocks and sockets, in any order of events."""

import random
from collections import deque

from vpem.privacy.ids import spell
from vpem.privacy.matching import Matching
from vpem.privacy.parcels import Agents

STAR = [(0, 3), (1, 3), (2, 3)]
RING = [(0, 1), (1, 2), (2, 3), (0, 3)]
PATH = [(0, 1), (1, 2), (2, 3)]
COMPLETE = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
LISTS = [[1, 2, 3], [3, 2], [4, 2, 3], [3, 2, 9]]


class World:
    """Four agents, each alive, dead or at the fit; and what each has on its disk.

    Events of a link (up, a frame, down) wait in a queue for each end, as in an engine.

    Parameters
    ----------
    links : list of pairs
    seed : int
        Of the order of events.
    server : bool
        Whether the last agent is a server without rows.
    """

    def __init__(self, links, seed, server):
        self.draw, self.links = random.Random(seed), [tuple(link) for link in links]
        lists = LISTS[:3] if server else LISTS
        names = ("p0", "p1", "p2", "server" if server else "p3")
        self.agents = Agents(names, tuple(self.links), tuple(range(len(lists))), 3, "inner", "a study")
        self.ids = [spell([(key,) for key in keys], "text").spelled for keys in lists] + [None] * (4 - len(lists))
        self.alive, self.disks, self.agreed, self.at_fit = {}, {}, set(), set()
        self.up, self.queues = set(), {end: deque() for link in links for end in (tuple(link), tuple(link)[::-1])}
        self.announced = set()
        for number in range(4):
            self.start(number)

    def start(self, number):
        """Begin, or begin again from what is on the disk."""
        if number in self.agreed:
            self.at_fit.add(number)
            return
        self.alive[number] = Matching(
            number,
            self.agents,
            self.ids[number],
            b"salt",
            saved=self.disks.get(number),
            save=lambda found: self.disks.__setitem__(number, found),
        )
        self.alive[number].start()

    def ends(self, number):
        """Links of an agent, seen from each of their ends."""
        return [end for end in self.queues if end[0] == number]

    def cut(self, one, other):
        """End a link: each end gets some of what is on its way, and then hears of it."""
        link = tuple(sorted((one, other)))
        if link in self.up:
            self.up.remove(link)
            for end in (link, link[::-1]):
                queue = self.queues[end]
                n_left = self.draw.randrange(len(queue) + 1)
                first = [item for at, item in enumerate(queue) if at < n_left or not isinstance(item, bytes)]
                self.queues[end] = deque([*first, "down"])

    def kill(self, number):
        """End a process, in a matching or a fit."""
        for _, other in self.ends(number):
            self.cut(number, other)
        for end in self.ends(number):
            self.queues[end].clear()
        self.alive.pop(number, None)
        self.at_fit.discard(number)

    def send(self, number, frames):
        for frame in frames:
            other = frame.receiver
            # What is sent over a link that has ended vanishes, though the agent may not know of it yet.
            if tuple(sorted((number, other))) in self.up and "down" not in self.queues[number, other]:
                self.queues[other, number].append(frame.content)

    def take(self, end):
        """Let an agent have its next event of a link."""
        number, peer = end
        item, one = self.queues[end].popleft(), self.alive[number]
        if item == "up":
            frames = one.connect(peer)
        elif item == "down":
            frames = one.disconnect(peer)
        else:
            frames = one.receive(peer, item)
        self.send(number, frames)
        assert one.failure is None, one.failure
        assert not one.losses, one.losses
        if one.is_done:
            self.announced.add(number)

    def leave(self, number, is_written):
        """Go on to the fit; the process may be killed before it has written that it did."""
        found = self.alive.pop(number)
        assert found.is_done
        for _, other in self.ends(number):
            self.cut(number, other)
        for end in self.ends(number):
            self.queues[end].clear()
        self.at_fit.add(number)
        if is_written:
            self.agreed.add(number)

    def moves(self):
        """What can happen next, without troubles."""
        found = []
        for end, queue in self.queues.items():
            if queue and end[0] in self.alive:
                found.append(lambda end=end: self.take(end))
        for one, other in self.links:
            if one in self.alive and other in self.alive and (one, other) not in self.up:
                found.append(lambda link=(one, other): self.connect(link))
        for number, one in self.alive.items():
            if one.is_done and len(self.announced) == 4:
                found.append(lambda number=number: self.leave(number, True))
            elif any(peer in self.at_fit for _, peer in self.ends(number)):
                found.append(lambda number=number: self.follow(number))
        return found

    def connect(self, link):
        self.up.add(link)
        for end in (link, link[::-1]):
            self.queues[end].append("up")

    def follow(self, number):
        """See that a neighbour is at the fit."""
        assert self.alive[number].follow(), "an agent has gone on, and this one has no result"
        self.announced.add(number)
        self.leave(number, True)

    def disturb(self):
        """Kill, start again, leave too early to have written it, or cut a link."""
        kind, number = self.draw.randrange(4), self.draw.randrange(4)
        if kind == 0:
            self.kill(number)
        elif kind == 1 and number not in self.alive and number not in self.at_fit:
            self.start(number)
        elif kind == 2 and number in self.alive and self.alive[number].is_done and len(self.announced) == 4:
            self.leave(number, False)
        else:
            self.cut(*self.draw.choice(self.links))

    def run(self, n_steps, chance):
        """Some steps with troubles, and then without until nothing can happen."""
        for _ in range(n_steps):
            moves = self.moves()
            if self.draw.random() < chance or not moves:
                self.disturb()
            else:
                self.draw.choice(moves)()
        for number in range(4):
            if number not in self.alive and number not in self.at_fit:
                self.start(number)
        while moves := self.moves():
            self.draw.choice(moves)()

    def check(self):
        """All are at the fit, with one result."""
        waiting = {number: (one.progress, one.is_done) for number, one in self.alive.items()}
        assert not waiting, f"no event is left, and some wait: {waiting}"
        results = [self.disks[number] for number in self.agents.owners]
        assert len({one.digest for one in results}) == 1, results
        rows = [
            {self.ids[number][at]: row for at, row in enumerate(one.rows.tolist()) if row >= 0}
            for number, one in enumerate(results)
        ]
        assert all(one == rows[0] for one in rows)
        assert sorted(rows[0].values()) == [0, 1]
