"""What agents that match rows send each other: hellos that all get, and parcels from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

from vpem.core.agent.meeting import MOST_PROOF

JOINS = ("inner", "outer")
MOST_IDS = 2**26
"""Of one party."""
MOST_BESIDE = 2**16
"""Bytes of a parcel beside its points."""
MAGIC = b"vpma1"
HELLO, LIST, TOKENS, RESULT, CHECK, STOP = "hello", "list", "tokens", "result", "check", "stop"


class MatchingError(ValueError):
    """Rows that cannot be matched; all agents are told."""


class Frame(NamedTuple):
    """Bytes for one neighbour."""

    receiver: int
    content: bytes


class Agents(NamedTuple):
    """Who takes part: the same for all of them."""

    names: tuple[str, ...]
    """Of all agents, by number."""
    links: tuple[tuple[int, int], ...]
    owners: tuple[int, ...]
    """The agents that have rows, in the order in which lists go around."""
    matcher: int
    """The agent that gets the tokens: a server, or one of the parties."""
    join: str
    """One of `JOINS`: rows that all have, or rows that some have."""
    about: str
    """Digest of what else must be the same: the study, the rule for ids."""


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an agent tells all others at the beginning."""

    number: int
    nonce: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    public: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    count: Annotated[int, msgspec.Meta(ge=0, le=MOST_IDS)]
    """How many rows it has."""
    about: Annotated[str, msgspec.Meta(max_length=256)]
    version: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] = 0
    """Of two hellos of an agent, the one with the larger version counts."""
    proof: Annotated[bytes, msgspec.Meta(max_length=MOST_PROOF)] = b""


class Parcel(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one agent sends to another, over some links."""

    run: bytes
    kind: str
    source: int
    target: int
    owner: int
    content: bytes


def routes(links: Sequence[tuple[int, int]], number: int) -> dict[int, int]:
    """For every other agent, the neighbour over which the shortest way to it begins."""
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


def label(parcel: Parcel) -> bytes:
    """What a seal is bound to beside the run."""
    return msgspec.msgpack.encode((parcel.kind, parcel.source, parcel.target, parcel.owner))


def signed(hello: Hello, study: str) -> bytes:
    """What the proof of a hello is about: all of it, and the study."""
    return b"vpem hello" + msgspec.msgpack.encode((study, msgspec.structs.replace(hello, proof=b"")))
