"""The constant part of an agent, and what it derives from its state: its role in the network and in each round."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vpem.core.agent import meeting
from vpem.core.agent.agent_state import AgentState, Exchange
from vpem.core.agent.meeting import MOST_COLUMNS, Credentials, Record, Roles, signed_content
from vpem.core.agent.message import AgentNumber, LocalProtocolError
from vpem.core.agent.party_context import PartyContext, party_context
from vpem.core.blocks.overall import LARGEST, too_large
from vpem.core.buffer_pool import BufferPool
from vpem.core.decisions.starts import Given
from vpem.core.network.hubs import Position
from vpem.core.network.memo import Memo
from vpem.core.network.parties import Network
from vpem.core.network.rounds import can_have_sent
from vpem.core.network.summation import Summation, greet
from vpem.core.network.sums import Audience, Payload, Place, Round
from vpem.core.network.traffic import column_rounds
from vpem.core.rows import Table, row_chunks
from vpem.core.script.context import label_exchange
from vpem.core.script.phases import AFTER_DONE, BY_SUMMATION, DONE, PHASES
from vpem.core.script.state import Integers
from vpem.core.settings import Agreement

Array = NDArray[np.float64]
Schedule = Sequence[Round[AgentNumber]]
Awaited = tuple[frozenset[AgentNumber], tuple[str, Any, int, int]]
"""Senders of a round, and the kind, dtype, number of values and number of decisions of their messages."""


class Identity:
    """The constant part of an agent; see `vpem.core.agent.machine.Agent` for the parameters.

    Results derived from a state are cached here, keyed by the identity of the objects that they depend on.
    """

    def __init__(
        self,
        number: int,
        neighbours: Iterable[int],
        agreement: Agreement,
        X: Table | None,
        name: str | None,
        most_hops: int | None,
        given: Given | None,
        known: dict[Hashable, Any] | None,
        credentials: Credentials | None = None,
        keys: Any = None,
    ):
        self.number, self.agreement, self.credentials = AgentNumber(number), agreement, credentials
        self.neighbours = tuple(map(AgentNumber, sorted(set(neighbours))))
        self.X, self.name = check_columns(X, agreement), str(number) if name is None else name
        self.keys = check_keys(keys, 0 if self.X is None else len(self.X))
        self.most_hops = agreement.hops if most_hops is None else most_hops
        self.given = Given() if given is None else given
        if not 0 <= number < 2**32 or len(self.name) > 200 or not self.name.isprintable():
            raise ValueError(f"expected a number from 0 on and a name of at most 200 letters, got {number}, {name!r}")
        if number in self.neighbours:
            raise ValueError(f"expected links to others, got one from agent {number} to itself")
        self.known: dict[Hashable, Any] = {} if known is None else known
        self.pool: BufferPool = self.known.setdefault(BufferPool, BufferPool())
        self.memo: Memo = self.known.setdefault(Memo, Memo())
        self._greeting: tuple[int, bytes, Any] = (-1, b"", None)
        self._context: PartyContext | None = None
        self._place: Place | None = None
        self._awaited: tuple[int, dict[int, Awaited | None]] = (-1, {})
        self._roles: tuple[object, Roles] | None = None
        self._meeting_rounds: tuple[object, int | None] = (None, None)
        self._schedules: dict[tuple[Roles, str, bool, int], Schedule] = {}
        self._last: tuple[object, str, bool, int, Schedule] = (None, "", False, 0, [])

    def record(self, state: AgentState) -> Record:
        """Return the record that the agent floods in a meeting."""
        if self._greeting[0] != state.epoch:
            self._greeting = state.epoch, *greet(self.agreement.summation)
        numbers = [checkpoint.number for checkpoint in state.checkpoints]
        recent = numbers[1:][-2:] or [0]
        record = Record(
            number=self.number,
            name=self.name,
            neighbours=tuple(peer for peer in self.neighbours if peer not in state.abandoned),
            n_rows=0 if self.X is None else len(self.X),
            n_columns=0 if self.X is None else self.X.shape[1],
            most_hops=0 if self.X is None else self.most_hops,
            digest=self.agreement.digest,
            newest=numbers[-1],
            oldest=recent[0],
            model=model_checkpoint(state),
            n_met=state.n_met,
            n_members=len(state.members),
            abandoned=tuple(sorted(state.abandoned)),
            consents=tuple(sorted(state.abandoned | state.consents)),
            greeting=self._greeting[1],
        )
        if self.credentials is None:
            return record
        content = signed_content(record, state.epoch, self.credentials.study)
        return msgspec.structs.replace(record, proof=self.credentials.sign(content))

    @property
    def needs_consent(self) -> bool:
        """True if agents continue without others only after all that remain have signed their consent."""
        return self.agreement.summation.is_masked and self.credentials is not None

    def held_up(self, state: AgentState) -> str | None:
        """Return why a meeting with all records cannot end, as text; None if it can."""
        if not self.needs_consent or not state.meeting or not meeting.is_complete(state.records):
            return None
        assert self.credentials is not None, "as consents are needed"
        return meeting.held_up(state.records, self.credentials.everybody)

    def gone(self, state: AgentState) -> tuple[int, ...]:
        """Agents absent from the last meeting, in order.

        They are agents of the study where credentials list them, otherwise of the first meeting.
        """
        known = range(len(self.credentials.everybody)) if self.credentials is not None else state.members
        return tuple(sorted(set(known) - state.records.keys()))

    def pack_secret(self, state: AgentState) -> bytes:
        """Encode the agent's secret of this epoch for its next process; see `unpack_secret`."""
        epoch, _, secret = self._greeting
        return self.agreement.summation.pack_secret(secret) if epoch == state.epoch else b""

    def unpack_secret(self, state: AgentState, content: bytes) -> None:
        """Restore the secret from an earlier process of the same agent, in the same epoch."""
        own = state.records.get(self.number)
        if own is not None and content:
            self._greeting = state.epoch, own.greeting, self.agreement.summation.unpack_secret(content)

    def has_met(self, state: AgentState) -> bool:
        """True if the agent has its secret of this epoch, or messages carry no tags."""
        return not self.agreement.summation.has_tags or self._greeting[0] == state.epoch

    def new_columns(self, X: Table | None, n_rows: int) -> Array | None:
        """Validate a party's columns of new rows; all NaN if it lacks the rows, None for a server."""
        if self.X is None:
            if X is not None:
                raise ValueError("expected no columns from a server, got some")
            return None
        shape = (n_rows, self.X.shape[1])
        columns = np.full(shape, np.nan) if X is None else np.array(X[:], dtype=np.float64, order="C")
        if columns.shape != shape or np.isinf(columns).any():
            raise ValueError(
                f"expected new rows of {shape[1]} columns, as in the fit, with finite numbers or gaps (NaN), got "
                f"shape {columns.shape}" + (" with infinity" if columns.shape == shape else "")
            )
        for row, column in np.argwhere(np.abs(columns) > LARGEST):
            raise too_large(abs(columns[row, column]), int(column), self.name)
        return columns

    def new_keys(self, keys: Any, n_rows: int) -> Integers | None:
        """Validate keys of new rows, required if the rows of the fit have keys."""
        if (keys is None) != (self.keys is None) and self.X is not None:
            raise ValueError(
                f"expected keys of new rows if the rows of the fit have some, and only then, got "
                f"{'none' if keys is None else 'some'}; rows are known again by them"
            )
        return check_keys(keys, n_rows)

    def roles(self, state: AgentState) -> Roles:
        """Return the roles of all agents that follow from the last meeting."""
        if self._roles is None or self._roles[0] is not state.records:
            bare = meeting.bare_records(state.records.values())
            key = bare, self.gone(state)
            if key not in self.known:
                self.known[key] = replace(meeting.find_roles(bare, self.agreement), gone=key[1])
            self._roles = state.records, self.known[key]
        return self._roles[1]

    def summation(self, state: AgentState) -> Summation:
        """Return the summation of the current exchange."""
        if PHASES[state.progress.phase].exchange == "labels":
            return label_exchange(self.agreement, state.progress.start)
        return self.agreement.summation

    def place(self, state: AgentState) -> Place:
        """Return the agent's place in the current sum."""
        roles, exchange, old = self.roles(state), state.exchange, self._place
        assert exchange is not None, "a sum is an exchange"
        here = exchange.begun, exchange.shape, exchange.series
        if old is None or old.network is not roles.network or (old.number, old.shape, old.series) != here:
            greetings = {roles.position_of[number]: state.records[number].greeting for number in roles.numbers}
            secret = self._greeting[2] if self._greeting[0] == state.epoch else None
            position = roles.position_of[self.number]
            count = 0 if state.progress.phase in AFTER_DONE else state.progress.n_sums
            heard = bytes.fromhex(state.progress.heard)
            when = state.epoch, exchange.begun, greetings, secret, count, heard, self.pool, self.memo
            self._place = old = Place(roles.network, position, exchange.shape, exchange.series, *when)
        return old

    def context(self, state: AgentState) -> PartyContext:
        """Return the agent's context in the current phase: of the fit, or of a prediction."""
        roles = self.roles(state)
        own, pooled, holders, keys = self.X, state.pooled, state.progress.holders, self.keys
        new = state.progress.prediction if state.progress.phase in AFTER_DONE else None
        if new is not None:
            own, pooled, holders, keys = new.columns, new.pooled, new.holders, new.keys
        old, now = self._context, (roles, own, pooled, holders)
        if old is None or any(
            one is not other for one, other in zip((old.roles, old.own, old.pooled, old.holders), now, strict=True)
        ):
            position = roles.position_of[self.number]
            parts = roles, position, self.given, own, pooled, holders, keys
            self._context = old = party_context(*parts, pool=self.pool, is_prediction=new is not None)
        return old

    def round_at(self, state: AgentState, step: int) -> Round[AgentNumber] | None:
        """Return the agent's part in a round of the current exchange; None after the last round."""
        if state.meeting:
            n_rounds = self._n_meeting_rounds(state)
            if n_rounds is not None and step >= n_rounds:
                return None
            neighbours = tuple(map(AgentNumber, state.records[self.number].neighbours))
            return Round("meet", neighbours, neighbours, True, False)
        schedule = self._schedule(state)
        return schedule[step] if step < len(schedule) else None

    def awaited(self, state: AgentState) -> dict[int, Awaited]:
        """Return the messages awaited in this round and the next, by round number.

        Rounds that are not known yet, or whose messages vary in length, are left out.
        """
        exchange, found = state.exchange, {}
        if exchange is not None and not state.meeting and PHASES[state.progress.phase].exchange != "columns":
            for ahead in (0, 1):
                now = self.round_at(state, exchange.step + ahead)
                if now is not None and (awaited := self._awaited_in(now, state, exchange)) is not None:
                    found[state.round + ahead] = awaited
        return found

    def _awaited_in(self, now: Round[AgentNumber], state: AgentState, exchange: Exchange) -> Awaited | None:
        if self._awaited[0] != exchange.begun:
            self._awaited = exchange.begun, {}
        known = self._awaited[1]
        if id(now) not in known:  # many rounds share one object
            payload = Payload(0)
            if now.values:
                payload = self.summation(state).payload(self.roles(state).network, exchange.shape)
            n_decisions = 0 if exchange.decision is None or not now.decision else len(exchange.decision)
            form = now.kind, np.dtype(payload.dtype), payload.n_values, n_decisions
            known[id(now)] = (frozenset(now.senders), form) if payload.is_fixed else None
        return known[id(now)]

    def audience(self, state: AgentState) -> frozenset[Position] | None:
        """Positions of the agents that get predictions, including the server; None: all agents."""
        if self.agreement.audience is None or state.progress.phase != "predict":
            return None
        roles = self.roles(state)
        hear = {roles.position_of[number] for number in roles.numbers if number in self.agreement.audience}
        return frozenset(hear | {roles.network.server})

    def _n_meeting_rounds(self, state: AgentState) -> int | None:
        """Number of rounds of the meeting; None while a record is missing."""
        if state.records is not self._meeting_rounds[0]:
            is_complete = meeting.is_complete(state.records)
            n_rounds = None
            if is_complete:
                links = frozenset((number, record.neighbours) for number, record in state.records.items())
                if links not in self.known:
                    self.known[links] = meeting.n_meeting_rounds(state.records)
                n_rounds = self.known[links]
            self._meeting_rounds = state.records, n_rounds
        return self._meeting_rounds[1]

    def _schedule(self, state: AgentState) -> Schedule:
        if state.exchange is None:
            raise LocalProtocolError(self.number, None, state.round, "expected an exchange with rounds, got none")
        records, phase, has_decision = state.records, state.progress.phase, state.exchange.decision is not None
        stage, last = state.exchange.stage, self._last
        if last[0] is not records or last[1:4] != (phase, has_decision, stage):
            key = (self.roles(state), phase, has_decision, stage)
            if key not in self._schedules:
                self._schedules[key] = self._make_schedule(state, has_decision, stage)
            self._last = last = (records, phase, has_decision, stage, self._schedules[key])
        return last[4]

    def _make_schedule(self, state: AgentState, has_decision: bool, stage: int) -> Schedule:
        """Return the agent's rounds of an exchange, with peers given by number."""
        context, kind = self.context(state), PHASES[state.progress.phase].exchange
        numbers = context.roles.numbers
        found: dict[int, Round[AgentNumber]] = {}
        network, audience = context.network, self.audience(state)
        parts = self._rounds_of(network, context.position, kind, has_decision, stage, audience)
        for part in parts:
            if id(part) not in found:  # many rounds share one object
                found[id(part)] = Round(
                    part.kind,
                    tuple(numbers[peer] for peer in part.receivers),
                    tuple(numbers[peer] for peer in part.senders),
                    part.values,
                    part.decision,
                    frozenset(numbers[peer] for peer in part.spared),
                    part.may_miss,
                )
        return [found[id(part)] for part in parts]

    def _rounds_of(
        self,
        network: Network,
        position: Position,
        kind: str,
        has_decision: bool,
        stage: int = 0,
        audience: Audience = None,
    ) -> Sequence[Round[Position]]:
        """Return an agent's rounds of one kind of exchange, with peers given by position."""
        if kind == "columns":
            return column_rounds(network, position)
        summation = label_exchange(self.agreement, 0) if kind == "labels" else self.agreement.summation
        return summation.schedule_in(
            stage, network, position, values=kind in BY_SUMMATION, decision=has_decision, audience=audience
        )

    def can_be_ahead(self, state: AgentState, peer: AgentNumber, ahead: int) -> bool:
        """True if a peer can already have sent a message of a round this far ahead of the agent's own.

        The answer follows from the rounds of this exchange and of those that may follow: no agent ends a sum or a
        decision to which another has not contributed.
        """
        roles, exchange = self.roles(state), state.exchange
        now: list[tuple[str, bool, int]] = []
        at = -1
        if exchange is not None:
            now = [(PHASES[state.progress.phase].exchange, exchange.decision is not None, exchange.stage)]
            at = exchange.step
        later = [
            ("sum", tells, stage) for stage in range(self.agreement.summation.n_stages) for tells in (True, False)
        ]
        later.append(("decision", True, 0))
        if self.agreement.init_params == "labels":
            later.append(("labels", False, 0))
        pooled = [("columns", False, 0)] if roles.network.depth > 0 else []
        me, sender, step = roles.position_of[self.number], roles.position_of[peer], max(at, 0) + ahead
        for chain in [[*now, *before, option] for before in ([], pooled) for option in later]:
            rounds = roles.network.remember((self.agreement.summation, *chain), partial(self._rounds_of_all, chain))
            if step < len(rounds[sender]) and can_have_sent(rounds, sender, step, me, at):
                return True
        return False

    def _rounds_of_all(self, chain: Sequence[tuple[str, bool, int]], network: Network) -> list[list[Round[Position]]]:
        """Return every agent's rounds in a sequence of exchanges."""
        return [
            [part for kind in chain for part in self._rounds_of(network, place, *kind)] for place in network.positions
        ]


