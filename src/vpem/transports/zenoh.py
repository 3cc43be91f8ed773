"""Wire over zenoh: a zenoh peer that has exactly the links of the study.

Zenoh carries `vpem/<study>/<from>/<to>` from one agent to the other (`vpem.transports.zenoh_config`). Refused
certificates and similar problems appear only in zenoh's own log (`vpem.transports.zenoh_log`).

A zenoh session that has lost a connection may never get another one. The other end can still count the old
connection, or fail to deliver the messages, for example if one of the two processes was suspended for longer than the
lease. Or it gets one that works in one direction only. Zenoh identifies a session by a random number, so a new
session is not affected. Hence every outgoing connection has its own session, which is replaced when for
`STALE_LEASES` leases nothing has arrived through it from a neighbour that also hears this agent. All incoming
connections share one session: their other ends replace theirs.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from vpem.transports.datagrams import Datagram, Take
from vpem.transports.wiring import Wiring
from vpem.transports.zenoh_config import key, settings
from vpem.transports.zenoh_log import logged_problems, without_places

QUEUE_BYTES = 2 * 1024 * 1024
"""Number of queued bytes to a neighbour at which its link holds pieces back."""
MOST_QUEUE_BYTES = 16 * 1024 * 1024
"""Maximum number of queued bytes to a neighbour; further datagrams are dropped."""
INBOX = 64
"""Maximum number of a neighbour's datagrams that wait in zenoh; then its connection is not read any further."""
QUICK_SECONDS = 0.01
"""Maximum time to send a datagram for which the next one may be sent in the caller's thread."""
CLOSING_SECONDS = 1.0
"""Time limit for queued datagrams when the wire is closed."""
ENDING_SECONDS = 5.0
"""Time limit for threads to end."""
RENEWING_SECONDS = 15.0
"""Time limit for the replacement of a session: zenoh may take 10 s to close one."""
STALE_LEASES = 3
"""Number of leases without a link in both directions after which an outgoing connection is replaced."""
DOUBLE_LEASES = 2
"""Number of leases after which two connections with one certificate are two processes.

The old connection of a neighbour that reconnected expires within one lease. A stranger's is replaced by its own end
after `STALE_LEASES`, so it must be reported before that.
"""
LOOKS = 8
"""Number of checks for stale sessions per lease."""


def open_wire(wiring: Wiring) -> ZenohWire:
    """Start to listen and to connect; return at once, whether or not the neighbours are reachable."""
    try:
        import zenoh
    except ImportError:
        raise ImportError("expected zenoh for real networks, got none; try: pip install 'vpem[zenoh]'") from None
    logged_problems()  # drops those of earlier wires
    trunks: list[_Trunk] = []
    try:
        for part in parts(wiring):
            trunks += [_Trunk(part)]
    except zenoh.ZError as error:
        for trunk in trunks:
            trunk.close()
        where = "" if wiring.listen is None else f" at {wiring.listen}"
        raise OSError(f"could not begin to listen{where} or to connect: {without_places(str(error))}") from None
    return ZenohWire(trunks, wiring.lease)


def parts(wiring: Wiring) -> list[Wiring]:
    """Return a wiring for each zenoh session: one for all incoming connections, and one for each outgoing one."""
    outside = tuple(peer for peer in wiring.peers if not peer.connect)
    found = [replace(wiring, peers=outside)] if outside else []
    return found + [replace(wiring, listen=None, peers=(peer,)) for peer in wiring.peers if peer.connect]


