"""What one event does to an agent: how far it goes with the messages that are here, and what it sends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from vpem.core.agent import meeting
from vpem.core.agent.carrying import NOTHING, carry_on
from vpem.core.agent.exchange import blaming, send, take
from vpem.core.agent.identity import Identity, model_checkpoint
from vpem.core.agent.inbox import MOST_REASON, Inbox
from vpem.core.agent.meeting import MeetingError
from vpem.core.agent.message import EPOCH_BITS, NO_DECISION, NO_VALUES, AgentNumber, LocalProtocolError, Message
from vpem.core.agent.phases import AFTER_DONE, AFTER_LOSS, AFTER_MEETING, BY_SUMMATION, DONE, PHASES, settle
from vpem.core.agent.progress import AgentState, Checkpoint, Exchange, Progress, orderly
from vpem.core.agent.work import Outcome, StudyError
from vpem.core.network.summation import begin_sum, lasting
from vpem.core.rooms import forget_rooms, keep_rooms


class Turn:
    """Works on a draft of the agent's state, which counts only if nothing is raised.

    Parameters
    ----------
    identity : Identity
    state : AgentState
        Not changed.
    pauses : bool, default=False
        Whether `advance` stops where an exchange of the algorithm is over, so that what it has to say can be sent
        before more is made of it; see `is_over` and `finish`.
    """

    def __init__(self, identity: Identity, state: AgentState, pauses: bool = False):
        self.identity, self.draft, self.pauses = identity, state.copy(), pauses
        self.error: Exception | None = None
        """Why this agent has found that the study cannot go on."""

    # Epochs and meetings

    def begin_epoch(self, epoch: int) -> list[Message]:
        """Meet the others, for the first time or again."""
        draft = self.draft
        draft.epoch, draft.round = epoch, epoch << EPOCH_BITS
        draft.meeting, draft.exchange, draft.mailbox, draft.missing = True, Exchange(), {}, {}
        draft.records, draft.learnt = {self.identity.number: self.identity.record(draft)}, (self.identity.number,)
        return self.advance()

    def meet_again(self) -> list[Message]:
        """Meet the others in a new epoch, if the study goes on."""
        draft = self.draft
        if draft.failure is not None or draft.epoch < 0:
            return []
        return self.begin_epoch(draft.epoch + 1)

    def _end_meeting(self) -> None:
        """Everybody's record is here: find the roles, and go to the checkpoint that all have."""
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
        # Rows that were added stay known, whatever a record says, unless all have agreed to go on without others.
        seen = {} if target == 0 and self.identity.gone(draft) else draft.progress.seen
        *earlier, last = (point for point in draft.checkpoints if point.number <= target)
        if seen and seen is not last.progress.seen:  # what was shown stays known, wherever agents go back to
            last = replace(last, progress=replace(last.progress, seen=seen))
        draft.checkpoints, draft.progress = (*earlier, last), last.progress
        if target == 0:
            draft.pooled = None

    # Rounds and exchanges

    def advance(self) -> list[Message]:
        """Go on as far as the messages that are here allow."""
        draft = self.draft
        out: list[Message] = []
        while draft.exchange is not None:
            now = self.identity.round_at(draft, draft.exchange.step)
            if now is None:
                if self.identity.held_up(draft) is not None:
                    break  # all rest, as all have the same records, until one that agrees begins a new epoch
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
        """Whether an exchange of the algorithm has no more rounds, and nothing has been made of it yet."""
        draft = self.draft
        if draft.exchange is None or draft.meeting:
            return False
        return self.identity.round_at(draft, draft.exchange.step) is None

    def finish(self) -> list[Message]:
        """Make something of an exchange that is over."""
        return self.guard(self._finish)

    def _finish(self) -> None:
        """An exchange is over: make something of it, and open the next."""
        draft = self.draft
        if draft.meeting:
            self._end_meeting()
            resumed = draft.checkpoints[-1].number > 0
            self.open_exchange(resumed)
            allowed = (*AFTER_LOSS, *AFTER_DONE) if resumed else AFTER_MEETING
            self._check_phase("the meeting", allowed)
            return
        phase = draft.progress.phase
        draft.progress = self._absorb()  # the sum is forgotten before there is room for the next one's terms
        seen, last = draft.progress.seen, draft.checkpoints[-1]
        if phase in AFTER_DONE and seen is not last.progress.seen:  # known before anything is added
            last = replace(last, progress=replace(last.progress, seen=seen))
            draft.checkpoints = (*draft.checkpoints[:-1], last)
        done = draft.progress.n_predictions
        draft.requests = {number: request for number, request in draft.requests.items() if number >= done - 1}
        self.open_exchange()
        self._check_phase(phase, (*PHASES[phase].next, *AFTER_DONE))

    def _absorb(self) -> Progress:
        """What the phase makes of its exchange."""
        draft = self.draft
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
        values, said = NO_VALUES, b""
        # What later masks depend on; not of predictions, which not all may hear.
        is_heard = self.identity.agreement.summation.is_masked and before.phase != "predict"
        audience = self.identity.audience(draft)
        if PHASES[before.phase].exchange in BY_SUMMATION and (audience is None or work.position in audience):
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
        found: Progress = orderly(PHASES[before.phase].absorb(work, before, Outcome(values, decision)), before)
        return found

    def _check_phase(self, before: str, allowed: Sequence[str]) -> None:
        """Raise LocalProtocolError if the phase that comes next is not one that may follow."""
        draft = self.draft
        if draft.progress.phase not in allowed:
            problem = f"expected one of {', '.join(allowed)} after {before}, got {draft.progress.phase}"
            raise LocalProtocolError(self.identity.number, None, draft.round, problem)

    def open_exchange(self, resumed: bool = False) -> None:
        """Begin the exchange that comes next, if there is one."""
        draft = self.draft
        draft.progress = orderly(settle(self.identity.work(draft), draft.progress), draft.progress)
        draft.exchange = None
        if draft.progress.phase == DONE:
            forget_rooms(self.identity)
            self._save(resumed)
            request = draft.requests.get(draft.progress.n_predictions)
            if request is None or not self.identity.has_met(draft):
                return  # an agent that was restored has no keys until all have met again
            work = self.identity.work(draft)
            phase = AFTER_DONE[0] if work.roles.network.depth > 0 else work.predicting
            draft.progress = replace(draft.progress, phase=phase, prediction=request)
        keep_rooms(self.identity)
        work = self.identity.work(draft)
        offer = PHASES[draft.progress.phase].offer(work, draft.progress)
        pieces = {}
        if offer.columns is not None:
            pieces = {work.position: offer.columns}
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
                state = begin_sum(summation, self.identity.place(draft), carry, offer.values)
            draft.exchange = draft.exchange._replace(state=state)
            if carried is not NOTHING:  # what is still needed of it is in the state
                memories = {**draft.progress.memories, offer.series: carried.without_now()}
                draft.progress = replace(draft.progress, memories=memories)
        if draft.mailbox:
            Inbox(self.identity, draft).check_kept()

    def _save(self, resumed: bool) -> None:
        """Take a checkpoint, unless this is where agents have just gone back to."""
        draft = self.draft
        if not resumed:
            memories = {name: carried.without_now() for name, carried in draft.progress.memories.items()}
            newest = Checkpoint(draft.checkpoints[-1].number + 1, replace(draft.progress, memories=memories))
            *older, last = draft.checkpoints
            lasting = [point for point in older if point.number in (0, model_checkpoint(draft))]
            draft.checkpoints = (*lasting, last, newest)

    # Failures

    def guard(self, action: Callable[[], None]) -> list[Message]:
        """Do something that may end the study; returns what to tell the others then."""
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
        """Give up, and hand the reason on."""
        draft = self.draft
        draft.failure, draft.exchange, draft.mailbox, draft.missing = reason, None, {}, {}
        forget_rooms(self.identity)
        return self.tell([peer for peer in self.identity.neighbours if peer != besides])

    def tell(self, peers: Iterable[AgentNumber]) -> list[Message]:
        """Tell some neighbours why the study has ended."""
        draft = self.draft
        text = np.frombuffer((draft.failure or "").encode()[:MOST_REASON], dtype=np.uint8)
        return [
            Message(max(draft.epoch, 0), draft.round, self.identity.number, peer, "stop", text)
            for peer in peers
            if peer not in draft.abandoned
        ]
