"""Data that agents exchange to match rows: hellos for all agents, and parcels from one agent to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

from vpem.core.agent.meeting import MOST_PROOF

JOINS = ("inner", "outer")
MOST_IDS = 2**26
"""Maximum number of ids of one party."""
MOST_BESIDE = 2**16
"""Maximum number of bytes of a parcel in addition to its points."""
MAGIC = b"vpma2"
HELLO, LIST, TOKENS, RESULT, CHECK, KEPT, STOP = "hello", "list", "tokens", "result", "check", "kept", "stop"
HEAD_BYTES = 40
"""Bytes of the head of a result: the number of common rows, and a digest."""


class MatchingError(ValueError):
    """Error that prevents the matching of rows; it is reported to all agents."""


class Agents(NamedTuple):
    """Participants and settings of a matching, the same for all agents."""

    names: tuple[str, ...]
    """Names of all agents, by number."""
    links: tuple[tuple[int, int], ...]
    owners: tuple[int, ...]
    """Agents that have rows, in the order in which lists are passed on."""
    matcher: int
    """Agent that receives the tokens: a server, or one of the parties."""
    join: str
    """One of `JOINS`: the rows that all parties have, or the rows that any party has."""
    about: str
    """Digest of the other shared settings: the study and the rule for ids."""


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Announcement that each agent floods to all others at the beginning."""

    number: int
    nonce: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    public: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    count: Annotated[int, msgspec.Meta(ge=0, le=MOST_IDS)]
    """Number of rows of the agent."""
    about: Annotated[str, msgspec.Meta(max_length=256)]
    version: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] = 0
    """Version. The hello of an agent with the largest version is valid; the larger nonce breaks ties."""
    saved: Annotated[bytes, msgspec.Meta(max_length=HEAD_BYTES)] = b""
    """Head of the result that the agent has saved; empty without one."""
    proof: Annotated[bytes, msgspec.Meta(max_length=MOST_PROOF)] = b""

    @property
    def age(self) -> tuple[int, bytes]:
        """Sort key of the hellos of one agent, valid also across processes that do not know each other's hellos."""
        return self.version, self.nonce


class Parcel(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Content sent from one agent to another, over one or more links."""

    run: bytes
    kind: str
    source: int
    target: int
    owner: int
    content: bytes


def routes(links: Sequence[tuple[int, int]], number: int) -> dict[int, int]:
    """Return, for every other agent, the neighbour that is first on the shortest path to it."""
    beside: dict[int, list[int]] = {}
    for one, other in links:
        beside.setdefault(one, []).append(other)
        beside.setdefault(other, []).append(one)
    found, border = {number: number}, [number]
    while border:
        following = []
        for here in border:
            for other in sorted(beside.get(here, ())):
                if other not in found:
                    found[other] = other if here == number else found[here]
                    following.append(other)
        border = following
    del found[number]
    return found


def framed(parcel: Parcel) -> bytes:
    """Return a parcel as the bytes of a frame."""
    content = msgspec.msgpack.encode(parcel)
    return MAGIC + len(content).to_bytes(8, "big") + content


def label(parcel: Parcel) -> bytes:
    """Return the fields of a parcel that its seal authenticates, in addition to the run."""
    return msgspec.msgpack.encode((parcel.kind, parcel.source, parcel.target, parcel.owner))


def signed(hello: Hello, study: str) -> bytes:
    """Return the bytes that the proof of a hello signs: the study, and all other fields."""
    return b"vpem hello" + msgspec.msgpack.encode((study, msgspec.structs.replace(hello, proof=b"")))
