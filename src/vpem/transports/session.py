"""One agent on a real network: events and bytes in, bytes out; still without a clock, socket, thread or file.

What must outlive the process (`vpem.transports.saving`) is saved before the frames of the same event are handed out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

from numpy.typing import NDArray

from vpem.core.agent.inbox import Inbox
from vpem.core.agent.machine import Agent
from vpem.core.agent.message import LocalProtocolError, Message, RemoteProtocolError, StaleMessageError
from vpem.core.rows import Table
from vpem.transports import wire
from vpem.transports.saving import decode_lasting, has_changed, lasting, with_memories

PAUSED = struct.Struct("<H")
"""Length of the secret, before it and the state."""


class Frame(NamedTuple):
    """Bytes for one neighbour."""

    receiver: int
    content: bytes


class Session:
    """An agent, its links as an engine reports them, and what it has saved.

    Every event returns the frames to send, in order. A neighbour counts as lost until `connect` reports a link to it,
    and again after `disconnect`; both ends of a link must be told of both. A neighbour that sends what it must not
    is lost as well: it is no longer in `connected`, and the engine closes every link to an agent that is not.

    Parameters
    ----------
    agent : Agent
        One that has not begun yet; from now on only the session gives it events.
    save : callable, optional
        Gets bytes, and returns when they will survive the process. If it raises, the event's frames must not be
        sent, and every later event is refused: restore a session from the bytes that were saved last.
    save_parts : callable, optional
        In place of `save`: gets the same bytes as a list of parts, for states of many rows. The first one is small.
        The others are views of large arrays (`view.obj`), which do not change, and are not copied; an array that
        states have in common is the same object each time. It may return a function: for such an array, one with
        the same numbers that takes no memory, such as a file's. The session has that one then.
    """

    HEADER_BYTES: ClassVar[int] = wire.HEADER_BYTES
    """How many bytes of a frame `expects` needs."""

    def __init__(
        self,
        agent: Agent,
        *,
        save: Callable[[bytes], object] | None = None,
        save_parts: Callable[[list[wire.Part]], object] | None = None,
    ):
        self.agent = agent
        self.losses: dict[int, str] = {}
        """By neighbour: the last wrong message for which it was lost, in words."""
        if save is not None:
            save_parts = partial(_save_whole, save)
        self._save: Callable[[list[wire.Part]], object] | None = save_parts
        self._saved, self._is_saving = lasting(agent.state), False
        self._encoder = wire.StateEncoder()
        self.note: Callable[[Agent, Message], object] | None = None
        """Gets every message that is about to be handed out."""
        self._links: set[int] = set()
        """Neighbours with a link, as the engine sees it."""
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
        """The session of an agent that had saved these bytes; the agent has the same table and settings as then.

        Raises
        ------
        ValueError
            If the bytes are no whole state, or not this agent's.
        """
        state = decode_lasting(saved, agent)
        return cls(agent.restored(state), save=save, save_parts=save_parts)

    def pause(self) -> bytes:
        """All that the session knows, to go on from exactly here in another process: see `resume`.

        More than what is saved, from which an agent goes back to its last checkpoint; and of no use once this session
        has got another event. It has the secrets of this epoch: seal it before it leaves the process.
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
        """The session that was paused, its links as they were; the agent has the same table and settings as then."""
        start = PAUSED.size + PAUSED.unpack_from(paused)[0]
        state = wire.decode_state(memoryview(paused)[start:])
        session = cls(agent, save=save, save_parts=save_parts)
        session.agent = agent.restored(state)
        session.agent.identity.unpack_secret(state, bytes(paused[PAUSED.size : start]))
        session._saved, session._met = lasting(state), state.records
        session._links = set(session.connected)
        return session

    @property
    def connected(self) -> frozenset[int]:
        """Neighbours whose links are of use; an engine closes all others."""
        state = self.agent.state
        return frozenset(self.agent.neighbours) - state.lost - state.abandoned

    def send_early(self, send: Callable[[list[Frame]], object]) -> None:
        """Give frames that are ready before an event's work is done to `send`; the event returns the rest.

        Others need not wait then while this agent computes.
        """
        self.agent.hand_out = lambda messages: send(self._ready(messages))

    # Events

    def start(self) -> list[Frame]:
        """Begin, or go on after `restore`: once, before or after the first `connect`."""
        return [] if self.agent.failure is not None else self._event(self.agent.start)

    def connect(self, peer: int) -> list[Frame]:
        """There is a new link to a neighbour; an older one, if there is any, has ended.

        An agent that was given up is not connected again: the engine closes the link.
        """
        return [] if peer in self.agent.state.abandoned else self._event(partial(self._relink, peer))

    def disconnect(self, peer: int) -> list[Frame]:
        """The link to a neighbour has ended, at either end."""
        self._links.discard(peer)
        return [] if peer in self.agent.state.abandoned else self._event(partial(self.agent.lose, peer))

    def missing(self, peer: int, number: int) -> list[Frame]:
        """A neighbour's frame of a round was lost, and will not be sent again; see `Agent.missing`.

        For engines over links that lose frames. `agent.awaited` says what may be reported so.
        """
        return self._event(partial(self.agent.missing, peer, number)) if peer in self.connected else []

    def abandon(self, peer: int) -> list[Frame]:
        """A neighbour will not come back; see `Agent.abandon`."""
        self._links.discard(peer)
        return [] if peer in self.agent.state.abandoned else self._event(partial(self.agent.abandon, peer))

    def consent(self, peer: int) -> list[Frame]:
        """An agent that is no neighbour will not come back; see `Agent.consent`."""
        return self._event(partial(self.agent.consent, peer))

    def predict(self, X: Table | None = None, n_rows: int | None = None, keys: Any = None) -> list[Frame]:
        """Take part in the prediction of new rows, (n_rows, n_columns); see `Agent.predict`."""
        return self._event(partial(self.agent.predict, X, n_rows, keys))

    def receive(self, peer: int, frame: bytes | memoryview) -> list[Frame]:
        """Take a whole frame that has come over the link to a neighbour; its bytes are not changed afterwards.

        Frames that came too late or twice are dropped. Bytes that the neighbour must not send raise nothing: the
        neighbour is lost. So is another one, if this frame shows that an earlier one of that neighbour was wrong.
        """
        return self._event(partial(self._take, peer, frame)) if self._is_open(peer) else []

    def expects(self, peer: int, start: bytes) -> int:
        """Length of the frame that begins with these bytes, for engines that deliver in pieces.

        Parameters
        ----------
        peer : int
        start : bytes
            At least the first `HEADER_BYTES`.

        Returns
        -------
        length : int
            Of the whole frame, never more than the agent can need. 0 if the neighbour must not send a frame that
            begins so: it is lost.
        """
        if len(start) < self.HEADER_BYTES:
            raise self._misuse(peer, f"expected the first {self.HEADER_BYTES} bytes of a frame, got {len(start)}")
        if not self._is_open(peer):
            return 0
        try:
            try:
                header = wire.open_header(start, self.agent, peer)
            except StaleMessageError:  # it has to be read all the same: bounded as if its round were now
                header, then = wire.read_header(start), self.agent.state.copy()
                then.epoch, then.round, then.records = header.epoch, header.round, self._met
                then.exchange, then.mailbox = None, {}
                Inbox(self.agent.identity, then).check(header)
        except RemoteProtocolError as error:
            self._lose(peer, error)
            return 0
        return wire.n_bytes(header)

    def _event(self, action: Callable[[], list[Message]]) -> list[Frame]:
        """Let something happen to the agent, save what must outlive the process, and only then hand out frames."""
        if self._is_saving:
            raise self._misuse(None, "expected a restored session after a failed save, got an event for the old one")
        return self._ready(self._blame(action))

    def _ready(self, messages: list[Message]) -> list[Frame]:
        """Frames that may be handed out, as what must outlive the process is saved."""
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
        """Have arrays that were saved, and are of use only to go back, where they were saved."""
        found: dict[int, NDArray[Any]] = {}

        def find_once(array: NDArray[Any]) -> NDArray[Any]:
            if id(array) not in found:
                found[id(array)] = self._encoder.exchange(array, find(array))
            return found[id(array)]

        self.agent.state = with_memories(self.agent.state, find_once)

    def _blame(self, action: Callable[[], list[Message]]) -> list[Message]:
        """Do something again without a neighbour whose earlier messages turn out to be wrong."""
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
        """Whether bytes of a neighbour are of use; LocalProtocolError if the engine has not reported a link."""
        if peer not in self._links and peer not in self.agent.state.abandoned:
            raise self._misuse(peer, "expected connect before anything comes from a neighbour, got bytes")
        return peer in self.connected

    def _misuse(self, peer: int | None, problem: str) -> LocalProtocolError:
        return LocalProtocolError(self.agent.number, peer, self.agent.state.round, problem)


def _save_whole(save: Callable[[bytes], object], parts: list[wire.Part]) -> None:
    save(b"".join(parts))
