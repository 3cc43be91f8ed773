"""How far an agent is: plain values, so that it can be saved between any two messages.

`Progress` is what the algorithm has between two exchanges with the network, and is never changed in place: going back
to a checkpoint means taking up an older one. `AgentState` is all that changes in an agent's life.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.carrying import Carried
from vpem.core.agent.meeting import Record
from vpem.core.agent.message import Message
from vpem.core.blocks.arrays import Arrays, Block
from vpem.core.decisions.acceleration import Cycle
from vpem.core.decisions.passes import BatchPass
from vpem.core.decisions.repair import Case, RepairQueue
from vpem.core.network.hubs import Position
from vpem.core.network.summation import NO_MEMORY, Memory, Shape

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

NO_PIECES: Mapping[Position, Array] = {}
"""Of columns."""


@dataclass(frozen=True, eq=False)
class Clustering:
    """K-means on the way to a start. Only roots have centres; only the root of the first hub draws."""

    picked: Integers
    """Rows that k-means++ has chosen so far."""
    candidates: Integers
    """Rows of which it will choose the next."""
    n_draws: int = 0
    generator: NDArray[np.uint64] | None = None
    """Of the draws; see `pack_generator`."""
    choice: int = 0
    """What the root of the first hub will tell: the row that it has chosen."""
    closest: Array | None = None
    """(n_rows,): squared distance of each row to the nearest chosen one, as the root of the first hub sees it."""
    centres: Array | None = None
    """(n_components, n_columns)"""
    limit: float = 0.0
    """Squared movement that counts as none."""
    n_iter: int = 0
    lowest: float = math.inf
    since_lowest: int = 0
    would_stop: bool = True
    """Whether this agent has nothing against ending; one without centres never has."""
    counts: Array | None = None
    block: Block | None = None
    """The start that the last labels give, while the weights are on their way."""
    collapsed: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Parameters:
    """Of a root; an agent without any has none."""

    weights: Array | None = None
    """(n_components,)"""
    block: Block | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """EM from one start. Only roots have parameters."""

    findings: Array
    """(n_components,): what this agent has found broken, to be told with the next sum."""
    weights: Array | None = None
    """(n_components,)"""
    block: Block | None = None
    iteration: int = 0
    """Iterations that are finished."""
    history: tuple[float, ...] = ()
    """Log-likelihood (with batches: free energy) per row of each."""
    queue: RepairQueue = field(default_factory=RepairQueue)
    start_cases: tuple[Case, ...] = ()
    repaired: bool = False
    """Whether a component was restarted, or all went back, after the last iteration."""
    agreed: tuple[float, ...] = ()
    """Lower bounds of the last iterations, of the root that sees the smallest."""
    converged: bool = False
    final: bool = False
    """Whether this pass is the last one: it gives the responsibilities of the final parameters."""
    visits: BatchPass = field(default_factory=lambda: BatchPass(()))
    """How far this pass over the batches is."""
    collapsed: tuple[int, ...] = ()
    cycle: Cycle = field(default_factory=Cycle)
    """Of accelerated EM."""
    earlier: tuple[Parameters, ...] = ()
    """Before the last iterations, where all may go back; see `vpem.core.decisions.retreating`."""
    n_retreats: int = 0
    responsibilities: Array | None = None
    """(n_rows, n_components): of the final parameters, as far as they have been found."""

    @property
    def batch(self) -> int:
        """The batch that is visited next: the first one, if a pass is over."""
        return 0 if self.visits.is_over else self.visits.number


@dataclass(frozen=True, eq=False)
class Model:
    """What a run has come to."""

    agreed: float
    """What the run counts for beside others."""
    weights: Array | None
    block: Block | None
    responsibilities: Array | None
    history: tuple[float, ...]
    converged: bool
    start: int
    """Number of the start that it comes from."""
    repairs: tuple[tuple[int, int, str, str, bool], ...]
    """The fields of `vpem.core.decisions.repair.Repair`."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """New rows."""

    n_rows: int
    columns: Array | None
    """(n_rows, n_columns): the party's own."""
    pooled: Array | None = None
    """(n_rows, n_block_columns): at the root of a hub."""
    responsibilities: Array | None = None
    """(n_rows, n_components), once they are found, for those who may see them."""
    log_densities: Array | None = None
    """(n_rows,)"""
    holders: Integers | None = None
    """(n_rows,): how many blocks have each row, where that is counted."""
    keys: Integers | None = None
    """(n_rows,): by which the party knows rows that come again."""


@dataclass(frozen=True, eq=False)
class Progress:
    """How far the algorithm is."""

    n_predictions: int = 0
    """Tables of new rows that are done."""

    phase: str = "begin"
    """What comes next; one of `vpem.core.agent.phases.PHASES`."""
    start: int = 0
    """Number of the start."""
    clustering: Clustering | None = None
    run: Run | None = None
    best: Model | None = None
    bounds: tuple[float, ...] = ()
    """What each start that has not failed counted for in the end."""
    prediction: Prediction | None = None
    """The last one, or the one at work."""
    n_sums: int = 0
    """Of the fit, so far."""
    memories: Mapping[str, Carried] = field(default_factory=dict)
    """What the summation carries from each series of this start's sums to the next sum."""
    holders: Integers | None = None
    """(n_rows,): how many blocks have each row, where that is counted."""
    heard: str = ""
    """Digest of what all sums and decisions have told, where sums are masked."""
    seen: Mapping[str, Integers] = field(default_factory=dict)
    """Keys of rows that were added, and with which parties; see `vpem.core.agent.holder_phases`."""


