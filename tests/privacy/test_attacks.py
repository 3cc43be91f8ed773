"""The tests play the attacker: on plain messages, on masked ones, on the wire; figures are in docs/privacy.md."""

import csv
import hashlib
import re
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from oracles import by_row
from studies import make_study, run
from vpem import Masked, Star, Tree
from vpem.core.agent.message import RemoteProtocolError
from vpem.core.network.parties import make_network
from vpem.core.network.sums import NO_MEMORY, SINGLE, Place, Shape, WrongMessageError
from vpem.privacy import fixed_point, masked_deltas
from vpem.privacy.masks import FEW_HOLDERS, FIRST, N_EXTRA, REPEATS, TWO_PARTIES
from vpem.privacy.pairwise_keys import link_tag
from vpem.transports import wire
from vpem.transports.inprocess import InProcess

ROOT = Path(__file__).parents[2]


def r_squared(column, seen):
    """How much of a column a linear regression explains in rows that it was not fitted to."""
    half = len(column) // 2
    design = np.column_stack([np.ones(len(column)), seen / np.abs(seen).max(axis=0)])
    coefficients, *_ = np.linalg.lstsq(design[:half], column[:half], rcond=None)
    left = column[half:] - design[half:] @ coefficients
    return 1 - left.var() / column[half:].var()


def first_contribution(summation):
    """A party's column, and its first message to the server in EM, as numbers for each row."""
    rng = np.random.default_rng(0)
    groups = rng.integers(2, size=400)
    X = rng.normal(size=(400, 4)) + 3 * rng.normal(size=(2, 4))[groups]
    agents, _ = make_study(
        "star", X, columns={n: [n] for n in range(4)}, summation=summation, max_iter=1, init_params="random"
    )
    seen = []
    run(agents, watch=lambda message: message.sender == 0 and message.kind == "sum" and seen.append(message.values))
    return X[:, 0], seen


def test_plain_contributions_are_an_open_book_and_masked_ones_are_noise():
    column, seen = first_contribution(Star())
    assert r_squared(column, by_row(seen[0], 400, 2)) > 1 - 1e-9
    column, seen = first_contribution(Masked(Star()))
    holders, first = seen[:2]
    numbers = fixed_point.decode(fixed_point.read(first[16 * (N_EXTRA + 1) :], FIRST), FIRST)
    # Two columns of noise explain nothing of rows that they were not fitted to.
    assert abs(r_squared(column, by_row(numbers, 400, 2))) < 0.15
    assert abs(r_squared(column, first[16 * (N_EXTRA + 1) :].reshape(400, -1).astype(float))) < 0.5
    bits = np.unpackbits(np.concatenate([holders, first]))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))


# Two inputs with the same sum


def transcript(summation, terms, network, rng):
    """What a server sees of one sum: all messages, of new keys."""
    greetings = [summation.greet() for _ in network.positions]
    told = {position: greetings[position][0] for position in network.positions}
    shape, seen = Shape(terms.shape[1], 1), []
    for position, term in enumerate(terms):
        place = Place(network, position, shape, SINGLE, 0, 0, told, greetings[position][1])
        state = summation.begin(place, NO_MEMORY, term)
        seen.append(np.ascontiguousarray(summation.message(place, 0, state)).view(np.uint8))
    return np.concatenate(seen)


