"""State of one agent in one run of a matching: its secret, the received lists and checks, and its result."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from vpem.privacy.parcels import HEAD_BYTES, TOKENS, Agents, Hello, Parcel
from vpem.privacy.points import PointError


class Matched(NamedTuple):
    """Result of a matching at one party."""

    rows: NDArray[np.int64]
    """Shape (n_ids,): row of the common table for each row of the party's own table, in its order; -1 without one."""
    n_rows: int
    """Number of rows of the common table."""
    digest: str
    """Digest of the common rows, equal for all parties."""
    counts: Mapping[str, int]
    """Number of rows of each party, by name."""

    @property
    def head(self) -> bytes:
        """Number of common rows and digest, equal for all parties."""
        return self.n_rows.to_bytes(8, "big") + bytes.fromhex(self.digest)


class Run:
    """State of one agent in one run, which is identified by the hellos of all agents."""

    def __init__(self, hellos: Mapping[int, Hello]):
        self.hellos = dict(hellos)
        encoded = msgspec.msgpack.encode([self.hellos[number] for number in sorted(self.hellos)])
        self.number = hashlib.sha256(b"vpem matching" + encoded).digest()[:16]
        self.secret, self.order = b"", list[int]()
        self.lists: dict[int, list[bytes]] = {}
        """Finished lists by owner, at the matcher."""
        self.raised: set[int] = set()
        """Owners whose lists this agent has multiplied; it seals each label only once."""
        self.matched: Matched | None = None
        self.checks: dict[int, bytes] = {}
        """Head of the result that each agent received, by agent."""
        self.kept: dict[int, bytes] = {}
        """Head of the result that each owner has saved, by owner."""

    def check_turn(self, agents: Agents, number: int, parcel: Parcel, n_points: int) -> None:
        """Raise PointError unless it is the sender's turn to send this list, with this length, for the first time."""
        owner, owners, is_final = parcel.owner, agents.owners, parcel.kind == TOKENS
        count = self.hellos[owner].count if owner in owners else 0
        is_right = number == agents.matcher if is_final else number in owners and owner != number
        if is_right and owner in owners:
            before = owners[owners.index(owner if is_final else number) - 1]
            is_right = parcel.source == before and n_points == count
        if not is_right or owner not in owners:
            raise PointError(f"expected {count} points, in its turn")
        if owner in (self.lists if is_final else self.raised):
            raise PointError("expected a list once, got it again")

    def read_result(self, content: bytes, counts: Mapping[str, int], join: str) -> Matched:
        """Decode the matcher's result for an owner; raise PointError if it is invalid."""
        head, rows = content[:HEAD_BYTES], np.frombuffer(content[HEAD_BYTES:], "<i8").astype(np.int64)
        n_rows = int.from_bytes(head[:8], "big")
        kept = rows[rows >= 0]
        if len(rows) != len(self.order) or len(np.unique(kept)) < len(kept):
            raise PointError("expected a position for each row, from the matcher")
        if len(kept) and (kept.max() >= n_rows or rows.min() < -1):
            raise PointError(f"expected positions below {n_rows}")
        if join == "inner" and (len(kept) != n_rows or n_rows > min(counts.values())):
            raise PointError(f"expected {n_rows} common rows to be rows of this party, got {len(kept)}")
        if n_rows > sum(counts.values()):
            raise PointError(f"expected at most {sum(counts.values())} rows of all parties, got {n_rows}")
        own = np.empty(len(rows), dtype=np.int64)
        own[self.order] = rows
        return Matched(own, n_rows, head[8:].hex(), counts)


def shuffled(count: int) -> list[int]:
    """Return a random permutation of `count` numbers, drawn by the operating system."""
    order = list(range(count))
    secrets.SystemRandom().shuffle(order)
    return order
