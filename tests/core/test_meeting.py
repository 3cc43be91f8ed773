"""Agents that know only their neighbours find out who else is there."""

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import connected_graphs
from studies import SEED, agree, make_study, run
from vpem.core.agent.meeting import (
    MeetingError,
    Record,
    bare_records,
    common_checkpoint,
    decode_records,
    encode_records,
    find_roles,
    make_records,
    meeting_traffic,
)
from vpem.core.decisions.initial import HUB_TIES, shared_generator
from vpem.core.network.consensus import Consensus
from vpem.core.network.hubs import relay_paths
from vpem.core.network.parties import make_network
from vpem.core.network.star import Star
from vpem.core.network.traffic import OVERHEAD_BYTES
from vpem.transports.inprocess import InProcess, make_agents


@given(connected_graphs(most_agents=9), st.integers(0, 3))
def test_every_agent_finds_the_same_hubs_as_who_sees_the_whole_graph(graph, hops):
    n = len(graph)
    X = np.random.default_rng(0).normal(size=(8, n))
    columns = {number: [number] for number in range(n)}
    network = make_network(columns, graph, hops, shared_generator(SEED, HUB_TIES))
    agents = make_agents(X, network, agree(Consensus(1), hops=hops, max_iter=0, init_params="random"))
    transport = InProcess(agents).start()
    heard = []
    transport.watch = heard.append
    transport.run(until=lambda: not any(agent.state.meeting for agent in agents))
    for agent in agents:
        assert agent.roles.network.hubs == network.hubs
        assert agent.roles.network.diameter == nx.diameter(graph)
        assert set(agent.roles.network.links.edges) == set(graph.edges)
        assert agent.roles.n_rows == 8
    first = [message for message in heard if message.round < nx.diameter(graph)]
    assert {message.kind for message in first} <= {"meet"}


@given(connected_graphs(most_agents=9, fewest_agents=2))
def test_an_agent_learns_in_each_round_what_is_one_hop_further_away(graph):
    X = np.zeros((8, len(graph))) + np.arange(8)[:, None]
    agents, network = make_study(graph, X, columns={number: [number] for number in graph}, max_iter=0)
    seen = []
    run(agents, watch=lambda message: message.kind == "meet" and seen.append(message))
    distances = dict(nx.all_pairs_shortest_path_length(graph))
    for message in seen:
        told = {record.number for record in decode_records(message.values)}
        assert told == {other for other, hops in distances[message.sender].items() if hops == message.round}
    found = meeting_traffic(network, 8, 0)
    assert found.bytes == sum(message.n_bytes for message in seen)
    assert found.messages == len(seen)


def test_the_traffic_of_a_small_meeting_by_hand():
    network = make_network({"a": [0], "b": [1]}, "path")
    [one, other] = make_records(network, 100, "0" * 16, 0)
    sizes = [len(msgspec.msgpack.encode([record])) for record in (one, other)]
    traffic = meeting_traffic(network, 100, 0)
    assert (traffic.messages, traffic.rounds) == (2, 1)
    assert traffic.bytes == 2 * OVERHEAD_BYTES + sum(sizes)
    assert traffic.per_agent["a"].bytes_sent == OVERHEAD_BYTES + sizes[0]
    assert sizes[0] < 50, "a meeting is cheap"


@given(connected_graphs(most_agents=9), st.integers(0, 3))
def test_paths_and_what_lies_below(graph, hops):
    network = make_network({number: [number] for number in graph}, graph, hops, shared_generator(SEED, HUB_TIES))
    roles = find_roles(bare_records(make_records(network, 5, "x", hops)), agree(hops=hops))
    for number, hub in enumerate(network.hubs):
        paths = relay_paths(graph, hub)
        for member in hub.members:
            assert roles.network.paths[member] == paths[member]
            assert roles.network.hub_of[member] == number
            assert roles.network.is_root(member) == (member == hub.root)
            for distance in range(4):
                upward = {other: path[::-1] for other, path in paths.items()}
                below = [other for other, path in upward.items() if path[distance : distance + 1] == [member]]
                assert roles.network.below(member, distance) == sorted(below)
    assert roles.network.depth == max(len(path) for path in roles.network.paths.values()) - 1


