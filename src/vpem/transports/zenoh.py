"""The wire over zenoh: a peer that has exactly the links of the study.

Zenoh carries `vpem/<study>/<from>/<to>` from one agent to the other. With TLS both ends show certificates, and access
control lets an agent publish under its own number only: the common name of its certificate counts, not the name of
its machine. Certificates that are refused, and the like, are only in zenoh's own log (`vpem.transports.zenoh_log`).
"""

from __future__ import annotations

import atexit
import json
import math
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from vpem.transports.datagrams import HEADER_BYTES, PIECE_BYTES, Datagram
from vpem.transports.memory import keep_memory
from vpem.transports.zenoh_log import ZenohLog, without_places, zenoh_log

STUDY = re.compile(r"[A-Za-z0-9_-]{1,64}")
ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/:\[\]#?]+):([0-9]{1,5})")
QUEUE_BYTES = 2 * 1024 * 1024
"""To a neighbour, before its link holds pieces back."""
MOST_QUEUE_BYTES = 16 * 1024 * 1024
"""To a neighbour; what is sent beyond vanishes."""
INBOX = 64
"""Datagrams of a neighbour that wait in zenoh; its connection is not read on beyond that."""
QUICK_SECONDS = 0.01
"""That a datagram may take to be sent without a thread of its own."""
CLOSING_SECONDS = 1.0
"""For what is still to be sent."""
ENDING_SECONDS = 5.0
"""For threads."""
SILENT_SECONDS = 60.0
"""Until the same trouble is said again."""
MOST_MESSAGE_BYTES = 2 * (PIECE_BYTES + HEADER_BYTES)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A neighbour.

    Parameters
    ----------
    number : int
    name : str
    address : str
        "host:port", where it listens; only needed if this agent connects.
    certificate : str
        Common name of its certificate.
    connect : bool
        Whether this agent opens the connection; one of both ends does.
    """

    number: int
    name: str
    address: str = ""
    certificate: str = ""
    connect: bool = False


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Paths of the study's authority, and of this agent's certificate and key."""

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What one agent's wire needs to know.

    Parameters
    ----------
    study : str
        Letters, digits, "-" and "_".
    number : int
        This agent's.
    listen : str, optional
        "host:port"; None if all connections are opened from here.
    peers : tuple of Peer
    tls : Tls, optional
        None: plain TCP.
    lease : float
        Seconds of silence after which a connection has ended.
    """

    study: str
    number: int
    listen: str | None
    peers: tuple[Peer, ...]
    tls: Tls | None
    lease: float

    def __post_init__(self) -> None:
        if not STUDY.fullmatch(self.study):
            raise ValueError(f"expected a study's name of 1 to 64 letters, digits, - and _, got {self.study!r}")
        numbers = [self.number, *(peer.number for peer in self.peers)]
        if min(numbers) < 0 or len(set(numbers)) < len(numbers):
            raise ValueError(f"expected different agents of at least 0, got {numbers}")
        if self.lease <= 0:
            raise ValueError(f"expected a lease of more than 0 s, got {self.lease}")
        addresses = [peer.address for peer in self.peers if peer.connect]
        for address in [*addresses, *([] if self.listen is None else [self.listen])]:
            match = ADDRESS.fullmatch(address)
            if match is None or int(match[2]) > 65535:
                raise ValueError(f"expected an address such as north.example.org:7450, got {address!r}")
        if self.listen is None and not all(peer.connect for peer in self.peers):
            raise ValueError(
                "expected an address to listen at, as not all connections are opened from here, got None"
            )
        names = [peer.certificate for peer in self.peers]
        if self.tls is not None and (not all(names) or len(set(names)) < len(names)):
            raise ValueError(f"expected a different certificate's name for each neighbour, got {names}")


def open_wire(wiring: Wiring) -> ZenohWire:
    """Listen, and begin to connect; returns at once, whether or not the neighbours are there."""
    try:
        import zenoh
    except ImportError:
        raise ImportError("expected zenoh for real networks, got none; try: pip install 'vpem[zenoh]'") from None
    keep_memory()
    config = zenoh.Config()
    for name, value in settings(wiring).items():
        config.insert_json5(name, json.dumps(value))
    log = zenoh_log()
    log.open()
    log.lines()
    try:
        return ZenohWire(zenoh.open(config), wiring, log)
    except zenoh.ZError as error:
        log.close()
        where = "" if wiring.listen is None else f" at {wiring.listen}"
        raise OSError(f"could not begin to listen{where} or to connect: {without_places(str(error))}") from None


def settings(wiring: Wiring) -> dict[str, Any]:
    """Zenoh's configuration, by path."""
    scheme = "tcp" if wiring.tls is None else "tls"
    milliseconds = max(int(wiring.lease * 1000), 1)
    found: dict[str, Any] = {
        "mode": "peer",
        "listen/endpoints": [] if wiring.listen is None else [f"{scheme}/{wiring.listen}"],
        "connect/endpoints": [f"{scheme}/{peer.address}" for peer in wiring.peers if peer.connect],
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "connect/retry": {
            "period_init_ms": min(100, milliseconds),
            "period_max_ms": min(1000, milliseconds),
            "period_increase_factor": 1.5,
        },
        "scouting/delay": 0,
        "open/return_conditions/connect_scouted": False,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/shared_memory/enabled": False,
        "transport/link/protocols": [scheme],
        "transport/link/tx/lease": milliseconds,
        "transport/link/tx/queue/congestion_control/block/wait_before_close": 600_000_000,
        "transport/link/rx/max_message_size": MOST_MESSAGE_BYTES,
        # Connections that never say who they are must not keep others out.
        "transport/unicast/accept_pending": 1000,
        "transport/unicast/accept_timeout": min(5000, 2 * milliseconds),
    }
    if wiring.tls is not None:
        ca, certificate, key = (str(path) for path in (wiring.tls.ca, wiring.tls.certificate, wiring.tls.key))
        found["transport/link/tls"] = {
            "root_ca_certificate": ca,
            "listen_private_key": key,
            "listen_certificate": certificate,
            "connect_private_key": key,
            "connect_certificate": certificate,
            "enable_mtls": True,
            "verify_name_on_connect": False,  # access control looks at the certificate's own name
            "close_link_on_expiration": True,
        }
        found["access_control"] = access_control(wiring)
    return found


