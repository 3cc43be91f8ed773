"""A session on links that break, in processes that die, with peers that send garbage: the same bits, and no hang."""

import mmap
import os

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions import DOWN, UP, Network
from studies import STUDIES, agree, bits, make_study, run, table, two_agents
from vpem import Differences, Tree
from vpem.agents import Agent, LocalProtocolError, Session
from vpem.core.agent.meeting import Record, decode_records, encode_records
from vpem.core.agent.message import KINDS, Message
from vpem.core.network import checkpoint_delta
from vpem.transports import wire

SHORT = {
    "star": ("star", {"init_params": "random", "max_iter": 2}),
    "ring": (nx.cycle_graph(3), {"init_params": "random", "max_iter": 2}),
    "path with hubs": (nx.path_graph(3), {"hops": 1, "max_iter": 2, "init_params": "random"}),
    "two starts": (nx.path_graph(2), {"n_init": 2, "max_iter": 1, "init_params": "random"}),
    "changes": (nx.path_graph(3), {"summation": Differences(Tree()), "init_params": "random", "max_iter": 3}),
}
MOMENTS = ["before", "after saving", "after sending half", "at work, after sending"]
NEW_ROWS = table()[:5] * 1.5


def maker(name, studies=SHORT):
    graph, arguments = studies[name]
    return lambda: make_study(graph, **arguments)[0]


def columns_of(name):
    graph, arguments = SHORT[name]
    return make_study(graph, **arguments)[1].columns


def ask(network, columns):
    """Ask for the prediction of new rows where none was asked for yet."""
    for number, session in sorted(network.sessions.items()):
        if session.agent.is_done and session.agent.state.progress.n_predictions == 0:
            held = NEW_ROWS[:, columns[number]] if number < len(columns) else None
            network.post(number, session.predict(held, len(NEW_ROWS)))


def finish(network, columns):
    """Fit and predict to the end, however often some have to be asked again."""
    for _ in range(4):
        network.heal()
        network.run()
        ask(network, columns)
        network.run()
        if all(agent.is_done and agent.state.progress.n_predictions == 1 for agent in network.agents):
            return
    raise AssertionError("no prediction")


def outcome(network):
    """Everything that the agents have found, predictions included."""
    return bits(network.agents), [agent.prediction.responsibilities.tobytes() for agent in network.agents]


@pytest.mark.processors
@pytest.mark.parametrize("study", STUDIES)
def test_sessions_come_to_the_bits_of_agents_in_one_process(study, tmp_path):
    make = maker(study, STUDIES)
    expected = bits(run(make()).agents.values())
    network = Network(make, tmp_path, early=True).start().run()
    assert bits(network.agents) == expected
    network = Network(make, tmp_path).start().run()
    assert bits(network.agents) == expected
    assert {agent.state.epoch for agent in network.agents} == {0}, "links that come up one by one are one meeting"


@pytest.mark.parametrize("study", SHORT)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_process_may_die_at_every_event_of_a_study(study, moment, tmp_path, monkeypatch):
    die_at_every_event(study, moment, tmp_path, monkeypatch)


@pytest.mark.parametrize("share", [0, 4])
@pytest.mark.parametrize("moment", MOMENTS[1:])
def test_memories_may_be_in_files(moment, share, tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "LARGE_BYTES", 64)
    monkeypatch.setattr("vpem.studies.folder.MAPPED_BYTES", 64)
    monkeypatch.setattr("vpem.studies.folder.os.fsync", lambda _: None)  # the machine goes on
    die_at_every_event("changes", moment, tmp_path, monkeypatch, share, in_folders=True)


