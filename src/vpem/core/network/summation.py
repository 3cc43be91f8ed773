"""How a network adds its blocks' terms: the protocol of every sum.

A summation is a small immutable description (`Star()`, `Consensus(rounds=100)`) that all parties share. It says which
agent sends to which in each round, what an agent begins with, what it sends, what it makes of what it gets, and what
it has in the end. Agents follow it message by message. The simulation follows it in the same way or, where every
root's result is a fixed combination of the terms, multiplies by that matrix. Traffic follows from the rounds.

Decisions ride on the sums: every message carries a few numbers more, of which the smallest counts. They are exact
once as many rounds have passed as the network is wide; where a sum has fewer, the decision gets the missing ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.rooms import bytes_for, room_for

Array = NDArray[np.float64]
Memory = Mapping[str, NDArray[Any]]
"""Named arrays: plain values that can be saved at any moment."""

NO_MEMORY: Memory = {}

ITERATE = "iterate"
"""Beginning of the names of series in which log-densities are added: only their differences within a row matter."""

HOLDERS = "holders"
"""Name of the series in which blocks count who has which rows: 1 or 0 for each."""

Who = TypeVar("Who", bound=int)
"""How agents are named: by their positions in the network, or by their numbers in the study."""


class Round(NamedTuple, Generic[Who]):
    """One agent's part in one round."""

    kind: str
    """Of its messages: one of `SUM_KINDS`."""
    receivers: tuple[Who, ...]
    senders: tuple[Who, ...]
    """In the order in which to add."""
    values: bool
    """Whether messages carry values."""
    decision: bool
    """Whether they carry a decision."""
    spared: frozenset[Who] = frozenset()
    """Receivers whose messages carry no values all the same."""
    may_miss: bool = False
    """Whether the round can end without messages that were lost; they must carry values, and no decision."""


class Shape(NamedTuple):
    """What is added: so many numbers for each row, all rows' first ones first; and some that belong to no row."""

    n_rows: int
    width: int
    n_scalars: int = 0

    @property
    def n_values(self) -> int:
        """Length of a term."""
        return self.n_rows * self.width + self.n_scalars

    def by_row(self, values: Array) -> Array:
        """The numbers of each row, (n_rows, width), in a term or a sum."""
        return np.ascontiguousarray(values[: self.n_rows * self.width].reshape(self.width, self.n_rows).T)


@dataclass(frozen=True, eq=False)
class Term:
    """What a root adds, made when it is needed: whole, or some rows at a time, so that it never is in memory."""

    shape: Shape
    parts: Callable[[], Iterator[tuple[slice, Array]]]
    """Some rows after the other, and their numbers, (width, n_rows), which are there until the next ones are."""
    scalars: Array
    """Those that belong to no row."""

    def whole(self) -> Array:
        """All numbers, (n_values,)."""
        return self.whole_in_parts()[0]

    def whole_in_parts(self) -> tuple[Array, NDArray[np.int64]]:
        """All numbers, and where each of the parts ends."""
        n_rows, width, _ = self.shape
        found, ends = room_for(self.shape.n_values), []
        found[n_rows * width :] = self.scalars
        rows_of = found[: n_rows * width].reshape(width, n_rows)
        for rows, numbers in self.parts():
            rows_of[:, rows] = numbers
            ends.append(rows.stop)
        return found, np.array(ends, dtype=np.int64)


class Payload(NamedTuple):
    """What the values of a message look like."""

    n_values: int
    dtype: str = "f8"
    """One of `DTYPES`."""
    is_fixed: bool = True
    """Whether all messages are that long; otherwise none is longer."""


class Lengths(NamedTuple):
    """Bytes of the values of one message, as far as they are known before there are any."""

    fewest: int
    usual: tuple[int, int]
    """From and to, as measured on real tables; the other two where nothing was measured."""
    most: int


DTYPES = ("f8", "i8", "u1")
"""Double precision, 64-bit integers, bytes."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where and when an agent adds: all that a summation may know beside its term."""

    network: Network
    position: Position
    shape: Shape
    series: str = ""
    """Sums of one series follow each other: the same rows, in one start. A sum without a name stands alone."""
    epoch: int = 0
    number: int = 0
    """Of the sum, the same for all agents; later sums have larger ones, in later epochs too."""
    greetings: Mapping[Position, bytes] = field(default_factory=dict)
    """What each agent said of itself in the meeting, by position."""
    secret: Any = None
    """What this agent kept to itself then."""
    count: int = 0
    """Sums of the fit, or of the prediction, before this one. The same in both engines, and in all epochs: unlike
    `number`, it comes again when a sum is made again after a loss."""
    heard: bytes = b""
    """Digest of all that the sums and decisions of the fit have told so far; the same at all agents."""


MOST_RETREATS = 4
"""How often all agents go back in one run at most; see `Summation.retreat`."""