class _Line:
    """Datagrams to and from one neighbour, with a thread for each direction."""

    def __init__(self, session: Any, wiring: Wiring, peer: int):
        import zenoh

        self.peer = peer
        self.heard = time.monotonic()
        """Time at which the last datagram arrived while the neighbour heard this agent; at first, now."""
        self._queue: SimpleQueue[Datagram | None] = SimpleQueue()
        self.n_queued = 0
        self.is_short = False
        """True if the queue had no room, so that a link may be waiting for it."""
        self._freed: Callable[[], object] = lambda: None
        self._is_quick = True
        """True if the last datagram was sent within `QUICK_SECONDS`."""
        self._lock = threading.Lock()
        self._is_ending = False
        self._subscriber = session.declare_subscriber(
            key(wiring.study, peer, wiring.number), zenoh.handlers.FifoChannel(INBOX)
        )
        self._publisher = session.declare_publisher(
            key(wiring.study, wiring.number, peer),
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
            express=True,
        )
        self._sender = threading.Thread(target=self._send, name=f"vpem-to-{peer}", daemon=True)
        self._sender.start()
        self._receiver: threading.Thread | None = None

    def listen(self, take: Take, freed: Callable[[], object]) -> None:
        self._freed = freed
        self._receiver = threading.Thread(
            target=self._receive, args=(take,), name=f"vpem-from-{self.peer}", daemon=True
        )
        self._receiver.start()

    def put_now(self, datagram: Datagram) -> None:
        """Send a datagram in this thread, unless others are queued or sending may take long."""
        if self.n_queued or not self._is_quick:
            self.put(datagram)
        else:
            with suppress(Exception):  # the session is closed
                self._publish(datagram)

    def _publish(self, datagram: Datagram) -> None:
        begin = time.monotonic()
        content = datagram.content
        if isinstance(content, memoryview):  # avoids a copy of a whole frame
            frame: Any = content.obj
            content = frame if len(frame) == len(content) else bytes(content)
        self._publisher.put(content, attachment=datagram.head)
        self._is_quick = time.monotonic() - begin < QUICK_SECONDS

    def put(self, datagram: Datagram | None) -> None:
        n_bytes = 0 if datagram is None else datagram.n_bytes
        with self._lock:
            if self.n_queued + n_bytes > MOST_QUEUE_BYTES:
                return
            self.n_queued += n_bytes
            self.is_short = self.is_short or self.n_queued >= QUEUE_BYTES
        self._queue.put(datagram)

    def _send(self) -> None:
        with suppress(Exception):  # the session is closed
            while (datagram := self._queue.get()) is not None:
                self._publish(datagram)
                with self._lock:
                    self.n_queued -= datagram.n_bytes
                    is_freed = self.is_short and self.n_queued <= QUEUE_BYTES // 2
                    if is_freed:
                        self.is_short = False
                if is_freed:
                    self._freed()

    def _receive(self, take: Take) -> None:
        with suppress(Exception):
            for sample in self._subscriber:
                head = sample.attachment
                if self._is_ending or head is None:
                    continue
                if take(self.peer, Datagram(head.to_bytes(), sample.payload.to_bytes())):
                    self.heard = time.monotonic()

    def end(self, deadline: float) -> None:
        """Send queued datagrams if there is time. Later arrivals are dropped, as zenoh cannot close with them."""
        self.put(None)
        self._sender.join(max(deadline - time.monotonic(), 0.0))
        self._is_ending = True

    def join(self, deadline: float) -> None:
        """Wait for the threads after zenoh's session is closed: none inside zenoh must outlive the interpreter."""
        for thread in (self._sender, self._receiver):
            if thread is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))


class _Guests:
    """Connections and the certificates that they present.

    Access control silently drops everything that a neighbour's certificate does not allow. This class reports it.

    Parameters
    ----------
    session : zenoh.Session
    lines : dict
        Lines by the name of the certificate that the neighbour presents.
    lease : float
    """

    def __init__(self, session: Any, lines: dict[str, _Line], lease: float):
        import zenoh

        self._lines, self._lease = lines, lease
        self._opened = zenoh.SampleKind.PUT
        self._names: dict[str, str] = {}
        """Names of the certificates, by zenoh's own number of the other process."""
        self._doubles: dict[str, tuple[float, str]] = {}
        """Time and address of connections that present a certificate already in use, by zenoh's number."""
        self._listener = session.info.declare_link_events_listener(zenoh.handlers.FifoChannel(1024), history=True)

    def look(self) -> list[str]:
        """Return what was wrong with new connections."""
        found, now = [], time.monotonic()
        with suppress(Exception):  # the session is closed
            while (event := self._listener.try_recv()) is not None:
                link = event.link
                zid, name, where = str(link.zid), link.auth_identifier, link.dst
                if event.kind != self._opened:
                    self._names.pop(zid, None)
                    self._doubles.pop(zid, None)
                    continue
                if name not in self._lines:
                    found.append(f"refused {where}: it shows the certificate of {name!r}, which is not expected")
                elif name in self._names.values() and zid not in self._names:
                    self._doubles[zid] = now, where
                self._names[zid] = name
        return found + self._intruders(now)

    def _intruders(self, now: float) -> list[str]:
        """Report others with a neighbour's certificate, after the time in which that one may have reconnected."""
        due = [zid for zid, (since, _) in self._doubles.items() if now - since > DOUBLE_LEASES * self._lease]
        found = []
        for zid in due:
            name, (_, where) = self._names[zid], self._doubles.pop(zid)
            is_heard = now - self._lines[name].heard < self._lease
            if is_heard and list(self._names.values()).count(name) > 1:
                found.append(f"refused {where} as another party: it shows the certificate of {name!r}, which is here")
        return found


