"""Rows that are matched without showing ids: against joins of the ids themselves, and against attackers."""

import hashlib
import time

import msgspec
import numpy as np
import pytest
import rbcl
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.matchings import check, connect, drive, make
from vpem.core.agent.message import LocalProtocolError
from vpem.privacy import points
from vpem.privacy.ids import IdError, spell
from vpem.privacy.matching import Matching
from vpem.privacy.parcels import HELLO, LIST, MAGIC, Hello, MatchingError, Parcel, routes
from vpem.privacy.pausing import pause, resume
from vpem.privacy.points import PointError

LISTS = [[1, 2, 3, 4, 5], [5, 4, 9, 3], [3, 5, 7, 4]]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_it_is_the_join_of_the_ids(data):
    lists = data.draw(st.lists(st.lists(st.integers(0, 9), min_size=1, unique=True), min_size=2, max_size=4))
    join, server = data.draw(st.sampled_from(["inner", "outer"])), data.draw(st.booleans())
    matcher = data.draw(st.integers(0, len(lists) - 1))
    agents = make(lists, join=join, server=server, matcher=matcher)
    drive(agents, rng=np.random.default_rng(data.draw(st.integers(0, 99))))
    if join == "inner" and not set.intersection(*map(set, lists)):
        reasons = {agent.failure for agent in agents.values()}
        assert len(reasons) == 1
        assert "expected rows that all parties have, got none" in reasons.pop()
    else:
        check(agents, lists, join)


@pytest.mark.parametrize("server", [True, False])
@pytest.mark.parametrize("join", ["inner", "outer"])
def test_every_event_may_be_in_another_process(join, server):
    agents = make(LISTS, join=join, server=server)

    def renew(sender, frame):
        number = frame.receiver
        paused = pause(agents[number])
        agents[number] = resume(make(LISTS, join=join, server=server)[number], paused)

    drive(agents, rng=np.random.default_rng(1), watch=renew)
    check(agents, LISTS, join)


def test_counts_are_known_to_all_and_an_empty_intersection_is_told_with_them():
    agents = make(LISTS)
    drive(agents)
    assert agents[2].matched.counts == {"p0": 5, "p1": 4, "p2": 4}
    agents = make([[1, 2], [3], [4]])
    drive(agents)
    assert "2 from p0, 1 from p1, 1 from p2" in agents[1].failure


def test_two_runs_have_rows_in_other_orders():
    keys = list(range(30))
    orders = set()
    for _ in range(3):
        agents = make([keys, keys[::-1]])
        drive(agents)
        orders.add(tuple(check(agents, [keys, keys[::-1]])))
    assert len(orders) == 3, "the order of rows tells nothing of ids or of a party's table"


def test_ids_are_in_no_byte_that_is_sent():
    lists = [[f"patient-{number:04d}" for number in range(n)] for n in (12, 9, 15)]
    seen = []
    drive(make(lists), watch=lambda sender, frame: seen.append(frame.content))
    content = b"".join(seen)
    for key in lists[2]:
        spelled = spell([(key,)]).spelled[0]
        assert key.encode() not in content
        point = points.points_of([spelled], b"salt", lambda _: None)[0]
        for derived in (spelled, point, hashlib.sha256(spelled).digest(), hashlib.sha512(spelled).digest()):
            assert derived not in content


def test_a_list_that_passes_by_cannot_be_compared_with_own_ids():
    """A visitor sees the owner's points under the owner's secret: none is one of its own points, under its secret."""
    keys = list(range(20))
    agents = make([keys, keys, keys])
    seen = {number: [] for number in agents}
    raising = Matching._raise

    def spy(self, run, found):
        out = raising(self, run, found)
        seen[self.number].append((set(found), set(out)))
        return out

    Matching._raise = spy
    try:
        drive(agents)
    finally:
        Matching._raise = raising
    for lists in seen.values():
        everything = [one for pair in lists for one in pair]
        for place, one in enumerate(everything):
            assert all(one.isdisjoint(other) for other in everything[place + 1 :])


