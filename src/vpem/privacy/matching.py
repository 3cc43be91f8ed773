"""Matching of common rows without revealing ids: Diffie-Hellman tokens, as a state machine without a socket.

Every id is mapped to a point of a group. A party shuffles its points, multiplies them by its own secret, and sends
them to the other parties in turn; each multiplies them by its own secret and keeps their order. After all
multiplications, equal ids give equal tokens, and no party can undo this alone. The finished lists are sent to one
agent, the matcher, which sees the tokens. It sends each owner only positions: the row of the common table for each
place of its list. Only the owner knows which of its own rows is in which place.

Every parcel is sealed for its receiver; agents on the route see its length. All agents first flood a hello. A digest
of all hellos identifies the run. If a hello changes, because an agent was restarted or a link was lost, all agents
start a new run with new secrets, and drop parcels of other runs. At the end all compare one digest of the result.

An agent floods its hello once it has had a link to each of its neighbours. If a parcel is lost, because a process
died or a link was down, its run therefore ends when the link is restored: one of the two ends sends a new hello.

A result is final when all owners have saved it to disk. Each owner saves it after all have compared it, reports that
to the others, and names it in every later hello. If all hellos name the same result, the matching ends; otherwise all
start again. A final result cannot be replaced, because each owner names it from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

import msgspec

from vpem.core.agent.meeting import Credentials
from vpem.core.agent.message import Frame, LocalProtocolError, RemoteProtocolError
from vpem.privacy.hellos import Hellos
from vpem.privacy.parcels import (
    CHECK,
    HEAD_BYTES,
    HELLO,
    JOINS,
    KEPT,
    LIST,
    MAGIC,
    MOST_BESIDE,
    RESULT,
    STOP,
    TOKENS,
    Agents,
    Hello,
    MatchingError,
    Parcel,
    framed,
    label,
    routes,
)
from vpem.privacy.points import (
    POINT_BYTES,
    PointError,
    check_points,
    new_secret,
    number_rows,
    points_of,
    raised,
    split,
)
from vpem.privacy.runs import Matched, Run, shuffled
from vpem.privacy.sealing import SealError, Sealing

__all__ = ["Matched", "Matching"]


class Matching:
    """State machine of one agent in a matching; a session for engines (`vpem.transports.session.AnySession`).

    Parameters
    ----------
    number : int
    agents : Agents
    ids : sequence of bytes, optional
        Ids of the party's rows; None for an agent without rows.
    salt : bytes
        Salt of the study, so that different studies map the same id to different points.
    credentials : Credentials, optional
        Credentials that sign the agent's own hello and verify those of others.
    tell : callable, optional
        Called with the number of finished points and the number of all points.
    saved : Matched, optional
        Result that an earlier process of the party saved.
    save : callable, optional
        Called with a result, before the agent reports it as saved. It returns once the result will survive the end
        of the process.
    """

    HEADER_BYTES: ClassVar[int] = len(MAGIC) + 8

    def __init__(
        self,
        number: int,
        agents: Agents,
        ids: Sequence[bytes] | None,
        salt: bytes,
        *,
        credentials: Credentials | None = None,
        tell: Callable[[int, int], object] = lambda _, __: None,
        saved: Matched | None = None,
        save: Callable[[Matched], object] = lambda _: None,
    ):
        self.number, self.agents, self.ids, self.salt = number, agents, ids, salt
        if (ids is None) == (number in agents.owners) or agents.join not in JOINS or len(agents.owners) < 2:
            raise MatchingError("expected ids of at least two parties, and none of others, got something else")
        if ids is not None and not ids:
            raise MatchingError("expected rows to match, got none")
        self._tell, self._saved, self._save = tell, saved, save
        self.note: Callable[[Any, Any], object] | None = None
        """Called with the matching and each frame that is about to be handed out."""
        self.neighbours = tuple(sorted(sum(link) - number for link in agents.links if number in link))
        self.routes = routes(agents.links, number)
        self.connected: frozenset[int] = frozenset()
        self.losses: dict[int, str] = {}
        self.failure: str | None = None
        self._sealing = Sealing()
        self._hellos = Hellos(number, agents, len(ids or ()), credentials)
        self._hellos.renew(0, self._sealing.public, self._head)
        self._run: Run | None = None
        self._met: set[int] = set()
        """Neighbours to which the agent has had a link."""
        self._is_final = False
        self._done = 0

    # Events

    def start(self) -> list[Frame]:
        """Start the matching; nothing is sent before links are connected."""
        return self._noted(self._begin_if_all() if len(self.agents.names) == 1 else [])

    def connect(self, peer: int) -> list[Frame]:
        """Add a link. If it replaces an older one, parcels may be lost, so all agents start a new run."""
        return self._noted(self._connect(peer))

    def _connect(self, peer: int) -> list[Frame]:
        self._check_neighbour(peer)
        self.connected |= {peer}
        if self.failure is not None:
            return self._to([peer], self._stop())
        if peer in self._met:
            return self._tell_hellos(peer) + self._renew(self._hellos.own.version)
        self._met.add(peer)
        out = self._tell_hellos(peer)
        return out + self._flood([self.number], besides=peer) + self._begin_if_all() if self._has_met_all else out

    def disconnect(self, peer: int) -> list[Frame]:
        """Remove a link."""
        self.connected -= {peer}
        return []

    def abandon(self, peer: int) -> NoReturn:
        """Raise ValueError: a matching needs all agents."""
        raise ValueError(
            f"expected all parties while rows are matched, got it without agent {peer}; try --fresh later"
        )

    consent = abandon

    def send_early(self, _: Callable[[list[Frame]], object]) -> None:
        """Do nothing: frames are few, and each event returns them at its end."""

    def expects(self, peer: int, start: bytes) -> int:
        """Return the length of a frame from its first bytes, for engines that deliver in pieces; 0 if invalid.

        An invalid frame makes the peer lost.
        """
        self._check_neighbour(peer)
        length = int.from_bytes(start[len(MAGIC) : self.HEADER_BYTES], "big")
        most = MOST_BESIDE + POINT_BYTES * self._hellos.most_rows
        if start[: len(MAGIC)] != MAGIC or length > most:
            self._lose(peer, f"expected a parcel of at most {most} bytes, got something else")
            return 0
        return self.HEADER_BYTES + length

    def receive(self, peer: int, frame: bytes | memoryview) -> list[Frame]:
        """Process a whole frame and return the frames to send; after an invalid frame, the peer is lost."""
        return self._noted(self._receive(peer, frame))

    def _receive(self, peer: int, frame: bytes | memoryview) -> list[Frame]:
        if peer not in self.connected or self.failure is not None:
            return []
        content = bytes(frame)
        try:
            if self.expects(peer, content[: self.HEADER_BYTES]) != len(content):
                raise RemoteProtocolError(self.number, peer, 0, "expected a whole parcel, got a part of one")
            parcel = msgspec.msgpack.decode(content[self.HEADER_BYTES :], type=Parcel)
            return self._take(peer, parcel)
        except msgspec.DecodeError as error:
            self._lose(peer, f"expected a parcel, got something else ({error})")
        except RemoteProtocolError as error:
            self._lose(peer, str(error))
        except MatchingError as error:
            return self._fail(str(error))
        return []

    def follow(self) -> bool:
        """Accept the saved result as final, because a neighbour has started the fit; return False if it lacks one.

        A neighbour leaves the matching only after all agents have reported that the result is final.
        """
        self._is_final = self._is_final or self._saved is not None or self.ids is None
        return self._is_final

    @property
    def is_done(self) -> bool:
        """True if all owners have saved the same result."""
        return self._is_final and self.failure is None

    @property
    def matched(self) -> Matched | None:
        """Result of the matching; None before its end, and at an agent without rows."""
        return self._saved if self.is_done else None

    @property
    def progress(self) -> tuple[int, int]:
        """Number of finished operations and of all: one for each own id, and one for each id of all parties."""
        if self._run is None or self.ids is None:
            return 0, 0
        total = len(self.ids) + sum(hello.count for hello in self._run.hellos.values())
        return self._done, total

    @property
    def stage(self) -> tuple[str, int, int, None]:
        """Stage of the work, for engines."""
        return "match", 0, 0, None

    @property
    def waits_for(self) -> tuple[int, ...]:
        """Neighbours that this agent may be waiting for."""
        return self.neighbours

    # Hellos

    @property
    def _head(self) -> bytes:
        """Head of the saved result; empty without one."""
        return b"" if self._saved is None else self._saved.head

    @property
    def _has_met_all(self) -> bool:
        return self._met == set(self.neighbours)

    def _tell_hellos(self, peer: int) -> list[Frame]:
        numbers = sorted(number for number in self._hellos.known if number != self.number or self._has_met_all)
        return [frame for number in numbers for frame in self._to([peer], self._hello_of(number))]

    def _hello_of(self, number: int) -> Parcel:
        return Parcel(b"", HELLO, number, -1, number, msgspec.msgpack.encode(self._hellos.known[number]))

    def _flood(self, numbers: Sequence[int], besides: int | None = None) -> list[Frame]:
        peers = sorted(self.connected - {besides})
        return [frame for number in numbers for frame in self._to(peers, self._hello_of(number))]

    def _renew(self, version: int) -> list[Frame]:
        """Start a new run, with a hello that is newer than a version."""
        self._hellos.renew(version + 1, self._sealing.public, self._head)
        return self._flood([self.number]) + self._begin_if_all() if self._has_met_all else []

    def _take_hello(self, peer: int, parcel: Parcel) -> list[Frame]:
        hello = msgspec.msgpack.decode(parcel.content, type=Hello)
        if not self._hellos.is_news(peer, hello):
            return []
        if hello.number == self.number:  # from an earlier process: others must not treat it as the newest
            return self._renew(hello.version)
        if self.is_done:
            self._hellos.check_kept(hello, self._head)
        self._hellos.known[hello.number] = hello
        return self._flood([hello.number], besides=peer) + self._begin_if_all()

    # A run

    def _begin_if_all(self) -> list[Frame]:
        """Start a run and send the agent's own list, if all hellos are known and do not name the same result."""
        self._run = None
        if not self._hellos.is_complete or not self._has_met_all:
            return []
        if self._hellos.own.saved != self._head:
            return self._renew(self._hellos.own.version)
        self._is_final = self._is_final or self._hellos.agreed != b""
        if self._is_final:
            return []
        run = self._run = Run(self._hellos.known)
        self._done = 0
        if self.ids is None:
            return []
        run.secret, run.order = new_secret(), shuffled(len(self.ids))
        points = points_of((self.ids[place] for place in run.order), self.salt, self._count)
        return self._pass_on(run, self.number, self._raise(run, points))

    def _raise(self, run: Run, points: list[bytes]) -> list[bytes]:
        return raised(points, run.secret, self._count)

    def _count(self, count: int) -> None:
        self._done += count
        self._tell(*self.progress)

    def _pass_on(self, run: Run, owner: int, points: list[bytes]) -> list[Frame]:
        """Send a list to the next owner that has not multiplied it; to the matcher after the last one."""
        owners = self.agents.owners
        following = owners[(owners.index(self.number) + 1) % len(owners)]
        kind, target = (LIST, following) if following != owner else (TOKENS, self.agents.matcher)
        return self._send(run, kind, target, owner, b"".join(points))

    def _take(self, peer: int, parcel: Parcel) -> list[Frame]:
        if parcel.kind == HELLO:
            return self._take_hello(peer, parcel)
        if parcel.kind == STOP:
            return self._fail(parcel.content.decode(errors="replace")[:1000], besides=peer)
        if not 0 <= parcel.target < len(self.agents.names) or not 0 <= parcel.source < len(self.agents.names):
            raise RemoteProtocolError(self.number, peer, 0, "expected a parcel between agents of the study")
        if parcel.source == self.number:
            raise RemoteProtocolError(self.number, peer, 0, "expected a parcel of another agent, got an own one")
        if parcel.target != self.number:
            return self._to([self.routes[parcel.target]], parcel)
        run = self._run
        if run is None or parcel.run != run.number:
            return []  # from a run that has ended: on every link, hellos precede the parcels of their run
        return self._take_sealed(run, parcel)

    def _take_sealed(self, run: Run, parcel: Parcel) -> list[Frame]:
        """Process a parcel of this run that is addressed to this agent."""
        name = self.agents.names[parcel.source]
        try:
            hello, bound = run.hellos[parcel.source], label(parcel)
            content = self._sealing.open(hello.public, run.number, bound, parcel.content)
        except SealError as error:
            raise RemoteProtocolError(
                self.number, parcel.source, 0, f"a parcel from {name!r} was altered, or is for another: {error}"
            ) from None
        try:
            if parcel.kind in (LIST, TOKENS):
                return self._take_points(run, parcel, content)
            if parcel.kind == RESULT:
                return self._take_result(run, parcel, content)
            if parcel.kind == CHECK:
                run.checks[parcel.source] = content
                return self._compare(run)
            if parcel.kind == KEPT:
                run.kept[parcel.source] = content
                return self._settle(run)
        except PointError as error:
            raise MatchingError(f"party {name!r} sent a list that it must not: {error}") from None
        raise MatchingError(f"party {name!r} sent a parcel of the kind {parcel.kind!r}")

    def _take_points(self, run: Run, parcel: Parcel, content: bytes) -> list[Frame]:
        owner, points = parcel.owner, split(content)
        run.check_turn(self.agents, self.number, parcel, len(points))
        if parcel.kind == LIST:
            run.raised.add(owner)
            return self._pass_on(run, owner, self._raise(run, points))
        check_points(points)
        if len(set(points)) < len(points):
            n_twice = len(points) - len(set(points))
            raise MatchingError(f"expected every id once, got {n_twice:,} twice from {self.agents.names[owner]!r}")
        run.lists[owner] = points
        return self._match(run) if len(run.lists) == len(self.agents.owners) else []

    # The matcher

    def _match(self, run: Run) -> list[Frame]:
        """Send each owner the rows of the common table for the places of its list."""
        names = self.agents.names
        n_rows, digest, rows = number_rows(run.lists, self.agents.join, run.number)
        if not n_rows:
            sizes = ", ".join(f"{len(points):,} from {names[owner]}" for owner, points in sorted(run.lists.items()))
            raise MatchingError(
                f"expected rows that all parties have, got none: {sizes}; compare the id columns and the rule for ids"
            )
        run.lists = {owner: [] for owner in run.lists}
        head = n_rows.to_bytes(8, "big") + digest
        if self.number not in self.agents.owners:
            run.checks[self.number] = head
        out = [frame for owner in rows for frame in self._send(run, RESULT, owner, owner, head + rows[owner])]
        return out + self._compare(run)

    def _take_result(self, run: Run, parcel: Parcel, content: bytes) -> list[Frame]:
        if parcel.source != self.agents.matcher:
            raise PointError("expected a position for each row, from the matcher")
        run.matched = run.read_result(content, self._hellos.counts, self.agents.join)
        run.checks[self.number] = head = content[:HEAD_BYTES]
        return self._send_all(run, CHECK, head) + self._compare(run)

    # The end

    def _compare(self, run: Run) -> list[Frame]:
        """Save the result if all have the same; raise MatchingError if the matcher sent different results."""
        if len(set(run.checks.values())) > 1:
            raise MatchingError("expected one result for all parties, got different ones from the matcher")
        if run.matched is None or self.number in run.kept or not set(self.agents.owners) <= run.checks.keys():
            return []
        self._save(run.matched)
        self._saved, run.kept[self.number] = run.matched, run.matched.head
        return self._send_all(run, KEPT, run.matched.head) + self._settle(run)

    def _settle(self, run: Run) -> list[Frame]:
        """Mark the result as final if all owners have saved it."""
        if len(set(run.kept.values())) > 1:
            raise MatchingError("expected one result that all parties keep, got different ones")
        self._is_final = self._is_final or set(self.agents.owners) <= run.kept.keys()
        return []

    # Parcels and frames

    def _noted(self, frames: list[Frame]) -> list[Frame]:
        if self.note is not None:
            for frame in frames:
                self.note(self, frame)
        return frames

    def _send_all(self, run: Run, kind: str, content: bytes) -> list[Frame]:
        targets = [target for target in range(len(self.agents.names)) if target != self.number]
        return [frame for target in targets for frame in self._send(run, kind, target, self.number, content)]

    def _send(self, run: Run, kind: str, target: int, owner: int, content: bytes) -> list[Frame]:
        parcel = Parcel(run.number, kind, self.number, target, owner, content)
        if target == self.number:
            sealed = self._sealing.close(self._sealing.public, run.number, label(parcel), content)
            return self._take_sealed(run, msgspec.structs.replace(parcel, content=sealed))
        sealed = self._sealing.close(run.hellos[target].public, run.number, label(parcel), content)
        return self._to([self.routes[target]], msgspec.structs.replace(parcel, content=sealed))

    def _to(self, peers: Sequence[int], parcel: Parcel) -> list[Frame]:
        frame = framed(parcel)
        return [Frame(peer, frame) for peer in peers if peer in self.connected]

    # Failures

    def _stop(self) -> Parcel:
        return Parcel(b"", STOP, self.number, -1, self.number, (self.failure or "").encode())

    def _fail(self, reason: str, besides: int | None = None) -> list[Frame]:
        self.failure = reason
        return self._to(sorted(self.connected - {besides}), self._stop())

    def _lose(self, peer: int, problem: str) -> None:
        self.losses[peer] = problem
        self.connected -= {peer}

    def _check_neighbour(self, peer: int) -> None:
        if peer not in self.neighbours:
            raise LocalProtocolError(self.number, peer, 0, f"expected one of the neighbours {self.neighbours}")
