"""The mutable state of an agent: plain values, so that it can be saved between any two messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from vpem.core.agent.meeting import Record
from vpem.core.agent.message import Message
from vpem.core.blocks.arrays import Arrays, Block
from vpem.core.network.hubs import Position
from vpem.core.network.sums import NO_MEMORY, SINGLE, Memory, Series, Shape
from vpem.core.script.state import Array, Model, Prediction, Progress

NO_PIECES: Mapping[Position, Array] = {}
"""Empty value of `Exchange.pieces`."""


class Exchange(NamedTuple):
    """Progress of the current exchange with the network."""

    step: int = 0
    """Number of its finished rounds."""
    sent: bool = False
    """True if the messages of this round were sent."""
    begun: int = 0
    """Round in which it began."""
    shape: Shape = Shape(0, 0)
    """Shape of the terms, the same for all agents."""
    series: Series = SINGLE
    stage: int = 0
    """Stage of the sum; see `vpem.core.network.summation.Summation.stage`."""
    state: Memory = NO_MEMORY
    """State of the summation."""
    decision: Array | None = None
    pieces: Mapping[Position, Array] = NO_PIECES
    """Columns on their way to a root, by position."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Progress to which all agents can roll back together."""

    number: int
    progress: Progress


@dataclass(eq=False)
class AgentState:
    """Mutable state of an agent."""

    epoch: int = -1
    """Epoch; -1 before the start."""
    round: int = 0
    meeting: bool = False
    """True if the current exchange is a meeting."""
    exchange: Exchange | None = None
    """Current exchange; None before the start, when all work is done, and after a failure."""
    progress: Progress = field(default_factory=Progress)
    records: dict[int, Record] = field(default_factory=dict)
    """Records of the known agents, by number."""
    learnt: tuple[int, ...] = ()
    """Agents whose records arrived in the last round."""
    members: dict[int, Record] = field(default_factory=dict)
    """Records of all agents in the first meeting."""
    n_met: int = 0
    """Number of agents in the last meeting."""
    started: bool = False
    requests: dict[int, Prediction] = field(default_factory=dict)
    """New rows, by the number of their prediction: the last finished one, and one that may be pending."""
    pooled: Array | None = None
    """Shape (n_rows, n_block_columns): columns of the hub, at its root."""
    mailbox: dict[int, dict[int, Message]] = field(default_factory=dict)
    """Messages by round and sender."""
    missing: dict[int, frozenset[int]] = field(default_factory=dict)
    """Senders whose messages were reported missing, by round."""
    checkpoints: tuple[Checkpoint, ...] = (Checkpoint(0, Progress()),)
    """Checkpoints: the beginning, the end of the fit once it is reached, and the last two."""
    lost: frozenset[int] = frozenset()
    """Neighbours that are unreachable at present."""
    abandoned: frozenset[int] = frozenset()
    """Neighbours that were given up."""
    consents: frozenset[int] = frozenset()
    """Other agents without which this agent consents to continue."""
    failure: str | None = None
    """Reason for which the study failed; None if it did not."""

    def copy(self) -> AgentState:
        """Return a shallow copy, as `copy.copy` but faster; the contents are never changed in place."""
        other = object.__new__(AgentState)
        other.__dict__.update(self.__dict__)
        return other


@dataclass(frozen=True, eq=False)
class PartyModel:
    """Result of a fit at one party; leaves and the server have no parameters."""

    agreed: float
    """Bound by which starts are compared."""
    weights: Array | None
    """Shape (n_components,)."""
    block: Block | None
    responsibilities: Array | None
    """Shape (n_rows, n_components)."""
    history: tuple[float, ...]
    """Log-likelihood (with batches: free energy) per row of each iteration."""
    converged: bool
    start: int
    """Number of the start that gave this model."""
    repairs: tuple[tuple[int, int, str, str, bool], ...]
    """Fields of `vpem.core.decisions.repair.Repair`, for each repair."""
    totals: Array | None = None
    """Shape (n_sampled, n_components): sums of a sample of the rows; see `vpem.core.rows.sampled_rows`."""


def party_model(model: Model) -> PartyModel:
    """Convert the script's model to the result of an agent, which has at most one block."""
    return PartyModel(
        agreed=model.agreed,
        weights=None if model.weights is None else model.weights[0],
        block=model.blocks[0] if model.blocks else None,
        responsibilities=model.responsibilities,
        history=tuple(float(bounds[0]) for bounds in model.history),
        converged=model.converged,
        start=model.start,
        repairs=model.repairs,
        totals=model.totals,
    )


def orderly(value: Any, before: Any = None) -> Any:
    """Return the value with all its arrays C-contiguous, as they would be after saving and restoring it.

    Otherwise a restored agent might multiply its matrices in another order, and its results could differ in the last
    bits. Parts that are the same object as in `before` are contiguous already, and are skipped.
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
