"""How a network adds, and what that costs, against literal rounds and counts by hand."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import connected_graphs, contents, mixing_weights
from vpem.core.network.adders import flood_traffic, linear_adder, sum_traffic
from vpem.core.network.consensus import Consensus
from vpem.core.network.graph import contraction
from vpem.core.network.parties import make_network
from vpem.core.network.rounds import can_have_sent
from vpem.core.network.star import Star
from vpem.core.network.sums import Shape
from vpem.core.network.traffic import pooling_traffic

TERM = Shape(4, 3)
"""Of 96 bytes."""


def network_on(graph, hops=0, seed=0):
    return make_network({n: [n] for n in sorted(graph)}, graph, hops, np.random.default_rng(seed))


def star_of(n):
    return make_network({number: [number] for number in range(n)}, "star")


def test_a_star_adds_exactly_and_alike_for_all():
    terms = np.random.default_rng(0).normal(size=(4, 5, 3))
    adder = linear_adder(Star().matrix(star_of(4)))
    [total] = adder.add(terms)
    np.testing.assert_allclose(total, terms.sum(axis=0), rtol=1e-14)
    assert adder.view_of_hub.tolist() == [0, 0, 0, 0]


@given(
    connected_graphs(),
    st.integers(0, 2),
    st.integers(1, 30),
    st.sampled_from(["metropolis", "laplacian"]),
    st.integers(0, 2**32 - 1),
)
def test_consensus_is_as_many_literal_rounds(graph, hops, rounds, kind, seed):
    network = network_on(graph, hops, seed)
    n, W = len(graph), mixing_weights(graph, kind)
    terms = np.random.default_rng(seed).normal(size=(len(network.hubs), 6, 2))
    state = np.empty((n, 6, 2))
    for hub, term in zip(network.hubs, terms, strict=True):
        for member in hub.members:
            state[member] = n * term / len(hub.members)
    for _ in range(rounds):
        state = np.array([sum(W[i, j] * state[j] for j in range(n)) for i in range(n)])
    adder = linear_adder(Consensus(rounds, kind).matrix(network))
    found = adder.add(terms)[adder.view_of_hub]
    # Sums of at most eight terms of order 8: rounding stays far below.
    np.testing.assert_allclose(found, state[[hub.root for hub in network.hubs]], atol=1e-12)


@given(connected_graphs(fewest_agents=2), st.sampled_from(["metropolis", "laplacian"]), st.integers(0, 2**32 - 1))
def test_the_error_falls_as_the_contraction_to_the_rounds(graph, kind, seed):
    network, n = network_on(graph), len(graph)
    W = mixing_weights(graph, kind)
    rho = contraction(W)

    def error(terms, rounds):
        found = linear_adder(Consensus(rounds, kind).matrix(network)).add(terms[:, None])
        return np.linalg.norm(found.ravel() - terms.sum())

    terms = np.random.default_rng(seed).normal(size=n)
    spread = np.linalg.norm(n * terms - terms.sum())
    # And no faster than that in the worst case, the eigenvector that mixes most slowly.
    eigenvalues, eigenvectors = np.linalg.eigh(W - 1 / n)
    slowest = eigenvectors[:, np.abs(eigenvalues).argmax()]
    for rounds in (1, 3, 10, 30):
        assert error(terms, rounds) <= rho**rounds * spread * (1 + 1e-9) + 1e-12
        assert error(slowest, rounds) == pytest.approx(rho**rounds * n, rel=1e-6, abs=1e-10)


def test_traffic_of_a_star():
    traffic = sum_traffic(Star(), star_of(3), TERM, 1)
    assert (traffic.messages, contents(traffic), traffic.rounds) == (6, 6 * 104, 2)
    assert traffic.per_agent[0] == (1, 104 + 68, 1, 104 + 68), "a header and a checksum are 68 bytes"
    assert traffic.per_agent["server"] == (3, 3 * 172, 3, 3 * 172)
    assert (traffic * 4 + traffic).bytes == 5 * traffic.bytes
    assert repr(traffic) == "Traffic(messages=6, bytes=1,032, rounds=2)"


def test_traffic_of_consensus_counts_every_link_in_every_round():
    traffic = sum_traffic(Consensus(10), network_on(nx.cycle_graph(5)), TERM, 1)
    assert (traffic.messages, contents(traffic), traffic.rounds) == (10 * 10, 100 * 104, 10)
    assert traffic.per_agent[3] == (20, 20 * 172, 20, 20 * 172)


def test_a_decision_gets_the_rounds_that_the_sum_lacks():
    path = network_on(nx.path_graph(6))  # five hops wide
    short = sum_traffic(Consensus(2), path, TERM, 1)
    assert (short.messages, contents(short), short.rounds) == (10 * 5, 20 * 104 + 30 * 8, 5)
    assert sum_traffic(Consensus(2), path, TERM).rounds == 2
    alone = flood_traffic(Consensus(2), path, 1)
    assert (alone.messages, contents(alone), alone.rounds) == (50, 400, 5)


def test_traffic_within_hubs_counts_relays():
    network = make_network({0: [0], 1: [1], 2: [2], 3: [3, 4], 4: [5]}, nx.path_graph(5), 2, np.random.default_rng(0))
    [hub] = network.hubs
    assert hub.root == 2
    # Columns: the neighbours send 1 and 2 columns one hop, the ends 1 each over two hops; 10 rows of 8 bytes.
    pooling = pooling_traffic(network, 10)
    assert (pooling.messages, contents(pooling), pooling.rounds) == (6, 80 * (1 + 2 + 2 + 2), 2)
    assert pooling.per_agent[3] == (2, 240 + 2 * 68, 1, 80 + 68)
    # Terms: one message per link of the tree, the neighbours hand it on; then one round over four links, each way.
    one_round = sum_traffic(Consensus(1), network, TERM)
    assert (one_round.messages, contents(one_round), one_round.rounds) == (4 + 8, 1152, 2 + 1)
    assert one_round.per_agent[2].messages_sent == 2 + 2
    assert one_round.per_agent[1] == (1 + 2, 3 * 164, 1 + 2, 3 * 164)


def test_one_agent_alone_sends_nothing():
    alone = network_on(nx.path_graph(1))
    traffic = sum_traffic(Consensus(10), alone, TERM, 1)
    assert (traffic.messages, traffic.bytes, traffic.rounds) == (0, 0, 0)
    assert linear_adder(Consensus(10).matrix(alone)).add(np.ones((1, 2, 3))).tolist() == [[[1.0] * 3] * 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 0}, "rounds"),
        ({"rounds": 2.5}, "rounds"),
        ({"weights": "uniform"}, "got 'uniform'"),
        ({"alpha": 0.1}, "try weights='laplacian'"),
        ({"weights": "laplacian", "alpha": -7}, "positive number, got -7"),
        ({"weights": "laplacian", "alpha": "a"}, "positive number, got 'a'"),
    ],
)
def test_consensus_that_makes_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        Consensus(**arguments)


def test_a_sum_needs_its_kind_of_network():
    with pytest.raises(ValueError, match="whose server adds exactly"):
        Consensus().check(star_of(2))
    with pytest.raises(ValueError, match="graph without a server"):
        Star().check(network_on(nx.path_graph(2)))


def furthest_steps(schedules, waiting, at):
    """How far agents come that go on as far as they can, one message at a time, while one of them waits in a step."""
    steps, sent = [0] * len(schedules), set()
    changed = True
    while changed:
        changed = False
        for agent, rounds in enumerate(schedules):
            step = steps[agent]
            if step == len(rounds):
                continue
            if (agent, step) not in sent:
                sent.add((agent, step))
                changed = True
            if (agent != waiting or step < at) and all((peer, step) in sent for peer in rounds[step].senders):
                steps[agent] += 1
                changed = True
    return steps


@given(connected_graphs(fewest_agents=2), st.integers(0, 2), st.integers(1, 4), st.data())
def test_how_far_ahead_a_neighbour_can_be(graph, hops, rounds, data):
    network = network_on(graph, hops)
    schedules = [
        Consensus(rounds).schedule(network, agent, values=True, decision=True) for agent in network.positions
    ]
    waiting = data.draw(st.sampled_from(network.positions))
    at = data.draw(st.integers(0, len(schedules[0]) - 1))
    furthest = furthest_steps(schedules, waiting, at)
    for sender in network.positions:
        for step in range(len(schedules[0])):
            assert can_have_sent(schedules, sender, step, waiting, at) == (step <= furthest[sender]), (sender, step)


def test_a_star_s_server_can_be_no_further_than_its_parties_let_it():
    network = star_of(3)
    schedules = [Star().schedule(network, agent, values=True, decision=True) for agent in network.positions]
    assert can_have_sent(schedules, network.server, 0, 0, -1)
    assert not can_have_sent(schedules, network.server, 1, 0, -1), "one party has sent nothing yet"
    assert can_have_sent(schedules, network.server, 1, 0, 0)
    assert can_have_sent(schedules, 1, 1, 0, -1), "another party waits for the server there"


# Rounds that a graph needs


@given(connected_graphs(), st.sampled_from(["metropolis", "laplacian"]), st.integers(0, 2**32 - 1))
def test_rounds_that_are_not_given_are_as_many_as_the_graph_needs(graph, kind, seed):
    network, W = network_on(graph), mixing_weights(graph, kind)
    rule = Consensus(weights=kind)
    n_rounds = rule.n_rounds(network)
    assert n_rounds >= network.diameter
    # No root is farther from the sum than a millionth of the spread; a round less may be too few.
    terms = np.random.default_rng(seed).normal(size=len(graph))
    sums = len(graph) * np.linalg.matrix_power(W, n_rounds) @ terms
    spread = len(graph) * np.linalg.norm(terms - terms.mean())
    assert np.abs(sums - terms.sum()).max() <= 1.01e-6 * spread + 1e-12
    rho = contraction(W)
    assert rule.error_factor(network) == pytest.approx(rho**n_rounds if rho > 1e-9 else 0.0, rel=1e-6, abs=1e-300)
    if n_rounds > max(network.diameter, 1):
        assert rho ** (n_rounds - 1) > 0.999e-6
    # They are what agents do, and what the simulation multiplies by.
    given_rounds = Consensus(n_rounds, kind)
    np.testing.assert_array_equal(rule.matrix(network), given_rounds.matrix(network))
    schedules = [one.schedule(network, 0, values=True, decision=True) for one in (rule, given_rounds)]
    assert schedules[0] == schedules[1]


def test_how_inexact_a_sum_is_is_known_before():
    path = network_on(nx.path_graph(30))
    assert Consensus(100).error_factor(path) == pytest.approx(0.6936, abs=1e-4)
    assert Consensus(100).rounds_needed(path, 1e-6) == Consensus().n_rounds(path) == 3777
    assert Consensus().n_rounds(network_on(nx.complete_graph(7))) == 1
    assert Consensus().n_rounds(network_on(nx.empty_graph(1))) == 1
    assert Star().error_factor(star_of(3)) == 0
    assert Star().rounds_needed(star_of(3), 1e-6) is None