class _Trunk:
    """A zenoh session, and the lines that use it."""

    def __init__(self, wiring: Wiring):
        import zenoh

        config = zenoh.Config()
        for name, value in settings(wiring).items():
            config.insert_json5(name, json.dumps(value))
        self.wiring = wiring
        self._session: Any = zenoh.open(config)
        self.lines = {peer.number: _Line(self._session, wiring, peer.number) for peer in wiring.peers}
        self._guests: _Guests | None = None
        if wiring.tls is not None:
            by_name = {peer.certificate: self.lines[peer.number] for peer in wiring.peers}
            self._guests = _Guests(self._session, by_name, wiring.lease)

    def look(self) -> list[str]:
        """Return what was wrong with new connections."""
        return [] if self._guests is None else self._guests.look()

    def is_stale(self, now: float) -> bool:
        """True if the session should be replaced. One that listens never is: that would close all its connections."""
        silent = now - max(line.heard for line in self.lines.values())
        return self.wiring.listen is None and silent > STALE_LEASES * self.wiring.lease

    def spare(self, now: float) -> None:
        """Restart the measurement of silence now."""
        for line in self.lines.values():
            line.heard = now

    def close(self, seconds: float = 0.0) -> None:
        """Close the session; queued datagrams are sent first, for at most the given number of seconds."""
        deadline = time.monotonic() + seconds
        for line in self.lines.values():
            line.end(deadline)
        with suppress(Exception):  # zenoh may raise an error if it takes long
            self._session.close()
        deadline = time.monotonic() + ENDING_SECONDS
        for line in self.lines.values():
            line.join(deadline)


class ZenohWire:
    """Wire (`vpem.transports.wiring.Wire`) over zenoh, created by `open_wire`; a context manager that closes it."""

    def __init__(self, trunks: list[_Trunk], lease: float):
        self._trunks, self._lease = trunks, lease
        self._lines = {number: line for trunk in trunks for number, line in trunk.lines.items()}
        self._listening: tuple[Take, Callable[[], object]] | None = None
        self._lock = threading.Lock()
        """Held while trunks are replaced, and while their listeners are set."""
        self._renewals: dict[int, threading.Thread] = {}
        """Threads that replace trunks, by place of the trunk."""
        self._over = threading.Event()
        self._is_closed = False
        self._keeper = threading.Thread(target=self._keep, name="vpem-keeper", daemon=True)
        self._keeper.start()
        atexit.register(self.close)  # an interpreter that exits with threads inside zenoh is aborted

    def listen(self, take: Take, freed: Callable[[], object]) -> None:
        """Pass arriving datagrams to `take`, from a thread per neighbour; call `freed` when there is room again."""
        with self._lock:
            self._listening = take, freed
            for line in self._lines.values():
                line.listen(take, freed)

    def send(self, peer: int, datagram: Datagram, *, may_wait: bool = False) -> None:
        """Queue a datagram, or send it now if the call may block for a moment; drop it if the queue is full."""
        line = self._lines[peer]
        line.put_now(datagram) if may_wait else line.put(datagram)

    def room(self, peer: int) -> int:
        """Return the number of further bytes to a neighbour that are worth queueing now."""
        return QUEUE_BYTES - self._lines[peer].n_queued

    def problems(self) -> list[str]:
        """Return the problems since the last call, in words."""
        return logged_problems() + [text for trunk in self._trunks for text in trunk.look()]

    def _keep(self) -> None:
        """Replace sessions through which nothing arrives, until the wire is closed."""
        looked = time.monotonic()
        while not self._over.wait(self._lease / LOOKS):
            now = time.monotonic()
            if now - looked > self._lease:  # this process was suspended: give its neighbours time
                for trunk in self._trunks:
                    trunk.spare(now)
            looked = now
            for place, trunk in enumerate(self._trunks):
                is_renewing = place in self._renewals and self._renewals[place].is_alive()
                if trunk.is_stale(now) and not is_renewing:
                    thread = threading.Thread(target=self._renew, args=(place,), name="vpem-renewal", daemon=True)
                    self._renewals[place] = thread
                    thread.start()

    def _renew(self, place: int) -> None:
        """Replace a session. Datagrams in transit are lost; links handle the loss."""
        old = self._trunks[place]
        old.close()
        if self._over.is_set():
            return
        with suppress(Exception):  # retried, as the old session stays stale
            new = _Trunk(old.wiring)
            with self._lock:
                self._trunks[place] = new
                self._lines |= new.lines
                listening = self._listening
                if listening is not None:
                    for line in new.lines.values():
                        line.listen(*listening)
            if listening is not None:
                listening[1]()  # the new queues have room

    def close(self) -> None:
        """Close the wire. Queued datagrams are sent first, if that takes no longer than a moment."""
        if self._is_closed:
            return
        self._over.set()
        deadline = time.monotonic() + RENEWING_SECONDS
        for thread in (self._keeper, *self._renewals.values()):
            thread.join(max(deadline - time.monotonic(), 0.0))
        _all_at_once([trunk.close for trunk in self._trunks])
        self._is_closed = True
        atexit.unregister(self.close)

    def __enter__(self) -> ZenohWire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _all_at_once(closings: list[Callable[[float], object]]) -> None:
    """Close several trunks concurrently, as each may take long."""
    threads = []
    for close in closings[1:]:
        thread = threading.Thread(target=close, args=(CLOSING_SECONDS,), name="vpem-closing", daemon=True)
        try:
            thread.start()
            threads.append(thread)
        except RuntimeError:  # an interpreter that exits starts no new threads
            close(CLOSING_SECONDS)
    for close in closings[:1]:
        close(CLOSING_SECONDS)
    for thread in threads:
        thread.join(RENEWING_SECONDS)
