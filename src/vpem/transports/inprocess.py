"""All agents in one process: messages are delivered in order or, for tests, as badly as a network may.

However they are delivered, the agents' numbers are the same, bit for bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vpem.core.agent.machine import Agent
from vpem.core.agent.message import EPOCH_BITS, AgentNumber, Message, StaleMessageError
from vpem.core.agent.progress import AgentState
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
    """What a network may do to messages without breaking a link; probabilities for each delivery.

    Only messages that their receiver can do without are lost: `vpem.core.network.summation.Round.may_miss`.
    """

    rng: np.random.Generator
    shuffle: bool = True
    """Links overtake each other; each keeps its own order."""
    delay: float = 0.0
    """That a link which has something waits all the same."""
    duplicate: float = 0.0
    """That a message comes again."""
    kill: float = 0.0
    """That the receiver is killed before, and restored from its saved state."""
    loss: float = 0.0
    """That a message is lost; one that is lost and comes again comes too late."""
    failures: Failures | None = None
    """Which messages are lost beside those."""

    @property
    def loses(self) -> bool:
        """Whether messages may be lost."""
        return self.loss > 0 or self.failures is not None


class InProcess:
    """Delivers messages between agents of one process.

    Parameters
    ----------
    agents : iterable of Agent
    encoded : bool, default=False
        Whether messages go through the wire format, as they would between machines.
    disturbances : Disturbances, optional
        In order, by default.
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
        """By agent: the fields of `AgentTraffic`."""
        self._line: deque[Message] = deque()
        """Of all links, in order."""
        self._links: dict[tuple[int, int], deque[Message]] = {}
        """The same by link, if links overtake each other."""
        self._dead: set[AgentNumber] = set()
        self._rounds = dict.fromkeys(self.agents, 0)

    def start(self) -> InProcess:
        """Start all agents."""
        for number in sorted(self.agents):
            self.post(self.agents[number].start())
        return self

    def post(self, messages: Iterable[Message]) -> None:
        """Send what an agent returned."""
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
        """Deliver until nothing is on its way, or until something has come true."""
        watch, is_plain = self.watch, self.disturbances is None and not self.encoded
        while (message := self._next()) is not None:
            if watch is not None:
                watch(message)
            # Most messages only wait for others.
            if not is_plain or not self.agents[message.receiver].keep(message):
                self._deliver(message)
            if until is not None and until():
                break
        return self

    def traffic(self, network: Network) -> Traffic:
        """What was really sent; a network of the same agents gives the names."""
        table = np.array([self.sent[number] for number in sorted(self.sent)], dtype=np.int64)
        now = {number: self._rounds_of(agent.state) for number, agent in self.agents.items()}
        return Traffic(network.agents, table, max(self._rounds[number] + count for number, count in now.items()))

    def crash(self, number: AgentNumber) -> None:
        """An agent dies: what is on its way to it or from it is lost, and its neighbours notice."""
        self._dead.add(number)
        self._line = deque(message for message in self._line if number not in (message.sender, message.receiver))
        self._links = {link: line for link, line in self._links.items() if number not in link}
        for peer in self._living(self.agents[number].neighbours):
            self.post(self.agents[peer].lose(number))

    def recover(self, number: AgentNumber, saved: bytes) -> None:
        """A dead agent comes back with what it had saved."""
        self.agents[number] = agent = Session.restore(self.agents[number], saved).agent
        self._dead.discard(number)
        for peer in self._living(agent.neighbours):
            self._event(peer, partial(self.agents[peer].rejoin, number))
            self._event(number, partial(agent.rejoin, peer))

    def abandon(self, number: AgentNumber) -> None:
        """A dead agent does not come back, and its neighbours stop waiting for it."""
        if number not in self._dead:
            self.crash(number)
        neighbours = self.agents.pop(number).neighbours
        for peer in self._living(neighbours):
            self._event(peer, partial(self.agents[peer].abandon, number))

    def _living(self, numbers: Iterable[AgentNumber]) -> list[AgentNumber]:
        return [number for number in numbers if number in self.agents and number not in self._dead]

    def _event(self, number: AgentNumber, event: Callable[[], list[Message]]) -> None:
        """Something happens to an agent; rounds of an epoch that it ends with are counted."""
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
        """Whether the receiver knows enough of the round to do without the message, should it be lost."""
        state = self.agents[message.receiver].state
        if not self.disturbances or not self.disturbances.loses or message.kind in ("meet", "stop"):
            return True
        return message.epoch != state.epoch or self._round_of(message) is not None or message.round < state.round

    def _round_of(self, message: Message) -> tuple[int, bool] | None:
        """Of the receiver's present exchange: which of its rounds this is, and whether it can miss messages."""
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
    """The agents of a network whose columns are all here; a star has one more, the server.

    Parameters
    ----------
    X : Table of shape (n_rows, n_features)
    network : Network
    agreement : Agreement
    given : sequence of Given, optional
        Starts of all hubs' blocks.
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
