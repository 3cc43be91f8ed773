"""Effect of one event on an agent: it advances as far as the received messages allow, and sends its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from vpem.core.agent import meeting
from vpem.core.agent.agent_state import AgentState, Checkpoint, Exchange, orderly
from vpem.core.agent.exchange import blaming, send, take
from vpem.core.agent.identity import Identity, model_checkpoint
from vpem.core.agent.inbox import MOST_REASON, Inbox
from vpem.core.agent.meeting import MeetingError
from vpem.core.agent.message import EPOCH_BITS, NO_DECISION, NO_VALUES, AgentNumber, LocalProtocolError, Message
from vpem.core.agent.party_context import PartyOutcome
from vpem.core.network.checkpoint_delta import NOTHING, Carried, carry_on
from vpem.core.network.summation import begin_sum, lasting
from vpem.core.script.context import StudyError
from vpem.core.script.em_phases import predicting
from vpem.core.script.phases import AFTER_DONE, AFTER_LOSS, AFTER_MEETING, BY_SUMMATION, DONE, PHASES, settle
from vpem.core.script.state import KEEP, ROLL_BACK, Progress


class Turn:
    """Process one event on a draft of the agent's state, which is committed only if nothing is raised.

    Parameters
    ----------
    identity : Identity
    state : AgentState
        State before the event; it is not changed.
    pauses : bool, default=False
        If True, `advance` stops at the end of an exchange of the algorithm, so that its messages can be sent before
        the result is processed; see `is_over` and `finish`.
    """

    def __init__(self, identity: Identity, state: AgentState, pauses: bool = False):
        self.identity, self.draft, self.pauses = identity, state.copy(), pauses
        self.error: Exception | None = None
        """Exception for which this agent ended the study."""

    # Epochs and meetings

    def begin_epoch(self, epoch: int) -> list[Message]:
        """Start the meeting of an epoch."""
        draft = self.draft
        draft.epoch, draft.round = epoch, epoch << EPOCH_BITS
        draft.meeting, draft.exchange, draft.mailbox, draft.missing = True, Exchange(), {}, {}
        draft.records, draft.learnt = {self.identity.number: self.identity.record(draft)}, (self.identity.number,)
        return self.advance()

    def meet_again(self) -> list[Message]:
        """Start the meeting of a new epoch, unless the study has not started or has ended."""
        draft = self.draft
        if draft.failure is not None or draft.epoch < 0:
            return []
        return self.begin_epoch(draft.epoch + 1)

    def _end_meeting(self) -> None:
        """Derive the roles from all records, and roll back to the last common checkpoint."""
        draft = self.draft
        records = draft.records
        meeting.check_members(records, draft.members)
        if self.identity.credentials is not None:
            meeting.check_names(records, self.identity.credentials.everybody)
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
        # Rows that were added stay recorded, whatever a record claims, unless all consented to continue without some.
        seen = {} if target == 0 and self.identity.gone(draft) else draft.progress.seen
        *earlier, last = (point for point in draft.checkpoints if point.number <= target)
        if seen and seen is not last.progress.seen:  # a rollback must not forget which rows were added
            last = replace(last, progress=replace(last.progress, seen=seen))
        draft.checkpoints, draft.progress = (*earlier, last), last.progress
        if target == 0:
            draft.pooled = None

    # Rounds and exchanges

    def advance(self) -> list[Message]:
        """Advance as far as the received messages allow, and return the messages to send."""
        draft = self.draft
        out: list[Message] = []
        while draft.exchange is not None:
            now = self.identity.round_at(draft, draft.exchange.step)
            if now is None:
                if self.identity.held_up(draft) is not None:
                    break  # all agents have the same records, and wait until one that consents starts a new epoch
                if self.pauses and not draft.meeting:
                    break
                out += self.finish()
                continue
            if not draft.exchange.sent:
                out += send(self.identity, draft, now)
                draft.exchange = draft.exchange._replace(sent=True)
            arrived = draft.mailbox.get(draft.round, {})
            if len(arrived) + len(draft.missing.get(draft.round, ())) < len(now.senders):
                break
            out += self.guard(partial(take, self.identity, draft, now, arrived))
            if draft.meeting and not draft.learnt and not meeting.is_complete(draft.records):
                out += self.end("an agent is named as a neighbour, but cannot be found; compare the links")
        return out

    @property
    def is_over(self) -> bool:
        """True if an exchange of the algorithm has no more rounds, and its result was not processed yet."""
        draft = self.draft
        if draft.exchange is None or draft.meeting:
            return False
        return self.identity.round_at(draft, draft.exchange.step) is None

    def finish(self) -> list[Message]:
        """Process the result of a finished exchange, and open the next; return the messages to send on failure."""
        return self.guard(self._finish)

    def _finish(self) -> None:
        """Process the result of a finished exchange or meeting, and open the next exchange."""
        draft = self.draft
        if draft.meeting:
            self._end_meeting()
            resumed = draft.checkpoints[-1].number > 0
            self.open_exchange(resumed)
            allowed = (*AFTER_LOSS, *AFTER_DONE) if resumed else AFTER_MEETING
            self._check_phase("the meeting", allowed)
            return
        phase = draft.progress.phase
        draft.progress = self._absorb()  # frees the sum before the terms of the next one are allocated
        seen, last = draft.progress.seen, draft.checkpoints[-1]
        if phase in AFTER_DONE and seen is not last.progress.seen:  # recorded before any terms are added
            last = replace(last, progress=replace(last.progress, seen=seen))
            draft.checkpoints = (*draft.checkpoints[:-1], last)
        done = draft.progress.n_predictions
        draft.requests = {number: request for number, request in draft.requests.items() if number >= done - 1}
        self.open_exchange()
        self._check_phase(phase, (*PHASES[phase].next, *AFTER_DONE))

    def _absorb(self) -> Progress:
        """Return the progress after the phase has processed its exchange."""
        draft = self.draft
        exchange, before = draft.exchange, draft.progress
        assert exchange is not None, "there is an exchange"
        context = self.identity.context(draft)
        if exchange.pieces and context.is_root:
            members = context.network.hub(context.position).members
            table = np.ascontiguousarray(np.hstack([exchange.pieces[member] for member in members]))
            if before.prediction is None:
                draft.pooled = table
            else:
                before = replace(before, prediction=replace(before.prediction, pooled=table))
        values, said = NO_VALUES, b""
        # Later masks depend on the digest of all results, but not on predictions, which some agents may not receive.
        is_heard = self.identity.agreement.summation.is_masked and before.phase != "predict"
        audience = self.identity.audience(draft)
        if PHASES[before.phase].exchange in BY_SUMMATION and (audience is None or context.position in audience):
            summation = self.identity.summation(draft)
            with blaming(self.identity, draft):
                values, carry = summation.end(self.identity.place(draft), exchange.state)
            said = summation.told(exchange.state, values) if is_heard else b""
            if series := exchange.series:
                last, changes = before.memories.get(series, NOTHING), summation.changes(exchange.state)
                carried = carry_on(summation, last, lasting(summation, carry), changes)
                before = replace(before, memories={**before.memories, series: carried})
        if PHASES[before.phase].exchange == "sum":
            before = replace(before, n_sums=before.n_sums + 1)
        decision = NO_DECISION if exchange.decision is None else exchange.decision
        if is_heard:
            told = bytes.fromhex(before.heard) + said + decision.tobytes()
            before = replace(before, heard=hashlib.sha256(told).hexdigest())
        outcome = PartyOutcome(context, exchange.shape, values, decision)
        return self._carry(orderly(PHASES[before.phase].absorb(context, before, outcome), before))

    def _carry(self, progress: Progress) -> Progress:
        """Keep, drop or roll back the carries of sums, as the phase requests."""
        if progress.carry == KEEP:
            return progress
        summation, memories = self.identity.agreement.summation, {}
        if progress.carry == ROLL_BACK:
            for name, carried in progress.memories.items():
                left = lasting(summation, summation.retreat(carried.recall(summation)))
                memories[name] = Carried(left, now=left)
        return replace(progress, carry=KEEP, memories=memories)

    def _check_phase(self, before: str, allowed: Sequence[str]) -> None:
        """Raise LocalProtocolError if the next phase is not among those allowed."""
        draft = self.draft
        if draft.progress.phase not in allowed:
            problem = f"expected one of {', '.join(allowed)} after {before}, got {draft.progress.phase}"
            raise LocalProtocolError(self.identity.number, None, draft.round, problem)

    def open_exchange(self, resumed: bool = False) -> None:
        """Begin the next exchange, if there is one."""
        draft = self.draft
        settled = settle(self.identity.context(draft), draft.progress)
        draft.progress = self._carry(orderly(settled, draft.progress))
        draft.exchange = None
        if draft.progress.phase == DONE:
            self.identity.pool.close(self.identity)
            self._save(resumed)
            request = draft.requests.get(draft.progress.n_predictions)
            if request is None or not self.identity.has_met(draft):
                return  # a restored agent has no keys until the next meeting
            context = self.identity.context(draft)
            phase = AFTER_DONE[0] if context.network.depth > 0 else predicting(context)
            draft.progress = replace(draft.progress, phase=phase, prediction=request)
        self.identity.pool.open(self.identity)
        context = self.identity.context(draft)
        offer = PHASES[draft.progress.phase].offer(context, draft.progress)
        pieces = {}
        if offer.columns is not None:
            pieces = {context.position: offer.columns}
        if offer.decision is not None and draft.progress.phase not in AFTER_DONE:
            self._save(resumed)
        draft.exchange = Exchange(
            begun=draft.round, shape=offer.shape, series=offer.series, decision=offer.decision, pieces=pieces
        )
        if PHASES[draft.progress.phase].exchange in BY_SUMMATION:
            summation = self.identity.summation(draft)
            carried = draft.progress.memories.get(offer.series, NOTHING)
            carry = carried.recall(summation)
            draft.exchange = draft.exchange._replace(stage=summation.stage(offer.shape, offer.series, carry))
            with blaming(self.identity, draft):
                state = begin_sum(summation, self.identity.place(draft), carry, context.term(offer))
            draft.exchange = draft.exchange._replace(state=state)
            if carried is not NOTHING:  # the state contains what is still needed of the carry
                memories = {**draft.progress.memories, offer.series: carried.without_now()}
                draft.progress = replace(draft.progress, memories=memories)
        if draft.mailbox:
            Inbox(self.identity, draft).check_kept()

    def _save(self, resumed: bool) -> None:
        """Take a checkpoint, unless the agents have just resumed from this one."""
        draft = self.draft
        if not resumed:
            memories = {name: carried.without_now() for name, carried in draft.progress.memories.items()}
            newest = Checkpoint(draft.checkpoints[-1].number + 1, replace(draft.progress, memories=memories))
            *older, last = draft.checkpoints
            lasting = [point for point in older if point.number in (0, model_checkpoint(draft))]
            draft.checkpoints = (*lasting, last, newest)

    # Failures

    def guard(self, action: Callable[[], None]) -> list[Message]:
        """Run an action; if it raises an error that ends the study, return the messages that report it."""
        try:
            action()
        except (MeetingError, StudyError) as error:
            self.error = error
            return self.end(str(error))
        except ValueError as error:
            self.error = error
            return self.end(f"party {self.identity.name!r} cannot go on: {error}")
        return []

    def end(self, reason: str, besides: int | None = None) -> list[Message]:
        """End the study, and return messages with the reason for the neighbours, except `besides`."""
        draft = self.draft
        draft.failure, draft.exchange, draft.mailbox, draft.missing = reason, None, {}, {}
        self.identity.pool.close(self.identity)
        return self.tell([peer for peer in self.identity.neighbours if peer != besides])

    def tell(self, peers: Iterable[AgentNumber]) -> list[Message]:
        """Return messages that report to these neighbours why the study has ended."""
        draft = self.draft
        text = np.frombuffer((draft.failure or "").encode()[:MOST_REASON], dtype=np.uint8)
        return [
            Message(max(draft.epoch, 0), draft.round, self.identity.number, peer, "stop", text)
            for peer in peers
            if peer not in draft.abandoned
        ]
