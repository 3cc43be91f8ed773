"""Bytes of messages and states: whole ones come back as they were, all others give a clean error."""

import struct
import subprocess
import sys
import zlib
from dataclasses import fields, is_dataclass

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studies import STUDIES, bits, make_study, run, two_agents
from vpem.core.agent.agent_state import AgentState
from vpem.core.agent.message import KINDS, Message, RemoteProtocolError, header_of
from vpem.core.blocks.arrays import Arrays
from vpem.core.network.traffic import OVERHEAD_BYTES
from vpem.core.script.state import Prediction
from vpem.transports import wire
from vpem.transports.inprocess import InProcess


@pytest.fixture
def waiting():
    """Agent 0 of two in the middle of its first sum, and the message from agent 1 that it waits for."""
    agents = two_agents(init_params="random")
    transport = InProcess(agents).start()
    found = []

    def sum_for_0():
        found[:] = [message for message in transport._line if message.receiver == 0 and message.kind == "sum"]
        return bool(found) and not agents[0].state.meeting

    transport.run(until=sum_for_0)
    return agents[0], found[0]


def with_checksum(body):
    return body + struct.pack("<I", zlib.crc32(body))


def make_frame(message, header=None, version=wire.VERSION, magic=b"vpem", padding=b"\0"):
    """A frame by the format's description, without the code under test."""
    _, _, _, _, _, values, decision, _ = message
    if header is None:
        where = message[:4]
        header = [*where, KINDS.index(message.kind), 0, len(values), len(decision)]
    packed = msgspec.msgpack.encode(header)
    start = (magic + bytes([version, len(packed)]) + packed).ljust(64, padding)
    return with_checksum(start + values.tobytes() + decision.tobytes())


def test_the_format_is_what_its_description_says(waiting):
    agent, message = waiting
    frame = wire.encode(message)
    assert frame == make_frame(message)
    assert len(frame) == message.n_bytes == OVERHEAD_BYTES + 8 * (48 + 4)
    assert frame[:6].hex() == "7670656d0409", "the magic word, version 4, nine bytes of header"
    # Epoch 0, round 1 after the meeting, from 1 to 0, the fourth kind, the first type, 48 values, four decisions.
    assert frame[6:15].hex() == "98" + "00" + "01" + "01" + "00" + "03" + "00" + "30" + "04"
    found = wire.decode(frame, agent, 1)
    assert found[:5] == message[:5]
    np.testing.assert_array_equal(found.values, message.values)
    np.testing.assert_array_equal(found.decision, message.decision)
    assert not found.values.flags.owndata, "a view of the frame, not a copy"


@pytest.mark.parametrize("study", STUDIES)
def test_every_message_of_a_study_comes_back_as_it_was(study):
    graph, arguments = STUDIES[study]
    agents, _ = make_study(graph, **arguments)
    transport = InProcess(agents)
    kinds = set()

    def watch(message):
        found = wire.decode(wire.encode(message), transport.agents[message.receiver], message.sender)
        assert found[:5] == message[:5]
        assert found.values.dtype == message.values.dtype
        np.testing.assert_array_equal(found.values, message.values)
        np.testing.assert_array_equal(found.decision, message.decision)
        kinds.add(message.kind)

    transport.watch = watch
    transport.start().run()
    assert kinds <= set(KINDS)