def access_control(wiring: Wiring) -> dict[str, Any]:
    """Who may publish and subscribe to what: each neighbour only on its own two keys."""
    rules, subjects, policies = [], [], []
    for peer in wiring.peers:
        ours, theirs = key(wiring.study, wiring.number, peer.number), key(wiring.study, peer.number, wiring.number)
        for flow, put, subscribe in (("ingress", theirs, ours), ("egress", ours, theirs)):
            for message, where in (("put", put), ("declare_subscriber", subscribe)):
                rules.append(
                    {
                        "id": f"{message} {flow} {peer.number}",
                        "permission": "allow",
                        "flows": [flow],
                        "messages": [message],
                        "key_exprs": [where],
                    }
                )
        subjects.append({"id": f"agent {peer.number}", "cert_common_names": [peer.certificate]})
        policies.append(
            {"rules": [rule["id"] for rule in rules[-4:]], "subjects": [f"agent {peer.number}"]},
        )
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }


def key(study: str, sender: int, receiver: int) -> str:
    """Where one agent publishes for another."""
    return f"vpem/{study}/{sender}/{receiver}"


class _Line:
    """What goes to and comes from one neighbour, in a thread each."""

    def __init__(self, session: Any, wiring: Wiring, peer: int):
        import zenoh

        self.peer = peer
        self._queue: SimpleQueue[Datagram | None] = SimpleQueue()
        self.n_queued = 0
        self.is_short = False
        """Whether there was no room, so that something may wait for it."""
        self._freed: Callable[[], object] = lambda: None
        self._is_quick = True
        """Whether the last datagram was sent at once."""
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

    def listen(self, take: Callable[[int, Datagram], object], freed: Callable[[], object]) -> None:
        self._freed = freed
        self._receiver = threading.Thread(
            target=self._receive, args=(take,), name=f"vpem-from-{self.peer}", daemon=True
        )
        self._receiver.start()

    def put_now(self, datagram: Datagram) -> None:
        """Send a datagram in this thread, unless others are queued, or it may take long."""
        if self.n_queued or not self._is_quick:
            self.put(datagram)
        else:
            with suppress(Exception):  # the session is closed
                self._publish(datagram)

    def _publish(self, datagram: Datagram) -> None:
        begin = time.monotonic()
        content = datagram.content
        if isinstance(content, memoryview):  # a whole frame is not copied here
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

    def _receive(self, take: Callable[[int, Datagram], object]) -> None:
        with suppress(Exception):
            for sample in self._subscriber:
                head = sample.attachment
                if not self._is_ending and head is not None:
                    take(self.peer, Datagram(head.to_bytes(), sample.payload.to_bytes()))

    def end(self, deadline: float) -> None:
        """Send what is queued, if there is time; what still comes is dropped, as zenoh cannot close with it."""
        self.put(None)
        self._sender.join(max(deadline - time.monotonic(), 0.0))
        self._is_ending = True

    def join(self, deadline: float) -> None:
        """Wait for the threads, when zenoh's session is closed: one inside zenoh must not outlive the interpreter."""
        for thread in (self._sender, self._receiver):
            if thread is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))


