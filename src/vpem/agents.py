"""Agents for a network of your own.

An engine carries bytes between agents. It opens a link to each neighbour, and passes events to the party's `Session`:
`start` once, `connect` and `disconnect` when a link opens and closes, `receive` for each frame. Each event returns
the frames to send. The engine sends them in order over the links to their receivers, then closes the links to agents
that are not in `session.connected`. It stores the checkpoints passed to `save`, and resumes from one with
`Session.restore`.

A link must deliver frames complete, in order and at most once, and notify both ends if a frame may be missing.
Authentication and encryption are also the engine's task. `InProcess` runs all agents in one process.
"""

from vpem.core.agent.machine import Agent
from vpem.core.agent.message import (
    Frame,
    LocalProtocolError,
    Message,
    ProtocolError,
    RemoteProtocolError,
    StaleMessageError,
)
from vpem.core.settings import Agreement, Settings
from vpem.transports.inprocess import InProcess, make_agents
from vpem.transports.session import Session

__all__ = [
    "Agent",
    "Agreement",
    "Settings",
    "Session",
    "Frame",
    "Message",
    "ProtocolError",
    "LocalProtocolError",
    "RemoteProtocolError",
    "StaleMessageError",
    "make_agents",
    "InProcess",
]