MOST_GREETING = 1024
"""Bytes of what a summation tells all others in the meeting."""

LABELS = "labels"
SUM_KINDS = ("terms", "sum", "flood", LABELS)
"""Of messages: a root's terms on their way to its leaves, values to be added, a decision by itself, rows' labels."""


class WrongMessageError(ValueError):
    """A message, or a greeting, that a summation cannot use; its sender is to blame."""

    def __init__(self, sender: int, problem: str):
        self.sender = sender
        super().__init__(problem)


class Summation(ABC):
    """How a network adds; inherit, and say what is different.

    A subclass is a frozen dataclass. `schedule`, `begin`, `combine` and `end` are needed. What is remembered between
    two calls is in the state, and between two sums of a series in the carry: dictionaries of arrays.
    """

    burst: ClassVar[int] = 1
    """Most messages with values that an agent sends to a neighbour before it must hear from it."""

    @property
    def has_server(self) -> bool:
        """Whether an agent without columns adds for all: the network is a star."""
        return False

    @property
    def is_common(self) -> bool:
        """Whether all agents get the same result of a sum, to the bit."""
        return False

    @property
    def is_lossy(self) -> bool:
        """Whether sums lag behind the terms, so that what they say of the likelihood is wrong.

        Then the free energy is watched in its place: exact, however far the sums are behind.
        """
        return False

    @property
    def n_stages(self) -> int:
        """How many kinds of sums there are that differ in their rounds; see `stage`."""
        return 1

    @property
    def is_guarded(self) -> bool:
        """Whether a likelihood that falls is a sign that what agents carry has misled them; see `retreat`."""
        return False

    @property
    def is_masked(self) -> bool:
        """Whether agents must see nothing of a party's terms but the sums over all."""
        return False

    @property
    def has_tags(self) -> bool:
        """Whether messages carry proofs that they are as they were sent; see `tag`."""
        return False

    def least_holders(self, network: Network) -> int:  # noqa: ARG002 (some depend on it)
        """How many blocks must have a row for it to be added; 0 if that does not matter, and is not counted."""
        return 0

    @property
    def refuses_repeats(self) -> bool:
        """Whether rows must not be added again with other blocks than before; only if holders are counted."""
        return False

    def check(self, network: Network) -> None:  # noqa: B027 (most networks will do)
        """Raise ValueError if this network cannot add this way."""

    def error_factor(self, network: Network) -> float | None:
        """How far a root's sum is from the exact one, as a share of the spread of the terms: known before any sum.

        0 if every root gets the exact sum; None if the summation does not tell.
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
        """One agent's rounds of a sum, a decision or both; as many for every agent.

        Parameters
        ----------
        network : Network
        position : int
        values : bool
            Whether something is added.
        decision : bool
            Whether a decision is taken.
        audience : frozenset of int, optional
            The agents that need the sum; None: all.
        """

    def stage(self, shape: Shape, series: str, carry: Memory) -> int:  # noqa: ARG002 (for others to use)
        """Which kind of sum comes next, where rounds depend on what is carried: the same number for all agents."""
        return 0

    def later_stage(self, shape: Shape, series: str) -> int:
        """Stage of the sums of a series after the first one, if all goes well; for plans."""
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
        """One agent's rounds in a stage; in stage 0 they are those of `schedule`."""
        return self.schedule(network, position, values=values, decision=decision, audience=audience)

    def retreat(self, carry: Memory) -> Memory:  # noqa: ARG002 (likewise)
        """What to carry when all go back to earlier parameters, as sums have misled them."""
        return NO_MEMORY

    def greet(self) -> tuple[bytes, Any]:
        """What an agent tells all others in the meeting, such as a public key; and what it keeps to itself.

        Called anew for each epoch. The secret is never saved: an agent that was restored has none until the next one.
        """
        return b"", None

    def pack_secret(self, secret: Any) -> bytes:  # noqa: ARG002 (of those that have one)
        """What `greet` has kept, as bytes: for an agent that goes on at once in another process of its own."""
        return b""

    def unpack_secret(self, content: bytes) -> Any:  # noqa: ARG002 (likewise)
        """Inverse of `pack_secret`."""
        return None

    def tag(self, place: Place, peer: Position, parts: Sequence[bytes | memoryview]) -> bytes:  # noqa: ARG002
        """Proof of the contents of a message on the link with a peer, at most 16 bytes; both ends find the same.

        Raises
        ------
        WrongMessageError
            If the peer's greeting does not allow any.
        """
        return b""

    def payload(self, network: Network | None, shape: Shape) -> Payload:  # noqa: ARG002 (some depend on it)
        """What messages look like; known to a receiver before it makes room for one.

        Without a network, which is not known until all have met: the largest that they can be.
        """
        return Payload(shape.n_values)

    def lengths(self, network: Network, shape: Shape, series: str = "", stage: int = 0) -> Lengths:  # noqa: ARG002
        """How long messages of a sum will be on average, for plans; all the same if they have a fixed length."""
        payload = self.payload(network, shape)
        most = payload.n_values * np.dtype(payload.dtype).itemsize
        fewest = most if payload.is_fixed else 0
        return Lengths(fewest, (fewest, most), most)

    def carried_bytes(self, network: Network, position: Position, shape: Shape) -> int | None:  # noqa: ARG002 (likewise)
        """What an agent keeps between two sums of EM, for plans; None if the summation does not tell."""
        return 0 if type(self).end is Summation.end else None

    def begin_with(self, place: Place, carry: Memory, term: Term) -> Memory:
        """State of a root before the first round, for summations that need not have the whole term in memory."""
        return self.begin(place, carry, term.whole())

    @abstractmethod
    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:
        """State before the first round.

        Parameters
        ----------
        place : Place
        carry : mapping
            What the last sum of the series has left; empty at first.
        term : array of shape (n_values,), optional
            A root's; None at other agents.
        """

    def message(self, place: Place, step: int, state: Memory) -> NDArray[Any]:  # noqa: ARG002 (for others to use)
        """What to send in a round, (n,); to all receivers the same."""
        return state["values"]

    @abstractmethod
    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """State after a round in which something was to come.

        Parameters
        ----------
        place : Place
        step : int
            Of the schedule, from 0 on.
        state : mapping
        received : mapping
            By position, in the order of the round's senders; without what was lost, where a round `may_miss` it.

        Raises
        ------
        WrongMessageError
        """

    def end(self, place: Place, state: Memory) -> tuple[Array, Memory]:  # noqa: ARG002 (likewise)
        """The sum, (n_values,), and what to carry to the next one of the series."""
        return state["values"], NO_MEMORY

    def told(self, state: Memory, values: Array) -> bytes:  # noqa: ARG002 (likewise)
        """All that an agent was told in a sum, and may act on: what later masks depend on."""
        return values.tobytes()

    def changes(self, state: Memory) -> Memory:  # noqa: ARG002 (likewise)
        """What a sum that has ended has changed in the carry, if that is little, for `redo`; nothing if it is not."""
        return NO_MEMORY

    def redo(self, carry: Memory, changes: Memory) -> Memory:  # noqa: ARG002 (likewise)
        """What `end` has left after a sum, from what was carried before it and from its changes: the same bits."""
        return carry

    def matrix(self, network: Network) -> Array | None:  # noqa: ARG002 (likewise)
        """Combination of the hubs' terms that each root gets, (n_roots, n_hubs), if that is all that a sum does.

        One row if all roots get the same. None: the simulation goes by the messages.
        """
        return None