def bad_frames(message):
    """One of each sort, and a piece of its error."""
    epoch, number, sender, receiver, kind, values, decision, _ = message
    frame, kind = wire.encode(message), KINDS.index(kind)
    header = [epoch, number, sender, receiver, kind, 0, len(values), len(decision)]

    def changed(**what):
        names = ("epoch", "round", "sender", "receiver", "kind", "dtype", "n_values", "n_decisions")
        return [what.get(name, value) for name, value in zip(names, header, strict=True)]

    yield "short", frame[:63], "header of 64 bytes, got 63"
    yield "empty", b"", "header of 64 bytes, got 0"
    yield "truncated", frame[:-1], "as the header says, got"
    yield "too long", frame + b"\0", "as the header says, got"
    yield "foreign", b"HTTP" + frame[4:], "begin with b'HTTP'"
    yield "newer", make_frame(message, version=5), "version 4 of the wire format, got 5"
    yield "padded", make_frame(message, padding=b" "), "filled up with zeros"
    yield "a text", make_frame(message, [*header[:7], "four"]), "fields of a header"
    yield "too few", make_frame(message, header[:7]), "fields of a header"
    yield "negative", make_frame(message, changed(n_values=-5)), "at least 0"
    yield "of no kind", make_frame(message, changed(kind=len(KINDS))), "kinds"
    yield "damaged", frame[:200] + bytes([frame[200] ^ 1]) + frame[201:], "fit their checksum"
    yield "other sender", make_frame(message, changed(sender=7)), "from agent 1 on its link, got one from 7"
    yield "other receiver", make_frame(message, changed(receiver=3)), "got one from 1 to 3"
    yield "late", make_frame(message, changed(round=number - 1)), "came too late: round 0 is over"
    yield (
        "far ahead",
        make_frame(message, changed(round=number + 500)),
        "a round that the peer can have come to, got round 501",
    )
    yield "round of another epoch", make_frame(message, changed(round=number + 2**32)), "in its form"
    yield "epoch without meeting", make_frame(message, changed(epoch=1, round=2**32)), "begin with a meeting"
    yield "other kind", make_frame(message, changed(kind=KINDS.index("terms"))), "got 'terms'"
    yield "text for numbers", make_frame(message, changed(kind=0, dtype=2)), "got 'meet'"
    yield "numbers for a text", make_frame(message, changed(kind=0)), "in its form"
    yield "integers", make_frame(message, changed(dtype=1)), "got 48 (i8)"
    yield "of no type", make_frame(message, changed(dtype=3)), "3 types"
    yield "more values", make_frame(message, changed(n_values=49)), "expected 48 values (f8) and 4 decisions"
    yield "a terabyte", make_frame(message, changed(n_values=2**37)), "expected 48 values (f8) and 4 decisions"
    yield "no decision", make_frame(message, changed(n_decisions=0)), "expected 48 values (f8) and 4 decisions"
    wrong = values.copy()
    wrong[5] = np.nan
    yield "not a number", make_frame(message._replace(values=wrong)), "finite numbers, got NaN"
    wrong[5] = -np.inf
    yield "infinite", make_frame(message._replace(values=wrong)), "finite numbers, got NaN or infinity"
    wrong = decision.copy()
    wrong[0] = np.nan
    yield "undecided", make_frame(message._replace(decision=wrong)), "expected a decision"


def test_each_sort_of_bad_message_has_its_error_and_changes_nothing(waiting):
    agent, message = waiting
    before, saved = agent.state, wire.encode_state(agent.state)
    for name, frame, problem in bad_frames(message):
        with pytest.raises(RemoteProtocolError) as caught:
            agent.receive(wire.decode(frame, agent, 1))
        assert problem in str(caught.value), name
        assert str(caught.value).startswith("agent 0, round 1, peer 1: "), name
        assert (caught.value.agent, caught.value.peer) == (0, 1), name
    assert agent.state is before
    assert wire.encode_state(agent.state) == saved
    assert agent.receive(wire.decode(wire.encode(message), agent, 1)), "the right one is still welcome"


def test_a_hundred_thousand_damaged_messages(waiting):
    agent, message = waiting
    frame = bytearray(wire.encode(message))
    before, saved = agent.state, wire.encode_state(agent.state)
    rng = np.random.default_rng(0)
    errors = 0
    for _ in range(100_000):
        n_flips = int(rng.integers(1, 4))
        places = rng.integers(len(frame), size=n_flips).tolist()
        changes = rng.integers(1, 256, size=n_flips).tolist()
        for place, change in zip(places, changes, strict=True):
            frame[place] ^= change
        damaged = bytes(frame)
        for place, change in zip(places, changes, strict=True):
            frame[place] ^= change
        if damaged == frame:  # one flip has undone another
            continue
        try:
            agent.receive(wire.decode(damaged, agent, 1))
        except RemoteProtocolError:
            errors += 1
        else:
            pytest.fail(f"accepted flips of {changes} at {places}")
        assert agent.state is before
    assert errors > 99_900
    assert wire.encode_state(agent.state) == saved


