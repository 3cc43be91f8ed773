"""The protocol of a summation: how a network adds the terms of its blocks.

A summation is a small immutable description (`Star()`, `Consensus(rounds=100)`) that all parties share. It defines
the senders and receivers of each round, the first state of an agent, its messages, its state after a round, and its
result. Agents follow it message by message. The simulation does the same or, where every root's result is a fixed
linear combination of the terms, multiplies by that matrix. Traffic follows from the rounds.

Decisions travel with the sums: every message carries a few more numbers, of which the network finds the minimum. A
decision is exact after as many rounds as the diameter of the network; shorter sums get additional rounds for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

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


class Summation(ABC):
    """Base class of summations.

    A subclass is a frozen dataclass that defines `schedule`, `begin`, `combine` and `end`. The state holds what is
    needed between two calls, the carry what is needed between two sums of a series: dictionaries of arrays.
    """

    burst: ClassVar[int] = 1
    """Maximum number of messages with values that an agent sends to a neighbour before it receives one."""

    @property
    def has_server(self) -> bool:
        """True if the network is a star, whose server adds for all parties."""
        return False

    @property
    def is_common(self) -> bool:
        """True if all agents get the same result of a sum, to the bit."""
        return False

    @property
    def is_lossy(self) -> bool:
        """True if sums lag behind the terms, so that likelihoods computed from them are wrong.

        The free energy, which is exact however far the sums lag behind, is used in their place.
        """
        return False

    @property
    def n_stages(self) -> int:
        """Number of stages, which differ in their rounds; see `stage`."""
        return 1

    @property
    def is_guarded(self) -> bool:
        """True if a falling likelihood indicates that the carry is too far off; see `retreat`."""
        return False

    @property
    def is_masked(self) -> bool:
        """True if agents see nothing of a party's terms but the sums over all parties."""
        return False

    @property
    def has_tags(self) -> bool:
        """True if messages are authenticated; see `tag`."""
        return False

    def least_holders(self, network: Network) -> int:  # noqa: ARG002 (some depend on it)
        """Number of blocks that must have a row for it to be added; 0 if holders are not counted."""
        return 0

    @property
    def refuses_repeats(self) -> bool:
        """True if rows must not be added again with other blocks than before; needs `least_holders`."""
        return False

    def check(self, network: Network) -> None:  # noqa: B027 (most networks will do)
        """Raise ValueError if this network cannot add this way."""

    def variants(self) -> list[Summation]:
        """Return the summations of this class with the arguments that a plan compares."""
        return [self]

    def error_factor(self, network: Network) -> float | None:
        """Error of a root's sum relative to the spread of the terms, known before any sum.

        0 if every root gets the exact sum; None if it is unknown.
        """
        return 0.0 if self.is_common and self.matrix(network) is not None else None

    def rounds_needed(self, network: Network, tolerance: float) -> int | None:  # noqa: ARG002 (for others to use)
        """Rounds after which the error factor would be at most `tolerance`; None if rounds do not change it."""
        return None

    @abstractmethod
    def schedule(
        self,
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[Position] | None = None,
    ) -> Sequence[Round[Position]]:
        """Rounds of one agent in a sum, a decision or both; all agents have the same number.

        Parameters
        ----------
        network : Network
        position : int
        values : bool
            True if terms are added.
        decision : bool
            True if a decision is made.
        audience : frozenset of int, optional
            The agents that need the sum; None: all.
        """

    def stage(self, shape: Shape, series: Series, carry: Memory) -> int:  # noqa: ARG002 (for others to use)
        """Stage of the next sum, where rounds depend on the carry; the same number for all agents."""
        return 0

    def later_stage(self, shape: Shape, series: Series) -> int:
        """Stage of the later sums of a series, without rollbacks; for plans."""
        return self.stage(shape, series, NO_MEMORY)

    def schedule_in(
        self,
        stage: int,  # noqa: ARG002 (likewise)
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[Position] | None = None,
    ) -> Sequence[Round[Position]]:
        """Rounds of one agent in a stage; stage 0 has those of `schedule`."""
        return self.schedule(network, position, values=values, decision=decision, audience=audience)

    def retreat(self, carry: Memory) -> Memory:  # noqa: ARG002 (likewise)
        """Return the carry after a rollback to earlier parameters."""
        return NO_MEMORY

    def greet(self) -> tuple[bytes, Any]:
        """Return the greeting of an agent, such as a public key, and its secret.

        Called once per epoch. The secret is never saved: a restored agent has none until the next epoch.
        """
        return b"", None

    def pack_secret(self, secret: Any) -> bytes:  # noqa: ARG002 (of those that have one)
        """Encode the secret of `greet`, for an agent that continues at once in another process of its own."""
        return b""

    def unpack_secret(self, content: bytes) -> Any:  # noqa: ARG002 (likewise)
        """Inverse of `pack_secret`."""
        return None

    def tag(self, place: Place, peer: Position, parts: Sequence[bytes | memoryview]) -> bytes:  # noqa: ARG002
        """Authentication tag of a message on the link with a peer, at most 16 bytes, the same at both ends.

        Raises
        ------
        WrongMessageError
            If the peer's greeting is invalid.
        """
        return b""

    def payload(self, network: Network | None, shape: Shape) -> Payload:  # noqa: ARG002 (some depend on it)
        """Type and length of messages, known to a receiver before it allocates memory.

        Without a network, which is unknown until all have met: the maximum.
        """
        return Payload(shape.n_values)

    def lengths(self, network: Network, shape: Shape, series: Series = SINGLE, stage: int = 0) -> Lengths:  # noqa: ARG002
        """Average length of the messages of a sum, for plans."""
        payload = self.payload(network, shape)
        most = payload.n_values * np.dtype(payload.dtype).itemsize
        fewest = most if payload.is_fixed else 0
        return Lengths(fewest, (fewest, most), most)

    def carried_bytes(self, network: Network, position: Position, shape: Shape) -> int | None:  # noqa: ARG002 (likewise)
        """Bytes that an agent keeps between two sums of EM, for plans; None if unknown."""
        return 0 if type(self).end is Summation.end else None

    def begin_with(self, place: Place, carry: Memory, term: Term) -> Memory:
        """State of a root before the first round, from a term that need not be in memory as a whole."""
        return self.begin(place, carry, term.whole(place.pool))

    @abstractmethod
    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:
        """State before the first round.

        Parameters
        ----------
        place : Place
        carry : mapping
            Carry of the last sum of the series; empty before the first.
        term : array of shape (n_values,), optional
            Term of a root; None at other agents.
        """

    def message(self, place: Place, step: int, state: Memory) -> NDArray[Any]:  # noqa: ARG002 (for others to use)
        """Values to send in a round, (n,), the same for all receivers."""
        return state["values"]

    @abstractmethod
    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """State after a round with senders.

        Parameters
        ----------
        place : Place
        step : int
            Step of the schedule, from 0 on.
        state : mapping
        received : mapping
            Messages by position, in the order of the round's senders; without lost ones, if it `may_miss` them.

        Raises
        ------
        WrongMessageError
        """

    def end(self, place: Place, state: Memory) -> tuple[Array, Memory]:  # noqa: ARG002 (likewise)
        """Return the sum, (n_values,), and the carry for the next sum of the series."""
        return state["values"], NO_MEMORY

    def blur(self, carry: Memory) -> float:  # noqa: ARG002 (likewise)
        """Bound on the rounding of the log-ratios in the last sums of a series; the same number for all agents.

        EM has not converged while rounding can hide a change of `tol`.
        """
        return 0.0

    def told(self, state: Memory, values: Array) -> bytes:  # noqa: ARG002 (likewise)
        """Content of a sum on which later masks depend."""
        return values.tobytes()

    def changes(self, state: Memory) -> Memory:  # noqa: ARG002 (likewise)
        """Changes of the carry by a finished sum, for `redo`; nothing if they are not small."""
        return NO_MEMORY

    def redo(self, carry: Memory, changes: Memory) -> Memory:  # noqa: ARG002 (likewise)
        """Return the carry after a sum, to the bit, from the carry before it and its changes."""
        return carry

    def matrix(self, network: Network) -> Array | None:  # noqa: ARG002 (likewise)
        """Linear combination of the hubs' terms that each root gets, (n_roots, n_hubs).

        One row if all roots get the same; None if a sum is not linear, and the simulation follows the messages.
        """
        return None