def model_checkpoint(state: AgentState) -> int:
    """Number of the checkpoint at the end of the fit; 0 without one."""
    ends = (point.number for point in state.checkpoints if point.progress.phase == DONE)
    return next(ends, 0)


def check_keys(keys: Any, n_rows: int) -> Integers | None:
    """Validate the keys that identify rows, one int64 for each row; raise ValueError if two rows share a key."""
    if keys is None:
        return None
    found = np.ascontiguousarray(keys)
    if found.shape != (n_rows,) or found.dtype != np.int64:
        raise ValueError(f"expected a key (int64) for each of {n_rows} rows, got {found.shape} ({found.dtype})")
    own = np.sort(found[found != 0])
    if (own[1:] == own[:-1]).any():
        raise ValueError("expected a different key for each row (0: none), got some twice; leave out repeated rows")
    return found


def check_columns(X: Any, agreement: Agreement) -> Table | None:
    """Validate a party's table."""
    if X is None:
        return None
    if isinstance(X, list | np.ndarray) and not (isinstance(X, np.ndarray) and np.issubdtype(X.dtype, np.floating)):
        X = np.asarray(X, dtype=np.float64)
    table: Table = X
    if len(table.shape) != 2 or not 0 < table.shape[1] <= MOST_COLUMNS:
        raise ValueError(f"expected rows of 1 to {MOST_COLUMNS} columns, got shape {table.shape}")
    if len(table) < agreement.settings.n_components:
        raise ValueError(
            f"expected at least as many rows as components, {agreement.settings.n_components}, got {len(table)}"
        )
    for rows in row_chunks(0, len(table), table.shape[1]):
        if np.isinf(table[rows]).any():
            raise ValueError("expected finite numbers or gaps (NaN), got infinity")
    return table
