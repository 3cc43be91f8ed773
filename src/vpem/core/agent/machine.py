"""One party's whole life as a state machine: events in, messages out. No clock, socket, thread or file.

An agent's life is a series of exchanges with the network (`vpem.core.agent.phases`), each of some rounds; a round is
over when every message that it needs has come. Agents never wait: one that lacks a message returns nothing, and goes
on when the message is received.

A transport delivers each link's messages in order and once, or reports the peer lost. Before it sends what an event
has returned, it saves what must outlive the process: `vpem.transports.session` does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

from vpem.core.agent.exchange import send
from vpem.core.agent.identity import Identity
from vpem.core.agent.inbox import MOST_NEW_ROWS, Inbox
from vpem.core.agent.meeting import Credentials, Roles
from vpem.core.agent.message import (
    EPOCH_BITS,
    AgentNumber,
    Header,
    LocalProtocolError,
    Message,
    header_of,
    show_round,
)
from vpem.core.agent.phases import AFTER_DONE, DONE
from vpem.core.agent.progress import AgentState, Model, Prediction
from vpem.core.agent.turn import Turn
from vpem.core.decisions.repair import Repair
from vpem.core.decisions.starts import Given
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
    credentials : Credentials, optional
        To sign what this agent tells of itself, and to check what others do. None: records are not signed.
    keys : array of shape (n_rows,), optional
        A whole number (int64) for each row, the same whenever the row comes again, from its id; 0 for a row without
        one. Where sums are masked, rows that are added again with other parties are refused. None: rows are known
        by their values, which is as good as these are different.
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
        credentials: Credentials | None = None,
        keys: Any = None,
    ):
        self.identity = Identity(number, neighbours, agreement, X, name, most_hops, given, known, credentials, keys)
        self.number, self.name, self.neighbours = self.identity.number, self.identity.name, self.identity.neighbours
        self.state = AgentState() if state is None else state
        self._awaited = self.identity.awaited(self.state)
        self.error: Exception | None = None
        """What went wrong, if this agent itself has found that the study cannot go on; for callers, not saved."""
        self.hand_out: Callable[[list[Message]], object] | None = None
        """Gets what is to be sent when an exchange is over, before the agent makes something of it, which may take
        long; the event returns the rest. If it then raises, only what came after has not happened."""

    # Events

    def start(self) -> list[Message]:
        """Begin to look for the others; once. A message from a neighbour that was faster begins it too."""
        self._check_alive()
        if self.state.started:
            raise LocalProtocolError(self.number, None, self.state.round, "expected one start, got another")
        turn = self._turn()
        turn.draft.started = True
        return self._go_on(turn, [] if self.state.epoch >= 0 else turn.begin_epoch(0))

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
        turn = self._turn()
        draft = turn.draft
        if message.kind == "stop":
            reason = bytes(message.values).decode(errors="replace")
            return self._commit(turn, turn.end(reason, besides=message.sender))
        out: list[Message] = []
        if message.epoch > draft.epoch:
            draft.lost = draft.lost - {message.sender}  # an agent that begins an epoch can be reached
            out = turn.begin_epoch(message.epoch)
        arrived = draft.mailbox.get(message.round, {})
        draft.mailbox = {**draft.mailbox, message.round: {**arrived, message.sender: message}}
        return self._go_on(turn, out + turn.advance())

    def keep(self, message: Message) -> bool:
        """Put a message that is right, and after which its round still waits for others, with those that are here.

        The usual case, for `receive` and for transports that know all messages to be right in their contents. Returns
        whether it was so: nothing else has changed then, and there is nothing to send.
        """
        epoch, number, sender, receiver, kind, values, decision, _ = message
        awaited = self._awaited.get(number)
        if awaited is None or number in self.state.missing:
            return False
        mailbox, (senders, form) = self.state.mailbox, awaited
        arrived = mailbox.get(number)
        if arrived is None:
            arrived = mailbox[number] = {}
        if len(arrived) + 1 == len(senders) and number == self.state.round:
            return False
        is_right = (
            sender in senders and sender not in arrived and (receiver, epoch) == (self.number, self.state.epoch)
        )
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
        turn = self._turn()
        draft = turn.draft
        draft.lost = draft.lost | {peer}
        draft.mailbox = {
            number: {sender: message for sender, message in arrived.items() if sender != peer}
            for number, arrived in draft.mailbox.items()
        }
        return self._commit(turn, [])

    def missing(self, peer: int, number: int) -> list[Message]:
        """A neighbour's message of a round will not come: go on without it, where the summation can.

        If it comes all the same, it is stale. So is the event itself once the message is here, or the round over:
        then nothing happens.

        Parameters
        ----------
        peer : int
        number : int
            Of the round: `state.round`, in which the agent waits, or a later one of the same sum.

        Raises
        ------
        LocalProtocolError
            If the round cannot end without the message: send it again, or `lose` the peer.
        """
        self._check_neighbour(peer)
        state, exchange = self.state, self.state.exchange
        if self.failure is not None or number < state.round or peer in state.mailbox.get(number, {}):
            return []
        now = None
        if exchange is not None:
            now = self.identity.round_at(state, exchange.step + number - state.round)
        if now is None or not now.may_miss or peer not in now.senders:
            problem = (
                f"expected {show_round(number)} to be one of this sum's that can end without a message of this peer, "
                "got another; send the message again, or report the peer as lost"
            )
            raise LocalProtocolError(self.number, peer, state.round, problem)
        turn = self._turn()
        before = state.missing.get(number, frozenset())
        turn.draft.missing = {**state.missing, number: before | {peer}}
        return self._go_on(turn, turn.advance())

    @property
    def awaited(self) -> tuple[int, frozenset[int]]:
        """The round in which the agent waits, and the neighbours whose messages may be reported as `missing`."""
        state, exchange = self.state, self.state.exchange
        now = None if exchange is None else self.identity.round_at(state, exchange.step)
        if now is None or not now.may_miss:
            return state.round, frozenset()
        here = state.missing.get(state.round, frozenset()).union(state.mailbox.get(state.round, ()))
        return state.round, frozenset(now.senders) - here

    def rejoin(self, peer: int) -> list[Message]:
        """A neighbour can be reached again: all meet, and go on from the last common checkpoint.

        Both ends of the link must be told. An agent that was restored has lost its neighbours, and so they it.
        """
        self._check_neighbour(peer)
        turn = self._turn()
        draft = turn.draft
        draft.lost = draft.lost - {peer}
        if draft.failure is not None:
            return self._commit(turn, turn.tell([AgentNumber(peer)]))
        if peer in self.state.lost and draft.meeting and draft.round == draft.epoch << EPOCH_BITS:
            # This meeting waits for the peer, which has heard nothing of it: no need for another one.
            now = self.identity.round_at(draft, 0)
            assert now is not None, "the meeting waits for an agent"
            return self._commit(turn, [own for own in send(self.identity, draft, now) if own.receiver == peer])
        return self._go_on(turn, turn.meet_again())

    def abandon(self, peer: int) -> list[Message]:
        """A neighbour will not come back. All its neighbours must say so; then the others go on without it.

        Where sums are masked and records signed, the others must `consent` as well.

        While the mixture is being fitted, they begin again from the start, as if it had never been there. When it
        is fitted, the model stays, and the missing block is marginalized in predictions (0 hops only). If the
        network has fallen apart without it, or if not everybody had met before, the study ends.
        """
        self._check_neighbour(peer)
        turn = self._turn()
        draft = turn.draft
        draft.lost, draft.abandoned = draft.lost - {peer}, draft.abandoned | {peer}
        return self._go_on(turn, turn.meet_again())

    def consent(self, peer: int) -> list[Message]:
        """Agree to go on without an agent that is no neighbour, where that needs all that remain: under masks.

        The agent signs it with its record. Without the consent of all, they wait.
        """
        if peer in self.neighbours or peer == self.number:
            problem = f"expected an agent that is no neighbour, got agent {peer}; give neighbours up with abandon"
            raise LocalProtocolError(self.number, peer, self.state.round, problem)
        if not self.identity.needs_consent or peer in self.state.consents:
            return []
        turn = self._turn()
        turn.draft.consents = turn.draft.consents | {peer}
        return self._go_on(turn, turn.meet_again())

    def predict(self, X: Table | None = None, n_rows: int | None = None, keys: Any = None) -> list[Message]:
        """Take part in the prediction of new rows, after the fit; every agent must.

        Parameters
        ----------
        X : array of shape (n_rows, n_columns), optional
            The party's columns of the new rows. None: it does not have them, and is marginalized.
        n_rows : int, optional
            How many rows, for an agent without any.
        keys : array of shape (n_rows,), optional
            As those of the fit's rows, if the agent has some.
        """
        self._check_alive()
        state = self.state
        if not self.is_done:
            problem = "expected new rows when the fit, and the last new rows, are done (is_done), got some before"
            raise LocalProtocolError(self.number, None, state.round, problem)
        n_rows = n_rows if X is None else len(X)
        if n_rows is None or not 0 < n_rows <= MOST_NEW_ROWS:
            raise ValueError(f"expected 1 to {MOST_NEW_ROWS} new rows at a time, got {n_rows}")
        turn, new_keys = self._turn(), self.identity.new_keys(keys, n_rows)
        request = Prediction(n_rows, self.identity.new_columns(X, n_rows), keys=new_keys)
        turn.draft.requests = {**state.requests, state.progress.n_predictions: request}
        out = turn.guard(partial(turn.open_exchange, resumed=True))
        return self._go_on(turn, out + turn.advance())

    def restored(self, state: AgentState) -> Agent:
        """The same agent, with its table and settings, in another state."""
        own, state = self.identity, state.copy()
        state.mailbox = {number: dict(arrived) for number, arrived in state.mailbox.items()}
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
            credentials=own.credentials,
            keys=own.keys,
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
    def held_up(self) -> str | None:
        """Whose consent is awaited to go on without agents that were given up, in words; None if none is."""
        return self.identity.held_up(self.state)

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

    def _turn(self) -> Turn:
        return Turn(self.identity, self.state, pauses=self.hand_out is not None)

    def _go_on(self, turn: Turn, out: list[Message]) -> list[Message]:
        """Take over what an event has done; where exchanges are over, hand out what there is, and go on."""
        while self.hand_out is not None and turn.is_over:
            self.hand_out(self._commit(turn, out))
            turn = self._turn()
            out = turn.finish() + turn.advance()
        return self._commit(turn, out)

    def _commit(self, turn: Turn, out: list[Message]) -> list[Message]:
        self.state, self._awaited = turn.draft, self.identity.awaited(turn.draft)
        self.error = turn.error or self.error
        return [message for message in out if message.receiver not in turn.draft.lost]

    def _check_alive(self) -> None:
        if self.state.failure is not None:
            problem = f"the study has ended: {self.state.failure}"
            raise LocalProtocolError(self.number, None, self.state.round, problem)

    def _check_neighbour(self, peer: int) -> None:
        if peer not in self.neighbours or peer in self.state.abandoned:
            problem = f"expected one of the neighbours {self.neighbours}, got agent {peer}"
            raise LocalProtocolError(self.number, peer, self.state.round, problem)
