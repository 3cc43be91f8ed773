"""Places of agents: their own where they have some, and otherwise apart from each other."""

import networkx as nx
import numpy as np
import pytest
from scipy.spatial.distance import pdist

from vpem.report.places import place_agents


@pytest.mark.parametrize(
    "graph",
    [
        nx.path_graph(1),
        nx.path_graph(2),
        nx.path_graph(7),
        nx.cycle_graph(5),
        nx.complete_graph(6),
        nx.star_graph(9),
        nx.connected_watts_strogatz_graph(80, 4, 0.2, seed=0),
    ],
)
def test_agents_without_places_are_put_apart(graph):
    places = place_agents(graph, list(graph))
    assert places.shape == (len(graph), 2)
    assert places.min() == 0
    assert places.max() <= 1
    if len(graph) > 1:
        assert places.max() == 1
        assert pdist(places).min() > 1e-3


def test_a_long_network_lies_down():
    assert place_agents(nx.path_graph(6), range(6))[:, 1].max() < 0.1


def test_known_places_are_kept():
    graph = nx.path_graph(["b", "a"])
    given = nx.path_graph(2)
    nx.set_node_attributes(given, {0: (10.0, 5.0), 1: (14.0, 3.0)}, "pos")
    np.testing.assert_allclose(place_agents(graph, ["a", "b"], given), [[0, 0.5], [1, 0]])
    nx.set_node_attributes(graph, {"a": (0.0, 0.0), "b": (2.0, 2.0)}, "pos")
    np.testing.assert_allclose(place_agents(graph, ["a", "b"], given), [[0, 0], [1, 1]])
