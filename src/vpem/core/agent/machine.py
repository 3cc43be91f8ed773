"""One party's whole life as a state machine: events in, messages out. No clock, socket, thread or file.

An agent's life is a series of exchanges with the network (`vpem.core.agent.phases`), each of some rounds; a round is
over when every message that it needs has come. Agents never wait: one that lacks a message returns nothing, and goes
on when the message is received.

A transport delivers each link's messages in order and once, or reports the peer lost. Before it sends what an event
has returned, it saves what must outlive the process: `vpem.transports.session` does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from vpem.core.agent import meeting
from vpem.core.agent.exchange import send, take
from vpem.core.agent.identity import Identity, model_checkpoint
from vpem.core.agent.inbox import MOST_NEW_ROWS, MOST_REASON, Inbox
from vpem.core.agent.meeting import MeetingError, Roles
from vpem.core.agent.message import (
    EPOCH_BITS,
    NO_DECISION,
    NO_VALUES,
    AgentNumber,
    Header,
    LocalProtocolError,
    Message,
    header_of,
)
from vpem.core.agent.phases import AFTER_DONE, AFTER_LOSS, AFTER_MEETING, DONE, PHASES, settle
from vpem.core.agent.progress import AgentState, Checkpoint, Exchange, Model, Prediction, orderly
from vpem.core.agent.work import Outcome, StudyError
from vpem.core.decisions.repair import Repair
from vpem.core.decisions.starts import Given
from vpem.core.network.summation import NO_MEMORY
from vpem.core.rows import Table
from vpem.core.settings import Agreement


class Agent:
    """A party, or the server of a star.

    Parameters
    ----------
    number : int
        Its number in the study; parties are ordered by it.
    neighbours : iterable of int
        The agents that it has links to; all that it knows of the network.
    agreement : Agreement
        The same for all.
    X : array of shape (n_rows, n_columns), optional
        Its columns, with gaps (NaN) where it lacks values or rows; None for a server.
    name : str, optional
    most_hops : int, optional
        How far its columns may travel; as far as agreed, by default.
    given : Given, optional
        Start of its block, if it is a root.
    state : AgentState, optional
        To go on from.
    known : dict, optional
        What agents of one process and one agreement find out about their network, once for all of them.
    """

    def __init__(
        self,
        number: int,
        neighbours: Iterable[int],
        agreement: Agreement,
        X: Table | None = None,
        *,
        name: str | None = None,
        most_hops: int | None = None,
        given: Given | None = None,
        state: AgentState | None = None,
        known: dict[Hashable, Any] | None = None,
    ):
        self.identity = Identity(number, neighbours, agreement, X, name, most_hops, given, known)
        self.number, self.name, self.neighbours = self.identity.number, self.identity.name, self.identity.neighbours
        self.state = AgentState() if state is None else state
        self._awaited = self.identity.awaited(self.state)
        self.error: Exception | None = None
        """What went wrong, if this agent itself has found that the study cannot go on; for callers, not saved."""

    # Events

    def start(self) -> list[Message]:
        """Begin to look for the others; once. A message from a neighbour that was faster begins it too."""
        self._check_alive()
        if self.state.started:
            raise LocalProtocolError(self.number, None, self.state.round, "expected one start, got another")
        draft = self.state.copy()
        draft.started = True
        return self._commit(draft, [] if draft.epoch >= 0 else self._begin_epoch(draft, 0))

    def receive(self, message: Message) -> list[Message]:
        """Take a message from a neighbour; returns what to send.

        Raises
        ------
        RemoteProtocolError
            If it is not one that the neighbour should send; nothing has changed. `StaleMessageError` if it came too
            late or twice, which is harmless. If the error names another peer than the sender, it is about something
            that peer had sent before its round: treat that peer as lost.
        """
        if self.state.failure is not None:
            return []
        if self.keep(message):
            return []
        self.check(header_of(message))
        draft = self.state.copy()
        if message.kind == "stop":
            reason = bytes(message.values).decode(errors="replace")
            return self._commit(draft, self._end(draft, reason, besides=message.sender))
        out: list[Message] = []
        if message.epoch > draft.epoch:
            draft.lost = draft.lost - {message.sender}  # an agent that begins an epoch can be reached
            out = self._begin_epoch(draft, message.epoch)
        arrived = draft.mailbox.get(message.round, {})
        draft.mailbox = {**draft.mailbox, message.round: {**arrived, message.sender: message}}
        return self._commit(draft, out + self._advance(draft))

    def keep(self, message: Message) -> bool:
        """Put a message that is right, and after which its round still waits for others, with those that are here.

        The usual case, for `receive` and for transports that know all messages to be right in their contents. Returns
        whether it was so: nothing else has changed then, and there is nothing to send.
        """
        _, number, sender, receiver, kind, values, decision = message
        awaited = self._awaited.get(number)
        if awaited is None:
            return False
        mailbox, (senders, form) = self.state.mailbox, awaited
        arrived = mailbox.get(number)
        if arrived is None:
            arrived = mailbox[number] = {}
        if len(arrived) + 1 == len(senders) and number == self.state.round:
            return False
        is_right = sender in senders and sender not in arrived and receiver == self.number
        if not is_right or form != (kind, values.dtype, len(values), len(decision)):
            return False
        arrived[sender] = message
        return True

    def check(self, header: Header) -> None:
        """Raise RemoteProtocolError if no message with this header can be received now.

        For transports, which ask before they read the contents.
        """
        Inbox(self.identity, self.state).check(header)

    def check_contents(self, message: Message) -> None:
        """Raise RemoteProtocolError if a message with a right header holds values that no agent computes.

        For transports again: `receive` does not look at each value once more.
        """
        Inbox(self.identity, self.state).check_contents(message)

    def lose(self, peer: int) -> list[Message]:
        """A neighbour cannot be reached: nothing is sent to it, and its messages that wait are forgotten."""
        self._check_neighbour(peer)
        draft = self.state.copy()
        draft.lost = draft.lost | {peer}
        draft.mailbox = {
            number: {sender: message for sender, message in arrived.items() if sender != peer}
            for number, arrived in draft.mailbox.items()
        }
        return self._commit(draft, [])

    def rejoin(self, peer: int) -> list[Message]:
        """A neighbour can be reached again: all meet, and go on from the last common checkpoint.

        Both ends of the link must be told. An agent that was restored has lost its neighbours, and so they it.
        """
        self._check_neighbour(peer)
        draft = self.state.copy()
        draft.lost = draft.lost - {peer}
        if draft.failure is not None:
            return self._commit(draft, self._tell(draft, [AgentNumber(peer)]))
        if peer in self.state.lost and draft.meeting and draft.round == draft.epoch << EPOCH_BITS:
            # This meeting waits for the peer, which has heard nothing of it: no need for another one.
            now = self.identity.round_at(draft, 0)
            assert now is not None, "the meeting waits for an agent"
            return self._commit(draft, [own for own in send(self.identity, draft, now) if own.receiver == peer])
        return self._commit(draft, self._meet_again(draft))

    def abandon(self, peer: int) -> list[Message]:
        """A neighbour will not come back. All its neighbours must say so; then the others go on without it.

        While the mixture is being fitted, they begin again from the start, as if it had never been there. When it
        is fitted, the model stays, and the missing block is marginalized in predictions (0 hops only). If the
        network has fallen apart without it, or if not everybody had met before, the study ends.
        """
        self._check_neighbour(peer)
        draft = self.state.copy()
        draft.lost, draft.abandoned = draft.lost - {peer}, draft.abandoned | {peer}
        return self._commit(draft, self._meet_again(draft))

    def predict(self, X: Table | None = None, n_rows: int | None = None) -> list[Message]:
        """Take part in the prediction of new rows, after the fit; every agent must.

        Parameters
        ----------
        X : array of shape (n_rows, n_columns), optional
            The party's columns of the new rows. None: it does not have them, and is marginalized.
        n_rows : int, optional
            How many rows, for an agent without any.
        """
        self._check_alive()
        state = self.state
        if not self.is_done:
            problem = "expected new rows when the fit, and the last new rows, are done (is_done), got some before"
            raise LocalProtocolError(self.number, None, state.round, problem)
        n_rows = n_rows if X is None else len(X)
        if n_rows is None or not 0 < n_rows <= MOST_NEW_ROWS:
            raise ValueError(f"expected 1 to {MOST_NEW_ROWS} new rows at a time, got {n_rows}")
        draft = state.copy()
        request = Prediction(n_rows, self.identity.new_columns(X, n_rows))
        draft.requests = {**draft.requests, draft.progress.n_predictions: request}
        out = self._guard(draft, partial(self._open, resumed=True))
        return self._commit(draft, out + self._advance(draft))

    def restored(self, state: AgentState) -> Agent:
        """The same agent, with its table and settings, in another state."""
        own = self.identity
        return Agent(
            own.number,
            own.neighbours,
            own.agreement,
            own.X,
            name=own.name,
            most_hops=own.most_hops,
            given=own.given,
            state=state,
            known=own.known,
        )

    # What has come of it

    @property
    def is_done(self) -> bool:
        """Whether the fit (and every prediction that was asked for) is finished here."""
        state = self.state
        is_waiting = state.progress.phase == DONE and not state.meeting and state.failure is None
        return is_waiting and state.progress.n_predictions not in state.requests

    @property
    def failure(self) -> str | None:
        """Why the study has ended, if it could not go on."""
        return self.state.failure

    @property
    def model(self) -> Model | None:
        """The fitted model; parameters at roots only."""
        return self.state.progress.best if self.state.progress.phase in (DONE, *AFTER_DONE) else None

    @property
    def prediction(self) -> Prediction | None:
        """Responsibilities and log-densities of the last new rows."""
        return self.state.progress.prediction

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Components that were repaired in the model's run."""
        return () if self.model is None else tuple(Repair(*fields) for fields in self.model.repairs)

    @property
    def roles(self) -> Roles:
        """What the last meeting came to."""
        return self.identity.roles(self.state)

    # Epochs and meetings

    def _begin_epoch(self, draft: AgentState, epoch: int) -> list[Message]:
        """Meet the others, for the first time or again."""
        draft.epoch, draft.round = epoch, epoch << EPOCH_BITS
        draft.meeting, draft.exchange, draft.mailbox = True, Exchange(), {}
        draft.records, draft.learnt = {self.number: self.identity.record(draft)}, (self.number,)
        return self._advance(draft)

    def _meet_again(self, draft: AgentState) -> list[Message]:
        if draft.failure is not None or draft.epoch < 0:
            return []
        return self._begin_epoch(draft, draft.epoch + 1)

    def _end_meeting(self, draft: AgentState) -> None:
        """Everybody's record is here: find the roles, and go to the checkpoint that all have."""
        records = draft.records
        meeting.check_members(records, draft.members)
        self.identity.roles(draft)
        target = meeting.common_checkpoint(records)
        if target and self.identity.agreement.hops > 0 and meeting.somebody_has_gone(records):
            raise MeetingError("expected all agents of a model with hubs, got fewer; fit again without the missing")
        if not draft.members:
            draft.members = {record.number: record for record in meeting.bare_records(records.values())}
        draft.n_met = len(records)
        draft.meeting = False
        if target < min(record.newest for record in records.values()):
            draft.requests = {}
        draft.checkpoints = tuple(point for point in draft.checkpoints if point.number <= target)
        draft.progress = draft.checkpoints[-1].progress
        if target == 0:
            draft.pooled = None

    # Rounds and exchanges

    def _advance(self, draft: AgentState) -> list[Message]:
        """Go on as far as the messages that are here allow."""
        out: list[Message] = []
        while draft.exchange is not None:
            now = self.identity.round_at(draft, draft.exchange.step)
            if now is None:
                out += self._guard(draft, self._finish)
                continue
            if not draft.exchange.sent:
                out += send(self.identity, draft, now)
                draft.exchange = draft.exchange._replace(sent=True)
            arrived = draft.mailbox.get(draft.round, {})
            if len(arrived) < len(now.senders):
                break
            take(self.identity, draft, now, arrived)
            if draft.meeting and not draft.learnt and not meeting.is_complete(draft.records):
                out += self._end(draft, "an agent is named as a neighbour, but cannot be found; compare the links")
        return out

    def _finish(self, draft: AgentState) -> None:
        """An exchange is over: make something of it, and open the next."""
        if draft.meeting:
            self._end_meeting(draft)
            resumed = draft.checkpoints[-1].number > 0
            self._open(draft, resumed)
            allowed = (*AFTER_LOSS, *AFTER_DONE) if resumed else AFTER_MEETING
            self._check_phase(draft, "the meeting", allowed)
            return
        exchange, before = draft.exchange, draft.progress
        assert exchange is not None, "there is an exchange"
        work = self.identity.work(draft)
        if exchange.pieces and work.is_root:
            members = work.roles.network.hub(work.position).members
            table = np.ascontiguousarray(np.hstack([exchange.pieces[member] for member in members]))
            if before.prediction is None:
                draft.pooled = table
            else:
                before = replace(before, prediction=replace(before.prediction, pooled=table))
        values = NO_VALUES
        audience = self.identity.audience(draft)
        if PHASES[before.phase].exchange == "sum" and (audience is None or work.position in audience):
            values, carry = self.identity.agreement.summation.end(self.identity.place(draft), exchange.state)
            if exchange.series:
                before = replace(before, memories={**before.memories, exchange.series: carry})
        decision = NO_DECISION if exchange.decision is None else exchange.decision
        draft.progress = orderly(PHASES[before.phase].absorb(work, before, Outcome(values, decision)), before)
        done = draft.progress.n_predictions
        draft.requests = {number: request for number, request in draft.requests.items() if number >= done - 1}
        self._open(draft)
        self._check_phase(draft, before.phase, (*PHASES[before.phase].next, *AFTER_DONE))

    def _check_phase(self, draft: AgentState, before: str, allowed: Sequence[str]) -> None:
        """Raise LocalProtocolError if the phase that comes next is not one that may follow."""
        if draft.progress.phase not in allowed:
            problem = f"expected one of {', '.join(allowed)} after {before}, got {draft.progress.phase}"
            raise LocalProtocolError(self.number, None, draft.round, problem)

    def _open(self, draft: AgentState, resumed: bool = False) -> None:
        """Begin the exchange that comes next, if there is one."""
        draft.progress = orderly(settle(self.identity.work(draft), draft.progress), draft.progress)
        draft.exchange = None
        if draft.progress.phase == DONE:
            self._save(draft, resumed)
            request = draft.requests.get(draft.progress.n_predictions)
            if request is None:
                return
            phase = AFTER_DONE[0] if self.identity.work(draft).roles.network.depth > 0 else AFTER_DONE[1]
            draft.progress = replace(draft.progress, phase=phase, prediction=request)
        work = self.identity.work(draft)
        offer = PHASES[draft.progress.phase].offer(work, draft.progress)
        pieces = {}
        if offer.columns is not None:
            pieces = {work.position: offer.columns}
        if offer.decision is not None and draft.progress.phase not in AFTER_DONE:
            self._save(draft, resumed)
        draft.exchange = Exchange(
            begun=draft.round, shape=offer.shape, series=offer.series, decision=offer.decision, pieces=pieces
        )
        if PHASES[draft.progress.phase].exchange == "sum":
            carry = draft.progress.memories.get(offer.series, NO_MEMORY)
            state = self.identity.agreement.summation.begin(self.identity.place(draft), carry, offer.values)
            draft.exchange = draft.exchange._replace(state=state)
        if draft.mailbox:
            Inbox(self.identity, draft).check_kept()

    def _save(self, draft: AgentState, resumed: bool) -> None:
        """Take a checkpoint, unless this is where agents have just gone back to."""
        if not resumed:
            newest = Checkpoint(draft.checkpoints[-1].number + 1, draft.progress)
            *older, last = draft.checkpoints
            lasting = [point for point in older if point.number in (0, model_checkpoint(draft))]
            draft.checkpoints = (*lasting, last, newest)

    # Failures

    def _guard(self, draft: AgentState, action: Callable[[AgentState], None]) -> list[Message]:
        """Do something that may end the study; returns what to tell the others then."""
        try:
            action(draft)
        except (MeetingError, StudyError) as error:
            self.error = error
            return self._end(draft, str(error))
        except ValueError as error:
            self.error = error
            return self._end(draft, f"party {self.name!r} cannot go on: {error}")
        return []

    def _end(self, draft: AgentState, reason: str, besides: int | None = None) -> list[Message]:
        """Give up, and hand the reason on."""
        draft.failure, draft.exchange, draft.mailbox = reason, None, {}
        return self._tell(draft, [peer for peer in self.neighbours if peer != besides])

    def _tell(self, draft: AgentState, peers: Iterable[AgentNumber]) -> list[Message]:
        """Tell some neighbours why the study has ended."""
        text = np.frombuffer((draft.failure or "").encode()[:MOST_REASON], dtype=np.uint8)
        return [
            Message(max(draft.epoch, 0), draft.round, self.number, peer, "stop", text)
            for peer in peers
            if peer not in draft.abandoned
        ]

    def _commit(self, draft: AgentState, out: list[Message]) -> list[Message]:
        self.state, self._awaited = draft, self.identity.awaited(draft)
        return [message for message in out if message.receiver not in draft.lost]

    def _check_alive(self) -> None:
        if self.state.failure is not None:
            problem = f"the study has ended: {self.state.failure}"
            raise LocalProtocolError(self.number, None, self.state.round, problem)

    def _check_neighbour(self, peer: int) -> None:
        if peer not in self.neighbours or peer in self.state.abandoned:
            problem = f"expected one of the neighbours {self.neighbours}, got agent {peer}"
            raise LocalProtocolError(self.number, peer, self.state.round, problem)
