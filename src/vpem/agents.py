"""Agents on a network of your own.

An engine carries bytes between agents. For each neighbour it opens a link, and gives the party's `Session` events:
`start` once, `connect` and `disconnect` when a link begins and ends, `receive` for each frame. Each event returns the
frames to send. The engine sends them in order over the links of their receivers, then closes the links to agents that
are not in `session.connected`. It keeps what `save` gets, and goes on from it with `Session.restore`.

Of a link it must promise that frames arrive whole, in order and at most once, and that both ends are told if one may
be missing. Authentication and encryption are the engine's as well. `InProcess` runs all agents in one process.
"""

from vpem.core.agent.machine import Agent
from vpem.core.agent.message import LocalProtocolError, Message, ProtocolError, RemoteProtocolError, StaleMessageError
from vpem.core.settings import Agreement, Settings
from vpem.transports.inprocess import InProcess, make_agents
from vpem.transports.session import Frame, Session

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