class Exchange(NamedTuple):
    """How far the present exchange with the network is."""

    step: int = 0
    """Rounds of it that are over."""
    sent: bool = False
    """Whether this round's messages are out."""
    begun: int = 0
    """The round in which it began."""
    shape: Shape = Shape(0, 0)
    """Of what is added, the same for all agents."""
    series: str = ""
    stage: int = 0
    """Of the sum; see `vpem.core.network.summation.Summation.stage`."""
    state: Memory = NO_MEMORY
    """What the summation has so far."""
    decision: Array | None = None
    pieces: Mapping[Position, Array] = NO_PIECES
    """Columns on their way to a root, by position."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where agents can go back to together."""

    number: int
    progress: Progress


@dataclass(eq=False)
class AgentState:
    """All that changes in an agent's life."""

    epoch: int = -1
    """-1 before the start."""
    round: int = 0
    meeting: bool = False
    """Whether the present exchange is the one in which agents get to know each other."""
    exchange: Exchange | None = None
    """None if there is nothing to exchange: before the start, when all is done, after a failure."""
    progress: Progress = field(default_factory=Progress)
    records: dict[int, Record] = field(default_factory=dict)
    """Of the agents that are known."""
    learnt: tuple[int, ...] = ()
    """Whose records the last round has brought."""
    members: dict[int, Record] = field(default_factory=dict)
    """All agents of the first meeting, as they were then."""
    n_met: int = 0
    """How many agents the last meeting had."""
    started: bool = False
    requests: dict[int, Prediction] = field(default_factory=dict)
    """New rows, by the number of their prediction: the last that was done, and one that may wait for its turn."""
    pooled: Array | None = None
    """(n_rows, n_block_columns): the hub's columns, at its root."""
    mailbox: dict[int, dict[int, Message]] = field(default_factory=dict)
    """Messages by round and sender."""
    missing: dict[int, frozenset[int]] = field(default_factory=dict)
    """By round: senders whose messages will not come."""
    checkpoints: tuple[Checkpoint, ...] = (Checkpoint(0, Progress()),)
    """The beginning, the end of the fit once it is reached, and the last two."""
    lost: frozenset[int] = frozenset()
    """Neighbours that cannot be reached at present."""
    abandoned: frozenset[int] = frozenset()
    """Neighbours that will not come back."""
    consents: frozenset[int] = frozenset()
    """Other agents without which this one agrees to go on."""
    failure: str | None = None
    """Why the study has ended, if it could not go on."""

    def copy(self) -> AgentState:
        """Another state with the same contents, which are never changed in place; `copy.copy`, but fast."""
        other = object.__new__(AgentState)
        other.__dict__.update(self.__dict__)
        return other


def orderly(value: Any, before: Any = None) -> Any:
    """The same value with every array in the usual order in memory, as it would be after it was saved and restored.

    Otherwise a restored agent might multiply its matrices another way, and get other last bits. What is the same
    object as in the value before is in order already.
    """
    if value is before:
        return value
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value) if value.ndim else value
    if isinstance(value, Arrays):
        arrays = {name: orderly(array) for name, array in value.arrays.items()}
        is_same = all(array is value.arrays[name] for name, array in arrays.items())
        return value if is_same else type(value)(**arrays)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for part in fields(value):
            old = getattr(value, part.name)
            if (new := orderly(old, getattr(before, part.name, None))) is not old:
                changed[part.name] = new
        return replace(value, **changed) if changed else value
    if isinstance(value, dict):
        known = before if isinstance(before, dict) else {}
        return {name: orderly(part, known.get(name)) for name, part in value.items()}
    if isinstance(value, tuple):
        earlier = before if isinstance(before, tuple) and len(before) == len(value) else [None] * len(value)
        ordered = [orderly(part, old) for part, old in zip(value, earlier, strict=True)]
        if all(new is old for new, old in zip(ordered, value, strict=True)):
            return value
        return type(value)(*ordered) if hasattr(value, "_fields") else tuple(ordered)
    return value


def pack_generator(generator: np.random.Generator) -> NDArray[np.uint64]:
    """State of a PCG64 generator as plain numbers; (6,)."""
    state: Any = generator.bit_generator.state
    words = [word for number in state["state"].values() for word in divmod(number, 2**64)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def unpack_generator(packed: NDArray[np.uint64]) -> np.random.Generator:
    """Inverse of `pack_generator`."""
    generator = np.random.default_rng(0)
    words = [int(word) for word in packed]
    state: Any = generator.bit_generator.state
    state["state"] = {"state": words[0] * 2**64 + words[1], "inc": words[2] * 2**64 + words[3]}
    state["has_uint32"], state["uinteger"] = words[4], words[5]
    generator.bit_generator.state = state
    return generator