class _Guests:
    """Connections and the certificates that they show.

    Access control drops what a neighbour's certificate does not allow, without a word: this is where it is seen.
    """

    def __init__(self, session: Any, wiring: Wiring):
        import zenoh

        self._expected = {peer.certificate for peer in wiring.peers}
        self._opened = zenoh.SampleKind.PUT
        self._names: dict[str, str] = {}
        """By zenoh's own number of the other process."""
        self._listener = session.info.declare_link_events_listener(zenoh.handlers.FifoChannel(1024), history=True)

    def look(self) -> list[str]:
        """What was wrong with new connections."""
        found = []
        while (event := self._listener.try_recv()) is not None:
            link = event.link
            zid, name, where = str(link.zid), link.auth_identifier, link.dst
            if event.kind != self._opened:
                self._names.pop(zid, None)
                continue
            if name not in self._expected:
                found.append(f"refused {where}: it shows the certificate of {name!r}, which is no neighbour's")
            elif name in self._names.values() and zid not in self._names:
                found.append(f"refused {where} as another party: it shows the certificate of {name!r}, which is here")
            self._names[zid] = name
        return found


class ZenohWire:
    """A wire (`vpem.transports.running.Wire`) over zenoh; made by `open_wire`, and a context that closes it."""

    def __init__(self, session: Any, wiring: Wiring, log: ZenohLog):
        self._session, self._log = session, log
        self._guests = None if wiring.tls is None else _Guests(session, wiring)
        self._said: dict[str, float] = {}
        self._lines = {peer.number: _Line(session, wiring, peer.number) for peer in wiring.peers}
        self._is_closed = False
        atexit.register(self.close)  # an interpreter that ends with threads inside zenoh is aborted

    def listen(self, take: Callable[[int, Datagram], object], freed: Callable[[], object]) -> None:
        """Give `take` what comes, from a thread for each neighbour; `freed` is called when there is room again."""
        for line in self._lines.values():
            line.listen(take, freed)

    def send(self, peer: int, datagram: Datagram, *, may_wait: bool = False) -> None:
        """Queue a datagram, or send it now if this may wait a moment; it vanishes if too much is queued."""
        line = self._lines[peer]
        line.put_now(datagram) if may_wait else line.put(datagram)

    def room(self, peer: int) -> int:
        """How many more bytes to a neighbour are worth queueing now."""
        return QUEUE_BYTES - self._lines[peer].n_queued

    def problems(self) -> list[str]:
        """Troubles since the last call; one that comes again and again is only said once in a while."""
        found, now = [], time.monotonic()
        for text in self._log.lines() + ([] if self._guests is None else self._guests.look()):
            kind = re.sub(r"\d+", "", text)
            if now - self._said.get(kind, -math.inf) > SILENT_SECONDS:
                self._said[kind] = now
                found.append(text)
        return found

    def close(self) -> None:
        """End; what was queued is sent first, if that takes no longer than a moment."""
        if self._is_closed:
            return
        deadline = time.monotonic() + CLOSING_SECONDS
        for line in self._lines.values():
            line.end(deadline)
        with suppress(Exception):  # it may say that it takes long
            self._session.close()
        deadline = time.monotonic() + ENDING_SECONDS
        for line in self._lines.values():
            line.join(deadline)
        self._is_closed = True
        self._log.close()
        atexit.unregister(self.close)

    def __enter__(self) -> ZenohWire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
