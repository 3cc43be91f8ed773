"""Wires between the agents of a study: what a wire is told and what it does, whatever carries its datagrams.

With TLS both ends present certificates. The common name of its certificate identifies an agent, not the name of its
machine. A new kind of wire is one file, and one line in `WIRES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from vpem.transports.datagrams import Datagram, Take

WIRES = {"zenoh": "vpem.transports.zenoh"}
"""Module of each kind of wire; its function `open_wire` takes a `Wiring`."""
STUDY = re.compile(r"[A-Za-z0-9_-]{1,64}")
ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/:\[\]#?]+):([0-9]{1,5})")


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A neighbour.

    Parameters
    ----------
    number : int
    name : str
    address : str
        "host:port" at which it listens; needed only if this agent connects.
    certificate : str
        Common name of its certificate.
    connect : bool
        True if this agent opens the connection; one of the two ends does.
    """

    number: int
    name: str
    address: str = ""
    certificate: str = ""
    connect: bool = False


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Paths of the study's certificate authority, and of this agent's certificate and key."""

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Configuration of one agent's wire.

    Parameters
    ----------
    study : str
        Name of letters, digits, "-" and "_".
    number : int
        Number of this agent.
    listen : str, optional
        "host:port" at which to listen; None if this agent opens all connections.
    peers : tuple of Peer
    tls : Tls, optional
        None for plain TCP.
    lease : float
        Seconds of silence after which a connection ends.
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


class Wire(Protocol):
    """Best-effort carrier of datagrams between linked agents: datagrams sent during an interruption are lost."""

    def listen(self, take: Take, freed: Callable[[], object]) -> None:
        """Pass all datagrams that arrive from now on to `take`. Call this once.

        Threads of the wire call `take`, in order for each neighbour. It returns False if the neighbour does not hear
        this agent, so that the wire may have to connect again. The threads call `freed` when a neighbour's queue that
        was full has room again.
        """

    def send(self, peer: int, datagram: Datagram, *, may_wait: bool = False) -> None:
        """Queue a datagram, or send it at once if the call may block for a moment and nothing is queued."""

    def room(self, peer: int) -> int:
        """Return the number of further bytes to a neighbour that are worth queueing now."""

    def problems(self) -> list[str]:
        """Return the refusals and other problems since the last call, in words."""

    def close(self) -> None:
        """Close the wire. Queued datagrams are sent first, if that takes no longer than a moment."""


def open_wire(wiring: Wiring, kind: str = "zenoh") -> Wire:
    """Start to listen and to connect; return at once, whether or not the neighbours are reachable."""
    wire: Wire = import_module(WIRES[kind]).open_wire(wiring)
    return wire
