"""The exact sum of a spanning tree."""

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oracles import connected_graphs
from vpem import Tree
from vpem.core.network.adders import MessageAdder, flood_traffic, sum_traffic
from vpem.core.network.parties import make_network
from vpem.core.network.sums import Shape
from vpem.core.network.tree import grow


def network_on(graph, hops=0, seed=0):
    return make_network({n: [n] for n in sorted(graph)}, graph, hops, np.random.default_rng(seed))


@given(connected_graphs(), st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_messages_add_exactly_and_the_same_for_all(graph, hops, seed):
    network = network_on(graph, hops, seed)
    terms = np.random.default_rng(seed).normal(size=(len(network.hubs), 7))
    adder = MessageAdder(Tree(), network).for_each_root()
    sums, traffic = adder.add(terms, Shape(3, 2, 1), "", 4)
    np.testing.assert_allclose(sums, np.broadcast_to(terms.sum(axis=0), sums.shape), rtol=1e-12, atol=1e-12)
    assert (sums == sums[0]).all(), "to the bit"
    assert traffic.messages == 2 * (len(graph) - 1), "as few as there can be"
    expected = sum_traffic(Tree(), network, Shape(3, 2, 1), 4)
    np.testing.assert_array_equal(traffic.table, expected.table)
    assert traffic.rounds == expected.rounds


@given(connected_graphs())
def test_the_tree_spans_the_network_and_is_as_shallow_as_it_can_be(graph):
    network = network_on(graph)
    tree = grow(network)
    links = nx.Graph([(child, parent) for child, parent in tree.above.items()])
    links.add_nodes_from(network.positions)
    assert nx.is_tree(links)
    assert set(links.edges) <= {*graph.edges, *((b, a) for a, b in graph.edges)}
    assert tree.depth == nx.radius(graph)
    assert flood_traffic(Tree(), network, 1).rounds == 2 * tree.depth