def test_agents_numbers_may_have_gaps():
    records = [
        Record(4, "late", (2, 9), 5, 2, 0, "d"),
        Record(2, "early", (4, 9), 5, 1, 0, "d"),
        Record(9, "server", (2, 4), 0, 0, 0, "d"),
    ]
    with pytest.raises(MeetingError, match="expected a star"):
        find_roles(bare_records(records), agree(Star()))
    records[0] = Record(4, "late", (9,), 5, 2, 0, "d")
    records[1] = Record(2, "early", (9,), 5, 1, 0, "d")
    roles = find_roles(bare_records(records), agree(Star()))
    assert roles.numbers == (2, 4, 9)
    assert roles.network.parties == ("early", "late")
    assert [columns.tolist() for columns in roles.network.columns] == [[0], [1, 2]]
    assert roles.network.hub_of == (0, 1, None)


def test_links_must_go_both_ways():
    links = {"a": (1, 2), "b": (0, 2), "c": (1,)}
    records = [Record(number, name, peers, 5, 1, 0, "d") for number, (name, peers) in enumerate(links.items())]
    with pytest.raises(MeetingError, match="links that go both ways, got one from 'a' to 'c' only"):
        find_roles(bare_records(records), agree())
    with pytest.raises(MeetingError, match="expected parties with columns, got none"):
        find_roles((Record(0, "a", (), 0, 0, 0, "d"),), agree())


def records_at(*states):
    return {
        number: Record(number, str(number), (), 5, 1, 0, "d", newest, oldest, model, n_met)
        for number, (newest, oldest, model, n_met) in enumerate(states)
    }


@pytest.mark.parametrize(
    ("states", "target"),
    [
        ([(0, 0, 0, 0)] * 3, 0),
        ([(7, 6, 0, 3), (8, 7, 0, 3), (7, 6, 0, 3)], 7),
        ([(7, 6, 0, 3), (8, 7, 0, 3), (6, 5, 0, 3)], 0),  # an older state than anybody can go back to
        ([(7, 6, 0, 3), (0, 0, 0, 0), (7, 6, 0, 3)], 0),  # somebody begins anew
        ([(7, 6, 0, 4), (7, 6, 0, 4), (7, 6, 0, 4)], 0),  # a fourth has gone
        ([(7, 6, 5, 4), (8, 7, 5, 4), (7, 6, 5, 4)], 7),  # which does not matter after the fit
        ([(8, 7, 8, 4), (7, 6, 0, 4), (7, 6, 0, 4)], 0),  # but it does if only one has got there
        ([(9, 8, 5, 3), (9, 8, 5, 3), (6, 5, 5, 3)], 5),  # an old state, from after the fit
    ],
)
def test_the_common_checkpoint(states, target):
    assert common_checkpoint(records_at(*states)) == target


@pytest.mark.parametrize(
    "content",
    [
        [[0, "a", [1], 5, 1, 0, "d", 0, 0, 0, 0, 0, [], "more"]],
        [[0, "a", [1], 5, 10_001, 0, "d"]],
        [[0, "a", [-1], 5, 1, 0, "d"]],
        [[0, "a" * 201, [1], 5, 1, 0, "d"]],
        [[0, "a", [1], 5, 1, 0, "d" * 17]],
        [["0", "a", [1], 5, 1, 0, "d"]],
        {"number": 0},
    ],
)
def test_records_that_are_none(content):
    with pytest.raises(ValueError, match=r"xpected|more than|at least|length"):
        decode_records(np.frombuffer(msgspec.msgpack.encode(content), np.uint8))


def test_records_come_back_in_order():
    records = [Record(2, "b", (0,), 5, 1, 0, "d"), Record(0, "ä", (2,), 5, 1, 3, "d", 7, 6, 5, 2, 3, (1,))]
    assert decode_records(encode_records(records)) == records[::-1]
