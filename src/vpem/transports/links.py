"""One end of a link between two agents, over a wire that may lose, repeat, delay and reorder datagrams.

No socket, thread or clock: the time is an argument. Datagrams and frames go in; datagrams and events come out.

- Each end draws a random nonce for each link that it begins. A link is up when both ends know both nonces. Datagrams
  of another pair of nonces are dropped. An end that ends its link draws a new nonce, which informs the other end.
- A frame is sent in numbered pieces, which the receiver accepts in order. If a later piece, or a status with a higher
  number, shows that a piece is missing, the receiver reports it. The sender then starts a new turn: it retransmits
  from the first piece that is not known to have arrived. A report names the turn, so that the sender ignores reports
  of older turns. There is no retransmission timer, so a piece is not retransmitted because it is slow.
- Pieces are small at first, so that each is acknowledged well within a lease even on a slow line shared with others.
  They become larger once the other end has acknowledged pieces that arrived quickly.
- A sender stops when `WINDOW_BYTES` bytes are not yet consumed. If it does not, the receiver ends the link.
- An end that receives nothing but hellos for a lease ends the link: the other end may not hear it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from vpem.transports.datagrams import (
    FIRST,
    HELLO,
    LAST,
    MOST_HELLO_BYTES,
    PIECE,
    PIECE_BYTES,
    STATUS,
    Datagram,
    Header,
    Hello,
    Status,
    decode,
    decode_record,
    encode,
    encode_record,
)

WINDOW_BYTES = 16 * 1024 * 1024
WINDOW_PIECES = 4096
TELL = 4
"""An end reports free room once 1 / `TELL` of the window has been consumed since its last report."""
KEEPALIVES = 4
"""Number of statuses per lease."""
SLOW = 125_000
"""Assumed bytes per second of a link that is not known to be faster: a slow link must not count as silent."""
SHARE = 16
"""Minimum number of pieces that can be sent in a lease."""
FEWEST_BYTES = 16 * 1024
"""Minimum size of a piece in bytes, except for the last one of a frame."""
MOMENT = 1e-3
"""Minimum transfer time of pieces in seconds, as clocks are coarse."""
HELLOS = 16
"""Number of hellos per lease while a link is not up."""
PAST_NONCES = 64


@dataclass(frozen=True)
class Up:
    """The link has begun."""


@dataclass(frozen=True)
class Down:
    """The link has ended; the last frames that were sent may not have arrived."""

    reason: str


@dataclass(frozen=True)
class Piece:
    """Next bytes of a frame; `Link.consume` frees their room in the window."""

    content: memoryview
    is_first: bool
    is_last: bool


@dataclass(frozen=True)
class Greeted:
    """A hello has arrived; `problem` is the reason if the link cannot begin, or None."""

    hello: Hello
    problem: str | None


Event = Up | Down | Piece | Greeted | Status


class _Sending:
    """Pieces in transit to the other end."""

    def __init__(self, lease: float) -> None:
        self._seconds = lease / SHARE
        """Seconds that a piece may take."""
        self._n_piece = 0
        self._expect(SLOW)
        self._times: deque[float] = deque()
        """Times at which pieces were first sent, from the first piece that is not known to have arrived."""
        self._pieces: deque[tuple[int, memoryview]] = deque()
        """Flags and contents of pieces, from the first piece that is not known to have arrived."""
        self._sizes: deque[int] = deque()
        """Sizes of the pieces sent, from the first piece that is not known to be consumed."""
        self._n_bytes = 0
        self._first = self.next = self._newest = self._consumed = 1
        self.turn = 1

    @property
    def is_empty(self) -> bool:
        """True if all pieces have arrived."""
        return not self._pieces

    @property
    def has_next(self) -> bool:
        """True if a piece is waiting to be sent, even if the window has no room for it."""
        return self.next != self._first + len(self._pieces)

    def queue(self, frame: bytes) -> None:
        """Split a frame into pieces and queue them."""
        view = memoryview(frame)
        n_bytes = max(len(view), 1)
        for start in range(0, n_bytes, self._n_piece):
            flags = FIRST * (start == 0) | LAST * (start + self._n_piece >= n_bytes)
            self._pieces.append((flags, view[start : start + self._n_piece]))

    def _expect(self, speed: float) -> None:
        """Enlarge the pieces of later frames if the speed, in bytes per second, allows it."""
        n_bytes = min(max(int(speed * self._seconds), FEWEST_BYTES), PIECE_BYTES)
        self._n_piece = max(self._n_piece, n_bytes)

    def pop(self, now: float) -> tuple[int, memoryview] | None:
        """Return the next piece to send, or None if no piece is waiting or the window is full."""
        if not self.has_next:
            return None
        flags, content = self._pieces[self.next - self._first]
        if self.next == self._newest:
            is_full = self._n_bytes + len(content) > WINDOW_BYTES or len(self._sizes) >= WINDOW_PIECES
            if is_full:
                return None
            self._newest += 1
            self._times.append(now)
            self._sizes.append(len(content))
            self._n_bytes += len(content)
        self.next += 1
        return flags, content

    def acknowledge(self, header: Header, now: float) -> bool:
        """Process the other end's acknowledgement of pieces; return False if it is impossible."""
        if not header.consumed <= header.arrived <= self._newest:
            return False
        begin, n_bytes = now, 0
        while self._first < header.arrived:
            begin = min(begin, self._times.popleft())
            n_bytes += len(self._pieces.popleft()[1])
            self._first += 1
        if n_bytes >= FEWEST_BYTES:
            self._expect(n_bytes / max(now - begin, MOMENT))
        self.next = max(self.next, self._first)
        while self._consumed < header.consumed:
            self._n_bytes -= self._sizes.popleft()
            self._consumed += 1
        if header.missing == self.turn:
            self.next = self._first
            self.turn += 1
        return True


