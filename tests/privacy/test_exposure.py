"""What can be seen follows from the schedule: against what messages really hold."""

import networkx as nx
import numpy as np
import pytest

from studies import agree
from vpem import Consensus, Differences, Masked, Star, Tree
from vpem.core.network.parties import make_network
from vpem.privacy.exposure import MASKED, OWN, TOTAL, forms, seen_alone, seen_together, sightings
from vpem.privacy.exposure_text import Rows, explain
from vpem.privacy.masks import FEW_HOLDERS, REPEATS, TWO_PARTIES


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
    assert "refuses a prediction" not in text, "of two, nothing is counted"


@pytest.mark.parametrize(
    ("accept", "says", "does_not_say"),
    [
        ((), "refuses a prediction in which they have other holders", "CAN read"),
        ((FEW_HOLDERS,), "each of two parties CAN read the other's terms in rows that only they have", "again"),
        ((REPEATS,), "the difference of two such sums is a party's own terms", "refuses a prediction"),
    ],
)
def test_what_a_study_accepts_is_said(accept, says, does_not_say):
    text = text_of(explain(agree(Masked(Star(), accept)), network_of("star"), ["a", "b", "c", "d", "server"]))
    assert says in text
    assert does_not_say not in text
    assert "go on without a party only if all that remain have signed" in text


def test_counts_under_masks_tell_how_many_others_have_a_row_of_the_union():
    rows, names = Rows("tokens", "outer", "text", "a"), ["a", "b", "c", "d"]
    for way, is_counted in ((Masked(Tree()), True), (Tree(), False)):
        text = text_of(explain(agree(way), network_of(nx.path_graph(4)), names, rows))
        assert ("it learns from the counts under masks" in text) == is_counted
        assert "not who else has them" in text
        assert "a is the matcher" in text
        assert "many equations for each row" in text, "with masks or without"


def test_pooled_columns_are_named():
    network = make_network({n: [n] for n in range(5)}, nx.path_graph(5), 1, np.random.default_rng(0))
    text = text_of(explain(agree(Tree(), hops=1), network, list("abcde")))
    assert "Columns are pooled" in text
    roots = {hub.root for hub in network.hubs}
    for place, name in enumerate("abcde"):
        own = next(line for line in text.splitlines() if line.startswith(f"{name}: "))
        root = "abcde"[network.paths[place][0]]
        assert (f"It sends its columns, as they are, to {root}, which adds for it" in own) == (place not in roots)
        assert ("It gets the columns of" in own) == (place in roots and len(network.hub(place).members) > 1)
    masked = make_network({n: [n] for n in range(7)}, nx.path_graph(7), 1, np.random.default_rng(0))
    text = text_of(explain(agree(Masked(Tree()), hops=1), masked, list("abcdefg")))
    assert f"the terms of all {len(masked.hubs)} hubs are in it" in text
    assert "it sees the sum of all hubs" in text