@pytest.mark.skipif(os.name != "posix", reason="files are not mapped")
def test_what_is_needed_only_to_go_back_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "LARGE_BYTES", 64)
    monkeypatch.setattr("vpem.studies.folder.MAPPED_BYTES", 64)
    network = Network(maker("changes"), tmp_path, in_folders=True).start()
    n_mapped = 0
    while ready := network.ready():
        network.step(ready[0])
        for number, session in network.sessions.items():
            state, files = session.agent.state, {*(tmp_path / str(number)).glob("*.part")}
            for progress in (state.progress, *(point.progress for point in state.checkpoints)):
                for carried in progress.memories.values():
                    arrays = [one for memory in (carried.before, *carried.changes) for one in memory.values()]
                    mapped = [one for one in arrays if isinstance(origin(one), mmap.mmap)]
                    is_saved = progress is not state.progress
                    assert not is_saved or len(mapped) == sum(one.nbytes >= 64 for one in arrays)
                    assert len({id(one) for one in mapped}) <= len(files), "one that two states have is mapped once"
                    n_mapped += len(mapped)
    assert n_mapped > 10


def test_a_session_that_is_paused_at_every_event_goes_on_in_another_process(tmp_path):
    make = maker("changes")
    calm = Network(make, tmp_path).start().run()
    network = Network(make, tmp_path).start()
    while ready := network.ready():
        network.step(ready[0])
        for number, session in network.sessions.items():
            network.sessions[number] = Session.resume(make()[number], session.pause())
    assert bits(network.agents) == bits(calm.agents)


