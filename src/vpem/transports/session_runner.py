"""Run one agent's session over one wire, until all agents are done.

The session runs in the caller's thread and may compute for minutes. Meanwhile the wire's own threads pass arriving
datagrams to the links, and one more thread runs the timers. All threads share the links under a lock.

The session's thread sends its frames over the wire itself while that is quick: to wake another thread costs more than
the rest of a link. Meanwhile no other thread sends on the same links, so that datagrams stay in order.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue

from vpem.core.agent.message import Frame
from vpem.core.buffer_pool import BufferPool
from vpem.transports.datagrams import Datagram, Hello, Status, mismatch, steps_ahead
from vpem.transports.links import Down, Event, Greeted, Link, Piece, Up
from vpem.transports.outcomes import Away, Here, Outcome, Progress, Repeats, Told, Waits, Wrong
from vpem.transports.presence import Awaited, Presence
from vpem.transports.session import AnySession
from vpem.transports.wiring import Wire

__all__ = ["Hello", "run"]

TICKS = 16
"""Number of timer checks per lease."""
MOMENT = 0.005
"""Minimum number of seconds between two checks."""


def run(
    session: AnySession,
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
    follow: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run a session until all agents are done, or until it cannot continue. The caller closes the wire.

    Parameters
    ----------
    session : AnySession
        Session that has not started.
    wire : Wire
    hello : Hello
        Hello of this agent; its neighbours compare it with their own.
    names : mapping
        Names of all agents of the study, by number.
    patience : float
        Seconds after which the run ends if an agent stays away.
    lease : float
        Seconds of silence after which a link ends.
    watch : callable
        Called with each report, from several threads, one call at a time.
    stop : callable
        Returns True if the run should end as soon as possible; called often.
    then : callable, optional
        Called once when the agent is done; returns frames, for example for new rows to predict. The agent counts as
        done when it has finished these as well.
    without : collection of int
        Agents that will not return.
    follow : callable
        Called when a neighbour is at a later step of the study; returns True if this run counts as finished.

    Returns
    -------
    outcome : Outcome
    """
    names = {number: name for number, name in names.items() if number not in without}
    running = _Running(session, wire, hello, names, patience, lease, watch, stop, then, follow)
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
    """State of a run that its threads share."""

    def __init__(
        self,
        session: AnySession,
        wire: Wire,
        hello: Hello,
        names: Mapping[int, str],
        patience: float,
        lease: float,
        watch: Callable[[Told], object],
        stop: Callable[[], bool],
        then: Callable[[], list[Frame]] | None,
        follow: Callable[[], bool],
    ):
        self.session, self.wire, self.hello, self.names = session, wire, hello, names
        self.patience, self.lease, self.watch, self.stop, self.then = patience, lease, watch, stop, then
        self.follow, self.pool = follow, BufferPool()
        self.pool.open(self)
        self.neighbours: list[int] = sorted(set(session.neighbours) & names.keys())
        self.is_over = False
        self.lock, self.watching = threading.RLock(), threading.Lock()
        self.wake = threading.Event()
        """Set when the timers' thread has to check the links early."""
        self.busy: int | None = None
        """Neighbour to which the session's thread is sending."""
        self.inbox: SimpleQueue[tuple[int, int, Event] | BaseException] = SimpleQueue()
        """Events of links for the session, with the peer and the link's life, and errors of other threads."""
        self.hellos: dict[int, Hello] = {}
        """Hellos that match this agent's, by neighbour."""
        self.met: set[int] = set()
        """Neighbours that had a link in this run: a later hello that does not match must not end the run."""
        self.refusal: str | None = None
        self.refused: dict[int, str] = {}
        """Reasons why the last hello did not match, by neighbour."""
        self.repeats = Repeats()
        self.sent = self.received = 0
        self.checked_at = -math.inf
        """Time at which the session's thread last checked whether the run is over."""
        self.looked_at = now = time.monotonic()
        """Time of the last check by the timers' thread."""
        self.presence = Presence(session.number, names, self.neighbours, lease, now)
        self.links = {
            peer: Link(hello, partial(self._check, peer), nonce=_nonce, lease=lease, now=now)
            for peer in self.neighbours
        }
        # State of the session's thread:
        self.lives: dict[int, int] = {}
        """Life of the link that the session knows, by neighbour; -1 if that link has ended."""
        self.frames: dict[int, tuple[memoryview, int]] = {}
        """Buffer of an incomplete frame and the number of bytes received, by neighbour."""
        self.shown: tuple[str, int, int] | None = None
        self.waited = 0.0
        self.waits = Waits(lease, now)
        self.doing = ""

    # The timers' thread, and the wire's threads

    def carry(self) -> None:
        """Check the links whenever a timer is due, until the run is over."""
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
        problems = self.wire.problems()
        with self.lock:
            told: list[Told] = [one for text in problems for one in self.repeats.take(text, now)]
            # After this process itself was suspended, links get another check before they may time out.
            if now - self.looked_at < self.lease / 4:
                for peer, link in self.links.items():
                    told += self._note(peer, link.tick(now), now)
            self.looked_at = now
            self._pump(now, self.links)
        self._tell(told)

    def _arrive(self, peer: int, datagram: Datagram) -> bool:
        """Pass a neighbour's datagram to its link; return False if that link is down."""
        try:
            now = time.monotonic()
            with self.lock:
                if peer not in self.links or self.is_over:
                    return True
                self.received += datagram.n_bytes
                told = self._note(peer, self.links[peer].take(datagram, now), now)
                self._pump(now, [peer])
                is_up = self.links[peer].is_up
            self._tell(told)
        except BaseException as error:
            self.inbox.put(error)
            return True
        return is_up

    def _pump(self, now: float, peers: Iterable[int]) -> None:
        """Queue the datagrams that are ready to send. The caller holds the lock."""
        for peer in peers:
            if peer != self.busy:
                for datagram in self._outgoing(peer, now):
                    self.wire.send(peer, datagram)

    def _outgoing(self, peer: int, now: float) -> list[Datagram]:
        """Return the datagrams ready to send to a neighbour. The caller holds the lock."""
        link = self.links[peer]
        if link.is_idle(now):
            return []
        if link.is_up and now >= link.next_time:
            link.status = self.presence.status()
        found = link.outgoing(now, self.wire.room(peer))
        self.sent += sum(datagram.n_bytes for datagram in found)
        return found

    def _note(self, peer: int, events: list[Event], now: float) -> list[Told]:
        """Pass on a link's events, and return the reports for the user. The caller holds the lock."""
        told: list[Told] = []
        for event in events:
            if isinstance(event, Status):
                if self.presence.hear(peer, event, now):
                    self._announce(now)
                continue
            if isinstance(event, Greeted):
                ahead = steps_ahead(self.hello, event.hello) if event.hello.number == peer else 0
                if ahead > 0:
                    self.inbox.put((peer, self.links[peer].life, event))
                elif event.problem is not None and not ahead:  # a neighbour behind will catch up
                    told += self.repeats.take(event.problem, now)
                    self.refused[peer] = event.problem
                    is_ours = event.hello.number == peer and peer not in self.met
                    self.refusal = event.problem if is_ours else self.refusal
                elif not ahead:
                    self.hellos[peer] = event.hello
                continue
            if isinstance(event, Up):
                self.met.add(peer)
                self.refused.pop(peer, None)
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
        """Return the reason why a neighbour with this hello cannot have a link, or None if it can."""
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
        """Pass events to the session until the run is over."""
        self.session.send_early(self._send)
        self._send(self.session.start())
        for peer in sorted(set(without)):
            is_near = peer in self.session.neighbours
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
        """Pass an event to the session; return False if nothing can have changed, as after a part of a frame."""
        if isinstance(event, Up):
            self.lives[peer] = life
            self.frames.pop(peer, None)
            self._send(self.session.connect(peer))
        elif isinstance(event, Down):
            if self.lives.get(peer) is not None:
                self.lives[peer] = -1
                self._send(self.session.disconnect(peer))
        elif isinstance(event, Piece):
            self.waits.move(time.monotonic())
            if peer in self.session.connected and self.lives.get(peer) == life:
                self._take_piece(peer, event)
            with self.lock:
                link = self.links[peer]
                if link.life == life and link.is_up:
                    link.consume()
                    if link.must_tell:
                        self._pump(time.monotonic(), [peer])
            return event.is_last
        elif isinstance(event, Greeted):
            raise _Ended(self._follow(event.hello))
        return True

    def _follow(self, theirs: Hello) -> Outcome:
        """End this run, because a neighbour has finished it and is at a later step."""
        if self.follow():
            return Outcome("finished")
        done, name = self.hello.purpose, self.hello.name
        problem = f"{theirs.name} is at the {theirs.purpose}, {name} has not kept what came of the {done} before it"
        return Outcome("refused", f"{problem}; run with --fresh at all parties")

    def _take_piece(self, peer: int, piece: Piece) -> None:
        """Append a piece to its frame. The session checks the header before a buffer for more pieces is allocated."""
        session = self.session
        if piece.is_first:
            self.frames.pop(peer, None)
            start = bytes(piece.content[: session.HEADER_BYTES])
            length = session.expects(peer, start) if len(start) == session.HEADER_BYTES else len(start)
            if not length:
                self._send([])  # closes the link if the session now counts the neighbour as lost
                return
            if piece.is_last:  # as for most frames: no copy is needed
                self._send(session.receive(peer, piece.content))
                return
            self.frames[peer] = self.pool.bytes(length).data, 0
        if peer not in self.frames:
            return
        frame, place = self.frames.pop(peer)
        end = place + len(piece.content)
        if end > len(frame):
            self._send(session.receive(peer, bytes(frame[:place]) + piece.content))  # too long: the peer is lost
            return
        frame[place:end] = piece.content
        if piece.is_last:
            self._send(session.receive(peer, frame[:end].toreadonly()))
        else:
            self.frames[peer] = frame, end

    def _send(self, frames: list[Frame]) -> None:
        """Hand frames to the links that the session knows, and close the links that it no longer wants."""
        connected = self.session.connected
        unwanted = [peer for peer, life in self.lives.items() if life >= 0 and peer not in connected]
        if not frames and not unwanted:  # a frequent case, which needs no lock
            return
        now = time.monotonic()
        told: list[Told] = []
        receivers: set[int] = set()
        with self.lock:
            for frame in frames:
                link = self.links.get(frame.receiver)
                if link is not None and link.is_up and link.life == self.lives.get(frame.receiver):
                    link.send(frame.content)
                    receivers.add(frame.receiver)
            for peer in unwanted:
                link, life = self.links[peer], self.lives[peer]
                self.lives[peer] = -1
                told.append(Wrong(self.names[peer], self.session.losses.get(peer, "")))
                if link.is_up and link.life == life:
                    told += self._note(peer, link.end("it sent what it must not", now, pause=self.lease / 4), now)
                    self._pump(now, [peer])
        self._hand_over(receivers)
        self._tell(told)

    def _hand_over(self, receivers: set[int]) -> None:
        """Send the datagrams for these neighbours, in turn, until no more are ready.

        Sending may block. Meanwhile the other threads serve all neighbours but this one.
        """
        while receivers:
            for peer in sorted(receivers):
                with self.lock:
                    self.busy = peer
                    ready = self._outgoing(peer, time.monotonic())
                for datagram in ready:
                    self.wire.send(peer, datagram, may_wait=True)
                self.busy = None
                if not ready:
                    receivers.discard(peer)

    def _after_event(self) -> None:
        """Report progress, and end the run if it is over."""
        now, session = time.monotonic(), self.session
        self._show()
        is_early = now < self.checked_at + MOMENT
        if is_early and not (session.is_done or session.failure is not None or self.refusal is not None):
            return
        self.checked_at = now
        if session.is_done and self.then is not None:
            then, self.then = self.then, None
            self._send(then())
        with self.lock:
            if session.is_done and self.presence.finish(now):
                self._announce(now)
                self._pump(now, self.links)
            may_leave, awaited = self.presence.may_leave(now), tuple(self.presence.awaited(now))
            told = self.waits.look(self._awaited(awaited, now), now)
        self._tell([*told])
        if may_leave:
            raise _Ended(Outcome("finished"))
        if session.failure is not None:
            self._flush()
            raise _Ended(Outcome("failed", session.failure, awaited))
        if self.refusal is not None and self._flush():
            raise _Ended(Outcome("refused", self.refusal, awaited))
        if self.stop():
            raise _Ended(Outcome("interrupted", "stopped", awaited))
        if any(one.seconds > self.patience for one in awaited):
            names = ", ".join(one.name for one in awaited)
            said = f"{names} stayed away for longer than {self.patience:g} s"
            # An agent that was restarted at the very end may find that the others have finished and left.
            raise _Ended(Outcome("finished" if session.is_done else "gave up", said, awaited))

    def _awaited(self, absent: Collection[Awaited], now: float) -> list[Awaited]:
        """Return the agents that this one waits for. The caller holds the lock.

        These are the absent agents or, if all are present, those that have not sent.
        """
        session, presence, since = self.session, self.presence, self.waits.since
        numbers = {name: number for number, name in self.names.items()}
        found = [replace(one, refused=self.refused.get(numbers[one.name], "")) for one in absent]
        if not found and now - since > self.lease:
            peers = presence.unfinished() if session.is_done else session.waits_for
            found = [presence.describe(peer, since, now) for peer in sorted(peers) if peer in self.names]
        names = ", ".join(one.name for one in found)
        presence.doing = self.doing + (f", waiting for {names}" if names else "")
        return found

    def _flush(self) -> bool:
        """Wait until the neighbours have received the last datagrams, but not longer than a lease."""
        end = time.monotonic() + self.lease
        while time.monotonic() < end and not self.stop():
            with self.lock:
                links = self.links.values()
                if self.refusal is None and all(link.is_up and link.is_flushed for link in links):
                    break
            time.sleep(self.lease / TICKS)
        return True

    def _show(self) -> None:
        phase, start, iteration, bound = self.session.stage
        if (shown := (phase, start, iteration)) == self.shown:  # as after most events
            return
        self.shown = shown
        self.doing = f"iteration {iteration}" if iteration else phase  # neighbours can infer as much from messages
        self._tell([Progress(*shown, bound, self.sent, self.received, round(self.waited, 3))])


def _nonce() -> int:
    return secrets.randbits(64) | 1
