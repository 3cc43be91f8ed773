"""Greedy h-hop clustering."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import connected_graphs
from vpem.core.network.hubs import Hub, find_hubs, relay_paths

# The supplement's picture is not in its text; this graph has the text's hubs and roots, without a tie.
NINE_AGENTS = nx.Graph([(2, 1), (2, 3), (2, 4), (2, 5), (5, 6), (6, 7), (6, 8), (4, 9)])


@pytest.mark.parametrize("seed", range(5))
def test_the_supplements_nine_agents(seed):
    graph = nx.relabel_nodes(NINE_AGENTS, lambda number: number - 1)
    hubs = find_hubs(graph, 1, np.random.default_rng(seed))
    assert [(hub.root + 1, {member + 1 for member in hub.members}) for hub in hubs] == [
        (2, {1, 2, 3, 4, 5}),
        (6, {6, 7, 8}),
        (9, {9}),
    ]


@given(connected_graphs(most_agents=12), st.integers(0, 4), st.integers(0, 100))
def test_hubs_are_what_the_greedy_rule_says(graph, hops, seed):
    hubs = find_hubs(graph, hops, np.random.default_rng(seed))
    assert sorted(member for hub in hubs for member in hub.members) == sorted(graph)
    residual = graph.copy()
    remaining = set(hubs)
    while remaining:
        reach = {
            node: frozenset(nx.single_source_shortest_path_length(residual, node, cutoff=hops)) for node in residual
        }
        largest = max(map(len, reach.values()))
        # Some hub of what remains is a largest neighbourhood of the residual graph.
        fitting = [hub for hub in remaining if reach[hub.root] == set(hub.members) and len(hub.members) == largest]
        assert fitting
        residual.remove_nodes_from(fitting[0].members)
        remaining.remove(fitting[0])


def test_distances_are_those_of_what_is_left():
    # Without the first hub, 4, 8 and 10 hang together no more: 10 was two hops from 4 by way of 6.
    graph = nx.Graph([(0, 6), (0, 7), (1, 5), (2, 7), (3, 7), (3, 9), (4, 6), (4, 8), (5, 7), (6, 10)])
    for seed in range(20):
        hubs = find_hubs(graph, 2, np.random.default_rng(seed))
        assert all(nx.is_connected(graph.subgraph(hub.members)) for hub in hubs)


@given(connected_graphs())
def test_no_hops_means_no_sharing_and_many_hops_mean_one_hub(graph):
    rng = np.random.default_rng(0)
    assert find_hubs(graph, 0, rng) == tuple(Hub(n, (n,)) for n in sorted(graph))
    [hub] = find_hubs(graph, nx.diameter(graph), rng)
    assert hub.members == tuple(sorted(graph))


def test_ties_are_settled_by_the_generator():
    ring = nx.cycle_graph(8)
    found = {find_hubs(ring, 1, np.random.default_rng(seed)) for seed in range(200)}
    assert {hub.root for hubs in found for hub in hubs if len(hub.members) == 3} == set(range(8))
    # Three and three, then two neighbours or two agents apart: 8 + 4 ways, up to the roots of pairs.
    assert len({tuple(hub.members for hub in hubs) for hubs in found}) == 12
    assert find_hubs(ring, 1, np.random.default_rng(3)) == find_hubs(ring, 1, np.random.default_rng(3))


@given(connected_graphs(), st.integers(0, 3), st.integers(0, 20))
def test_relays_stay_inside_the_hub_and_within_the_hops(graph, hops, seed):
    for hub in find_hubs(graph, hops, np.random.default_rng(seed)):
        paths = relay_paths(graph, hub)
        assert set(paths) == set(hub.members)
        for member, path in paths.items():
            assert path[0] == hub.root
            assert path[-1] == member
            assert nx.is_path(graph, path)
            assert set(path) <= set(hub.members)
            assert len(path) - 1 <= hops