def origin(array):
    """Whose memory an array's is."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def die_at_every_event(study, moment, tmp_path, monkeypatch, share=0, in_folders=False):
    """One after the other."""
    monkeypatch.setattr(checkpoint_delta, "SHARE", share)  # 0: checkpoints have changes, however large
    make, columns = maker(study), columns_of(study)
    calm = Network(make, tmp_path).start()
    finish(calm, columns)
    expected = outcome(calm)
    n_events = 0
    while True:
        network = Network(make, tmp_path, early=moment == "at work, after sending", in_folders=in_folders).start()
        left, victim = n_events, None
        for _ in range(10_000):
            ready = network.ready()
            if not ready:
                ask(network, columns)
                if not network.ready():
                    break
                continue
            if left == 0:
                victim = ready[n_events % len(ready)][1]
                if network.early:
                    network.die_at_work(next(line for line in ready if line[1] == victim))
                elif moment != "before":
                    frames = network.deliver(next(line for line in ready if line[1] == victim))
                    network.post(victim, frames[: len(frames) // 2] if moment == "after sending half" else [])
                network.kill(victim)
                if n_events % 2:
                    network.run()  # the others notice, and come to rest; or else they notice while it is back
                break
            left -= 1
            network.step(ready[0])
        finish(network, columns)
        assert outcome(network) == expected, (n_events, victim)
        if victim is None:
            break
        n_events += 1
    assert n_events > 20


def test_only_what_can_be_gone_back_to_is_saved(tmp_path):
    make = maker("ring", STUDIES)
    network, n_events = Network(make, tmp_path).start(), 0
    while network.ready():
        network.step(network.ready()[0])
        n_events += 1
    agent = network.sessions[0].agent
    n_checkpoints = agent.state.checkpoints[-1].number
    assert network.n_saved[0] == n_checkpoints + 2, "each checkpoint, the epoch's number, the end of the meeting"
    assert network.n_saved[0] < n_events / 5 / 3
    saved = wire.decode_state(network.path(0).read_bytes())
    assert not saved.mailbox
    assert saved.exchange is None


@pytest.mark.parametrize("n_events", [4, 9, 10_000])
def test_the_number_of_an_epoch_is_saved_before_anything_of_it_is_sent(n_events, tmp_path):
    network = Network(maker("ring"), tmp_path).start().run()
    for _ in range(3):
        network.cut(0, 1)
        network.run()
        network.heal()
        for _ in range(n_events):
            if not (ready := network.ready()):
                break
            frames = network.deliver(ready[0])
            for frame in frames:
                saved = wire.decode_state(network.path(ready[0][1]).read_bytes())
                assert saved.epoch >= wire.read_header(frame.content).epoch
            network.post(ready[0][1], frames)
    if n_events == 10_000:
        assert {agent.state.epoch for agent in network.agents} == {3}, "one for each loss"


def test_a_process_that_dies_in_a_meeting_never_begins_that_epoch_again():
    """Two messages of one round that differ would be worse than a message too few."""
    saved = []
    session = Session(make_study(nx.path_graph(3))[0][1], save=saved.append)
    epochs = [wire.read_header(frame.content).epoch for frame in session.connect(0) + session.start()]
    for _ in range(3):
        session = Session.restore(make_study(nx.path_graph(3))[0][1], saved[-1], save=saved.append)
        assert session.start() == [], "there is no link yet"
        frames = session.connect(0) + session.connect(2)
        assert [frame.receiver for frame in frames] == [0, 2]
        epochs += {wire.read_header(frame.content).epoch for frame in frames}
    assert epochs == [0, 1, 2, 3]


def test_a_request_outlives_the_process(tmp_path):
    columns = columns_of("ring")
    network = Network(maker("ring"), tmp_path).start().run()
    session = network.sessions[0]
    assert session.predict(NEW_ROWS[:, columns[0]])
    network.kill(0)  # nothing was sent
    network.run()
    network.heal()
    assert not network.sessions[0].agent.is_done, "it knows that there is something to do"
    ask(network, columns)
    network.run()
    assert all(agent.state.progress.n_predictions == 1 for agent in network.agents)


def test_a_link_that_replaces_another_voids_what_the_old_one_had_brought():
    one, other = (Session(agent) for agent in two_agents(init_params="random"))
    one.start(), other.start()
    one.connect(1), other.connect(0)
    # Agent 1 dies and comes back with nothing; agent 0 has not noticed that the old link has ended.
    new = Session(two_agents(init_params="random")[1])
    new.start()
    [hello], [_] = one.connect(1), new.connect(0)
    assert wire.read_header(hello.content).epoch == 1, "they meet again"
    assert new.receive(0, hello.content)
    assert new.agent.state.epoch == 1


def test_nothing_is_handed_out_if_saving_fails():
    class FullDiskError(OSError):
        pass

    def save(content):
        raise FullDiskError

    session = Session(two_agents()[0], save=save)
    session.connect(1)
    with pytest.raises(FullDiskError):
        session.start()
    for event in (session.start, lambda: session.connect(1), lambda: session.receive(1, b"")):
        with pytest.raises(LocalProtocolError, match="a restored session after a failed save"):
            event()


def test_a_session_without_save_saves_nothing():
    session = Session(two_agents()[0])
    assert session.connect(1) == []
    [frame] = session.start()
    assert frame.receiver == 1
    assert wire.read_header(frame.content).kind == "meet"


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ({"number": 5}, "number"),
        ({"name": "x"}, "name"),
        ({"neighbours": [1, 2]}, "neighbours"),
        ({"X": table(n_rows=20, n_columns=2)}, "n_rows, n_columns"),
    ],
)
def test_a_state_of_another_agent_is_refused(change, differing):
    saved = []
    agent = two_agents()[0]
    session = Session(agent, save=saved.append)
    session.start()
    own = agent.identity
    arguments = {"number": 0, "neighbours": [1], "agreement": own.agreement, "X": own.X, "name": "a"}
    Session.restore(Agent(**arguments), saved[-1])
    with pytest.raises(ValueError, match=f"agent .* had saved in this study, got one with another {differing};"):
        Session.restore(Agent(**{**arguments, **change}), saved[-1])
    with pytest.raises(ValueError, match="another digest"):
        Session.restore(two_agents(max_iter=9)[0], saved[-1])
    with pytest.raises(ValueError, match="truncated or damaged"):
        Session.restore(Agent(**arguments), saved[-1][:-1])


def test_our_own_mistakes_raise():
    session = Session(two_agents()[0])
    session.start()
    for event, problem in [
        (session.start, "expected one start"),
        (lambda: session.connect(7), r"one of the neighbours \(1,\)"),
        (lambda: session.disconnect(7), "one of the neighbours"),
        (lambda: session.abandon(7), "one of the neighbours"),
        (lambda: session.receive(1, b""), "peer 1: expected connect before anything"),
        (lambda: session.expects(1, bytes(64)), "expected connect before anything"),
        (lambda: session.predict(np.zeros((2, 1))), "expected new rows when the fit"),
    ]:
        with pytest.raises(LocalProtocolError, match=problem):
            event()
    session.connect(1)
    with pytest.raises(LocalProtocolError, match="expected the first 64 bytes of a frame, got 63"):
        session.expects(1, bytes(63))


# Wrong messages


def test_a_wrong_message_costs_its_sender_the_link_and_nothing_else(tmp_path):
    make = maker("ring")
    expected = bits(run(make()).agents.values())
    network = Network(make, tmp_path).start()
    for _ in range(40):
        network.step(network.ready()[0])
    line = next(line for line in network.ready() if isinstance(network.lines[line][0], bytes))
    sender, receiver = line
    session = network.sessions[receiver]
    network.step(line, lambda frame: frame[:100] + bytes([frame[100] ^ 1]) + frame[101:])
    assert sender not in session.connected
    assert f"agent {receiver}, round" in session.losses[sender]
    assert session.receive(sender, b"more") == [], "what the link still carried is dropped"
    assert session.expects(sender, bytes(64)) == 0
    network.run()
    assert not all(agent.is_done for agent in network.agents), "they wait"
    network.heal()
    network.run()
    assert bits(network.agents) == expected
    assert sender in session.losses, "people can still read why"


def test_a_frame_that_shows_that_another_one_was_wrong_still_counts(tmp_path):
    """Or else a meeting that has just begun would wait for it for ever."""
    make = maker("ring")
    expected = bits(run(make()).agents.values())
    network = Network(make, tmp_path).start()
    session = network.sessions[0]
    network.step((1, 0))
    network.step((2, 0))
    while not network.lines[1, 0] or not network.lines[2, 0]:
        network.step(next(line for line in network.ready() if line[1] != 0))
    bad = wire.encode(Message(0, 0, 1, 0, "meet", encode_records([])[:0]))
    network.step((1, 0), lambda _: bad)
    assert session.connected == {1, 2}, "its contents are read when the round is over"
    network.step((2, 0))
    assert session.connected == {2}
    assert "peer 1: expected records of agents" in session.losses[1]
    assert set(session.agent.state.mailbox[0]) == {2}, "the innocent neighbour's message is here"
    network.heal()
    network.run()
    assert bits(network.agents) == expected
    network.heal()
    network.run()
    assert bits(network.agents) == expected


def test_the_length_of_a_frame_is_known_from_its_header(tmp_path):
    network = Network(maker("path with hubs"), tmp_path).start()
    lengths = set()
    for _ in range(10_000):
        if not network.ready():
            break
        line = network.ready()[-1]
        frame = network.lines[line][0]
        if isinstance(frame, bytes):
            assert network.sessions[line[1]].expects(line[0], frame[:64]) == len(frame)
            lengths.add(len(frame))
        network.step(line)
    assert len(lengths) > 2
    assert all(agent.is_done for agent in network.agents)


def test_a_stale_frame_has_to_be_read_but_is_bounded():
    study = Session(two_agents(init_params="random")[0])
    other = Session(two_agents(init_params="random")[1])
    study.connect(1), other.connect(0)
    [mine], [hers] = study.start(), other.start()
    replies = other.receive(0, mine.content)
    assert study.receive(1, hers.content)
    assert study.expects(1, hers.content[:64]) == len(hers.content), "late, and as long as it says"
    assert study.receive(1, hers.content) == []
    assert study.connected == {1}
    [own] = [frame.content for frame in replies]
    header = wire.read_header(own)
    study.receive(1, own)
    fields = msgspec.msgpack.encode((*header[:4], KINDS.index("sum"), 0, 2**37, 0))
    start = (wire.PREFIX.pack(wire.MAGIC, wire.VERSION, len(fields)) + fields).ljust(64, b"\0")
    assert study.expects(1, start) == 0
    assert "expected at most" in study.losses[1]
    assert study.connected == frozenset()


def test_a_server_reads_stale_sums_of_many_rows_while_it_meets_again():
    X = np.random.default_rng(0).normal(size=(120_000, 2))
    agents, _ = make_study("star", X, columns={0: [0], 1: [1]}, init_params="random", max_iter=1)
    sessions = [Session(agent) for agent in agents]
    server, sums = sessions[2], []
    for party in (0, 1):
        sessions[party].start()
        server.connect(party)
    hello = [session.connect(2) for session in sessions[:2]]
    queue = [(0, *hello[0]), (1, *hello[1]), *((2, frame) for frame in server.start())]
    while queue:
        sender, frame = queue.pop(0)
        if wire.read_header(frame.content).kind == "sum" and sender == 0:
            sums.append(frame.content)
            continue
        queue += [(frame.receiver, reply) for reply in sessions[frame.receiver].receive(sender, frame.content)]
    server.disconnect(1), server.connect(1)
    assert server.agent.state.epoch == 1
    [late] = sums
    assert len(late) > 8 * 120_000 * 2
    assert server.expects(0, late[:64]) == len(late)
    assert server.receive(0, late) == []
    assert server.connected == {0, 1}


# A study that ends, and agents that never come back


def test_a_process_that_died_before_it_could_say_why_the_study_ended_says_it_later(tmp_path):
    def make():
        agents = two_agents(reg_covar=0.0)
        return [Agent(0, [1], agents[0].identity.agreement, np.ones((24, 1)), name="a"), agents[1]]

    network = Network(make, tmp_path).start()
    while network.ready():
        line = network.ready()[0]
        frames = network.deliver(line)
        if network.sessions[0].agent.failure:
            break
        network.post(line[1], frames)
    assert "cannot go on" in network.sessions[0].agent.failure
    network.kill(0)
    network.run()
    assert network.sessions[1].agent.failure is None
    network.heal()
    network.run()
    assert {agent.failure for agent in network.agents} == {network.sessions[0].agent.failure}
    assert network.sessions[0].start() == []


def test_an_agent_that_was_given_up_stays_out(tmp_path):
    def make():
        return make_study(nx.complete_graph(4), columns={n: [n] for n in range(4)})[0]

    network = Network(make, tmp_path).start()
    for _ in range(100):
        network.step(network.ready()[0])
    network.kill(3)
    network.run()
    for number in (0, 1, 2):
        network.post(number, network.sessions[number].abandon(3))
        assert network.sessions[number].abandon(3) == [], "once more does nothing"
    network.run()
    assert all(agent.is_done for agent in network.agents)
    for number in (0, 1, 2):
        session = network.sessions[number]
        before = session.agent.state
        assert session.connect(3) == session.receive(3, b"x") == session.disconnect(3) == []
        assert session.expects(3, bytes(64)) == 0
        assert session.agent.state is before
        assert session.connected == {0, 1, 2} - {number}
    network.kill(1)
    network.neighbours = {number: sorted({0, 1, 2} - {number}) for number in (0, 1, 2)}
    network.heal()
    network.run()
    assert network.sessions[1].agent.state.abandoned == {3}
    assert all(agent.is_done for agent in network.agents)


# Anything in any order

damages = st.one_of(
    st.builds(lambda content: lambda _: content, st.binary(max_size=120)),
    st.builds(lambda n: lambda frame: frame[: n % len(frame)], st.integers(0)),
    st.builds(
        lambda n, bit: lambda frame: bytes(b ^ (1 << bit) * (i == n % len(frame)) for i, b in enumerate(frame)),
        st.integers(0),
        st.integers(0, 7),
    ),
    st.just(lambda frame: frame + frame),
)
actions = st.one_of(
    st.tuples(st.just("deliver"), st.integers(1, 60), st.integers(0)),
    st.tuples(st.sampled_from(["cut", "replace", "kill", "replay", "heal"]), st.integers(0), st.integers(0)),
    st.tuples(st.just("damage"), damages, st.integers(0)),
)


def disturb(network, action, first, second, seen):
    """Do something bad to one of the links or processes, or deliver for a while."""
    ready = network.ready()
    if action == "deliver":
        for count in range(first):
            if not (ready := network.ready()):
                break
            line = ready[(second >> count % 16) % len(ready)]
            if isinstance(network.lines[line][0], bytes):
                seen.append((line, network.lines[line][0]))
            network.step(line)
    elif action == "kill" and network.sessions:
        network.kill(sorted(network.sessions)[first % len(network.sessions)])
    elif action == "heal":
        network.heal()
    elif action in ("cut", "replace"):
        one = sorted(network.neighbours)[first % len(network.neighbours)]
        other = network.neighbours[one][second % len(network.neighbours[one])]
        if action == "cut":
            network.cut(one, other)
        elif one in network.sessions and other in network.sessions:
            network.link(one, other)
    elif action == "replay" and seen:
        line, frame = seen[first % len(seen)]
        if not {UP, DOWN}.intersection(network.lines.get(line, {DOWN})):
            network.lines[line].append(frame)
    elif action == "damage":
        frames = [line for line in ready if isinstance(network.lines[line][0], bytes)]
        if frames:
            network.step(frames[second % len(frames)], first)


@pytest.mark.parametrize("study", ["star", "ring", "path with hubs"])
@settings(max_examples=60)
@given(moves=st.lists(actions, max_size=25))
def test_whatever_happens_it_ends_with_the_same_bits(study, moves, tmp_path_factory):
    make = maker(study)
    expected = bits(run(make()).agents.values())
    network, seen = Network(make, tmp_path_factory.mktemp("states")).start(), []
    for move in moves:
        disturb(network, *move, seen)
    for _ in range(30):
        network.heal()
        network.run()
        if all(agent.is_done for agent in network.agents):
            break
    assert bits(network.agents) == expected


counts = st.one_of(st.integers(0, 4), st.integers(0, 2**32 - 1))
records = st.builds(
    Record,
    number=st.integers(0, 4),
    name=st.sampled_from(["0", "1", "2", "x"]),
    neighbours=st.lists(st.integers(0, 4), max_size=3).map(tuple),
    n_rows=st.one_of(st.just(24), counts),
    n_columns=st.integers(0, 4),
    most_hops=counts,
    digest=st.sampled_from([agree(init_params="random", max_iter=2).digest, "other"]),
    newest=counts,
    oldest=counts,
    model=counts,
    n_met=counts,
    n_members=counts,
    abandoned=st.lists(st.integers(0, 4), max_size=2).map(tuple),
)


def lie(message, data):
    """Another message of the same kind, which every check of a single message lets through."""
    if message.kind == "meet":
        own = decode_records(message.values)
        if own and data.draw(st.booleans()):  # almost right
            other = data.draw(records)
            names = data.draw(st.lists(st.sampled_from(Record.__struct_fields__[1:]), max_size=2))
            own[0] = msgspec.structs.replace(own[0], **{name: getattr(other, name) for name in names})
            return message._replace(values=encode_records(own))
        return message._replace(values=encode_records(data.draw(st.lists(records, max_size=3))))
    if message.kind == "stop":
        return message
    values, decision = message.values.copy(), message.decision.copy()
    if len(values):
        values[data.draw(st.integers(0, len(values) - 1))] = data.draw(st.floats(-1e6, 1e6))
    if len(decision):
        choices = st.one_of(st.just(np.inf), st.integers(-2, 30).map(float), st.floats(-1e6, 1e6))
        decision[data.draw(st.integers(0, len(decision) - 1))] = data.draw(choices)
    return message._replace(values=values, decision=decision)


@pytest.mark.parametrize("study", ["star", "ring", "path with hubs"])
@settings(max_examples=60)
@given(data=st.data())
def test_lies_raise_nothing_and_end(study, data, tmp_path_factory):
    network = Network(maker(study), tmp_path_factory.mktemp("states")).start()
    liar, lies = data.draw(st.sampled_from(sorted(network.neighbours))), data.draw(st.integers(0, 12))
    for _ in range(3):
        for _ in range(2_000):
            if not (ready := network.ready()):
                break
            item, change = network.lines[ready[0]][0], None
            if isinstance(item, bytes) and ready[0][0] == liar and lies and data.draw(st.booleans()):
                lies -= 1
                header = wire.read_header(item)
                n_bytes = header.n_values * np.dtype(header.dtype).itemsize
                values = np.frombuffer(item[64 : 64 + n_bytes], header.dtype)
                decision = np.frombuffer(item[64 + n_bytes : -4], np.float64)
                false = wire.encode(lie(Message(*header[:5], values, decision), data))

                def change(_, false=false):
                    return false

            network.step(ready[0], change)
        else:
            raise AssertionError("it does not end")
        network.heal()
