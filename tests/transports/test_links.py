"""Links over a wire that loses, repeats, delays, reorders and damages datagrams, and whose ends are started again."""

import itertools
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpem.transports import datagrams, links
from vpem.transports.datagrams import HELLO, PIECE, Header, Hello, Status, decode, encode, mismatch, steps_ahead
from vpem.transports.links import Down, Greeted, Link, Piece, Up

LEASE = 8.0
ROOM = 10**9


@pytest.fixture(autouse=True, scope="module")
def small():
    """Pieces of 8 bytes, and windows of 5 of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "PIECE_BYTES", 8)
        patch.setattr(links, "WINDOW_BYTES", 40)
        patch.setattr(links, "WINDOW_PIECES", 12)
        yield


class End:
    """One process: a link, and what it has seen. A segment is a link from its beginning to its end."""

    def __init__(self, name, world):
        self.name, self.world, self.incarnation = name, world, 0
        self.sent, self.got, self.open = {}, {}, {}
        self.restart()

    def restart(self):
        self.incarnation += 1
        self.segment, self.n_sent = None, 0
        hello = Hello(name=self.name, number=0)
        self.link = Link(hello, lambda _: None, nonce=self.world.nonce, lease=LEASE, now=self.world.now)
        self.unused, self.statuses = [], []

    def note(self, events):
        for event in events:
            if isinstance(event, Up):
                assert self.segment is None
                self.segment = (self.name, self.incarnation, self.link.life)
                self.sent[self.segment], self.got[self.segment] = [], []
                self.partial, self.unused = b"", []
            elif isinstance(event, Down):
                assert self.segment is not None
                self.segment = None
            elif isinstance(event, Piece):
                assert self.segment is not None
                assert event.is_first == (self.partial == b"")
                self.unused.append(event)
                assert len(self.unused) <= links.WINDOW_PIECES
                assert sum(len(piece.content) for piece in self.unused) <= links.WINDOW_BYTES
                self.partial += bytes(event.content)
                if event.is_last:
                    self.got[self.segment].append(self.partial)
                    self.partial = b""
            elif isinstance(event, Status):
                self.statuses.append(event)

    def send(self, length):
        if self.segment is not None:
            frame = repr((self.segment, len(self.sent[self.segment]))).encode().ljust(length, b".")
            self.sent[self.segment].append(frame)
            self.link.send(frame)

    def consume(self):
        if self.segment is not None and self.unused:
            self.unused.pop(0)
            self.link.consume()


def cut(content):
    """A datagram of these bytes."""
    return datagrams.Datagram(content[: datagrams.HEADER_BYTES], content[datagrams.HEADER_BYTES :])


class World:
    """Two ends and what is on its way between them."""

    def __init__(self, seed=0):
        self.random, self.now = random.Random(seed), 0.0
        self.ends = [End("a", self), End("b", self)]
        self.lines = {0: [], 1: []}
        """Datagrams to each end."""

    def nonce(self):
        return self.random.getrandbits(64) | 1

    def pump(self, room=ROOM):
        for number, end in enumerate(self.ends):
            is_idle = end.link.is_idle(self.now)
            found = end.link.outgoing(self.now, room)
            assert not (is_idle and found)
            self.lines[1 - number] += found

    def arrive(self, number, place=0):
        line = self.lines[number]
        if line:
            self.ends[number].note(self.ends[number].link.take(line.pop(place % len(line)), self.now))

    def pass_time(self, seconds):
        self.now += seconds
        for end in self.ends:
            end.note(end.link.tick(self.now))

    def work(self, leases=6.0):
        """The wire works for a while."""
        until = self.now + leases * LEASE
        while self.now < until:
            for _ in range(50):
                self.pump()
                if not any(self.lines.values()):
                    break
                for number in (0, 1):
                    while self.lines[number]:
                        self.arrive(number)
                    while self.ends[number].unused and self.ends[number].segment:
                        self.ends[number].consume()
            else:
                raise AssertionError("datagrams without end")
            self.pass_time(LEASE / 32)

    def damage(self, number, place):
        line = self.lines[number]
        place = place % len(line) if line else 0
        if line and line[place].n_bytes >= datagrams.HEADER_BYTES:
            content = bytearray(b"".join(line[place]))
            kind = self.random.randrange(3)
            most = datagrams.HEADER_BYTES if content[5] == PIECE else len(content)
            if kind == 0:
                content[self.random.randrange(most)] ^= 1 << self.random.randrange(8)
            elif kind == 1:
                del content[self.random.randrange(len(content)) :]
            else:
                content += b"x"
            line[place] = cut(bytes(content))

    def check(self):
        """Frames are whole, in order, at most once; what was lost is known at both ends."""
        sent = {segment: frames for end in self.ends for segment, frames in end.sent.items()}
        for end in self.ends:
            for segment, frames in end.got.items():
                if frames:
                    sources = [source for source, theirs in sent.items() if theirs[:1] == frames[:1]]
                    assert len(sources) == 1
                    assert frames == sent[sources[0]][: len(frames)]
                    if len(frames) < len(sent[sources[0]]):
                        is_known = all(one.segment not in (segment, sources[0]) for one in self.ends)
                        assert is_known or self.is_busy
        for end in self.ends:
            firsts = [frames[0] for frames in end.got.values() if frames]
            assert len(firsts) == len(set(firsts))

    @property
    def is_busy(self):
        return any(self.lines.values()) or any(not end.link.is_flushed for end in self.ends)


ACTIONS = ("send", "send", "pump", "pump", "arrive", "arrive", "arrive", "arrive", "reorder", "drop", "twice", "cut")
ACTIONS += ("damage", "consume", "consume", "consume", "time", "lease", "restart", "end", "garbage", "short of room")


def act(world, action, number, place):
    end, line = world.ends[number], world.lines[number]
    if action == "send":
        end.send(1 + place % 30)
    elif action in ("pump", "short of room"):
        world.pump(ROOM if action == "pump" else 1)
    elif action == "arrive":
        world.arrive(number)
    elif action == "reorder":
        world.arrive(number, place)
    elif action == "drop" and line:
        line.pop(place % len(line))
    elif action == "twice" and line:
        line.insert(place % len(line), line[0])
    elif action == "cut":
        line.clear()
    elif action == "damage":
        world.damage(number, place)
    elif action == "consume":
        end.consume()
    elif action == "time":
        world.pass_time(LEASE * (place % 100) / 200)
    elif action == "lease":
        world.pass_time(LEASE * 1.1)
    elif action == "restart":
        end.restart()
    elif action == "end":
        end.note(end.link.end("as the session wants", world.now, pause=place % 3))
    elif action == "garbage":
        line.append(cut(world.random.randbytes(place % 200)))


@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1), st.integers(0, 1000)), max_size=150),
)
@settings(max_examples=300)
def test_frames_arrive_whole_in_order_and_once_or_both_ends_know(seed, actions):
    world = World(seed)
    world.work(1.0)
    for action in actions:
        act(world, *action)
        assert all(len(line) < 5000 for line in world.lines.values())
    world.work()
    world.check()
    for number, end in enumerate(world.ends):
        assert end.segment is not None, "the link is up when the wire works"
        other = world.ends[1 - number]
        assert other.got[other.segment] == end.sent[end.segment], "and everything has arrived"
        end.send(100)
    world.work(1.0)
    for number, end in enumerate(world.ends):
        assert end.sent[end.segment] == world.ends[1 - number].got[world.ends[1 - number].segment]


@given(st.integers(0, 2**32))
@settings(max_examples=50)
def test_long_runs_over_a_bad_wire_make_progress(seed):
    world, n_got = World(seed), 0
    draw = world.random
    for _ in range(1500):
        action = draw.choice(ACTIONS[:17])  # nothing that ends a link by itself
        act(world, action, draw.randrange(2), draw.randrange(1000))
        if draw.random() < 0.1:
            world.pass_time(LEASE / 40)
    n_got = sum(len(frames) for end in world.ends for frames in end.got.values())
    world.work()
    world.check()
    assert n_got > 0


def up(seed=0):
    world = World(seed)
    world.work(0.5)
    assert all(end.segment for end in world.ends)
    return world


def test_an_end_that_is_started_again_is_noticed_with_its_first_hello():
    world = up()
    world.ends[0].restart()
    world.pump()
    before = world.ends[1].segment
    world.arrive(1)
    assert world.ends[1].segment != before
    world.work(0.1)
    assert all(end.segment for end in world.ends)


def test_silence_ends_a_link_at_both_ends():
    world = up()
    heard = [end.link.heard for end in world.ends]
    world.pass_time(min(heard) + LEASE - world.now)
    assert all(end.segment for end in world.ends)
    world.pass_time(max(heard) + LEASE - world.now + 1e-6)
    assert not any(end.segment for end in world.ends)


def test_an_end_that_is_not_heard_notices_though_hellos_arrive():
    """A server that had been suspended knew a party's nonce, but got nothing more: its hellos kept the link up."""
    numbers, now, events = itertools.count(1), 0.0, []
    party, server = (
        Link(Hello(name=name, number=0), lambda _: None, nonce=lambda: next(numbers), lease=LEASE, now=now)
        for name in ("party", "server")
    )
    for datagram in party.outgoing(now, ROOM):
        server.take(datagram, now)
    while now < 5 * LEASE:
        now += LEASE / 32
        for datagram in server.outgoing(now, ROOM):
            events += party.take(datagram, now)
        events += party.tick(now)
        party.outgoing(now, ROOM)  # is lost
    assert [type(event) for event in events if isinstance(event, Up | Down)] == [Up, Down]
    assert not party.is_up


