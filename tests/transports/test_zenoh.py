"""What a wire over zenoh is made of; what it does is in tests/network."""

import threading
import time
from pathlib import Path

import pytest

from network.harness import free_ports
from vpem.transports.datagrams import PIECE_BYTES, Datagram
from vpem.transports.wiring import Peer, Tls, Wiring
from vpem.transports.zenoh import QUEUE_BYTES, STALE_LEASES, open_wire
from vpem.transports.zenoh_config import access_control, settings
from vpem.transports.zenoh_log import _LINE, _problem

TLS = Tls(ca=Path("ca"), certificate=Path("certificate"), key=Path("key"))
PEERS = (
    Peer(number=1, name="b", address="b.example:7450", certificate="cb", connect=True),
    Peer(number=2, name="c", certificate="cc"),
)
GOOD = {"study": "s-1_A", "number": 0, "listen": "0.0.0.0:7450", "peers": PEERS, "tls": TLS, "lease": 10.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"study": "a/b"}, "letters, digits"),
        ({"study": "*"}, "letters, digits"),
        ({"study": ""}, "letters, digits"),
        ({"number": 1}, "different agents"),
        ({"number": -1}, "at least 0"),
        ({"lease": 0.0}, "more than 0 s"),
        ({"listen": "7450"}, "an address such as"),
        ({"listen": "host:99999"}, "an address such as"),
        ({"listen": "host:7450#iface=eth0"}, "an address such as"),
        ({"listen": None}, "to listen at"),
        ({"peers": (PEERS[0], Peer(number=2, name="c", certificate="cb"))}, "a different certificate's name"),
    ],
)
def test_bad_wirings_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        Wiring(**{**GOOD, **changes})


def test_a_wiring_has_the_links_of_the_study_and_no_others():
    found = settings(Wiring(**GOOD))
    assert found["listen/endpoints"] == ["tls/0.0.0.0:7450"]
    assert found["connect/endpoints"] == ["tls/b.example:7450"]
    assert not found["scouting/gossip/enabled"]
    assert not found["scouting/multicast/enabled"]
    plain = settings(Wiring(**{**GOOD, "tls": None}))
    assert plain["transport/link/protocols"] == ["tcp"]
    assert "access_control" not in plain


def test_a_neighbour_may_only_speak_for_itself():
    found = access_control(Wiring(**GOOD))
    assert found["default_permission"] == "deny"
    rules = {rule["id"]: rule for rule in found["rules"]}
    for policy, (number, name) in zip(found["policies"], ((1, "cb"), (2, "cc")), strict=True):
        [subject] = [one for one in found["subjects"] if one["id"] in policy["subjects"]]
        assert subject["cert_common_names"] == [name]
        allowed = {
            (rules[one]["flows"][0], rules[one]["messages"][0], rules[one]["key_exprs"][0]) for one in policy["rules"]
        }
        assert allowed == {
            ("ingress", "put", f"vpem/s-1_A/{number}/0"),
            ("egress", "put", f"vpem/s-1_A/0/{number}"),
            ("ingress", "declare_subscriber", f"vpem/s-1_A/0/{number}"),
            ("egress", "declare_subscriber", f"vpem/s-1_A/{number}/0"),
        }


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "WARN acc-0 ThreadId(05) zenoh_link_tls::unicast: invalid peer certificate: UnknownIssuer. Hint: "
            "increase the system open file limit.",
            "a connection: its certificate is not valid in this study (UnknownIssuer)",
        ),
        ("WARN ThreadId(01) zenoh::net::routing::hat::peer: Gossip is disabled: cannot de-duplicate", None),
        ("DEBUG net-0 ThreadId(03) zenoh::net::runtime::orchestrator: Try to connect: tcp/a:1", None),
        (
            "DEBUG net-0 ThreadId(03) zenoh::net::runtime::orchestrator: Unable to connect to configured peer "
            "tls/a:1! received fatal alert: UnknownCA at /build/zenoh/unicast.rs:226.. Retry in 100ms.",
            "a:1: it does not accept this party's certificate (UnknownCA)",
        ),
        (
            "DEBUG net-0 ThreadId(03) zenoh::net::runtime::orchestrator: Unable to connect to configured peer "
            "tls/a:1! Received a close message (reason MAX_LINKS) in response to an OpenSyn on: "
            "TransportLinkUnicast { link: Link { src: tls/127.0.0.1:36858, dst: tls/a:1, mtu: 4 } }. Retry in 1s.",
            "a:1: it still counts an old connection of this party; another one is tried (MAX_LINKS)",
        ),
        (
            "WARN acc-0 ThreadId(05) zenoh_transport::unicast: Received a close message (reason MAX_LINKS) in",
            None,
        ),
        (
            "WARN acc-0 ThreadId(05) zenoh_link_tls::unicast: something new on: Link { src: tls/127.0.0.1:3 }",
            "a connection: zenoh says: something new on: ...",
        ),
        ("DEBUG net-0 ThreadId(03) zenoh::net::runtime::orchestrator: Unable to connect: Connection refused", None),
    ],
)
def test_zenohs_log_in_words(line, problem):
    assert _problem(_LINE.fullmatch(f"2026-11-17T05:44:23.489620Z  {line}")[1]) == problem


def two_ends(lease):
    """Wirings of two agents; the first connects to the second."""
    ports = free_ports(2)
    return [
        Wiring(
            study="s",
            number=number,
            listen=f"127.0.0.1:{ports[1]}" if number else None,
            peers=(Peer(number=1 - number, name="x", address=f"127.0.0.1:{ports[1]}", connect=number == 0),),
            tls=None,
            lease=lease,
        )
        for number in range(2)
    ]


@pytest.mark.parametrize("hears", [True, False], ids=["both ways", "one way"])
def test_a_connection_that_works_in_one_direction_only_is_replaced(hears):
    """A server that was suspended was heard again but did not hear, and no new connection was made."""
    ends = two_ends(0.25)
    sessions, arrived = set(), [0]

    def take(*_):
        sessions.add(id(one._lines[1]))
        arrived[0] += 1
        return hears

    with open_wire(ends[0]) as one, open_wire(ends[1]) as other:
        other.listen(lambda *_: True, lambda: None)
        one.listen(take, lambda: None)
        end = time.monotonic() + (60 if not hears else 3 * STALE_LEASES * ends[0].lease)
        while time.monotonic() < end and len(sessions) < 3:
            other.send(0, Datagram(b"x", b"x"))
            time.sleep(0.05)
    assert arrived[0] > 5
    assert len(sessions) == (1 if hears else 3)


def test_a_neighbour_without_room_wakes_the_wire_when_there_is_room_again():
    """Without it, two megabytes went out at each look at the time."""
    ends = two_ends(2.0)
    freed = threading.Event()
    with open_wire(ends[0]) as one, open_wire(ends[1]):
        one.listen(lambda *_: True, freed.set)
        assert one.room(1) == QUEUE_BYTES
        for _ in range(QUEUE_BYTES // PIECE_BYTES):
            one.send(1, Datagram(b"", bytes(PIECE_BYTES)))
        assert freed.wait(20), "woken"
        assert one.room(1) > 0
