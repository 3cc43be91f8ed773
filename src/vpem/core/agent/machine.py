"""One party as a state machine: events in, messages out. No clock, socket, thread or file.

An agent takes part in a sequence of exchanges with the network (`vpem.core.script.phases`). Each exchange has one or
more rounds; a round ends when every message that it needs has arrived. Agents never block: an event that leaves a
message outstanding returns nothing, and the agent continues when the message is received.

A transport delivers each link's messages in order and once, or reports the peer as lost. Before it sends the messages
that an event returned, it saves the state that must outlive the process, as `vpem.transports.session` does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

from vpem.core.agent.agent_state import AgentState, PartyModel, party_model
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
from vpem.core.agent.turn import Turn
from vpem.core.decisions.repair import Repair
from vpem.core.decisions.starts import Given
from vpem.core.rows import Holders, Table
from vpem.core.script.phases import AFTER_DONE, DONE
from vpem.core.script.state import Prediction
from vpem.core.settings import Agreement


class Agent:
    """A party, or the server of a star.

    Parameters
    ----------
    number : int
        Number of the agent in the study, by which parties are ordered.
    neighbours : iterable of int
        Agents to which it has links; it knows nothing else about the network.
    agreement : Agreement
        Settings that all agents share.
    X : array of shape (n_rows, n_columns), optional
        Columns of the party, with gaps (NaN) where it lacks values or rows; None for a server.
    name : str, optional
    most_hops : int, optional
        Maximum number of hops that its columns may travel; by default that of the agreement.
    given : Given, optional
        Start of its block, if it is a root.
    state : AgentState, optional
        State from which to resume.
    known : dict, optional
        Cache of results about the network, shared by agents of one process and one agreement.
    credentials : Credentials, optional
        Credentials that sign this agent's record and verify those of others. None: records are not signed.
    keys : array of shape (n_rows,), optional
        An int64 for each row that identifies it in later predictions, derived from its id; 0 for a row without one.
        Where sums are masked, rows that are added again with other parties are refused. None: rows are identified by
        their values, which is only reliable if these differ.
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
        """Exception for which this agent itself ended the study; for callers, not saved."""
        self.hand_out: Callable[[list[Message]], object] | None = None
        """Callback that receives the messages to send when an exchange ends, before the agent processes its result,
        which may take long. The event returns the remaining messages. If the processing raises, the changes up to the
        callback remain."""

    # Events

    def start(self) -> list[Message]:
        """Start the first meeting; call it once. A message from a neighbour that started earlier also starts it."""
        self._check_alive()
        if self.state.started:
            raise LocalProtocolError(self.number, None, self.state.round, "expected one start, got another")
        turn = self._turn()
        turn.draft.started = True
        return self._go_on(turn, [] if self.state.epoch >= 0 else turn.begin_epoch(0))

    def receive(self, message: Message) -> list[Message]:
        """Process a message from a neighbour and return the messages to send.

        Raises
        ------
        RemoteProtocolError
            If the neighbour must not send this message; the state is unchanged. `StaleMessageError` if it arrived too
            late or twice, which is harmless. If the error names another peer than the sender, that peer sent an
            invalid message ahead of its round: treat that peer as lost.
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
            draft.lost = draft.lost - {message.sender}  # an agent that starts an epoch is reachable
            out = turn.begin_epoch(message.epoch)
        arrived = draft.mailbox.get(message.round, {})
        draft.mailbox = {**draft.mailbox, message.round: {**arrived, message.sender: message}}
        return self._go_on(turn, out + turn.advance())

    def keep(self, message: Message) -> bool:
        """Buffer a valid message if its round still waits for others; return True if it was buffered.

        A fast path for the usual case, for `receive` and for transports that have checked the contents of messages.
        If it returns True, nothing else has changed, and there is nothing to send.
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

        For transports, which call it before they read the contents.
        """
        Inbox(self.identity, self.state).check(header)

    def check_contents(self, message: Message) -> None:
        """Raise RemoteProtocolError if a message with a valid header contains values that no agent computes.

        For transports: `receive` does not check the values again.
        """
        Inbox(self.identity, self.state).check_contents(message)

    def lose(self, peer: int) -> list[Message]:
        """Record that a neighbour is unreachable: send nothing to it, and drop its buffered messages."""
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
        """Continue without a neighbour's message of a round, where the summation allows it.

        If the message arrives later, it is stale. The event has no effect if the message has already arrived or the
        round is over.

        Parameters
        ----------
        peer : int
        number : int
            Number of the round: `state.round`, in which the agent waits, or a later round of the same sum.

        Raises
        ------
        LocalProtocolError
            If the round cannot end without the message: have it retransmitted, or `lose` the peer.
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
        """Round in which the agent waits, and the neighbours whose messages may be reported as `missing`."""
        state, exchange = self.state, self.state.exchange
        now = None if exchange is None else self.identity.round_at(state, exchange.step)
        may_miss = now is not None and now.may_miss
        return state.round, self.waits_for if may_miss else frozenset()

    @property
    def waits_for(self) -> frozenset[int]:
        """Neighbours whose messages the current round still needs."""
        state, exchange = self.state, self.state.exchange
        now = None if exchange is None else self.identity.round_at(state, exchange.step)
        if now is None:
            return frozenset()
        return frozenset(now.senders) - state.missing.get(state.round, frozenset()).union(
            state.mailbox.get(state.round, ())
        )

    def rejoin(self, peer: int) -> list[Message]:
        """Record that a neighbour is reachable again: all agents meet, and resume from the last common checkpoint.

        Both ends of the link must get this event. A restored agent has lost its neighbours, and they have lost it.
        """
        self._check_neighbour(peer)
        turn = self._turn()
        draft = turn.draft
        draft.lost = draft.lost - {peer}
        if draft.failure is not None:
            return self._commit(turn, turn.tell([AgentNumber(peer)]))
        if peer in self.state.lost and draft.meeting and draft.round == draft.epoch << EPOCH_BITS:
            # This meeting waits for the peer, which has received nothing of it: another meeting is not needed.
            now = self.identity.round_at(draft, 0)
            assert now is not None, "the meeting waits for an agent"
            return self._commit(turn, [own for own in send(self.identity, draft, now) if own.receiver == peer])
        return self._go_on(turn, turn.meet_again())

    def abandon(self, peer: int) -> list[Message]:
        """Give up a neighbour for good. When all its neighbours have done so, the others continue without it.

        Where sums are masked and records signed, the others must `consent` as well.

        During the fit, the remaining agents restart it from the beginning, without the agent that was given up. After
        the fit, the model stays, and the missing block is marginalized in predictions (0 hops only). The study ends
        if the network is disconnected without the agent, or if the first meeting had not ended.
        """
        self._check_neighbour(peer)
        turn = self._turn()
        draft = turn.draft
        draft.lost, draft.abandoned = draft.lost - {peer}, draft.abandoned | {peer}
        return self._go_on(turn, turn.meet_again())

    def consent(self, peer: int) -> list[Message]:
        """Consent to continue without an agent that is not a neighbour; needed where sums are masked.

        The agent signs the consent with its record. Until all remaining agents have consented, they wait.
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
        """Take part in the prediction of new rows, after the fit; every agent must call it.

        Parameters
        ----------
        X : array of shape (n_rows, n_columns), optional
            The party's columns of the new rows. None: it does not have them, and is marginalized.
        n_rows : int, optional
            Number of new rows, for an agent without columns of them.
        keys : array of shape (n_rows,), optional
            Keys of the new rows, required if the rows of the fit have keys.
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
        """Return this agent, with its table and settings, in another state."""
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

    # Results

    @property
    def is_done(self) -> bool:
        """True if this agent has finished the fit and every requested prediction."""
        state = self.state
        is_waiting = state.progress.phase == DONE and not state.meeting and state.failure is None
        return is_waiting and state.progress.n_predictions not in state.requests

    @property
    def failure(self) -> str | None:
        """Reason for which the study failed; None if it did not."""
        return self.state.failure

    @property
    def held_up(self) -> str | None:
        """Text that names the agents whose consent to continue without others is awaited; None without any."""
        return self.identity.held_up(self.state)

    @property
    def model(self) -> PartyModel | None:
        """Fitted model, with parameters only at roots; None before the end of the fit."""
        best = self.state.progress.best if self.state.progress.phase in (DONE, *AFTER_DONE) else None
        return None if best is None else party_model(best)

    @property
    def prediction(self) -> Prediction | None:
        """Responsibilities and log-densities of the last new rows."""
        return self.state.progress.prediction

    @property
    def holders(self) -> Holders | None:
        """Number of blocks that have each row of the fit; None where all rows are used."""
        counts = self.state.progress.holders
        if counts is None:
            return None
        return Holders(counts, self.identity.agreement.summation.least_holders(self.roles.network))

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Components that were repaired in the model's run."""
        return () if self.model is None else tuple(Repair(*fields) for fields in self.model.repairs)

    @property
    def roles(self) -> Roles:
        """Roles of all agents that follow from the last meeting."""
        return self.identity.roles(self.state)

    def _turn(self) -> Turn:
        return Turn(self.identity, self.state, pauses=self.hand_out is not None)

    def _go_on(self, turn: Turn, out: list[Message]) -> list[Message]:
        """Commit a turn; after each finished exchange, pass its messages to `hand_out` first, then continue."""
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