def test_a_relay_sees_sealed_parcels_alone():
    agents = make([[*ids, *range(10, 30)] for ids in LISTS], server=True)
    seen = []
    drive(agents, watch=lambda _, frame: seen.append(frame.content))
    tokens = {token for agent in agents.values() if agent._run for token in agent._run.lists.get(0, [])}
    lists = [msgspec.msgpack.decode(one[len(MAGIC) + 8 :], type=Parcel) for one in seen]
    sealed = [one.content for one in lists if one.kind == LIST]
    assert sealed
    for content in sealed:
        pieces = [content[at : at + 32] for at in range(0, len(content) - 31, 32)]
        valid = map(points._group().crypto_core_ristretto255_is_valid_point, pieces)
        assert 2 * sum(valid) < len(pieces), "one random string in sixteen is a point"
    assert not tokens


# Losses


@pytest.mark.parametrize("stop_after", [3, 8, 14, 20])
def test_a_restarted_agent_begins_again_with_the_others(stop_after):
    agents = make(LISTS)
    left = iter(range(stop_after - 1, -1, -1))
    line = drive(agents, until=lambda: next(left, 1) == 0)
    dead = agents[1]
    line = [(sender, frame) for sender, frame in line if 1 not in (sender, frame.receiver)]
    for peer in dead.neighbours:
        line += [(peer, frame) for frame in agents[peer].disconnect(1)]
    agents[1] = Matching(1, dead.agents, dead.ids, dead.salt)
    for peer in dead.neighbours:
        line += [(peer, frame) for frame in agents[peer].connect(1)]
        line += [(1, frame) for frame in agents[1].connect(peer)]
    drive(agents, line)
    check(agents, LISTS)


@pytest.mark.parametrize("seed", range(5))
def test_links_may_end_and_come_back(seed):
    rng = np.random.default_rng(seed)
    agents = make(LISTS, server=True)
    line = connect(agents)
    for _ in range(3):
        left = iter(range(int(rng.integers(1, 15))))
        line = drive(agents, line, rng=rng, until=lambda left=left: next(left, None) is None)
        lost = int(rng.integers(3))
        line = [(sender, frame) for sender, frame in line if lost not in (sender, frame.receiver)]
        agents[lost].disconnect(3), agents[3].disconnect(lost)
        line += [(3, frame) for frame in agents[3].connect(lost)]
        line += [(lost, frame) for frame in agents[lost].connect(3)]
    drive(agents, line, rng=rng)
    check(agents, LISTS)


# Attackers


def altered(agents, kind, change):
    """The result of a run in which the first parcel of a kind is changed on its way."""
    line, done = connect(agents), []
    while line:
        sender, frame = line.pop(0)
        parcel = msgspec.msgpack.decode(frame.content[len(MAGIC) + 8 :], type=Parcel)
        if parcel.kind == kind and not done:
            done.append(1)
            content = msgspec.msgpack.encode(change(parcel))
            frame = frame._replace(content=MAGIC + len(content).to_bytes(8, "big") + content)
        line += [(frame.receiver, out) for out in agents[frame.receiver].receive(sender, frame.content)]
    assert done
    return agents


