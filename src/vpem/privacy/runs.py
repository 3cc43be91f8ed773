"""One run of a matching, as one agent has it: its secret, the lists and checks that have come, and its result."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from vpem.privacy.parcels import Hello
from vpem.privacy.points import PointError

HEAD_BYTES = 40
"""Of a result: the number of common rows, and a digest."""


class Matched(NamedTuple):
    """What a party knows in the end."""

    rows: NDArray[np.int64]
    """(n_ids,): which row of the common table each of its rows is, in the order of its own table; -1 if none."""
    n_rows: int
    """Of the common table."""
    digest: str
    """The same at all parties."""
    counts: Mapping[str, int]
    """How many rows each party has brought."""


class Run:
    """What an agent has of one run, which the hellos of all agents name."""

    def __init__(self, hellos: Mapping[int, Hello]):
        self.hellos = dict(hellos)
        encoded = msgspec.msgpack.encode([self.hellos[number] for number in sorted(self.hellos)])
        self.number = hashlib.sha256(b"vpem matching" + encoded).digest()[:16]
        self.secret, self.order = b"", list[int]()
        self.lists: dict[int, list[bytes]] = {}
        """At the matcher: the finished ones."""
        self.raised: set[int] = set()
        """Owners whose lists this agent has multiplied: a label is sealed once."""
        self.matched: Matched | None = None
        self.checks: dict[int, bytes] = {}

    def read_result(self, content: bytes, counts: Mapping[str, int], join: str) -> Matched:
        """What the matcher tells an owner; PointError if it cannot be."""
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
    """An order that the system draws."""
    order = list(range(count))
    secrets.SystemRandom().shuffle(order)
    return order