class _Receiving:
    """Pieces received from the other end."""

    def __init__(self) -> None:
        self.expected = self.consumed = 1
        self.missing = 0
        """Turn of the other end in which a piece was found missing."""
        self._sizes: deque[int] = deque()
        """Sizes of the pieces that have arrived and are not consumed."""
        self._n_bytes = self._n_untold = self._n_untold_pieces = 0
        self._is_missing_told = True

    @property
    def must_tell(self) -> bool:
        """True if free room or a missing piece should be reported to the other end soon."""
        is_much = self._n_untold * TELL >= WINDOW_BYTES or self._n_untold_pieces * TELL >= WINDOW_PIECES
        return is_much or not self._is_missing_told

    def tell(self) -> None:
        """Note that the present counts, and a missing piece if any, are reported to the other end."""
        self._n_untold = self._n_untold_pieces = 0
        self._is_missing_told = True

    def notice(self, header: Header) -> None:
        """Check whether the sequence number of a header shows that a piece is missing."""
        if header.sequence > self.expected and header.turn > self.missing:
            self.missing, self._is_missing_told = header.turn, False

    def take(self, header: Header, n_bytes: int) -> bool:
        """Accept a piece if it is the next one; return True if it is."""
        if header.sequence != self.expected:
            self.notice(header)
            return False
        self.expected += 1
        self._sizes.append(n_bytes)
        self._n_bytes += n_bytes
        return True

    @property
    def is_over_full(self) -> bool:
        """True if the other end has sent more than the window allows."""
        return self._n_bytes > WINDOW_BYTES or len(self._sizes) > WINDOW_PIECES

    def consume(self) -> None:
        """Note that the oldest piece has been used."""
        n_bytes = self._sizes.popleft()
        self._n_bytes -= n_bytes
        self._n_untold += n_bytes
        self._n_untold_pieces += 1
        self.consumed += 1