def greet(summation: Summation) -> tuple[bytes, Any]:
    """Return the summation's greeting and secret; raise ValueError if the greeting is too long."""
    greeting, secret = summation.greet()
    if len(greeting) > MOST_GREETING:
        raise ValueError(f"expected {summation!r} to greet with at most {MOST_GREETING} bytes, got {len(greeting)}")
    return greeting, secret


def begin_sum(summation: Summation, place: Place, carry: Memory, term: NDArray[Any] | Term | None) -> Memory:
    """State of an agent before the first round, from a term in any form."""
    if isinstance(term, Term):
        return summation.begin_with(place, carry, term)
    return summation.begin(place, carry, term)


def outgoing(summation: Summation, place: Place, step: int, kind: str, state: Memory) -> NDArray[Any]:
    """Return the read-only values to send; raise ValueError if receivers would refuse them."""
    values = summation.message(place, step, state)
    n_values, dtype, is_fixed = summation.payload(place.network, place.shape)
    is_long = len(values) != n_values if is_fixed else len(values) > n_values
    if kind not in MESSAGE_KINDS or values.ndim != 1 or values.dtype != np.dtype(dtype) or is_long:
        raise ValueError(
            f"expected {summation!r} to send {'' if is_fixed else 'at most '}{n_values} values ({dtype}) in messages "
            f"of one of the kinds {', '.join(MESSAGE_KINDS)}, got {values.shape} ({values.dtype}) in {kind!r}"
        )
    values.flags.writeable = False
    return values


def lasting(summation: Summation, memory: Memory) -> Memory:
    """Make a carry read-only; raise ValueError if it cannot be saved."""
    for name, array in memory.items():
        if array.dtype.kind + str(array.dtype.itemsize) not in (*DTYPES, "u8"):
            raise ValueError(
                f"expected {summation!r} to carry arrays of {', '.join(DTYPES)}, got {name}: {array.dtype}"
            )
        array.flags.writeable = False
    return memory


def add_in_order(terms: Iterable[NDArray[Any]], pool: BufferPool = NO_POOL) -> NDArray[Any]:
    """Sum from the first to the last, so that all orders of arrival give the same bits."""
    first, *others = terms
    total = pool.bytes(first.nbytes).view(first.dtype).reshape(first.shape)
    np.add(first, others[0], out=total) if others else np.copyto(total, first)
    for term in others[1:]:
        total += term
    return total
