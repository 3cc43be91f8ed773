"""All agents in one process: messages are delivered in order or, for tests, with the faults of a network.

The agents' numbers are the same, bit for bit, for every delivery.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vpem.core.agent.agent_state import AgentState
from vpem.core.agent.machine import Agent
from vpem.core.agent.message import EPOCH_BITS, AgentNumber, Message, StaleMessageError
from vpem.core.decisions.starts import Given
from vpem.core.network.failures import Failures
from vpem.core.network.hubs import Position
from vpem.core.network.parties import SERVER, Network
from vpem.core.network.traffic import Traffic
from vpem.core.rows import Table
from vpem.core.settings import Agreement
from vpem.transports import wire
from vpem.transports.session import Session


@dataclass(frozen=True)
class Disturbances:
    """Faults that a network may cause without breaking a link; probabilities are per delivery.

    Only messages that their receiver can do without are lost; see `vpem.core.network.sums.Round.may_miss`.
    """

    rng: np.random.Generator
    shuffle: bool = True
    """True if links overtake each other; each link keeps its own order."""
    delay: float = 0.0
    """Probability that a link with a message waits while another link delivers."""
    duplicate: float = 0.0
    """Probability that a message is delivered again."""
    kill: float = 0.0
    """Probability that the receiver is killed before the delivery and restored from its saved state."""
    loss: float = 0.0
    """Probability that a message is lost; a duplicate of a lost message arrives too late."""
    failures: Failures | None = None
    """Failures that lose further messages."""

    @property
    def loses(self) -> bool:
        """True if messages may be lost."""
        return self.loss > 0 or self.failures is not None


class InProcess:
    """Transport of messages between agents of one process.

    Parameters
    ----------
    agents : iterable of Agent
    encoded : bool, default=False
        True to encode and decode messages in the wire format, as between machines.
    disturbances : Disturbances, optional
        Without them, messages are delivered in order.
    watch : callable, optional
        Called with every message before it is delivered.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        encoded: bool = False,
        disturbances: Disturbances | None = None,
        watch: Callable[[Message], None] | None = None,
    ):
        self.agents = {agent.number: agent for agent in agents}
        self.encoded, self.disturbances, self.watch = encoded, disturbances, watch
        self.sent = {number: [0, 0, 0, 0] for number in self.agents}
        """Fields of `AgentTraffic`, by agent."""
        self._line: deque[Message] = deque()
        """Messages of all links, in order, without disturbances."""
        self._links: dict[tuple[int, int], deque[Message]] = {}
        """Messages by link, with disturbances."""
        self._dead: set[AgentNumber] = set()
        self._rounds = dict.fromkeys(self.agents, 0)

    def start(self) -> InProcess:
        """Start all agents."""
        for number in sorted(self.agents):
            self.post(self.agents[number].start())
        return self

    def post(self, messages: Iterable[Message]) -> None:
        """Send the messages that an agent returned."""
        for message in messages:
            sender, receiver, n_bytes = self.sent[message.sender], self.sent[message.receiver], message.n_bytes
            sender[0] += 1
            sender[1] += n_bytes
            receiver[2] += 1
            receiver[3] += n_bytes
            if self.disturbances is None:
                self._line.append(message)
            else:
                self._links.setdefault((message.sender, message.receiver), deque()).append(message)

    def run(self, until: Callable[[], bool] | None = None) -> InProcess:
        """Deliver messages until none are in transit, or until `until` returns True."""
        watch, is_plain = self.watch, self.disturbances is None and not self.encoded
        while (message := self._next()) is not None:
            if watch is not None:
                watch(message)
            # A fast path, as most messages are only buffered until others arrive.
            if not is_plain or not self.agents[message.receiver].keep(message):
                self._deliver(message)
            if until is not None and until():
                break
        return self

    def traffic(self, network: Network) -> Traffic:
        """Return the traffic that was actually sent; a network of the same agents provides the names."""
        table = np.array([self.sent[number] for number in sorted(self.sent)], dtype=np.int64)
        now = {number: self._rounds_of(agent.state) for number, agent in self.agents.items()}
        return Traffic(network.agents, table, max(self._rounds[number] + count for number, count in now.items()))

    def crash(self, number: AgentNumber) -> None:
        """Kill an agent: messages in transit to it or from it are lost, and its neighbours notice."""
        self._dead.add(number)
        self._line = deque(message for message in self._line if number not in (message.sender, message.receiver))
        self._links = {link: line for link, line in self._links.items() if number not in link}
        for peer in self._living(self.agents[number].neighbours):
            self.post(self.agents[peer].lose(number))

    def recover(self, number: AgentNumber, saved: bytes) -> None:
        """Restore a dead agent from its saved state."""
        self.agents[number] = agent = Session.restore(self.agents[number], saved).agent
        self._dead.discard(number)
        for peer in self._living(agent.neighbours):
            self._event(peer, partial(self.agents[peer].rejoin, number))
            self._event(number, partial(agent.rejoin, peer))

    def abandon(self, number: AgentNumber) -> None:
        """Give up a dead agent: its neighbours stop waiting for it."""
        if number not in self._dead:
            self.crash(number)
        neighbours = self.agents.pop(number).neighbours
        for peer in self._living(neighbours):
            self._event(peer, partial(self.agents[peer].abandon, number))

    def _living(self, numbers: Iterable[AgentNumber]) -> list[AgentNumber]:
        return [number for number in numbers if number in self.agents and number not in self._dead]

    def _event(self, number: AgentNumber, event: Callable[[], list[Message]]) -> None:
        """Apply an event to an agent; if the event ends an epoch, count the rounds of that epoch."""
        before = self.agents[number].state
        out = event()
        if self.agents[number].state.epoch != before.epoch:
            self._rounds[number] += self._rounds_of(before)
        self.post(out)

    def _rounds_of(self, state: AgentState) -> int:
        return state.round & ((1 << EPOCH_BITS) - 1)

    def _next(self) -> Message | None:
        if self.disturbances is None:
            return self._line.popleft() if self._line else None
        links = [link for link, line in self._links.items() if line and self._is_due(line[0])]
        if not links:
            return None
        rng, link = self.disturbances.rng, links[0]
        if self.disturbances.shuffle:
            link = links[int(rng.integers(len(links)))]
        if rng.random() < self.disturbances.delay:  # another link goes first, if there is one
            link = min(links, key=lambda other: (other == link, other))
        return self._links[link].popleft()

    def _deliver(self, message: Message) -> None:
        disturbances, number = self.disturbances, message.receiver
        if disturbances is not None and disturbances.rng.random() < disturbances.kill:
            saved = wire.encode_state(self.agents[number].state)
            self.agents[number] = self.agents[number].restored(wire.decode_state(saved))
        if self._is_lost(message):
            self._event(number, partial(self.agents[number].missing, message.sender, message.round))
        else:
            self._hand_over(message)
        if disturbances is not None and disturbances.rng.random() < disturbances.duplicate:
            self._hand_over(message)

    def _is_due(self, message: Message) -> bool:
        """True if the receiver knows enough of the round to do without the message, should it be lost."""
        state = self.agents[message.receiver].state
        if not self.disturbances or not self.disturbances.loses or message.kind in ("meet", "stop"):
            return True
        return message.epoch != state.epoch or self._round_of(message) is not None or message.round < state.round

    def _round_of(self, message: Message) -> tuple[int, bool] | None:
        """Return the message's round in the receiver's present exchange and whether it can miss messages, or None."""
        agent = self.agents[message.receiver]
        state, exchange = agent.state, agent.state.exchange
        if state.meeting or exchange is None or message.epoch != state.epoch or message.round < state.round:
            return None
        step = message.round - exchange.begun
        now = agent.identity.round_at(state, step)
        return None if now is None else (step, now.may_miss)

    def _is_lost(self, message: Message) -> bool:
        disturbances, found = self.disturbances, self._round_of(message)
        if disturbances is None or not disturbances.loses or found is None or not found[1]:
            return False
        agent, failures = self.agents[message.receiver], disturbances.failures
        if disturbances.loss > 0 and disturbances.rng.random() < disturbances.loss:
            return True
        if failures is None:
            return False
        roles, count = agent.roles, agent.identity.place(agent.state).count
        ends = roles.position_of[message.sender], roles.position_of[message.receiver]
        return failures.loses(roles.network, count, found[0] - roles.network.depth, *ends)

    def _hand_over(self, message: Message) -> None:
        agent = self.agents[message.receiver]
        try:
            if self.encoded:
                message = wire.decode(wire.encode(message), agent, message.sender)
            self._event(message.receiver, partial(agent.receive, message))
        except StaleMessageError:
            pass


def make_agents(X: Table, network: Network, agreement: Agreement, given: Sequence[Given] = ()) -> list[Agent]:
    """Create the agents of a network from the columns of all parties; a star has one more agent, the server.

    Parameters
    ----------
    X : Table of shape (n_rows, n_features)
    network : Network
    agreement : Agreement
    given : sequence of Given, optional
        Starts for the blocks of all hubs.
    """
    names: list[Hashable] = list(network.parties)
    starts = {hub.root: start for hub, start in zip(network.hubs, given, strict=False)}
    agents, table = [], X[:]
    known: dict[Hashable, Any] = {}
    for number, name in enumerate(names):
        columns = table[:, network.columns[number]]
        start, neighbours = starts.get(Position(number)), network.neighbours[number]
        agents.append(Agent(number, neighbours, agreement, columns, name=str(name), given=start, known=known))
    if network.is_star:
        agents.append(Agent(len(names), range(len(names)), agreement, name=SERVER, known=known))
    return agents
