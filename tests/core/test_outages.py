"""Running sums over links that fail for many rounds in a row: nothing is lost, and no result is silently wrong."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import connected_graphs, examples
from vpem import Failures, RunningSums
from vpem.core.network.adders import MessageAdder
from vpem.core.network.failures import message_numbers
from vpem.core.network.parties import make_network
from vpem.core.network.running_sums import LEAST_SHARE
from vpem.core.network.sums import Place, Shape

SHAPE = Shape(5, 1)


def network_on(graph):
    return make_network({n: [n] for n in sorted(graph)}, graph)


def add(summation, network, terms):
    """What every agent gets, (n_agents, n_values)."""
    return MessageAdder(summation, network).add(terms, SHAPE)[0]


def outage(sender, receiver, rounds):
    return [(number, sender, receiver) for number in rounds]


def make_terms(n_agents, seed=0):
    return 100 + 10 * np.random.default_rng(seed).normal(size=(n_agents, SHAPE.n_values))


def assert_exact(found, terms, tolerance=1e-9):
    np.testing.assert_allclose(found, np.broadcast_to(terms.sum(axis=0), found.shape), rtol=tolerance)


def test_an_agent_that_hears_nothing_for_54_rounds():
    # Its weight would be 2 ** -54, which totals of order one cannot grow by.
    network, terms = network_on(nx.path_graph(3)), make_terms(3)
    assert_exact(add(RunningSums(200, failures=Failures(listed=outage(1, 0, range(54)))), network, terms), terms)


GRAPHS = {"path of 3": nx.path_graph(3), "path of 6": nx.path_graph(6), "ring of 5": nx.cycle_graph(5)}


@pytest.mark.parametrize("begins", [0, 7])
@pytest.mark.parametrize("name", GRAPHS)
def test_an_outage_of_a_hundred_rounds_costs_no_more_than_a_hundred_rounds(name, begins):
    network = network_on(GRAPHS[name])
    terms, rounds = make_terms(len(GRAPHS[name])), range(begins, begins + 100)
    n_rounds = begins + 100 + RunningSums().n_rounds(network)
    for ways in ([(0, 1)], [(1, 0)], [(0, 1), (1, 0)], [(0, 1), (1, 0), (1, 2), (2, 1)]):
        listed = [entry for way in ways for entry in outage(*way, rounds)]
        assert_exact(add(RunningSums(n_rounds, failures=Failures(listed=listed)), network, terms), terms)


@examples(60)
@given(
    connected_graphs(fewest_agents=2, most_agents=6),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([None, 5.0, 20.0, 100.0]),
    st.sampled_from([1, 2, 30, 200]),
    st.integers(0, 2**32 - 1),
)
def test_no_result_is_wrong_by_more_than_results_differ(graph, share, burst, n_rounds, seed):
    # After the last round, whose messages arrive, the sum is a weighted mean of all results.
    network, terms = network_on(graph), make_terms(len(graph), seed)
    found = add(RunningSums(n_rounds, failures=Failures(share, burst, seed)), network, terms)
    total, rounding = terms.sum(axis=0), 1e-11 * np.abs(terms).sum(axis=0)
    assert (found.min(axis=0) - rounding <= total).all()
    assert (total <= found.max(axis=0) + rounding).all()


@examples(40)
@given(
    connected_graphs(fewest_agents=2, most_agents=5),
    st.sampled_from([0.1, 0.5]),
    st.sampled_from([None, 20.0, 100.0]),
    st.integers(0, 2**32 - 1),
)
def test_no_mass_is_lost_in_any_round(graph, share, burst, seed):
    network, failures, terms = network_on(graph), Failures(share, burst, seed), make_terms(len(graph), seed)
    summation = RunningSums(150, failures=failures)
    places = [Place(network, position, SHAPE) for position in network.positions]
    states = [summation.begin(place, {}, term) for place, term in zip(places, terms, strict=True)]
    everything = np.append(len(graph) * terms.sum(axis=0), len(graph))
    degrees = [len(network.neighbours[position]) for position in network.positions]
    for step in range(149):
        messages = [summation.message(place, step, state) for place, state in zip(places, states, strict=True)]
        states = [
            summation.combine(place, step, states[i], {j: messages[j] for j in network.neighbours[i]})
            for i, place in enumerate(places)
        ]
        mass = sum(state["mass"] for state in states)
        on_its_way = sum(
            states[j]["told"] - states[i].get(f"heard {j}", 0.0) for i in range(len(graph)) for j in graph[i]
        )
        np.testing.assert_allclose(mass + on_its_way, everything, rtol=1e-12)
        # Held, or at least an eighth of what there is without losses, of which half or more was given away.
        least = LEAST_SHARE / (1 + max(degrees))
        assert min(state["mass"][-1] for state in states) >= 0.999 * least


def test_weights_are_never_so_small_without_losses():
    for graph in (nx.star_graph(9), nx.lollipop_graph(6, 4), nx.path_graph(9)):
        network, degrees = network_on(graph), np.array([graph.degree[i] for i in sorted(graph)])
        P = (nx.to_numpy_array(graph, nodelist=sorted(graph)) + np.eye(len(graph))) / (1 + degrees)
        weights = np.ones(len(graph))
        for _ in range(500):
            weights = P @ weights
            assert (weights >= 0.999 * (1 + degrees) / (1 + degrees.max())).all()
        terms = make_terms(len(graph))
        assert_exact(add(RunningSums(loss=0.0), network, terms), terms, 1e-8)


# Planned rounds


def test_rounds_are_planned_for_outages():
    for graph, known in ((nx.cycle_graph(5), 50), (nx.cycle_graph(8), 124)):
        network = network_on(graph)
        assert RunningSums().n_rounds(network) == RunningSums(outage=1 / 0.9).n_rounds(network) == known
        planned = [RunningSums(outage=length).n_rounds(network) for length in (2, 5, 20, 100)]
        assert planned == sorted(planned)
        assert planned[0] >= known
        assert 2000 < planned[-1] < 5000
    assert RunningSums(loss=0.0, outage=20.0).n_rounds(network) == RunningSums(loss=0.0).n_rounds(network)


@pytest.mark.parametrize("length", [5, 20, 100])
def test_planned_rounds_are_enough(length):
    graph = nx.cycle_graph(5)
    network, terms = network_on(graph), np.random.default_rng(0).normal(size=5)
    n_rounds = RunningSums(outage=length).n_rounds(network)
    for seed in range(5):
        results = results_of(network, terms, Failures(0.1, length, seed), n_rounds)
        np.testing.assert_allclose(results, terms.sum(), atol=1e-9)


def results_of(network, terms, failures, n_rounds):
    """The rounds for all agents at once, as arrays [receiver, sender]."""
    n, links = len(terms), nx.to_numpy_array(network.links, nodelist=range(len(terms)))[..., None]
    senders, receivers = np.array(list(message_numbers(network))).T
    n_parts = 1 + links.sum(axis=1)
    mass, told, seen = np.column_stack([n * terms, np.ones(n)]), np.zeros((n, 2)), np.zeros((n, n, 2))
    for number in range(n_rounds):
        after = told + np.where(mass[:, 1:] < LEAST_SHARE * n_parts / n_parts.max(), 0.0, mass / n_parts)
        mass, told = mass - (n_parts - 1) * (after - told), after
        arrives = links.copy()
        if number + 1 < n_rounds:
            arrives[receivers, senders] -= failures.messages(network, 0, number)[:, None]
        growth = arrives * (told - seen)
        mass, seen = mass + growth.sum(axis=1), seen + growth
    return mass[:, 0] / mass[:, 1]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"outage": 0.5}, "a number of rounds, to be 1 or more with loss=0.1, got 0.5; try outage=None"),
        ({"loss": 0.8, "outage": 2}, "to be 4 or more with loss=0.8, got 2"),
        ({"outage": "long"}, "got 'long'"),
        ({"outage": float("inf")}, "got inf"),
        ({"outage": True}, "got True"),
    ],
)
def test_outages_that_cannot_be(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        RunningSums(**arguments)
