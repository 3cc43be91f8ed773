"""Partitions and graphs: what is accepted, and what the errors say."""

import networkx as nx
import numpy as np
import pytest

from vpem.core.network.parties import assign_columns, communication_graph, make_network

NAMES = ["age", "income", "visits"]


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (None, {0: [0], 1: [1], 2: [2]}),
        ([[2, 0], [1]], {0: [2, 0], 1: [1]}),
        ([[2, 0], 1], {0: [2, 0], 1: [1]}),
        ({"bank": range(2), "shop": np.array([2])}, {"bank": [0, 1], "shop": [2]}),
        ({"bank": ["income", "age"], "shop": "visits"}, {"bank": [1, 0], "shop": [2]}),
        (["age", "income", "visits"], {0: [0], 1: [1], 2: [2]}),
    ],
)
def test_partitions_by_number_and_by_name(partition, expected):
    assert assign_columns(partition, 3, NAMES) == expected


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ([[0, 1], [1, 2]], "held more than once: income"),
        ([[0, 2]], "held by no party: income"),
        ([[0, 1, 2], []], "party 1 holds no columns"),
        ([[0, 1, 3]], "numbers from 0 to 2, got 3 for party 0"),
        ([[0, 1, -1]], "numbers from 0 to 2, got -1"),
        (
            {"bank": ["age", "incme", "visits"]},
            "'bank' claims column 'incme'.*the columns are age, income, visits",
        ),
    ],
)
def test_partitions_that_do_not_cover_the_columns(partition, message):
    with pytest.raises(ValueError, match=message):
        assign_columns(partition, 3, NAMES)


@pytest.mark.parametrize(
    "partition", ["age", 3, [[0, 1.5]], [[0, 1, True]], [None], [iter([0, 1, 2])], iter([[0], [1], [2]])]
)
def test_partitions_that_are_none(partition):
    with pytest.raises(TypeError, match="expected"):
        assign_columns(partition, 3, NAMES)


def test_column_names_without_a_table_that_has_them():
    with pytest.raises(ValueError, match="the table has no column names"):
        assign_columns([["age"]], 3)


@pytest.mark.parametrize(("n", "links"), [(1, 0), (2, 1), (3, 3), (5, 5)])
def test_a_ring_of_one_or_two_has_no_link_to_itself(n, links):
    assert communication_graph("ring", range(n)).number_of_edges() == links


def test_named_graphs():
    assert communication_graph("star", "abc") is None
    assert nx.utils.graphs_equal(communication_graph("path", "abc"), nx.path_graph(3))
    assert nx.utils.graphs_equal(communication_graph("complete", "abc"), nx.complete_graph(3))


def test_nodes_are_names_or_numbers_and_loops_are_dropped():
    expected = nx.Graph([(0, 2), (2, 1)])
    by_name = nx.Graph([("a", "c"), ("c", "b"), ("b", "b")])
    for graph in (by_name, expected):
        found = communication_graph(graph, ("a", "b", "c"))
        assert set(map(frozenset, found.edges)) == {frozenset((0, 2)), frozenset((1, 2))}
    # Names win where they are numbers in another order.
    assert set(communication_graph(nx.Graph([(2, 0), (0, 1)]), (2, 0, 1)).edges) == {(0, 1), (1, 2)}


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("circle", "'ring'.*got 'circle'"),
        (nx.path_graph(3).to_directed(), "to_undirected"),
        (nx.path_graph(4), "4 nodes"),
        (nx.Graph([("a", "b"), ("b", "x")]), "parties without a node: 'c'; nodes without a party: 'x'"),
        (nx.Graph([("a", "b"), ("c", "c")]), "2 separate pieces, the smallest holding 'c'"),
        (nx.Graph(), "0 nodes"),
    ],
)
def test_graphs_that_do_not_fit(graph, message):
    with pytest.raises(ValueError, match=message):
        communication_graph(graph, ("a", "b", "c"))


def test_a_graph_of_another_kind():
    with pytest.raises(TypeError, match=r"networkx.Graph, got \[\(0, 1\)\]"):
        communication_graph([(0, 1)], (0, 1))


def test_a_star_does_not_share_columns():
    with pytest.raises(ValueError, match="centralized EM; try another graph"):
        make_network({0: [0], 1: [1]}, "star", hops=1)
    with pytest.raises(ValueError, match="rename the party"):
        make_network({"server": [0], "b": [1]}, "star")
    assert make_network({"server": [0], "b": [1]}, "ring").agents == ("server", "b")


@pytest.mark.parametrize("hops", [-1, 0.5, True, "1"])
def test_hops_are_whole_numbers(hops):
    with pytest.raises(ValueError, match="whole number, 0 or more"):
        make_network({0: [0], 1: [1]}, "ring", hops=hops)


def test_a_hubs_columns_follow_its_members():
    network = make_network(
        {"a": [3], "b": [0, 2], "c": [1]}, nx.Graph([("c", "a"), ("c", "b")]), 1, np.random.default_rng(0)
    )
    [hub] = network.named_hubs()
    assert hub == ("c", ("a", "b", "c"), (3, 0, 2, 1))