def test_nothing_is_sent_again_because_it_is_slow():
    world = up()
    world.ends[0].send(30)
    for _ in range(100):  # two leases; keepalives arrive at once, the data is on its way
        world.pump()
        slow = [datagram for datagram in world.lines[1] if datagram.head[5] == PIECE]
        world.lines[1] = slow
        while world.lines[0]:
            world.arrive(0)
        world.pass_time(0.01)
    assert len(slow) == len(set(slow)) == -(-30 // 8) + (len(world.ends[0].sent[world.ends[0].segment][0]) > 32)


def test_a_lost_tail_is_found_with_the_next_status():
    world = up()
    world.ends[0].send(10)
    world.pump()
    world.lines[1].clear()
    world.work(0.5)
    assert world.ends[1].got[world.ends[1].segment] == world.ends[0].sent[world.ends[0].segment]


def test_a_sender_waits_for_room_and_one_that_does_not_is_cut_off(monkeypatch):
    world = up()
    world.ends[0].send(1000)
    for _ in range(100):
        world.pump()
        world.arrive(1)
        world.arrive(0)
    assert sum(len(piece.content) for piece in world.ends[1].unused) == links.WINDOW_BYTES
    monkeypatch.setattr(links._Sending, "pop", unlimited_pop)
    world.pump()
    for _ in range(100):
        world.arrive(1)
    assert world.ends[1].segment is None


def unlimited_pop(self, now):
    if self.next == self._first + len(self._pieces):
        return None
    self._times.append(now)
    self.next += 1
    self._newest = max(self._newest, self.next)
    return self._pieces[self.next - 1 - self._first]


@pytest.mark.parametrize(("speed", "size"), [(60_000, 62_500), (500_000, 250_000), (1e8, 500_000)])
def test_pieces_are_as_large_as_a_line_is_fast(speed, size, monkeypatch):
    """None takes longer than a sixteenth of a lease, as far as a sender can know, unless it is small anyway."""
    for name, value in {"PIECE_BYTES": 500_000, "WINDOW_BYTES": 10**9, "WINDOW_PIECES": 4096}.items():
        monkeypatch.setattr(links, name, value)
    one, other = (
        Link(Hello(name=name, number=0), lambda _: None, nonce=iter(range(9, 99)).__next__, lease=LEASE, now=0.0)
        for name in "ab"
    )
    now, found = 0.0, []

    def pass_on(sender, receiver):
        nonlocal now
        sizes = []
        for datagram in sender.outgoing(now, ROOM):
            now += datagram.n_bytes / speed
            for event in receiver.take(datagram, now):
                if isinstance(event, Piece):
                    sizes.append(len(event.content))
                    receiver.consume()
        return sizes

    for _ in range(4):
        pass_on(one, other)
        pass_on(other, one)
    assert one.is_up
    for _ in range(4):
        one.send(bytes(2_000_000))
        found.append(max(pass_on(one, other)))
        other.tell(Status(), now)
        pass_on(other, one)
        assert one.is_flushed
    assert found[0] == LEASE * links.SLOW / links.SHARE == 62_500, "before the line is known"
    assert 0.9 * size <= found[-1] <= size
    one.end("a test", now)
    for _ in range(40):
        now += 0.2
        pass_on(one, other)
        pass_on(other, one)
    one.send(bytes(2_000_000))
    assert max(pass_on(one, other)) == 62_500, "a new link may be another line"


def test_what_was_never_sent_cannot_be_confirmed():
    world = up()
    a, b = (end.link for end in world.ends)
    header = Header(2, 3, a._own, a._other, 1, 7, 7, 1, 0)
    assert [type(event) for event in b.take(encode(header, b"x"), world.now)] == [Down]


def test_a_hello_that_does_not_fit_is_refused_at_both_ends_without_a_storm():
    now, nonces = 0.0, iter(range(1, 99))
    hellos = [Hello(name=name, number=0, fields={"model.components": name}) for name in "ab"]
    ends = [
        Link(mine, lambda theirs, mine=mine: mismatch(mine, theirs), nonce=lambda: next(nonces), lease=LEASE, now=now)
        for mine in hellos
    ]
    n_sent, problems = 0, [set(), set()]
    lines = [[], []]
    for _ in range(1000):
        for number, end in enumerate(ends):
            lines[1 - number] += end.outgoing(now, ROOM)
        for number, end in enumerate(ends):
            n_sent += len(lines[number])
            for datagram in lines[number]:
                for event in end.take(datagram, now):
                    assert isinstance(event, Greeted)
                    problems[number].add(event.problem)
            lines[number] = []
        now += 0.01
    assert n_sent <= 2 * (10 / LEASE * links.HELLOS + 2)
    assert all("model.components" in problem for found in problems for problem in found)
    assert all(problems)


HELLO_A = Hello(name="a", number=0, fields={"x": "1", "y": "2"}, rows=5, order="o")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 99}, "version 99"),
        ({"fields": {"x": "1", "y": "3"}}, "different studies: y;"),
        ({"fields": {"y": "3"}}, "different studies: x, y;"),
        ({"purpose": "predict abc"}, "'predict abc'"),
        ({"rows": 6}, "b has 6 rows, a has 5"),
        ({"order": "other"}, "not with the same ids"),
    ],
)
def test_a_mismatch_is_named(changes, words):
    fields = {name: getattr(HELLO_A, name) for name in HELLO_A.__struct_fields__}
    theirs = Hello(**{**fields, "name": "b", "number": 1, **changes})
    assert words in mismatch(HELLO_A, theirs)
    assert mismatch(HELLO_A, Hello(**{**fields, "name": "b"})) is None
    server = Hello(**{**fields, "rows": None, "order": None})
    assert mismatch(server, HELLO_A) is mismatch(HELLO_A, server) is None