CHANGES = {
    "altered": lambda parcel: msgspec.structs.replace(parcel, content=b"\0" + parcel.content[1:]),
    "truncated": lambda parcel: msgspec.structs.replace(parcel, content=parcel.content[:-1]),
    "of another owner": lambda parcel: msgspec.structs.replace(parcel, owner=2),
    "of another kind": lambda parcel: msgspec.structs.replace(parcel, kind="tokens"),
    "from the receiver": lambda parcel: msgspec.structs.replace(parcel, source=2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_on_its_way_is_refused_and_named(name):
    agents = altered(make(LISTS), LIST, CHANGES[name])
    losses = [text for agent in agents.values() for text in agent.losses.values()]
    assert len(losses) == 1
    assert ("got an own one" if name == "from the receiver" else "was altered, or is for another") in losses[0]
    assert not any(agent.is_done for agent in agents.values())


def cheating(bad):
    """Agents of which the first sends other points than it should."""
    agents = make(LISTS)
    honest = agents[0]._raise
    agents[0]._raise = lambda run, found: bad(honest(run, found)) if len(found) == 5 else honest(run, found)
    drive(agents)
    return {agent.failure for agent in agents.values()}


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (lambda found: [bytes(32), *found[1:]], "other than the identity"),
        (lambda found: [b"\xff" * 32, *found[1:]], "points of the group"),
        (lambda found: found[:-1], "expected 5 points"),
        (lambda found: [*found, found[0]], "expected 5 points"),
        (lambda found: [found[1], *found[1:]], "expected every id once, got 1 twice"),
    ],
    ids=["identity", "off the group", "too few", "too many", "twice"],
)
def test_wrong_points_end_the_run_with_the_party_s_name(bad, problem):
    (reason,) = cheating(bad)
    assert problem in reason
    assert "p0" in reason


def test_a_matcher_that_tells_others_something_else_is_noticed():
    agents = make(LISTS, server=True)
    honest = agents[3]._send
    agents[3]._send = lambda run, kind, target, owner, content: honest(
        run, kind, target, owner, content[:20] + b"?" + content[21:] if (kind, target) == ("result", 1) else content
    )
    drive(agents)
    assert "expected one result for all parties" in agents[0].failure


def test_hellos_must_be_signed_and_of_the_same_study():
    class Notary:
        def __init__(self, name, study):
            self.name, self.study = name, study

        def sign(self, content):
            return hashlib.sha256(self.name.encode() + content).digest()

        def verify(self, name, content, proof):
            if proof != hashlib.sha256(name.encode() + content).digest():
                raise ValueError("another wrote it")

    for forger, study in ((None, "this"), (1, "this"), (1, "another")):
        agents = make(LISTS)
        for number, agent in agents.items():
            is_forger = number == forger
            name = "mallory" if is_forger and study == "this" else f"p{number}"
            notary = Notary(name, study if is_forger else "this")
            agents[number] = Matching(number, agent.agents, agent.ids, agent.salt, credentials=notary)
        drive(agents)
        losses = [text for agent in agents.values() for text in agent.losses.values()]
        if forger is None:
            check(agents, LISTS)
        else:
            assert any("expected 'p1' to have signed its hello" in text for text in losses)
    agents = make(LISTS)
    agents[1] = Matching(1, agents[1].agents._replace(about="another"), agents[1].ids, agents[1].salt)
    drive(agents)
    assert "expected the same study" in agents[0].failure


def test_frames_are_bounded_before_they_are_read():
    agents = make(LISTS)
    agent = agents[1]
    agent.connect(0)
    assert agent.expects(0, MAGIC + (100).to_bytes(8, "big")) == agent.HEADER_BYTES + 100
    assert agent.expects(0, MAGIC + (2**40).to_bytes(8, "big")) == 0
    assert agent.connected == frozenset()
    agent.connect(0)
    assert agent.receive(0, b"GET / HTTP/1.1\r\n\r\n") == []
    assert 0 in agent.losses
    with pytest.raises(LocalProtocolError):
        agent.connect(7)


def test_hellos_of_strangers_are_refused():
    agents = make(LISTS)
    agents[1].connect(0)
    hello = Hello(9, bytes(16), bytes(32), 3, "inner 0 a study")
    content = msgspec.msgpack.encode(Parcel(b"", HELLO, 9, -1, 9, msgspec.msgpack.encode(hello)))
    agents[1].receive(0, MAGIC + len(content).to_bytes(8, "big") + content)
    assert "expected agents of the study, got agent 9" in agents[1].losses[0]


def test_who_takes_part_is_checked():
    agents = make(LISTS)[0].agents
    for number, ids in ((0, None), (1, [])):
        with pytest.raises(MatchingError):
            Matching(number, agents, ids, b"")
    with pytest.raises(MatchingError):
        Matching(0, agents._replace(join="left"), [b"1"], b"")


