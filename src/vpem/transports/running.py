"""Run one agent's session over one wire, until all agents are done.

The caller's thread has the session, which may compute for minutes. Meanwhile the wire's own threads give links what
has come, and one more thread has the timers. The links are shared between all under a lock.

What the session sends goes from its own thread to the wire, as long as that is quick: a thread that has to be woken
costs more than the rest of a link. Meanwhile no other thread sends on the same links, so that nothing overtakes.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol

from vpem.core.rooms import bytes_for
from vpem.transports.datagrams import Datagram, Hello, Status, mismatch
from vpem.transports.links import Down, Event, Greeted, Link, Piece, Up
from vpem.transports.outcomes import Away, Here, Outcome, Problem, Told, Wrong, progress_of
from vpem.transports.presence import Presence
from vpem.transports.session import Frame, Session

__all__ = ["Hello", "Wire", "run"]

TICKS = 16
"""Looks at the time in a lease."""
MOMENT = 0.005
"""Seconds between two looks, at least."""


class Wire(Protocol):
    """Carries datagrams between linked agents, as well as it can: what is sent into a gap vanishes."""

    def listen(self, take: Callable[[int, Datagram], object], freed: Callable[[], object]) -> None:
        """Give `take` what comes from now on, from threads of the wire, for each neighbour in order; once.

        `freed` is called when there is room again for a neighbour that had none.
        """

    def send(self, peer: int, datagram: Datagram, *, may_wait: bool = False) -> None:
        """Queue a datagram, or send it at once if this may wait for a moment, and nothing is queued."""

    def room(self, peer: int) -> int:
        """How many more bytes to a neighbour are worth queueing now."""

    def problems(self) -> list[str]:
        """Refusals and other troubles since the last call, in words."""

    def close(self) -> None:
        """End; what was queued is sent first, if that takes no longer than a moment."""


def run(
    session: Session,
    wire: Wire,
    hello: Hello,
    *,
    names: Mapping[int, str],
    patience: float,
    lease: float,
    watch: Callable[[Told], object] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    then: Callable[[], list[Frame]] | None = None,
    without: Collection[int] = (),
) -> Outcome:
    """Run a session until all agents are done, or until it cannot go on. The caller closes the wire.

    Parameters
    ----------
    session : Session
        One that has not started.
    wire : Wire
    hello : Hello
        What this agent says of itself; its neighbours compare it with their own.
    names : mapping
        Of all agents of the study, by number.
    patience : float
        Seconds after which the run ends, if an agent stays away.
    lease : float
        Seconds of silence after which a link has ended.
    watch : callable
        Gets what happens, from either thread, one at a time.
    stop : callable
        Whether to end as soon as possible; asked often.
    then : callable, optional
        Called once when the agent is done, and returns frames: new rows to predict, for example. The agent is done
        when it is done with these as well.
    without : collection of int
        Agents that will not come back.

    Returns
    -------
    outcome : Outcome
    """
    names = {number: name for number, name in names.items() if number not in without}
    running = _Running(session, wire, hello, names, patience, lease, watch, stop, then)
    thread = threading.Thread(target=running.carry, name="vpem-wire", daemon=True)
    thread.start()
    try:
        return running.serve(without)
    finally:
        running.is_over = True
        running.wake.set()
        thread.join()


class _Ended(Exception):  # noqa: N818
    def __init__(self, outcome: Outcome):
        self.outcome = outcome


class _Running:
    """What both threads share."""

    def __init__(
        self,
        session: Session,
        wire: Wire,
        hello: Hello,
        names: Mapping[int, str],
        patience: float,
        lease: float,
        watch: Callable[[Told], object],
        stop: Callable[[], bool],
        then: Callable[[], list[Frame]] | None,
    ):
        self.session, self.wire, self.hello, self.names = session, wire, hello, names
        self.patience, self.lease, self.watch, self.stop, self.then = patience, lease, watch, stop, then
        self.neighbours: list[int] = sorted(set(session.agent.neighbours) & names.keys())
        self.is_over = False
        self.lock, self.watching = threading.RLock(), threading.Lock()
        self.wake = threading.Event()
        """Set when the timers' thread has to look at the links before its time."""
        self.busy: set[int] = set()
        """Neighbours to which the session's thread is sending."""
        self.inbox: SimpleQueue[tuple[int, int, Event] | BaseException] = SimpleQueue()
        """Events of links for the session, with the peer and the link's life."""
        self.hellos: dict[int, Hello] = {}
        """Of neighbours that fit this agent."""
        self.met: set[int] = set()
        """Neighbours that had a link in this run: a later hello that does not fit must not end it."""
        self.refusal: str | None = None
        self.sent = self.received = 0
        self.checked_at = -math.inf
        """When the session's thread last saw whether the run is over."""
        self.looked_at = now = time.monotonic()
        """When the timers' thread last looked."""
        self.presence = Presence(session.agent.number, names, self.neighbours, lease, now)
        self.links = {
            peer: Link(hello, partial(self._check, peer), nonce=_nonce, lease=lease, now=now)
            for peer in self.neighbours
        }
        # Of the session's thread:
        self.lives: dict[int, int] = {}
        """By neighbour: the link that the session knows."""
        self.frames: dict[int, tuple[memoryview, int]] = {}
        """By neighbour: room for a frame that is not whole, and how far it has come."""
        self.seen: tuple[object, str | None] = None, None
        """How far the agent was when that was last looked at, and what it waited for."""
        self.shown: tuple[str, int, int] | None = None
        self.waited = 0.0

    # The timers' thread, and those of the wire

    def carry(self) -> None:
        """Look at the links whenever it is time, until the run is over."""
        try:
            self.wire.listen(self._arrive, self.wake.set)
            while not self.is_over:
                self._look()
        except BaseException as error:
            self.inbox.put(error)

    def _look(self) -> None:
        now = time.monotonic()
        with self.lock:
            soonest = min((link.next_time for link in self.links.values()), default=now + 1.0)
        self.wake.wait(min(max(soonest - now, MOMENT), self.lease / TICKS, 0.25))
        self.wake.clear()
        now = time.monotonic()
        told: list[Told] = [Problem(text) for text in self.wire.problems()]
        with self.lock:
            if now - self.looked_at < self.lease / 4:  # a process that was stopped itself has to look again first
                for peer, link in self.links.items():
                    told += self._note(peer, link.tick(now), now)
            self.looked_at = now
            self._pump(now, self.links)
        self._tell(told)

    def _arrive(self, peer: int, datagram: Datagram) -> None:
        """Take what has come from a neighbour."""
        try:
            now = time.monotonic()
            with self.lock:
                if peer not in self.links or self.is_over:
                    return
                self.received += datagram.n_bytes
                told = self._note(peer, self.links[peer].take(datagram, now), now)
                self._pump(now, [peer])
            self._tell(told)
        except BaseException as error:
            self.inbox.put(error)

    def _pump(self, now: float, peers: Iterable[int]) -> None:
        """Queue what can be sent; with the lock."""
        for peer in peers:
            if peer not in self.busy:
                for datagram in self._outgoing(peer, now):
                    self.wire.send(peer, datagram)

    def _outgoing(self, peer: int, now: float) -> list[Datagram]:
        """What can be sent to a neighbour; with the lock."""
        link = self.links[peer]
        if link.is_idle(now):
            return []
        if link.is_up and now >= link.next_time:
            link.status = self.presence.status()
        found = link.outgoing(now, self.wire.room(peer))
        self.sent += sum(datagram.n_bytes for datagram in found)
        return found

    def _note(self, peer: int, events: list[Event], now: float) -> list[Told]:
        """Pass on a link's events, and say what of them is told to people; with the lock."""
        told: list[Told] = []
        for event in events:
            if isinstance(event, Status):
                if self.presence.hear(peer, event, now):
                    self._announce(now)
                continue
            if isinstance(event, Greeted):
                if event.problem is not None:
                    told.append(Problem(event.problem))
                    is_ours = event.hello.number == peer and peer not in self.met
                    self.refusal = event.problem if is_ours else self.refusal
                else:
                    self.hellos[peer] = event.hello
                continue
            if isinstance(event, Up):
                self.met.add(peer)
                self.presence.connect(peer, now)
                self.links[peer].tell(self.presence.status(), now)
                told.append(Here(self.names[peer]))
            elif isinstance(event, Down):
                self.presence.disconnect(peer, now)
                told.append(Away(self.names[peer], event.reason))
            self.inbox.put((peer, self.links[peer].life, event))
        return told

    def _announce(self, now: float) -> None:
        for link in self.links.values():
            link.tell(self.presence.status(), now)
        self.wake.set()

    def _check(self, peer: int, theirs: Hello) -> str | None:
        """Why there can be no link to a neighbour that says this of itself; None if there can."""
        if theirs.number != peer:
            return (
                f"expected {self.names[peer]} (agent {peer}) on its link, got {theirs.name} (agent {theirs.number})"
            )
        problem = mismatch(self.hello, theirs)
        for number, other in self.hellos.items() if self.hello.rows is None else ():
            problem = problem or (mismatch(other, theirs) if number != peer else None)
        return problem

    def _tell(self, told: list[Told]) -> None:
        for one in told:
            with self.watching:
                self.watch(one)

    # The session's thread

    def serve(self, without: Collection[int]) -> Outcome:
        """Give the session its events until the run is over."""
        self.session.send_early(self._send)
        self._send(self.session.start())
        for peer in sorted(set(without)):
            is_near = peer in self.session.agent.neighbours
            self._send(self.session.abandon(peer) if is_near else self.session.consent(peer))
        is_new = True
        try:
            while True:
                if is_new:
                    self._after_event()
                begin = time.monotonic()
                try:
                    item = self.inbox.get(timeout=min(self.lease / TICKS, 0.25))
                except Empty:
                    is_new = True
                    continue
                finally:
                    self.waited += time.monotonic() - begin
                if isinstance(item, BaseException):
                    raise item
                is_new = self._give(*item)
        except _Ended as ended:
            return ended.outcome

    def _give(self, peer: int, life: int, event: Event) -> bool:
        """Give the session an event; whether anything can have changed, as it does not by a part of a frame."""
        if isinstance(event, Up):
            self.lives[peer] = life
            self.frames.pop(peer, None)
            self._send(self.session.connect(peer))
        elif isinstance(event, Down):
            if self.lives.get(peer) is not None:
                self.lives[peer] = -1
                self._send(self.session.disconnect(peer))
        elif isinstance(event, Piece):
            if peer in self.session.connected and self.lives.get(peer) == life:
                self._take_piece(peer, event)
            with self.lock:
                link = self.links[peer]
                if link.life == life and link.is_up:
                    link.consume()
                    if link.must_tell:
                        self._pump(time.monotonic(), [peer])
            return event.is_last
        return True

    def _take_piece(self, peer: int, piece: Piece) -> None:
        """Put a piece to the others of its frame; the session is asked before there is room for more than one."""
        session = self.session
        if piece.is_first:
            self.frames.pop(peer, None)
            start = bytes(piece.content[: session.HEADER_BYTES])
            length = session.expects(peer, start) if len(start) == session.HEADER_BYTES else len(start)
            if not length:
                return
            if piece.is_last:  # as most are: it need not be copied
                self._send(session.receive(peer, piece.content))
                return
            self.frames[peer] = bytes_for(length).data, 0
        if peer not in self.frames:
            return
        frame, place = self.frames.pop(peer)
        end = place + len(piece.content)
        if end > len(frame):
            self._send(session.receive(peer, bytes(frame[:place]) + piece.content))  # which is lost by it
            return
        frame[place:end] = piece.content
        if piece.is_last:
            self._send(session.receive(peer, frame[:end].toreadonly()))
        else:
            self.frames[peer] = frame, end

    def _send(self, frames: list[Frame]) -> None:
        """Hand frames to the links that the session knows, and close those that it wants closed."""
        connected = self.session.connected
        unwanted = [peer for peer, life in self.lives.items() if life >= 0 and peer not in connected]
        if not frames and not unwanted:  # as after every other message
            return
        now = time.monotonic()
        told: list[Told] = []
        with self.lock:
            for frame in frames:
                link = self.links.get(frame.receiver)
                if link is not None and link.is_up and link.life == self.lives.get(frame.receiver):
                    link.send(frame.content)
                    self.busy.add(frame.receiver)
            for peer in unwanted:
                link, life = self.links[peer], self.lives[peer]
                self.lives[peer] = -1
                told.append(Wrong(self.names[peer], self.session.losses.get(peer, "")))
                if link.is_up and link.life == life:
                    told += self._note(peer, link.end("it sent what it must not", now, pause=self.lease / 4), now)
                    self._pump(now, [peer])
        self._hand_over()
        self._tell(told)

    def _hand_over(self) -> None:
        """Give the wire what there is for the neighbours that are to get something, until there is no more."""
        while self.busy:
            with self.lock:
                now = time.monotonic()
                ready = [(peer, datagram) for peer in self.busy for datagram in self._outgoing(peer, now)]
                self.busy = {peer for peer, _ in ready}
            for peer, datagram in ready:
                self.wire.send(peer, datagram, may_wait=True)

    def _after_event(self) -> None:
        """See whether the run is over, and say how far it is."""
        now, agent = time.monotonic(), self.session.agent
        self._show()
        is_early = now < self.checked_at + MOMENT
        if is_early and not (agent.is_done or agent.failure is not None or self.refusal is not None):
            return
        self.checked_at = now
        if agent.is_done and self.then is not None:
            then, self.then = self.then, None
            self._send(then())
        with self.lock:
            if agent.is_done and self.presence.finish(now):
                self._announce(now)
                self._pump(now, self.links)
            may_leave, awaited = self.presence.may_leave(now), tuple(self.presence.awaited(now))
        if may_leave:
            raise _Ended(Outcome("finished"))
        if agent.failure is not None:
            self._flush()
            raise _Ended(Outcome("failed", agent.failure, awaited))
        if self.refusal is not None and self._flush():
            raise _Ended(Outcome("refused", self.refusal, awaited))
        if self.stop():
            raise _Ended(Outcome("interrupted", "stopped", awaited))
        if any(one.seconds > self.patience for one in awaited):
            names = ", ".join(one.name for one in awaited)
            raise _Ended(Outcome("gave up", f"{names} stayed away for longer than {self.patience:g} s", awaited))

    def _flush(self) -> bool:
        """Wait until the neighbours have heard the last of it, but not longer than a lease."""
        end = time.monotonic() + self.lease
        while time.monotonic() < end and not self.stop():
            with self.lock:
                links = self.links.values()
                if self.refusal is None and all(link.is_up and link.is_flushed for link in links):
                    break
            time.sleep(self.lease / TICKS)
        return True

    def _show(self) -> None:
        agent = self.session.agent
        seen = agent.state.progress, agent.held_up
        if seen[0] is self.seen[0] and seen[1] == self.seen[1]:  # as after most events
            return
        self.seen = seen
        now = progress_of(agent, self.sent, self.received, round(self.waited, 3))
        if (shown := (now.phase, now.start, now.iteration)) != self.shown:
            self.shown = shown
            self._tell([now])


def _nonce() -> int:
    return secrets.randbits(64) | 1