def accuracy(summation, n=400):
    """Of a classifier between transcripts of two inputs whose sums are equal, on transcripts that it has not seen."""
    network = make_network({n: [n] for n in range(3)}, "star", 0, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    one = rng.normal(size=(3, 4))
    moved = np.array([[5.0], [-3.0], [-2.0]])
    labels = rng.integers(2, size=n)
    inputs = np.array([transcript(summation, one + label * moved, network, rng) for label in labels])
    features = np.unpackbits(inputs, axis=1).astype(float)
    half = n // 2
    model = LogisticRegression(C=0.1, max_iter=200).fit(features[:half], labels[:half])
    return model.score(features[half:], labels[half:])


def test_transcripts_of_two_inputs_with_the_same_sum_cannot_be_told_apart():
    class Plain(Star):
        """Messages as they are."""

    assert accuracy(Plain(), 40) == 1.0
    # 200 guesses: a share of 0.5, with a deviation of 0.035.
    assert abs(accuracy(Masked(Star())) - 0.5) < 0.15


# Rows that two parties hold, and rows that come twice


def test_a_row_of_two_parties_is_plain_to_both_unless_it_is_left_out():
    X = np.random.default_rng(0).normal(size=(30, 4))
    X[7, :2] = np.nan  # parties 2 and 3 alone
    columns = {n: [n] for n in range(4)}
    for accept, leaks in (((FEW_HOLDERS,), True), ((), False)):
        agents, _ = make_study(
            "star", X, columns=columns, summation=Masked(Star(), accept), init_params="random", max_iter=1
        )
        totals, terms = [], []
        original = Masked.end, Masked.begin

        def end(self, place, state, original=original, totals=totals):
            found = original[0](self, place, state)
            if place.position == 2 and place.series.is_em:
                totals.append(by_row(found[0], 30, 2))
            return found

        def begin(self, place, carry, term, original=original, terms=terms):
            if place.series.is_em and term is not None:
                terms.append((place.position, by_row(term, 30, 2)))
            return original[1](self, place, carry, term)

        Masked.end, Masked.begin = end, begin
        try:
            run(agents)
        finally:
            Masked.end, Masked.begin = original
        own, others = (next(term for position, term in terms if position == who) for who in (2, 3))
        recovered = totals[0][7] - own[7]
        if leaks:
            np.testing.assert_allclose(recovered, others[7], atol=1e-6)
        else:
            assert (totals[0][7] == 0).all()
            assert (others[7] == 0).all(), "the other party has not even added it"


# On the wire


def waiting(summation=None, graph="star", kind="sum"):
    """An agent that waits for one more message of a masked sum, that message, and messages before it."""
    agents, _ = make_study(graph, summation=summation or Masked(Star()), init_params="random", max_iter=9)
    transport, seen, top = InProcess(agents, encoded=True), [], 4 if graph == "star" else 1
    transport.start()
    while True:
        message = transport._next()
        agent = transport.agents[message.receiver]
        state, exchange = agent.state, agent.state.exchange
        now = None if exchange is None or state.meeting else agent.identity.round_at(state, exchange.step)
        is_last = now is not None and len(state.mailbox.get(state.round, {})) + 1 == len(now.senders)
        if (
            message.receiver == top
            and message.kind == kind
            and is_last
            and message.round == state.round
            and len(seen) > 60
        ):
            return agent, message, [old for old in seen if old.receiver == message.receiver]
        seen.append(message)
        transport._deliver(message)


def deliver(agent, message):
    agent.receive(wire.decode(wire.encode(message), agent, message.sender))


def tampered(message, earlier):
    """One of each sort."""
    values, decision = message.values.copy(), message.decision.copy()
    values[5] ^= 1
    yield "altered values", message._replace(values=values)
    if len(decision):
        decision[0] = 0.0 if decision[0] else 1.0
        yield "an altered decision", message._replace(decision=decision)
    yield "an altered tag", message._replace(tag=bytes([message.tag[0] ^ 1]) + message.tag[1:])
    yield "no tag", message._replace(tag=b"")
    old = [one for one in earlier if one.kind == message.kind and len(one.values) == len(message.values)]
    replayed = [one for one in old if one.sender == message.sender]
    assert replayed
    yield "a replayed message", message._replace(values=replayed[-1].values, tag=replayed[-1].tag)
    swapped = [one for one in earlier if one.round == message.round and one.sender != message.sender]
    if swapped:
        yield "another's message", message._replace(values=swapped[-1].values, tag=swapped[-1].tag)


@pytest.mark.parametrize("graph", ["star", nx.path_graph(4)], ids=["star", "tree"])
def test_tampered_messages_are_refused_with_the_sender_s_name_and_change_nothing(graph):
    agent, message, earlier = waiting(Masked(Star() if graph == "star" else Tree()), graph)
    before = wire.encode_state(agent.state)
    names = []
    for name, wrong in tampered(message, earlier):
        with pytest.raises(RemoteProtocolError, match=f"peer {message.sender}: expected a message that its sender"):
            deliver(agent, wrong)
        assert wire.encode_state(agent.state) == before, name
        names.append(name)
    assert len(names) >= 4
    frame = wire.encode(message)
    for cut in (frame[:-1], frame[: len(frame) // 2]):
        with pytest.raises(RemoteProtocolError):
            wire.decode(cut, agent, message.sender)
    short = message._replace(values=message.values[:-4])
    with pytest.raises(RemoteProtocolError):
        deliver(agent, short)
    assert wire.encode_state(agent.state) == before
    deliver(agent, message)
    assert wire.encode_state(agent.state) != before, "the right one is taken"


def test_a_message_of_another_epoch_or_to_another_receiver_does_not_fit():
    summation = Masked(Star())
    network = make_network({n: [n] for n in range(3)}, "star", 0, np.random.default_rng(0))
    greetings = [summation.greet() for _ in network.positions]
    told = {position: greetings[position][0] for position in network.positions}

    def tag(epoch, position, peer, content=b"content"):
        place = Place(network, position, Shape(1, 1), SINGLE, epoch, 0, told, greetings[position][1])
        return summation.tag(place, peer, [content])

    assert tag(0, 0, 1) == tag(0, 1, 0)
    assert len({tag(0, 0, 1), tag(1, 0, 1), tag(0, 0, 2), tag(0, 0, 1, b"other")}) == 4


def test_a_public_key_that_is_none_is_blamed_on_its_agent():
    summation = Masked(Star())
    network = make_network({n: [n] for n in range(3)}, "star", 0, np.random.default_rng(0))
    public, keys = summation.greet()
    for wrong in (b"", bytes(31), bytes(32), public):
        place = Place(network, 0, Shape(2, 1), SINGLE, 0, 0, {0: public, 1: wrong, 2: summation.greet()[0]}, keys)
        with pytest.raises(WrongMessageError, match="expected a public key") as caught:
            summation.begin(place, NO_MEMORY, np.zeros(2))
        assert caught.value.sender == 1


def test_two_parties_with_one_key_cannot_cancel_a_third_s_masks():
    summation = Masked(Star())
    network = make_network({n: [n] for n in range(3)}, "star", 0, np.random.default_rng(0))
    (own, keys), (theirs, _) = summation.greet(), summation.greet()
    place = Place(network, 1, Shape(2, 1), SINGLE, 0, 0, {0: theirs, 1: own, 2: theirs}, keys)
    with pytest.raises(WrongMessageError, match="got that of another"):
        summation.begin(place, NO_MEMORY, np.zeros(2))


def test_masks_only_cancel_among_parties_that_were_told_the_same():
    summation = Masked(Star())
    network = make_network({n: [n] for n in range(3)}, "star", 0, np.random.default_rng(0))
    greetings = [summation.greet() for _ in network.positions]
    told = {position: greetings[position][0] for position in network.positions}

    def total(heard):
        places = [
            Place(network, n, Shape(2, 1), SINGLE, 0, 5, told, greetings[n][1], 0, heard[n])
            for n in network.positions
        ]
        states = [summation.begin(place, NO_MEMORY, np.ones(2) if n < 3 else None) for n, place in enumerate(places)]
        sent = {n: summation.message(places[n], 0, states[n]) for n in range(3)}
        return summation.end(places[3], summation.combine(places[3], 0, states[3], sent))[0]

    np.testing.assert_array_equal(total([b"a", b"a", b"a", b"a"]), [3.0, 3.0])
    with pytest.raises(ValueError, match="expected masks that cancel"):
        total([b"b", b"a", b"a", b"a"])


def test_a_server_that_tells_parties_different_counts_learns_nothing():
    agents, _ = make_study("star", summation=Masked(Star()), init_params="random", max_iter=2)
    server, place, lies, when = agents[-1], None, 0, None
    line = [message for agent in agents for message in agent.start()]
    while line:
        message = line.pop(0)
        if message.sender == server.number and message.kind == "sum" and message.receiver > 0:
            when = message.round if when is None else when
            if message.round == when:  # fewer rows than there are, to all but the first
                counts = np.repeat([0, 4], [19, 5]).astype(np.int32)
                values = np.frombuffer(np.array([0, 0, 4], "<f8").tobytes() + masked_deltas.pack(counts), np.uint8)
                message = message._replace(values=values, tag=b"")
                message = message._replace(tag=link_tag(place, message.receiver, message.parts()))
                lies += 1
        line += agents[message.receiver].receive(message)
        place = server.identity._place or place
    assert lies == 3
    assert "expected masks that cancel" in server.failure


def test_agreeing_to_one_thing_is_not_agreeing_to_another():
    network = make_network({n: [n] for n in range(4)}, "star", 0, np.random.default_rng(0))
    two = make_network({n: [n] for n in range(2)}, "star", 0, np.random.default_rng(0))
    assert Masked(Star()).least_holders(network) == 3
    assert Masked(Star(), (FEW_HOLDERS,)).least_holders(network) == 2
    assert Masked(Star(), (TWO_PARTIES,)).least_holders(network) == 3
    assert Masked(Star(), (TWO_PARTIES,)).least_holders(two) == 0
    assert Masked(Star(), (FEW_HOLDERS, TWO_PARTIES)).refuses_repeats
    assert not Masked(Star(), (REPEATS,)).refuses_repeats


def test_a_party_that_adds_under_other_masks_is_noticed():
    summation = Masked(Star())
    network = make_network({n: [n] for n in range(3)}, "star", 0, np.random.default_rng(0))
    greetings = [summation.greet() for _ in network.positions]
    told = {position: greetings[position][0] for position in network.positions}

    def total(numbers):
        places = [
            Place(network, n, Shape(2, 1), SINGLE, 0, numbers[n], told, greetings[n][1]) for n in network.positions
        ]
        states = [summation.begin(place, NO_MEMORY, np.ones(2) if n < 3 else None) for n, place in enumerate(places)]
        sent = {n: summation.message(places[n], 0, states[n]) for n in range(3)}
        return summation.end(places[3], summation.combine(places[3], 0, states[3], sent))[0]

    np.testing.assert_array_equal(total([5, 5, 5, 5]), [3.0, 3.0])
    with pytest.raises(ValueError, match="expected masks that cancel"):
        total([5, 6, 5, 5])


# Records


class Notary:
    """Proofs for tests: the name and a digest of the content."""

    def __init__(self, name, everybody, study="a study"):
        self.name, self.everybody, self.study = name, everybody, study

    def sign(self, content):
        return self.name.encode() + b"|" + hashlib.sha256(content).digest()

    def verify(self, name, content, proof):
        if proof != name.encode() + b"|" + hashlib.sha256(content).digest():
            raise ValueError("the proof is another's")


def signed(forger=None):
    agents, _ = make_study("star", summation=Masked(Star()), init_params="random", max_iter=2)
    for agent in agents:
        names = [other.name for other in agents]
        agent.identity.credentials = Notary("mallory" if agent.number == forger else agent.name, names)
    return agents


def test_records_are_signed_and_a_forged_one_is_refused():
    assert all(agent.is_done for agent in run(signed()).agents.values())
    with pytest.raises(RemoteProtocolError, match="peer 2: expected '2' to have signed its record"):
        run(signed(forger=2))


def test_a_server_cannot_hide_parties_of_the_study():
    agents = signed()
    for agent in agents:
        agent.identity.credentials.everybody = [*agent.identity.credentials.everybody, "another"]
    for agent in run(agents).agents.values():
        assert "expected the agents of the study, 0, 1, 2, 3, server, another, got" in agent.failure


# What the page says


def test_the_table_of_repeated_sums_is_that_of_the_experiment():
    with (ROOT / "experiments/results/sums/sums.csv").open() as file:
        found = list(csv.DictReader(file))
    page = (ROOT / "docs/privacy.md").read_text()
    for parties in (3, 5, 10):
        for columns in (1, 4):
            own = [row for row in found if (row["parties"], row["columns"]) == (str(parties), str(columns))]
            for count, place in (("responsibilities", 2), ("1", 3), ("40", 4)):
                values = [float(row["best"]) for row in own if row["sums"] == count]
                line = next(line for line in page.splitlines() if line.startswith(f"| {parties} | {columns} |"))
                shown = re.findall(r"\d\.\d\d", line.split("|")[place + 1])
                assert float(shown[-1]) == pytest.approx(np.mean(values), abs=0.006)