def test_anybody_can_test_a_guess_by_putting_it_on_its_own_list():
    """Documented: the intersection itself answers such questions."""
    agents = make([["alice", "bob"], ["alice", "carol"]])
    drive(agents)
    assert agents[0].matched.rows.tolist() == [0, -1]


# The group


def test_secrets_commute_and_points_differ_by_salt():
    one, other = points.new_secret(), points.new_secret()
    (point,) = points.points_of([b"id"], b"salt", lambda _: None)
    tell = lambda _: None  # noqa: E731
    both = points.raised(points.raised([point], one, tell), other, tell)
    assert both == points.raised(points.raised([point], other, tell), one, tell)
    assert both != [point]
    assert points.points_of([b"id"], b"other", tell) != [point]
    digest = hashlib.sha512(b"vpem id" + (4).to_bytes(4, "big") + b"salt" + b"id").digest()
    assert point == rbcl.crypto_core_ristretto255_from_hash(digest)
    for bad in (bytes(32), b"\xff" * 32):
        with pytest.raises(PointError):
            points.raised([bad], one, tell)
        with pytest.raises(PointError):
            points.check_points([bad])
    with pytest.raises(PointError):
        points.split(bytes(33))


def test_progress_and_time():
    seen = []
    keys = list(range(2000))
    agents = make([keys, keys], tell=lambda done, total: seen.append((done, total)))
    begun = time.perf_counter()
    drive(agents)
    check(agents, [keys, keys])
    assert seen[-1] == (6000, 6000)
    assert all(agent.progress == (6000, 6000) for agent in agents.values()), "2,000 points, 4,000 multiplications"
    assert len(seen) > 10
    for lists in ([range(10), range(3), range(7)], [range(1001), range(1000)]):
        agents = make([list(one) for one in lists])
        drive(agents)
        for agent in agents.values():
            total = len(agent.ids) + sum(map(len, lists))
            assert agent.progress == (total, total), "all of it, however many there are"
    # 8,000 multiplications at 14,500 a second and core; with room for a busy machine.
    assert time.perf_counter() - begun < 20


def test_routes_are_shortest_ways():
    assert routes([(0, 1), (1, 2), (2, 3), (0, 3)], 0) == {1: 1, 2: 1, 3: 3}


# Spelling


@pytest.mark.parametrize(
    ("rule", "same", "others"),
    [
        ("text", [1, "1", 1.0, " 1 ", "1.0", "\uff11"], ["01", "1 1", "2"]),
        ("text", ["José  Pérez", "JOSÉ PÉREZ", "jose\u0301 pe\u0301rez "], ["Jose Perez"]),
        ("number", [1, "1", "01", " 0001", 1.0], [2, "10"]),
        ("exact", [1, "1"], ["01", " 1"]),
        ("exact", ["a"], ["A"]),
    ],
)
def test_spelling(rule, same, others):
    found = {spell([(key,)], rule).spelled[0] for key in same}
    assert len(found) == 1
    assert found.isdisjoint(spell([(key,)], rule).spelled[0] for key in others)


def test_several_columns_make_an_id():
    one, other = spell([("ab", "c"), ("a", "bc")]).spelled
    assert one != other


def test_what_is_wrong_with_ids_is_counted():
    with pytest.raises(IdError, match=r"1 ids in 2 rows .* first: row 1"):
        spell([("A",), ("b",), ("a ",)])
    with pytest.raises(IdError, match=r"2 rows without one \(first: row 2\)"):
        spell([("a",), ("  ",), (float("nan"),)])
    with pytest.raises(IdError, match="whole numbers"):
        spell([("a1",)], "number")
    with pytest.raises(IdError, match="text, number, exact"):
        spell([("a1",)], "anything")
    assert spell([("A",), ("b",)]).notes[0].startswith("1 of 2 ids are spelled otherwise")
