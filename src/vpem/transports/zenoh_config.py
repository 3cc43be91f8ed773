"""Zenoh's configuration for the wiring of an agent.

With TLS access control lets a neighbour publish under its own number only.
"""

from __future__ import annotations

from typing import Any

from vpem.transports.datagrams import HEADER_BYTES, PIECE_BYTES
from vpem.transports.wiring import Wiring

MOST_MESSAGE_BYTES = 2 * (PIECE_BYTES + HEADER_BYTES)


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