@settings(max_examples=300)
@given(data=st.data())
def test_headers_with_a_right_checksum_give_an_error_or_are_kept(data):
    graph, arguments = STUDIES[data.draw(st.sampled_from(["ring", "path with hubs", "star"]))]
    agents, _ = make_study(graph, **arguments)
    transport = InProcess(agents).start()
    left = [data.draw(st.integers(1, 80))]
    transport.run(until=lambda: left.append(left.pop() - 1) or left[0] <= 0)
    agent = data.draw(st.sampled_from(agents))
    near = st.integers(agent.state.round - 2, agent.state.round + 9)
    header = [
        data.draw(st.one_of(st.just(agent.state.epoch), st.integers(0, 2**33))),
        data.draw(st.one_of(near, st.integers(0, 2**63))),
        data.draw(st.sampled_from([*agent.neighbours, 99])),
        agent.number,
        data.draw(st.integers(0, len(KINDS) - 1)),
        (dtype := data.draw(st.integers(0, 2))),
        (n_values := data.draw(st.integers(0, 60))),
        (n_decisions := data.draw(st.integers(0, 6))),
    ]
    assert min(header) >= 0 or header[1] < 0
    width = 1 if dtype == 2 else 8
    body = data.draw(st.binary(min_size=0, max_size=8)).ljust(n_values * width + 8 * n_decisions, b"\0")
    message = Message(*header[:4], "sum", np.frombuffer(body[: n_values * width + 8 * n_decisions], np.uint8))
    frame = make_frame(message, header)
    before, saved = agent.state, wire.encode_state(agent.state)
    try:
        agent.receive(wire.decode(frame, agent, header[2]))
    except RemoteProtocolError:
        assert agent.state is before
        assert wire.encode_state(agent.state) == saved


@given(st.binary(max_size=200))
def test_no_bytes_make_anything_but_a_clean_error(content):
    agent = two_agents()[0]
    with pytest.raises(RemoteProtocolError):
        wire.decode(content, agent, 1)
    with pytest.raises(wire.WireError):
        wire.decode_state(content)


