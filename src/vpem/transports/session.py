"""One agent on a real network: events and bytes in, bytes out; still without a clock, socket, thread or file.

State that must outlive the process (`vpem.transports.saving`) is saved before the frames of the same event are handed
out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray

from vpem.core.agent.inbox import Inbox
from vpem.core.agent.machine import Agent
from vpem.core.agent.message import Frame, LocalProtocolError, Message, RemoteProtocolError, StaleMessageError
from vpem.core.rows import Table
from vpem.transports import wire
from vpem.transports.saving import decode_lasting, has_changed, lasting, with_memories

PAUSED = struct.Struct("<H")
"""Length of the secret; the secret and the state follow."""


class AnySession(Protocol):
    """Session as an engine sees it: an agent of a fit (`Session`), or of a matching of rows."""

    HEADER_BYTES: ClassVar[int]
    note: Callable[[Any, Any], object] | None
    """Called with the agent and each message, or frame, that is about to be handed out."""
    losses: dict[int, str]

    @property
    def number(self) -> int:
        """Number of the agent."""

    @property
    def neighbours(self) -> Collection[int]:
        """Numbers of the agents to which it has links."""

    @property
    def connected(self) -> frozenset[int]:
        """Neighbours whose links are in use; an engine closes all other links."""

    @property
    def is_done(self) -> bool:
        """True if the agent has finished all work."""

    @property
    def failure(self) -> str | None:
        """Reason why the agents cannot finish; None without one."""

    @property
    def waits_for(self) -> Collection[int]:
        """Neighbours from which the agent needs messages now."""

    @property
    def stage(self) -> tuple[str, int, int, float | None]:
        """Phase, start, iteration and log-likelihood per row (None before the first), as reports have them."""

    def send_early(self, send: Callable[[list[Frame]], object]) -> None:
        """Pass frames that are ready before an event's work is done to `send`."""

    def start(self) -> list[Frame]:
        """Handle the start of the process."""

    def connect(self, peer: int) -> list[Frame]:
        """Handle a new link."""

    def disconnect(self, peer: int) -> list[Frame]:
        """Handle the end of a link."""

    def abandon(self, peer: int) -> list[Frame]:
        """Give up a neighbour."""

    def consent(self, peer: int) -> list[Frame]:
        """Agree to give up an agent that is not a neighbour."""

    def expects(self, peer: int, start: bytes) -> int:
        """Return the length of the frame that begins with `HEADER_BYTES` bytes; 0 if it must not be sent."""

    def receive(self, peer: int, frame: bytes | memoryview) -> list[Frame]:
        """Process a whole frame."""