def greet(summation: Summation) -> tuple[bytes, Any]:
    """What a summation greets with; ValueError if it is too much."""
    greeting, secret = summation.greet()
    if len(greeting) > MOST_GREETING:
        raise ValueError(f"expected {summation!r} to greet with at most {MOST_GREETING} bytes, got {len(greeting)}")
    return greeting, secret


def begin_sum(summation: Summation, place: Place, carry: Memory, term: NDArray[Any] | Term | None) -> Memory:
    """State of an agent before the first round, however its term is given."""
    if isinstance(term, Term):
        return summation.begin_with(place, carry, term)
    return summation.begin(place, carry, term)


def outgoing(summation: Summation, place: Place, step: int, kind: str, state: Memory) -> NDArray[Any]:
    """A message that is about to be sent, to be read only; ValueError if receivers would refuse it."""
    values = summation.message(place, step, state)
    n_values, dtype, is_fixed = summation.payload(place.network, place.shape)
    is_long = len(values) != n_values if is_fixed else len(values) > n_values
    if kind not in SUM_KINDS or values.ndim != 1 or values.dtype != np.dtype(dtype) or is_long:
        raise ValueError(
            f"expected {summation!r} to send {'' if is_fixed else 'at most '}{n_values} values ({dtype}) in messages "
            f"of one of the kinds {', '.join(SUM_KINDS)}, got {values.shape} ({values.dtype}) in {kind!r}"
        )
    values.flags.writeable = False
    return values


def lasting(summation: Summation, memory: Memory) -> Memory:
    """What a summation carries to the next sum, to be read only; ValueError if it could not be saved."""
    for name, array in memory.items():
        if array.dtype.kind + str(array.dtype.itemsize) not in (*DTYPES, "u8"):
            raise ValueError(
                f"expected {summation!r} to carry arrays of {', '.join(DTYPES)}, got {name}: {array.dtype}"
            )
        array.flags.writeable = False
    return memory


def add_in_order(terms: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """Sum from the first to the last, so that all orders of arrival give the same bits."""
    first, *others = terms
    total = bytes_for(first.nbytes).view(first.dtype).reshape(first.shape)
    np.add(first, others[0], out=total) if others else np.copyto(total, first)
    for term in others[1:]:
        total += term
    return total