def equal(one, other):
    """Whether two values of a state are the same, to the bit and to the type of array."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if is_dataclass(one):
        return type(one) is type(other) and all(
            equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)
        )
    if isinstance(one, Arrays):
        return type(one) is type(other) and equal(one.arrays, other.arrays)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return one == other


@pytest.mark.parametrize("least", [1, wire.LARGE_BYTES])
@pytest.mark.parametrize("study", STUDIES)
def test_states_come_back_as_they_were(study, least, monkeypatch):
    monkeypatch.setattr(wire, "LARGE_BYTES", least)
    graph, arguments = STUDIES[study]
    agents, _ = make_study(graph, **arguments)
    transport = InProcess(agents)
    states = []

    def watch(message):
        state = transport.agents[message.receiver].state
        found = wire.decode_state(wire.encode_state(state))
        assert isinstance(found, AgentState)
        assert equal(state, found)
        states.append(state.progress.phase)

    transport.watch = watch
    transport.start().run()
    assert len(set(states)) > 1 or study == "alone"


def test_large_arrays_of_states_are_parts_of_their_own_and_read_once(monkeypatch):
    large, small = np.arange(20000.0).reshape(100, 200), np.arange(3.0)
    state = AgentState(pooled=large, requests={0: Prediction(100, large), 1: Prediction(3, small)})
    encoder = wire.StateEncoder()
    parts = encoder.parts(state)
    assert len(parts[0]) < 1000
    [part] = parts[1:]
    assert part.obj is large
    saved = b"".join(parts)
    assert saved == wire.encode_state(state)
    assert equal(wire.decode_state(saved), state)
    sums, crc32 = [], zlib.crc32
    monkeypatch.setattr(wire.zlib, "crc32", lambda content, *more: sums.append(len(content)) or crc32(content, *more))
    new = large + 1
    one, *others = encoder.parts(AgentState(epoch=1, pooled=large, requests={0: Prediction(100, new)}))
    assert {id(part.obj) for part in others} == {id(large), id(new)}
    assert len(sums) == 2, "of the small part, and of the new array"
    monkeypatch.undo()
    found = wire.decode_state(b"".join([one, *others]))
    np.testing.assert_array_equal(found.pooled, large)
    np.testing.assert_array_equal(found.requests[0].columns, new)
    for place in (0, 5, 40, len(saved) - 160_000, len(saved) - 1):
        with pytest.raises(wire.WireError):
            wire.decode_state(saved[:place] + bytes([saved[place] ^ 1]) + saved[place + 1 :])
    for wrong in (saved[:-1], saved + b"x", saved[: len(parts[0])], saved[:100]):
        with pytest.raises(wire.WireError):
            wire.decode_state(wrong)


def test_states_that_are_none():
    saved = wire.encode_state(two_agents()[0].state)
    bad = {
        "truncated or damaged": saved[:-1],
        "got 5 bytes": saved[:5],
        "begin with": b"PK" + saved[2:],
        "version 5 of an agent's state, got 9": saved[:4] + b"\t" + saved[5:],
    }
    for problem, content in bad.items():
        with pytest.raises(wire.WireError, match=problem):
            wire.decode_state(content)
    for place in range(len(saved)):
        with pytest.raises(wire.WireError):
            wire.decode_state(saved[:place] + bytes([saved[place] ^ 1]) + saved[place + 1 :])
    for content in (
        b"\x80",
        msgspec.msgpack.encode({"epoch": "x"}),
        msgspec.msgpack.encode({"pooled": ["O8", [1], b""]}),
    ):
        body = struct.pack("<4sBQ", b"vpst", wire.STATE_VERSION, len(content)) + content
        if content != b"\x80":  # an empty state is a new one
            with pytest.raises(wire.WireError, match="other contents"):
                wire.decode_state(with_checksum(body))


def test_a_saved_array_must_fit_its_shape():
    content = msgspec.msgpack.encode({"pooled": ["f8", [1000, 1000], b"12345678"]})
    body = struct.pack("<4sBQ", b"vpst", wire.STATE_VERSION, len(content)) + content
    with pytest.raises(wire.WireError, match="other contents"):
        wire.decode_state(with_checksum(body))


@pytest.mark.processors
def test_encoded_studies_give_the_same_bits():
    expected = bits(run(make_study(nx.cycle_graph(4))[0]).agents.values())
    assert bits(run(make_study(nx.cycle_graph(4))[0], encoded=True).agents.values()) == expected


def test_header_of_is_what_the_wire_says(waiting):
    _, message = waiting
    assert wire.read_header(wire.encode(message)) == header_of(message)


def test_a_state_with_a_block_that_is_no_record_is_refused():
    content = msgspec.msgpack.encode({"progress": {"run": {"findings": ("f8", (0,), b""), "blocks": [[1, 2]]}}})
    body = wire.STATE_PREFIX.pack(wire.STATE_MAGIC, wire.STATE_VERSION, len(content)) + content
    with pytest.raises(wire.WireError, match="expected arrays by name"):
        wire.decode_state(body + wire.CHECKSUM.pack(zlib.crc32(body)))


def test_threads_may_decode_their_first_states_at_once():
    """In a process of its own, as only a type's first use is in danger."""
    code = """
import sys, threading
from vpem.core.agent.agent_state import AgentState
from vpem.transports import wire

sys.setswitchinterval(1e-6)
saved, ready, found = wire.encode_state(AgentState(epoch=1)), threading.Barrier(8), []

def decode():
    ready.wait()
    found.append(wire.decode_state(saved).epoch)

threads = [threading.Thread(target=decode) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert found == [1] * 8
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
