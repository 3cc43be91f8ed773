"""Links of an agent, and the zenoh configuration that follows from them.

With TLS both ends present certificates, and access control lets an agent publish under its own number only. The
common name of its certificate identifies the agent, not the name of its machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpem.transports.datagrams import HEADER_BYTES, PIECE_BYTES

STUDY = re.compile(r"[A-Za-z0-9_-]{1,64}")
ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/:\[\]#?]+):([0-9]{1,5})")
MOST_MESSAGE_BYTES = 2 * (PIECE_BYTES + HEADER_BYTES)


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


def settings(wiring: Wiring) -> dict[str, Any]:
    """Return zenoh's configuration, by path."""
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
        # In microseconds: after this time a datagram that finds no room closes the connection. A slow line needs less
        # for a piece. A connection that is not read at the other end must not delay the next one for long.
        "transport/link/tx/queue/congestion_control/block/wait_before_close": 2 * 1000 * milliseconds,
        "transport/link/rx/max_message_size": MOST_MESSAGE_BYTES,
        # Connections that never identify themselves must not keep others out.
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
            "verify_name_on_connect": False,  # access control checks the certificate's own name
            "close_link_on_expiration": True,
        }
        found["access_control"] = access_control(wiring)
    return found


def access_control(wiring: Wiring) -> dict[str, Any]:
    """Return the access rules: each neighbour may publish and subscribe only on its own two keys."""
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
    """Return the key under which one agent publishes for another."""
    return f"vpem/{study}/{sender}/{receiver}"
