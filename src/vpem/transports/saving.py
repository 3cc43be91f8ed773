"""Part of an agent's state that must outlive its process.

An agent whose process has died returns in a new epoch: all agents meet, and resume from the last checkpoint that
every agent has. So only the state to which it may roll back must last: the number of its epoch (saved before anything
of that epoch is sent), its checkpoints, the columns that a root has pooled, the members of the study, agents that
were given up, requests for predictions, and a failure. The mailbox and the exchange in progress need not last. Most
messages change nothing that lasts, so most events save nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.agent_state import AgentState
from vpem.core.agent.machine import Agent
from vpem.core.agent.meeting import bare_records
from vpem.core.agent.message import EPOCH_BITS
from vpem.core.script.state import Progress
from vpem.transports import wire

PASSING = {"round", "exchange", "progress", "records", "learnt", "started", "mailbox", "missing", "lost"}
"""Fields of a state that end with the process, or follow from the others; all other fields last."""

LASTING = [part.name for part in fields(AgentState) if part.name not in PASSING]


def lasting(state: AgentState) -> AgentState:
    """Return the part of a state that lasts. An agent that resumes from it begins a new epoch with its first link."""
    kept = state.copy()
    kept.round = max(state.round, (state.epoch << EPOCH_BITS) + 1)  # a meeting in progress is not resumed
    kept.exchange, kept.mailbox, kept.missing, kept.learnt, kept.lost = None, {}, {}, (), frozenset()
    kept.started, kept.progress = False, Progress()
    return kept


def has_changed(saved: AgentState, state: AgentState) -> bool:
    """True if a state differs from a saved one in a field that lasts."""
    for name in LASTING:
        old, new = getattr(saved, name), getattr(state, name)
        if new is not old and (isinstance(old, np.ndarray) or isinstance(new, np.ndarray) or new != old):
            return True
    return False


def with_memories(state: AgentState, find: Callable[[NDArray[Any]], NDArray[Any]]) -> AgentState:
    """Replace the arrays of earlier sums, which are needed only to roll back, by those that `find` returns."""

    def change(progress: Progress) -> Progress:
        memories = {name: carried.with_arrays(find) for name, carried in progress.memories.items()}
        return replace(progress, memories=memories) if memories else progress

    changed = state.copy()
    changed.progress = change(state.progress)
    changed.checkpoints = tuple(replace(point, progress=change(point.progress)) for point in state.checkpoints)
    return changed


def decode_lasting(saved: bytes | memoryview, agent: Agent) -> AgentState:
    """Return the state from which the agent that had saved it resumes.

    Raises
    ------
    ValueError
        If the bytes are not a whole state, or not one of this agent in this study.
    """
    state, (own,) = lasting(wire.decode_state(saved)), bare_records([agent.identity.record(AgentState())])
    known = state.records.get(agent.number, next(iter(state.records.values()), own))
    links = tuple(sorted({*known.neighbours, *state.abandoned}))
    known = msgspec.structs.replace(bare_records([known])[0], neighbours=links)
    differing = [name for name in own.__struct_fields__ if getattr(known, name) != getattr(own, name)]
    if differing:
        raise ValueError(
            f"expected a state that agent {agent.number} ({agent.name!r}) had saved in this study, got one with "
            f"another {', '.join(differing)}; compare the study, the party and its table"
        )
    state.progress = state.checkpoints[-1].progress
    return state
