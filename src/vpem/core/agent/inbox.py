"""Checks of received messages: by header, before contents are read. They do not change the agent's state."""

from __future__ import annotations

import math

import numpy as np

from vpem.core.agent.agent_state import AgentState
from vpem.core.agent.identity import Identity
from vpem.core.agent.meeting import MOST_AGENTS, MOST_COLUMNS
from vpem.core.agent.message import (
    EPOCH_BITS,
    KINDS,
    AgentNumber,
    Header,
    Message,
    RemoteProtocolError,
    StaleMessageError,
    header_of,
    show_round,
)
from vpem.core.decisions.initial import n_candidates
from vpem.core.network.sums import LABELS, Payload, Round, Shape
from vpem.core.network.traffic import n_columns_sent
from vpem.core.script.context import label_exchange

TEXTS = ("meet", "stop")
"""Kinds of messages whose contents are bytes."""


MOST_NEW_ROWS = 100_000
"""Maximum number of new rows in one prediction."""

MOST_REASON = 4096
"""Maximum length in bytes of the reason for which an agent ends the study."""

MOST_RECORDS = 2**24
"""Maximum number of bytes of records in one message."""

MOST_EPOCHS_AHEAD = 2**20


class Inbox:
    """Checks of the messages that an agent receives in one state."""

    def __init__(self, identity: Identity, state: AgentState):
        self.identity, self.state = identity, state

    def check_contents(self, message: Message) -> None:
        """Raise RemoteProtocolError if a message with a valid header contains values that no agent computes."""
        values, decision = message.values, message.decision
        if message.kind in TEXTS:
            return
        if message.kind == "columns":
            if np.isinf(values).any():
                raise self._error(message.sender, "expected columns of finite numbers or gaps (NaN), got infinity")
        elif values.dtype == np.float64 and not np.isfinite(values).all():
            raise self._error(message.sender, "expected finite numbers, got NaN or infinity")
        if np.isnan(decision).any() or (decision == -math.inf).any():
            raise self._error(message.sender, "expected a decision, got NaN or minus infinity")

    def check(self, header: Header) -> None:
        """Raise RemoteProtocolError if no message with this header can be accepted now."""
        state, agent = self.state, self.identity
        epoch, number, sender = header.epoch, header.round, header.sender
        if header.receiver != agent.number or sender not in agent.neighbours or sender in state.abandoned:
            others = tuple(peer for peer in agent.neighbours if peer not in state.abandoned)
            raise self._error(
                sender,
                f"expected a message from one of {others} to {agent.number}, got one from {sender} to "
                f"{header.receiver}",
            )
        is_right = header.kind in KINDS and (header.dtype == "u1" or header.kind not in TEXTS)
        if not is_right or number >> EPOCH_BITS != epoch:
            raise self._error(sender, f"expected one of the kinds {KINDS} in its form, got {header}")
        if header.kind == "stop":
            if header.n_values > MOST_REASON or header.n_decisions:
                raise self._error(sender, f"expected at most {MOST_REASON} bytes, got {header.n_values}")
            return
        if epoch < state.epoch or number < state.round:
            raise self._error(sender, f"came too late: {show_round(number)} is over", StaleMessageError)
        if epoch > state.epoch:
            if header.kind != "meet" or number != epoch << EPOCH_BITS:
                raise self._error(sender, f"expected an epoch to begin with a meeting, got {header}")
            if epoch > state.epoch + MOST_EPOCHS_AHEAD:
                raise self._error(sender, f"expected at most {MOST_EPOCHS_AHEAD} epochs ahead, got epoch {epoch}")
            self._check_size(header)
            return
        if sender in state.mailbox.get(number, {}):
            raise self._error(sender, f"came twice: {show_round(number)}", StaleMessageError)
        if sender in state.missing.get(number, ()):
            raise self._error(sender, f"came too late: {show_round(number)} goes on without it", StaleMessageError)
        ahead = number - state.round
        if ahead > 1 and not self._can_be_ahead(header, ahead):
            raise self._error(sender, f"expected a round that the peer can have come to, got {show_round(number)}")
        now = None
        if state.exchange is not None and (ahead == 0 or not state.meeting):
            now = agent.round_at(state, state.exchange.step + ahead)
        if now is not None:
            self.check_fit(header, now)
        else:
            self._check_size(header)

    def _can_be_ahead(self, header: Header, ahead: int) -> bool:
        """True if a message may arrive this early; a meeting has no schedule yet, and allows a few per sender."""
        if not self.state.meeting:
            return self.identity.can_be_ahead(self.state, header.sender, ahead)
        agreement = self.identity.agreement
        n_kept = sum(header.sender in arrived for arrived in self.state.mailbox.values())
        return (
            header.kind != "meet"
            and ahead <= MOST_AGENTS
            and n_kept <= agreement.summation.burst + 2 * agreement.hops
        )

    def check_kept(self) -> None:
        """Raise RemoteProtocolError if a message that arrived early does not fit the exchange that begins now."""
        for number, arrived in self.state.mailbox.items():
            now = self.identity.round_at(self.state, number - self.state.round)
            for message in arrived.values():
                if now is None:
                    self._check_size(header_of(message))
                else:
                    self.check_fit(header_of(message), now)

    def check_fit(self, header: Header, now: Round[AgentNumber]) -> None:
        """Raise RemoteProtocolError unless a message has the sender, kind and size that its round needs."""
        if header.sender not in now.senders or header.kind != now.kind:
            senders = f"{now.kind!r} from {now.senders}" if now.senders else "nothing"
            raise self._error(header.sender, f"expected {senders} in {show_round(header.round)}, got {header.kind!r}")
        if now.kind == "meet":
            self._check_size(header)
            return
        payload, n_decisions = self._sizes(header, now)
        n_values = payload.n_values
        is_right = header.n_values == n_values or (not payload.is_fixed and header.n_values < n_values)
        if not is_right or header.n_decisions != n_decisions or (n_values and header.dtype != payload.dtype):
            raise self._error(
                header.sender,
                f"expected {'' if payload.is_fixed else 'at most '}{n_values} values ({payload.dtype}) and "
                f"{n_decisions} decisions in {show_round(header.round)}, got {header.n_values} ({header.dtype}) and "
                f"{header.n_decisions}",
            )

    def _sizes(self, header: Header, now: Round[AgentNumber]) -> tuple[Payload, int]:
        state, exchange = self.state, self.state.exchange
        assert exchange is not None, "a round belongs to an exchange"
        if now.kind == "columns":
            roles = self.identity.roles(state)
            step = exchange.step + header.round - state.round
            prediction = state.progress.prediction
            n_rows = roles.n_rows if prediction is None else prediction.n_rows
            n_columns = n_columns_sent(roles.network, roles.position_of[header.sender], step)
            return Payload(n_rows * n_columns), 0
        n_decisions = 0 if exchange.decision is None or not now.decision else len(exchange.decision)
        if not now.values:
            return Payload(0), n_decisions
        network = self.identity.roles(state).network
        return self.identity.summation(state).payload(network, exchange.shape), n_decisions

    def _check_size(self, header: Header) -> None:
        """Raise RemoteProtocolError if a message is too large for any exchange that may follow.

        Used where the round of the message is not known yet.
        """
        n_components = self.identity.agreement.settings.n_components
        if header.kind in ("columns", "terms") and self.identity.agreement.hops == 0:
            raise self._error(header.sender, f"expected no {header.kind!r} without hops, got some")
        n_rows = max(MOST_NEW_ROWS, self._n_rows())
        n_tries = n_candidates(n_components)
        most_values = {
            "meet": MOST_RECORDS,
            "columns": n_rows * self._most_columns(),
        }.get(header.kind, 0)
        if header.kind in ("terms", "sum"):
            shape = Shape(n_rows, max(n_components, n_tries), 1)
            dtype, most_values = self.identity.agreement.summation.payload(None, shape)[1::-1]
            if header.dtype != dtype:
                raise self._error(header.sender, f"expected values of type {dtype}, got {header.dtype}")
        if header.kind == LABELS:
            most_values = self._most_labels(header, n_rows)
        most_decisions = 2 + max(n_components, n_tries)
        if header.kind in ("meet", "columns", "terms", LABELS):
            most_decisions = 0
        if header.n_values > most_values or header.n_decisions > most_decisions:
            raise self._error(
                header.sender,
                f"expected at most {most_values} values and {most_decisions} decisions, got {header.n_values} and "
                f"{header.n_decisions}",
            )

    def _most_labels(self, header: Header, n_rows: int) -> int:
        """Return the maximum bytes of labels in one message, from the agents known or named as neighbours."""
        agreement, records = self.identity.agreement, self.state.records
        if agreement.init_params != LABELS or header.dtype != "u1":
            raise self._error(header.sender, f"expected labels as bytes, if the agreement says so, got {header}")
        agents = {self.identity.number, *records}.union(*(record.neighbours for record in records.values()))
        return label_exchange(agreement, 0).payload(None, Shape(n_rows, len(agents))).n_values

    def _most_columns(self) -> int:
        """Return the maximum number of columns in one message, as far as the agent knows."""
        if self.state.meeting or self.state.epoch < 0:
            return MOST_COLUMNS
        return sum(map(len, self.identity.roles(self.state).network.columns))

    def _n_rows(self) -> int:
        """Return the number of rows of the study; a server uses the smallest number in the parties' records."""
        if self.identity.X is not None:
            return len(self.identity.X)
        return min((record.n_rows for record in self.state.records.values() if record.n_columns), default=0)

    def _error(
        self, peer: AgentNumber, problem: str, kind: type[RemoteProtocolError] = RemoteProtocolError
    ) -> RemoteProtocolError:
        return kind(self.identity.number, peer, self.state.round, problem)
