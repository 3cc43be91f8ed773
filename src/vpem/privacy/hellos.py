"""Hellos of the agents that match rows; only the newest hello of each agent is valid."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import msgspec

from vpem.core.agent.meeting import Credentials
from vpem.core.agent.message import RemoteProtocolError
from vpem.privacy.parcels import MOST_IDS, Agents, Hello, MatchingError, signed


class Hellos:
    """Hellos that one agent knows, including its own.

    Parameters
    ----------
    number : int
    agents : Agents
    count : int
        Number of this agent's rows; 0 for an agent without rows.
    credentials : Credentials, optional
        Credentials that sign the agent's own hello and verify those of others.
    """

    def __init__(self, number: int, agents: Agents, count: int, credentials: Credentials | None):
        self.number, self.agents, self.count, self.credentials = number, agents, count, credentials
        self.known: dict[int, Hello] = {}

    @property
    def own(self) -> Hello:
        """Hello of the agent itself."""
        return self.known[self.number]

    @property
    def is_complete(self) -> bool:
        """True if the hello of every agent is known."""
        return len(self.known) == len(self.agents.names)

    @property
    def agreed(self) -> bytes:
        """Head of the result that every owner has saved; empty if they have not all saved the same."""
        heads = {self.known[owner].saved for owner in self.agents.owners} if self.is_complete else set()
        return heads.pop() if len(heads) == 1 else b""

    @property
    def most_rows(self) -> int:
        """Maximum number of rows of an agent."""
        return max(hello.count for hello in self.known.values()) if self.is_complete else MOST_IDS

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of rows of each owner, by name."""
        return {self.agents.names[owner]: self.known[owner].count for owner in self.agents.owners}

    def renew(self, version: int, public: bytes, saved: bytes) -> None:
        """Replace the agent's own hello by a new one of this version."""
        about = f"{self.agents.join} {self.agents.matcher} {self.agents.about}"
        hello = Hello(self.number, secrets.token_bytes(16), public, self.count, about, version, saved)
        if self.credentials is not None:
            proof = self.credentials.sign(signed(hello, self.credentials.study))
            hello = msgspec.structs.replace(hello, proof=proof)
        self.known[self.number] = hello

    def is_news(self, peer: int, hello: Hello) -> bool:
        """Return True if a hello is newer than the known one; check it in that case.

        All agents order hellos in the same way, whatever the order of arrival: a restarted agent does not know the
        hellos of its earlier process, and some neighbours may know only those.

        Raises
        ------
        RemoteProtocolError
            If the peer must not pass on such a hello.
        MatchingError
            If rows cannot be matched with the agent that issued it.
        """
        number = hello.number
        if not 0 <= number < len(self.agents.names):
            raise RemoteProtocolError(self.number, peer, 0, f"expected agents of the study, got agent {number}")
        known = self.known.get(number)
        if known is not None and hello.age <= known.age:
            return False
        name = self.agents.names[number]
        if self.credentials is not None:
            try:
                self.credentials.verify(name, signed(hello, self.credentials.study), hello.proof)
            except ValueError as error:
                problem = f"expected {name!r} to have signed its hello, got another ({error})"
                raise RemoteProtocolError(self.number, peer, 0, problem) from None
        if (hello.count > 0) != (number in self.agents.owners):
            raise MatchingError(f"expected rows from every party and from no others, got {hello.count} from {name!r}")
        if hello.about != self.own.about:
            raise MatchingError(f"expected the same study, join and rule for ids, got others from {name!r}")
        if any(hello.public == other.public for one, other in self.known.items() if one != number):
            raise RemoteProtocolError(self.number, peer, 0, f"expected a key of its own from {name!r}, got another's")
        return True

    def check_kept(self, hello: Hello, head: bytes) -> None:
        """Raise MatchingError if an owner no longer has the final result."""
        if head and hello.count and hello.saved != head:
            name = self.agents.names[hello.number]
            raise MatchingError(f"expected the rows that all had matched, got {name!r} without; try --fresh at all")
