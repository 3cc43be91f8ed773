"""What can be seen follows from the schedule: against what messages really hold."""

import networkx as nx
import numpy as np
import pytest

from studies import agree
from vpem import Consensus, Differences, Masked, Star, Tree
from vpem.core.network.parties import make_network
from vpem.privacy.explaining import Rows, explain
from vpem.privacy.exposure import MASKED, OWN, TOTAL, forms, seen_alone, seen_together, sightings
from vpem.privacy.masks import TWO_PARTIES


def network_of(graph, n=4):
    n = n if isinstance(graph, str) else len(graph)
    return make_network({number: [number] for number in range(n)}, graph, 0, np.random.default_rng(0))


def test_a_server_reads_all_terms_and_under_masks_none():
    network = network_of("star")
    assert seen_alone(Star(), network, 4) == [0, 1, 2, 3]
    assert seen_alone(Star(), network, 0) == []
    assert forms(Star(), network)[0, 4] == OWN
    assert forms(Star(), network)[4, 0] == TOTAL
    for position in range(5):
        assert seen_alone(Masked(Star()), network, position) == []
    assert forms(Masked(Star()), network)[0, 4] == MASKED
    assert forms(Masked(Star()), network)[4, 0] == TOTAL


def test_of_two_parties_each_has_the_other_s_terms():
    network = network_of("star", 2)
    assert seen_alone(Masked(Star(), (TWO_PARTIES,)), network, 0) == [1]
    assert seen_together(Masked(Star()), network_of("star", 3), [0, 1]) == [2]
    assert seen_together(Masked(Star()), network_of("star"), [0, 1]) == []


def test_a_tree_shows_leaves_to_those_above_them():
    network = network_of(nx.path_graph(5))
    way = Tree()
    top = way.tree(network).top
    assert top == 2
    assert seen_alone(way, network, 1) == [0]
    # The middle reads the sums of both sides, of two parties each.
    assert seen_alone(way, network, 2) == []
    assert seen_alone(way, network, 0) == []
    assert seen_alone(Differences(way), network, 1) == [0]
    assert all(seen_alone(Masked(way), network, position) == [] for position in range(5))


def test_neighbours_in_consensus_read_each_other():
    network = network_of(nx.cycle_graph(4))
    assert seen_alone(Consensus(3), network, 0) == [1, 2, 3]  # as if averages were sums
    assert forms(Consensus(3), network)[0, 1] == f"{OWN}, then mixtures"


@pytest.mark.parametrize("way", [Star(), Masked(Star())], ids=["plain", "masked"])
def test_sightings_are_what_the_messages_hold(way):
    """The readable sums are those that a receiver finds in the messages, and no more."""
    network = network_of("star", 3)
    found = list(sightings(way, network))
    assert [one.sender for one in found if one.receiver == 3] == [0, 1, 2]
    assert all(one.readable == (way == Star()) for one in found if one.receiver == 3)
    assert all(one.readable and one.blocks == {0, 1, 2} for one in found if one.sender == 3)


def text_of(sections):
    return "\n".join(f"{section.heading}: {' '.join(section.sentences)}" for section in sections)


def test_explanations_follow_the_study():
    names = ["north", "east", "south", "west", "server"]
    network = network_of("star")
    plain = text_of(explain(agree(Star()), network, names))
    assert "server: It CAN read the own terms of north, east, south and west" in plain
    assert "north: It CANNOT read the own terms of east, south and west" in plain
    masked = explain(agree(Masked(Star())), network, names, Rows("tokens", "outer", "text", "server"))
    text = text_of(masked)
    assert "CAN read" not in text
    assert "server: It CANNOT read the own terms of north, east, south and west: it sees the sum of all" in text
    assert "fewer than 3 have are left out" in text
    assert "3 parties that tell each other" in text
    assert "so who lacks which row" in text
    assert "guessed ids" in text
    two = network_of("star", 2)
    text = text_of(explain(agree(Masked(Star(), (TWO_PARTIES,))), two, ["a", "b", "server"]))
    assert "a: It CAN read the own terms of b" in text
    assert "Two parties" in text


def test_pooled_columns_are_named():
    network = make_network({n: [n] for n in range(5)}, nx.path_graph(5), 1, np.random.default_rng(0))
    text = text_of(explain(agree(Tree(), hops=1), network, list("abcde")))
    assert "as they are" in text
    assert "Columns are pooled" in text
