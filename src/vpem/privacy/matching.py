"""Parties find their common rows without showing ids: Diffie-Hellman tokens, as a state machine without a socket.

Every id becomes a point of a group. A party shuffles its points, multiplies them by a secret of its own, and sends
them around: each other party multiplies them by its own secret, in their order. When all have done so, equal ids are
equal tokens, and no party can undo it alone. The finished lists go to one agent, the matcher, which sees tokens, and
tells each owner only positions: which rows of the common table the rows of its list are. The owner alone knows which
of its rows are in which place of its list.

Every parcel is sealed for its receiver; agents on the way see lengths. All agents flood a hello first. What all
hellos say names the run: if one of them changes, as an agent was restarted or a link was lost, all begin again with
new secrets, and parcels of other runs are dropped. In the end all compare one digest of the result.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import msgspec

from vpem.core.agent.meeting import Credentials
from vpem.core.agent.message import LocalProtocolError, RemoteProtocolError
from vpem.privacy.parcels import (
    CHECK,
    HELLO,
    JOINS,
    LIST,
    MAGIC,
    MOST_BESIDE,
    MOST_IDS,
    RESULT,
    STOP,
    TOKENS,
    Agents,
    Frame,
    Hello,
    MatchingError,
    Parcel,
    label,
    routes,
    signed,
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
from vpem.privacy.runs import HEAD_BYTES, Matched, Run, shuffled
from vpem.privacy.sealing import SealError, Sealing

__all__ = ["Matched", "Matching"]


class Matching:
    """One agent's part.

    Parameters
    ----------
    number : int
    agents : Agents
    ids : sequence of bytes, optional
        Of the party's rows; None for an agent without rows.
    salt : bytes
        Of the study: ids of other studies become other points.
    credentials : Credentials, optional
        To sign the hello, and to check others'.
    tell : callable, optional
        Called with the number of points that are done and the number of all.
    """

    HEADER_BYTES = len(MAGIC) + 8

    def __init__(
        self,
        number: int,
        agents: Agents,
        ids: Sequence[bytes] | None,
        salt: bytes,
        *,
        credentials: Credentials | None = None,
        tell: Callable[[int, int], object] = lambda _, __: None,
    ):
        self.number, self.agents, self.ids, self.salt = number, agents, ids, salt
        if (ids is None) == (number in agents.owners) or agents.join not in JOINS or len(agents.owners) < 2:
            raise MatchingError("expected ids of at least two parties, and none of others, got something else")
        self.credentials, self._tell = credentials, tell
        self.neighbours = tuple(sorted(sum(link) - number for link in agents.links if number in link))
        self.routes = routes(agents.links, number)
        self.connected: frozenset[int] = frozenset()
        self.losses: dict[int, str] = {}
        self.failure: str | None = None
        self._sealing = Sealing()
        self._hellos: dict[int, Hello] = {number: self._hello()}
        self._run: Run | None = None
        self._early: list[Parcel] = []
        self._met: set[int] = set()
        self._done = 0

    # Events

    def start(self) -> list[Frame]:
        """Begin; nothing is sent before there are links."""
        return self._begin_if_all() if len(self.agents.names) == 1 else []

    def connect(self, peer: int) -> list[Frame]:
        """There is a new link; what was sent over an older one may be lost, so all begin again."""
        self._check_neighbour(peer)
        self.connected |= {peer}
        if self.failure is not None:
            return self._to([peer], self._stop())
        if peer in self._met:
            return self._tell_hellos(peer) + self._renew(self._hellos[self.number].version)
        self._met.add(peer)
        return self._tell_hellos(peer)

    def disconnect(self, peer: int) -> list[Frame]:
        """A link has ended."""
        self.connected -= {peer}
        return []

    def expects(self, peer: int, start: bytes) -> int:
        """Length of the frame that begins so, for engines that deliver in pieces; 0 if the peer must not send it."""
        self._check_neighbour(peer)
        length = int.from_bytes(start[len(MAGIC) : self.HEADER_BYTES], "big")
        counts = [hello.count for hello in self._hellos.values()]
        most = MOST_BESIDE + POINT_BYTES * (max(counts) if len(counts) == len(self.agents.names) else MOST_IDS)
        if start[: len(MAGIC)] != MAGIC or length > most:
            self._lose(peer, f"expected a parcel of at most {most} bytes, got something else")
            return 0
        return self.HEADER_BYTES + length

    def receive(self, peer: int, frame: bytes | memoryview) -> list[Frame]:
        """Take a whole frame; what the peer must not send changes nothing, and the peer is lost."""
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

    @property
    def is_done(self) -> bool:
        """Whether all agents have the same result."""
        run = self._run
        if run is None or self.failure is not None:
            return False
        return (run.matched is not None or self.ids is None) and set(self.agents.owners) <= run.checks.keys()

    @property
    def matched(self) -> Matched | None:
        """What has come of it; None at an agent without rows."""
        return self._run.matched if self._run is not None and self.is_done else None

    @property
    def progress(self) -> tuple[int, int]:
        """Points that are done, and all: one for each own id, and a multiplication for each id of all parties."""
        if self._run is None or self.ids is None:
            return 0, 0
        total = len(self.ids) + sum(hello.count for hello in self._run.hellos.values())
        return self._done, total

    # Hellos

    def _hello(self, version: int = 0) -> Hello:
        count = 0 if self.ids is None else len(self.ids)
        if count == 0 and self.ids is not None:
            raise MatchingError("expected rows to match, got none")
        about = f"{self.agents.join} {self.agents.matcher} {self.agents.about}"
        hello = Hello(self.number, secrets.token_bytes(16), self._sealing.public, count, about, version)
        if self.credentials is None:
            return hello
        return msgspec.structs.replace(hello, proof=self.credentials.sign(signed(hello, self.credentials.study)))

    def _tell_hellos(self, peer: int) -> list[Frame]:
        return [frame for number in sorted(self._hellos) for frame in self._to([peer], self._hello_of(number))]

    def _hello_of(self, number: int) -> Parcel:
        return Parcel(b"", HELLO, number, -1, number, msgspec.msgpack.encode(self._hellos[number]))

    def _flood(self, numbers: Sequence[int], besides: int | None = None) -> list[Frame]:
        peers = sorted(self.connected - {besides})
        return [frame for number in numbers for frame in self._to(peers, self._hello_of(number))]

    def _renew(self, version: int) -> list[Frame]:
        """Begin again with a hello that is newer than a version."""
        self._hellos[self.number] = self._hello(version + 1)
        return self._flood([self.number]) + self._begin_if_all()

    def _take_hello(self, peer: int, parcel: Parcel) -> list[Frame]:
        hello = msgspec.msgpack.decode(parcel.content, type=Hello)
        number = hello.number
        known = self._hellos.get(number)
        if number == self.number and known is not None:
            # Of an earlier life: others must not take it for the newest.
            is_older = known == hello or hello.version < known.version
            return [] if is_older else self._renew(hello.version)
        if known is not None and hello.version <= known.version:
            return []
        if not 0 <= number < len(self.agents.names):
            raise RemoteProtocolError(self.number, peer, 0, f"expected agents of the study, got agent {number}")
        name = self.agents.names[number]
        if self.credentials is not None:
            try:
                self.credentials.verify(name, signed(hello, self.credentials.study), hello.proof)
            except ValueError as error:
                problem = f"expected {name!r} to have signed its hello, got another ({error})"
                raise RemoteProtocolError(self.number, peer, 0, problem) from None
        if (hello.count > 0) != (number in self.agents.owners):
            raise MatchingError(f"expected rows from every party and from no others, got {hello.count} from {name!r}")
        mine = self._hellos[self.number].about
        if hello.about != mine:
            raise MatchingError(f"expected the same study, join and rule for ids, got others from {name!r}")
        if any(hello.public == other.public for one, other in self._hellos.items() if one != number):
            raise RemoteProtocolError(self.number, peer, 0, f"expected a key of its own from {name!r}, got another's")
        self._hellos[number] = hello
        return self._flood([number], besides=peer) + self._begin_if_all()

    # A run

    def _begin_if_all(self) -> list[Frame]:
        """Send the own list, if all hellos are here."""
        self._run = None
        if len(self._hellos) < len(self.agents.names):
            return []
        run = self._run = Run(self._hellos)
        self._done, out = 0, list[Frame]()
        early, self._early = [one for one in self._early if one.run == run.number], []
        if self.ids is not None:
            run.secret, run.order = new_secret(), shuffled(len(self.ids))
            points = points_of((self.ids[place] for place in run.order), self.salt, self._count)
            out += self._pass_on(run, self.number, self._raise(run, points))
        for parcel in early:
            out += self._take_sealed(run, parcel)
        return out

    def _raise(self, run: Run, points: list[bytes]) -> list[bytes]:
        return raised(points, run.secret, self._count)

    def _count(self, count: int) -> None:
        self._done += count
        self._tell(*self.progress)

    def _pass_on(self, run: Run, owner: int, points: list[bytes]) -> list[Frame]:
        """To the next that has not multiplied yet; to the matcher, if there is none."""
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
        if run is not None and parcel.run == run.number:
            return self._take_sealed(run, parcel)
        if len(self._early) < 4 * len(self.agents.names):  # of a run whose hellos are not all here
            self._early.append(parcel)
        return []

    def _take_sealed(self, run: Run, parcel: Parcel) -> list[Frame]:
        """A parcel of this run, for this agent."""
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
        except PointError as error:
            raise MatchingError(f"party {name!r} sent a list that it must not: {error}") from None
        raise MatchingError(f"party {name!r} sent a parcel of the kind {parcel.kind!r}")

    def _take_points(self, run: Run, parcel: Parcel, content: bytes) -> list[Frame]:
        owner, owners = parcel.owner, self.agents.owners
        is_final = parcel.kind == TOKENS
        before = (
            owners[(owners.index(owner) if is_final else owners.index(self.number)) - 1] if owner in owners else -1
        )
        is_right = self.number == self.agents.matcher if is_final else self.number in owners and owner != self.number
        points = split(content)
        if not is_right or parcel.source != before or len(points) != run.hellos[owner].count:
            raise PointError(f"expected {run.hellos[owner].count if owner in owners else 0} points, in its turn")
        if not is_final:
            if owner in run.raised:
                raise PointError("expected a list once, got it again")
            run.raised.add(owner)
            return self._pass_on(run, owner, self._raise(run, points))
        check_points(points)
        if len(set(points)) < len(points):
            n_twice = len(points) - len(set(points))
            raise MatchingError(f"expected every id once, got {n_twice:,} twice from {self.agents.names[owner]!r}")
        if owner in run.lists:
            raise PointError("expected a list once, got it again")
        run.lists[owner] = points
        return self._match(run) if len(run.lists) == len(owners) else []

    # The matcher

    def _match(self, run: Run) -> list[Frame]:
        """Tell each owner which rows of the common table its places are."""
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
        counts = {self.agents.names[owner]: run.hellos[owner].count for owner in self.agents.owners}
        run.matched = run.read_result(content, counts, self.agents.join)
        head = content[:HEAD_BYTES]
        run.checks[self.number] = head
        out = [
            frame
            for target in range(len(self.agents.names))
            if target != self.number
            for frame in self._send(run, CHECK, target, self.number, head)
        ]
        return out + self._compare(run)

    def _compare(self, run: Run) -> list[Frame]:
        """MatchingError if the matcher has told others something else."""
        if len(set(run.checks.values())) > 1:
            raise MatchingError("expected one result for all parties, got different ones from the matcher")
        return []

    # Parcels and frames

    def _send(self, run: Run, kind: str, target: int, owner: int, content: bytes) -> list[Frame]:
        parcel = Parcel(run.number, kind, self.number, target, owner, content)
        if target == self.number:
            sealed = self._sealing.close(self._sealing.public, run.number, label(parcel), content)
            return self._take_sealed(run, msgspec.structs.replace(parcel, content=sealed))
        sealed = self._sealing.close(run.hellos[target].public, run.number, label(parcel), content)
        return self._to([self.routes[target]], msgspec.structs.replace(parcel, content=sealed))

    def _to(self, peers: Sequence[int], parcel: Parcel) -> list[Frame]:
        content = msgspec.msgpack.encode(parcel)
        frame = MAGIC + len(content).to_bytes(8, "big") + content
        return [Frame(peer, frame) for peer in peers if peer in self.connected]

    # Troubles

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