class Session:
    """An agent, its links as an engine reports them, and its saved state.

    Every event returns the frames to send, in order. A neighbour counts as lost until `connect` reports a link to it,
    and again after `disconnect`. Both events must be reported to both ends of a link. A neighbour that sends an
    invalid frame is lost as well: it is no longer in `connected`, and the engine closes every link to an agent that
    is not in `connected`.

    Parameters
    ----------
    agent : Agent
        Agent that has not started; from now on only the session passes events to it.
    save : callable, optional
        Called with bytes; returns once they will survive the process. If it raises, the event's frames must not be
        sent, and every later event is refused: restore a session from the bytes that were saved last.
    save_parts : callable, optional
        Alternative to `save` for states of many rows: called with the same bytes as a list of parts. The first part
        is small. The others are views of large arrays (`view.obj`), which do not change and are not copied. An array
        that several states share is the same object each time. The callable may return a function that maps such an
        array to one with the same numbers that takes no memory, such as an array in a file. The session then uses
        that one.
    """

    HEADER_BYTES: ClassVar[int] = wire.HEADER_BYTES
    """Number of bytes of a frame that `expects` needs."""

    def __init__(
        self,
        agent: Agent,
        *,
        save: Callable[[bytes], object] | None = None,
        save_parts: Callable[[list[wire.Part]], object] | None = None,
    ):
        self.agent = agent
        self.losses: dict[int, str] = {}
        """Last invalid message for which a neighbour was lost, in words, by neighbour."""
        if save is not None:
            save_parts = partial(_save_whole, save)
        self._save: Callable[[list[wire.Part]], object] | None = save_parts
        self._saved, self._is_saving = lasting(agent.state), False
        self._encoder = wire.StateEncoder()
        self.note: Callable[[Any, Any], object] | None = None
        """Called with the agent and each message that is about to be handed out."""
        self._links: set[int] = set()
        """Neighbours with a link, as the engine has reported."""
        self._met = agent.state.records
        """Records of the last meeting that has ended."""
        for peer in set(agent.neighbours) - agent.state.abandoned:
            agent.lose(peer)

    @classmethod
    def restore(
        cls,
        agent: Agent,
        saved: bytes | memoryview,
        *,
        save: Callable[[bytes], object] | None = None,
        save_parts: Callable[[list[wire.Part]], object] | None = None,
    ) -> Session:
        """Return the session of an agent that had saved these bytes. Its table and settings must be the same as then.

        Raises
        ------
        ValueError
            If the bytes are not a whole state, or not one of this agent.
        """
        state = decode_lasting(saved, agent)
        return cls(agent.restored(state), save=save, save_parts=save_parts)

    def pause(self) -> bytes:
        """Return the whole state of the session, from which `resume` continues exactly here in another process.

        This is more than the saved state, from which an agent rolls back to its last checkpoint. It becomes useless
        once this session receives another event. It contains the secrets of this epoch: seal it before it leaves the
        process.
        """
        agent = self.agent
        secret = agent.identity.pack_secret(agent.state)
        return PAUSED.pack(len(secret)) + secret + wire.encode_state(agent.state)

    @classmethod
    def resume(
        cls,
        agent: Agent,
        paused: bytes | memoryview,
        *,
        save: Callable[[bytes], object] | None = None,
        save_parts: Callable[[list[wire.Part]], object] | None = None,
    ) -> Session:
        """Return the paused session with its links. The agent's table and settings must be the same as then."""
        start = PAUSED.size + PAUSED.unpack_from(paused)[0]
        state = wire.decode_state(memoryview(paused)[start:])
        session = cls(agent, save=save, save_parts=save_parts)
        session.agent = agent.restored(state)
        session.agent.identity.unpack_secret(state, bytes(paused[PAUSED.size : start]))
        session._saved, session._met = lasting(state), state.records
        session._links = set(session.connected)
        return session

    @property
    def number(self) -> int:
        """Number of the agent."""
        return self.agent.number

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Numbers of the agents to which it has links."""
        return self.agent.neighbours

    @property
    def is_done(self) -> bool:
        """True if the agent has finished the fit and every requested prediction."""
        return self.agent.is_done

    @property
    def failure(self) -> str | None:
        """Reason for which the study failed; None if it did not."""
        return self.agent.failure

    @property
    def waits_for(self) -> frozenset[int]:
        """Neighbours whose messages the current round still needs."""
        return self.agent.waits_for

    @property
    def stage(self) -> tuple[str, int, int, float | None]:
        """Phase, start, iteration and log-likelihood per row (None before the first) of the fit."""
        agent, progress = self.agent, self.agent.state.progress
        run, phase = progress.run, agent.held_up or progress.phase
        if run is None:
            return phase, progress.start, 0, None
        return phase, progress.start, run.iteration, float(run.history[-1][0]) if run.history else None

    @property
    def connected(self) -> frozenset[int]:
        """Neighbours whose links are in use; an engine closes all other links."""
        state = self.agent.state
        return frozenset(self.agent.neighbours) - state.lost - state.abandoned

    def send_early(self, send: Callable[[list[Frame]], object]) -> None:
        """Pass frames that are ready before an event's work is done to `send`; the event returns the rest.

        Other agents then need not wait while this agent computes.
        """
        self.agent.hand_out = lambda messages: send(self._ready(messages))

    # Events

    def start(self) -> list[Frame]:
        """Start, or resume after `restore`. Call this once, before or after the first `connect`."""
        return [] if self.agent.failure is not None else self._event(self.agent.start)

    def connect(self, peer: int) -> list[Frame]:
        """Handle a new link to a neighbour; an older link, if any, has ended.

        An agent that was given up is not connected again: the engine closes the link.
        """
        return [] if peer in self.agent.state.abandoned else self._event(partial(self._relink, peer))

    def disconnect(self, peer: int) -> list[Frame]:
        """Handle the end of the link to a neighbour, at either end."""
        self._links.discard(peer)
        return [] if peer in self.agent.state.abandoned else self._event(partial(self.agent.lose, peer))

    def missing(self, peer: int, number: int) -> list[Frame]:
        """Handle the loss of a neighbour's frame of a round, which is not retransmitted; see `Agent.missing`.

        For engines over links that lose frames. `agent.awaited` has the frames that may be reported as missing.
        """
        return self._event(partial(self.agent.missing, peer, number)) if peer in self.connected else []

    def abandon(self, peer: int) -> list[Frame]:
        """Give up a neighbour that will not return; see `Agent.abandon`."""
        self._links.discard(peer)
        return [] if peer in self.agent.state.abandoned else self._event(partial(self.agent.abandon, peer))

    def consent(self, peer: int) -> list[Frame]:
        """Agree to give up an agent that is not a neighbour and will not return; see `Agent.consent`."""
        return self._event(partial(self.agent.consent, peer))

    def predict(self, X: Table | None = None, n_rows: int | None = None, keys: Any = None) -> list[Frame]:
        """Take part in the prediction of new rows, shape (n_rows, n_columns); see `Agent.predict`."""
        return self._event(partial(self.agent.predict, X, n_rows, keys))

    def receive(self, peer: int, frame: bytes | memoryview) -> list[Frame]:
        """Process a whole frame from a neighbour's link; its bytes must not change afterwards.

        Late and duplicate frames are dropped. Invalid bytes do not raise an error: the neighbour is lost. If this
        frame shows that an earlier frame of another neighbour was wrong, that neighbour is lost.
        """
        return self._event(partial(self._take, peer, frame)) if self._is_open(peer) else []

    def expects(self, peer: int, start: bytes) -> int:
        """Length of the frame that begins with these bytes, for engines that deliver in pieces.

        Parameters
        ----------
        peer : int
        start : bytes
            At least the first `HEADER_BYTES` bytes.

        Returns
        -------
        length : int
            Length of the whole frame, never more than the agent can need. 0 if the neighbour must not send a frame
            with this start: the neighbour is lost.
        """
        if len(start) < self.HEADER_BYTES:
            raise self._misuse(peer, f"expected the first {self.HEADER_BYTES} bytes of a frame, got {len(start)}")
        if not self._is_open(peer):
            return 0
        try:
            try:
                header = wire.open_header(start, self.agent, peer)
            except StaleMessageError:  # it still has to be read: bounded as if its round were now
                header, then = wire.read_header(start), self.agent.state.copy()
                then.epoch, then.round, then.records = header.epoch, header.round, self._met
                then.exchange, then.mailbox = None, {}
                Inbox(self.agent.identity, then).check(header)
        except RemoteProtocolError as error:
            self._lose(peer, error)
            return 0
        return wire.n_bytes(header)

    def _event(self, action: Callable[[], list[Message]]) -> list[Frame]:
        """Apply an event to the agent, save the state that must outlive the process, and only then return frames."""
        if self._is_saving:
            raise self._misuse(None, "expected a restored session after a failed save, got an event for the old one")
        return self._ready(self._blame(action))

    def _ready(self, messages: list[Message]) -> list[Frame]:
        """Save the state that must outlive the process, and return the frames."""
        state = self.agent.state
        if not state.meeting:
            self._met = state.records
        if self._save is not None and has_changed(self._saved, state):
            self._is_saving = True
            find = self._save(self._encoder.parts(lasting(state)))
            if callable(find):
                self._forget(find)
            self._is_saving, self._saved = False, lasting(self.agent.state)
        if (note := self.note) is not None:
            for message in messages:
                note(self.agent, message)
        return [Frame(message.receiver, wire.encode(message)) for message in messages]

    def _forget(self, find: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
        """Replace saved arrays that are needed only to roll back by their saved copies."""
        found: dict[int, NDArray[Any]] = {}

        def find_once(array: NDArray[Any]) -> NDArray[Any]:
            if id(array) not in found:
                found[id(array)] = self._encoder.exchange(array, find(array))
            return found[id(array)]

        self.agent.state = with_memories(self.agent.state, find_once)

    def _blame(self, action: Callable[[], list[Message]]) -> list[Message]:
        """Run an action; repeat it without each neighbour whose earlier messages turn out to be wrong."""
        while True:
            try:
                return action()
            except RemoteProtocolError as error:
                if error.peer not in self.connected:
                    raise
                self._lose(error.peer, error)

    def _relink(self, peer: int) -> list[Message]:
        messages = self.agent.rejoin(peer)
        self._links.add(peer)
        return messages

    def _take(self, peer: int, frame: bytes | memoryview) -> list[Message]:
        try:
            return self.agent.receive(wire.decode(frame, self.agent, peer))
        except StaleMessageError:
            return []
        except RemoteProtocolError as error:
            culprit = peer if error.peer is None or error.peer not in self.connected else error.peer
            self._lose(culprit, error)
            return [] if culprit == peer else self._take(peer, frame)  # nothing had changed: the frame still counts

    def _lose(self, peer: int, error: RemoteProtocolError) -> None:
        self.losses[peer] = str(error)
        self.agent.lose(peer)

    def _is_open(self, peer: int) -> bool:
        """True if a neighbour's bytes are accepted; raise LocalProtocolError if the engine has reported no link."""
        if peer not in self._links and peer not in self.agent.state.abandoned:
            raise self._misuse(peer, "expected connect before anything comes from a neighbour, got bytes")
        return peer in self.connected

    def _misuse(self, peer: int | None, problem: str) -> LocalProtocolError:
        return LocalProtocolError(self.agent.number, peer, self.agent.state.round, problem)


def _save_whole(save: Callable[[bytes], object], parts: list[wire.Part]) -> None:
    save(b"".join(parts))
