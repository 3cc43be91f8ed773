"""Values of a sum: what it adds, its rounds and messages, and the place of each agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from vpem.core.buffer_pool import NO_POOL, BufferPool
from vpem.core.network.hubs import Position
from vpem.core.network.memo import Memo
from vpem.core.network.parties import Network

Array = NDArray[np.float64]
Memory = Mapping[str, NDArray[Any]]
"""Named arrays: plain values that can be saved at any moment."""

NO_MEMORY: Memory = {}

Audience = frozenset[Position] | None
"""The agents that need a sum; None: all."""


class SumKind(Enum):
    """What a sum adds."""

    SINGLE = ""
    """A sum that belongs to no series."""
    HOLDERS = "holders"
    """Counts of the blocks that have each row: each adds 1 or 0."""
    CLUSTER = "cluster"
    """Squared distances of k-means."""
    ITERATE = "iterate"
    """Log-densities of EM: only differences within a row matter."""


class Series(NamedTuple):
    """Sequence of sums of one kind over the same rows within one start; false for a single sum."""

    kind: SumKind = SumKind.SINGLE
    batch: int = 0
    """Number of the batch of rows."""

    def __bool__(self) -> bool:
        return self.kind is not SumKind.SINGLE

    @property
    def is_em(self) -> bool:
        """True for sums of EM."""
        return self.kind is SumKind.ITERATE


SINGLE = Series()

Who = TypeVar("Who", bound=int)
"""Type of an agent's name: its position in the network, or its number in the study."""


class Round(NamedTuple, Generic[Who]):
    """One agent's part in one round."""

    kind: str
    """Kind of its messages: one of `MESSAGE_KINDS`."""
    receivers: tuple[Who, ...]
    senders: tuple[Who, ...]
    """Senders, in the order of addition."""
    values: bool
    """True if messages carry values."""
    decision: bool
    """True if they carry a decision."""
    spared: frozenset[Who] = frozenset()
    """Receivers whose messages carry no values."""
    may_miss: bool = False
    """True if the round can end without lost messages; these carry values, and no decision."""


class Shape(NamedTuple):
    """Shape of a term: `width` numbers for each row, ordered by number and then by row, and some scalars."""

    n_rows: int
    width: int
    n_scalars: int = 0

    @property
    def n_values(self) -> int:
        """Length of a term."""
        return self.n_rows * self.width + self.n_scalars

    def by_row(self, values: Array) -> Array:
        """Return the numbers of each row of a term or a sum, (n_rows, width)."""
        return np.ascontiguousarray(values[: self.n_rows * self.width].reshape(self.width, self.n_rows).T)


@dataclass(frozen=True, eq=False)
class Term:
    """Term of a root, computed on demand: whole, or some rows at a time."""

    shape: Shape
    parts: Callable[[], Iterator[tuple[slice, Array]]]
    """Iterator over slices of rows and their numbers, (width, n_rows), valid until the next step."""
    scalars: Array
    """Numbers that belong to no row."""

    def whole(self, pool: BufferPool = NO_POOL) -> Array:
        """Compute all numbers, (n_values,)."""
        return self.whole_in_parts(pool)[0]

    def whole_in_parts(self, pool: BufferPool = NO_POOL) -> tuple[Array, NDArray[np.int64]]:
        """Compute all numbers, and the row at which each part ends."""
        n_rows, width, _ = self.shape
        found, ends = pool.array(self.shape.n_values), []
        found[n_rows * width :] = self.scalars
        rows_of = found[: n_rows * width].reshape(width, n_rows)
        for rows, numbers in self.parts():
            rows_of[:, rows] = numbers
            ends.append(rows.stop)
        return found, np.array(ends, dtype=np.int64)


class Payload(NamedTuple):
    """Type and length of the values of a message."""

    n_values: int
    dtype: str = "f8"
    """One of `DTYPES`."""
    is_fixed: bool = True
    """True if all messages have this length; otherwise it is the maximum."""


class Lengths(NamedTuple):
    """Expected bytes of the values of one message, before any is sent."""

    fewest: int
    usual: tuple[int, int]
    """Range measured on real tables; the bounds where nothing was measured."""
    most: int


DTYPES = ("f8", "i8", "u1")
"""Double precision, 64-bit integers, bytes."""


@dataclass(frozen=True, eq=False)
class Place:
    """Position of an agent in a sum: everything that a summation may know besides the term."""

    network: Network
    position: Position
    shape: Shape
    series: Series = SINGLE
    epoch: int = 0
    number: int = 0
    """Number of the sum, the same for all agents; it increases, also across epochs."""
    greetings: Mapping[Position, bytes] = field(default_factory=dict)
    """Greeting of each agent in the meeting, by position."""
    secret: Any = None
    """Secret of this agent, generated with its greeting."""
    count: int = 0
    """Number of earlier sums of the fit, or of the prediction. The same in both engines and in all epochs: unlike
    `number`, it repeats when a sum is repeated after a loss."""
    heard: bytes = b""
    """Digest of all sums and decisions of the fit so far; the same for all agents."""
    pool: BufferPool = NO_POOL
    """Buffers for large arrays."""
    memo: Memo = field(default_factory=Memo)
    """Results that all agents of this process have in common."""


MOST_RETREATS = 4
"""Maximum number of rollbacks in one run; see `Summation.retreat`."""

MOST_GREETING = 1024
"""Maximum length of a greeting in bytes."""

LABELS = "labels"
MESSAGE_KINDS = ("terms", "sum", "flood", LABELS)
"""Kinds of messages: a root's terms for its leaves, values to be added, a decision alone, labels of rows."""


class WrongMessageError(ValueError):
    """An invalid message or greeting, for which its sender is responsible."""

    def __init__(self, sender: int, problem: str):
        self.sender = sender
        super().__init__(problem)