class Link:
    """One end of a link.

    Parameters
    ----------
    hello : Hello
        Hello of this end.
    check : callable
        Called with the other end's hello; returns a problem in words, or None.
    nonce : callable
        Returns a new random number, 1 to 2^64 - 1.
    lease : float
        Seconds of silence after which the link ends.
    now : float
    """

    def __init__(
        self,
        hello: Hello,
        check: Callable[[Hello], str | None],
        *,
        nonce: Callable[[], int],
        lease: float,
        now: float,
    ):
        self._hello, self._check, self._draw, self.lease = encode_record(hello), check, nonce, lease
        self.status = Status()
        """Status that the next keepalive sends."""
        self.life = 0
        """Number of links that have begun."""
        self.n_dropped = 0
        """Number of datagrams dropped: garbage, late ones, and those of other links."""
        self.heard = now
        """Time at which the link began, or of the last later datagram from an end that has it up."""
        self._greeted_at = now - lease
        self._past: deque[int] = deque(maxlen=PAST_NONCES)
        self._begin(now)

    def _begin(self, now: float, pause: float = 0.0) -> None:
        """Draw a new nonce, and discard the pieces in transit."""
        self._own, self._other, self.is_up = self._draw(), 0, False
        self._sending, self._receiving = _Sending(self.lease), _Receiving()
        self._hello_at = self._status_at = now
        self._deaf_until = now + pause
        """Time before which hellos are ignored. One is still sent, so that the other end learns of the new nonce."""

    # Events

    def take(self, datagram: Datagram, now: float) -> list[Event]:
        """Process a datagram from the wire, and return the events."""
        found = decode(datagram)
        if found is None:
            self.n_dropped += 1
            return []
        header, content = found
        events = self._greet(header, content, now) if header.kind == HELLO else []
        if not self._other or (header.own, header.other) != (self._other, self._own):
            self.n_dropped += header.kind != HELLO
            return events
        if not self.is_up or header.kind != HELLO:  # an end that still sends hellos may not hear this one
            self.heard = now
        if not self.is_up:
            self.is_up, self._status_at = True, now
            self.life += 1
            events.append(Up())
        if not self._sending.acknowledge(header, now):
            return events + self.end("it confirmed what was never sent", now)
        if header.kind == PIECE:
            return events + self._take_piece(header, content, now)
        if header.kind == STATUS:
            self._receiving.notice(header)
            status = decode_record(content, Status)
            events += [] if status is None else [status]
        return events

    def tick(self, now: float) -> list[Event]:
        """End the link if it has been silent for a lease, and return the events."""
        if self.is_up and now - self.heard > self.lease:
            return self.end(f"silent for {self.lease:g} s", now)
        return []

    def end(self, reason: str, now: float, pause: float = 0.0) -> list[Event]:
        """End the link from this end, or stop the attempt to begin it. It begins again after a pause."""
        events: list[Event] = [Down(reason)] if self.is_up else []
        if self.is_up:
            self._past.append(self._other)
        self._begin(now, pause)
        return events

    def send(self, frame: bytes) -> None:
        """Queue a frame. The link must be up."""
        self._sending.queue(frame)

    def consume(self) -> None:
        """Note that the oldest piece handed out has been used, which makes room for others."""
        self._receiving.consume()

    @property
    def must_tell(self) -> bool:
        """True if the other end should soon learn of free room or of a missing piece."""
        return self._receiving.must_tell

    def tell(self, status: Status, now: float) -> None:
        """Set the status, and make it due now."""
        self.status, self._status_at = status, now

    @property
    def is_flushed(self) -> bool:
        """True if all queued frames have arrived."""
        return self._sending.is_empty

    def _greet(self, header: Header, content: memoryview, now: float) -> list[Event]:
        hello = decode_record(content, Hello) if len(content) <= MOST_HELLO_BYTES else None
        is_late = self.is_up and header.own in self._past
        if hello is None or header.own == 0 or is_late or now < self._deaf_until:
            self.n_dropped += 1
            return []
        if header.own == self._other:
            if header.other != self._own:  # the other end does not know this nonce yet
                self._hello_at = min(self._hello_at, self._greeted_at + self.lease / HELLOS / 4)
            return []
        problem = self._check(hello)
        events = self.end("the other end has begun again", now) if self.is_up else []
        if problem is None:
            self._other, self._hello_at = header.own, now
        else:
            self._other, self._hello_at = 0, min(self._hello_at, self._greeted_at + self.lease / HELLOS)
        return [*events, Greeted(hello, problem)]

    def _take_piece(self, header: Header, content: memoryview, now: float) -> list[Event]:
        if not self._receiving.take(header, len(content)):
            self.n_dropped += 1
            return []
        if self._receiving.is_over_full or len(content) > PIECE_BYTES:
            return self.end("it sent more than there is room for", now)
        return [Piece(content, bool(header.flags & FIRST), bool(header.flags & LAST))]

    # Output

    def is_idle(self, now: float) -> bool:
        """True if nothing has to be sent now."""
        if not self.is_up:
            return now < self._hello_at
        return now < self._status_at and not self._sending.has_next and not self._receiving.must_tell

    def outgoing(self, now: float, room: int) -> list[Datagram]:
        """Return the datagrams to send now; pieces only while the wire has room for them."""
        if not self.is_up:
            if now < self._hello_at:
                return []
            self._greeted_at = now
            self._hello_at = max(now, self._deaf_until) + self.lease / HELLOS
            return [self._datagram(HELLO, self._hello)]
        found = []
        while room > 0 and (piece := self._sending.pop(now)) is not None:
            flags, content = piece
            found.append(self._datagram(PIECE, content, flags, self._sending.next - 1))
            room -= len(content)
        if now >= self._status_at or self._receiving.must_tell:
            found.append(self._datagram(STATUS, encode_record(self.status)))
            self._status_at = now + self.lease / KEEPALIVES
        return found

    @property
    def next_time(self) -> float:
        """Time at which a datagram is due or the lease ends, if nothing happens before."""
        return min(self._status_at, self.heard + self.lease) if self.is_up else self._hello_at

    def _datagram(
        self, kind: int, content: bytes | memoryview, flags: int = 0, sequence: int | None = None
    ) -> Datagram:
        sending, receiving = self._sending, self._receiving
        receiving.tell()
        number = sending.next if sequence is None else sequence
        heard = receiving.expected, receiving.consumed
        return encode(
            Header(kind, flags, self._own, self._other, number, *heard, sending.turn, receiving.missing), content
        )