def test_the_remedy_for_other_rows_is_the_study_s_own_and_not_for_new_rows():
    theirs = msgspec.structs.replace(HELLO_A, name="b", rows=6)
    assert 'try match = "outer" in [rows]' in mismatch(HELLO_A, theirs)
    asked = [msgspec.structs.replace(one, purpose="predict 5 rows") for one in (HELLO_A, theirs)]
    assert "match =" not in mismatch(*asked)


def test_another_step_of_the_same_study_is_no_other_study():
    fit, match = HELLO_A, msgspec.structs.replace(HELLO_A, purpose="match", rows=None, order=None)
    assert (steps_ahead(match, fit), steps_ahead(fit, match), steps_ahead(fit, fit)) == (1, -1, 0)
    for changes in ({"fields": {"x": "2"}}, {"version": 99}, {"purpose": "predict 5 rows"}):
        other = msgspec.structs.replace(fit, **changes)
        assert steps_ahead(match, other) == steps_ahead(other, match) == 0


@given(st.binary(max_size=300))
def test_garbage_is_no_datagram(content):
    assert decode(cut(content)) is None
    start = encode(Header(HELLO, 0, 1, 0, 1, 1, 1, 1, 0), b"").head
    assert decode(datagrams.Datagram(start, content)) is None or content == b""
