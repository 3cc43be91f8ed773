"""Mixing weights against their definitions."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from oracles import connected_graphs, mixing_weights
from vpem.core.network.graph import contraction, diameter, laplacian_weights, metropolis_weights


@given(connected_graphs(most_agents=12))
def test_weights_follow_the_definitions_and_average(graph):
    n = len(graph)
    for W, kind in ((metropolis_weights(graph), "metropolis"), (laplacian_weights(graph), "laplacian")):
        np.testing.assert_allclose(W, mixing_weights(graph, kind), atol=1e-12)
        np.testing.assert_array_equal(W, W.T)
        np.testing.assert_allclose(W.sum(axis=1), 1.0, atol=1e-12)
        no_link = ~(nx.to_numpy_array(graph, nodelist=range(n)).astype(bool) | np.eye(n, dtype=bool))
        assert not W[no_link].any()
        assert contraction(W) < 1 - 1e-6


@given(connected_graphs(fewest_agents=2))
def test_the_default_alpha_is_the_fastest(graph):
    fastest = contraction(laplacian_weights(graph))
    limit = 2 / np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray().astype(float))[-1]
    for share in np.linspace(0.05, 0.95, 19):
        assert fastest <= contraction(laplacian_weights(graph, share * limit)) + 1e-12


def test_alpha_outside_its_interval_is_refused():
    graph = nx.complete_graph(4)  # lambda_max = 4, so the paper's (0, lambda_max) would allow 0.6
    with pytest.raises(ValueError, match=r"\(0, 0\.5\).*got 0\.6; try alpha=None"):
        laplacian_weights(graph, 0.6)
    with pytest.raises(ValueError, match="got 0"):
        laplacian_weights(graph, 0.0)


def test_a_complete_graph_averages_in_one_round():
    np.testing.assert_allclose(laplacian_weights(nx.complete_graph(5)), np.full((5, 5), 0.2), atol=1e-15)
    assert contraction(laplacian_weights(nx.complete_graph(5))) < 1e-14


def test_one_agent_alone():
    alone = nx.path_graph(1)
    assert metropolis_weights(alone) == laplacian_weights(alone) == 1.0
    assert diameter(alone) == 0


@given(connected_graphs())
def test_a_flood_is_exact_after_as_many_rounds_as_the_graph_is_wide_and_no_sooner(graph):
    for first in graph:
        known = {first}
        for _ in range(diameter(graph)):
            known |= {neighbour for node in known for neighbour in graph[node]}
        assert known == set(graph)
    assert diameter(graph) == max(nx.eccentricity(graph).values())
