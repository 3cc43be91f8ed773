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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vpem.core.buffer_pool import NO_POOL, BufferPool
from vpem.core.network.abilities import Keyed, Planned, Remembering, Staged
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.sums import (
    DTYPES,
    MESSAGE_KINDS,
    MOST_GREETING,
    NO_MEMORY,
    Array,
    Audience,
    Memory,
    Place,
    Round,
    Shape,
    Term,
)


class Summation(Staged, Remembering, Keyed, Planned, ABC):
    """Base class of summations.

    A subclass is a frozen dataclass that defines `schedule`, `begin` and `combine`, and often `check`, `matrix` and
    `end`. Methods for stages, memory, keys and plans are inherited from `vpem.core.network.abilities`. The state has
    what is needed between two calls, the carry what is needed between two sums of a series: dictionaries of arrays.
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

    def check(self, network: Network) -> None:
        """Raise ValueError if this network cannot add this way."""

    def error_factor(self, network: Network) -> float | None:
        """Error of a root's sum relative to the spread of the terms, known before any sum.

        0 if every root gets the exact sum; None if it is unknown.
        """
        return 0.0 if self.is_common and self.matrix(network) is not None else None

    @abstractmethod
    def schedule(
        self, network: Network, position: Position, *, values: bool, decision: bool, audience: Audience = None
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
