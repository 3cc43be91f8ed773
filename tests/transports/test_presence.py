"""Who is there and who is done, among agents whose statuses arrive late or not at all."""

import random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpem.transports.presence import FAR_LEASES, Presence

LEASE = 2.0


def make(graph, now=0.0):
    names = {number: f"party {number}" for number in graph}
    found = {number: Presence(number, names, graph[number], LEASE, now) for number in graph}
    for one, other in graph.edges:
        found[one].connect(other, now)
        found[other].connect(one, now)
    return found


def tell(agents, one, other, now):
    agents[other].hear(one, agents[one].status(), now)


@given(st.integers(2, 6), st.integers(0, 2**32))
@settings(max_examples=50)
def test_all_leave_in_the_end_and_none_before_all_are_done(n, seed):
    draw = random.Random(seed)
    graph = nx.random_labeled_tree(n, seed=draw.randrange(1000))
    agents, left, finished, now = make(graph), set(), set(), 0.0
    links = [link for edge in graph.edges for link in (edge, edge[::-1])]
    for step in range(4000):
        now += 0.01
        if step % 7 == 0 and len(finished) < n and draw.random() < 0.5:
            number = draw.choice(sorted(set(graph) - finished))
            finished.add(number)
            agents[number].finish(now)
        one, other = draw.choice(links)
        if one not in left and other not in left and draw.random() < 0.7:  # the others are lost
            tell(agents, one, other, now)
        for number in set(graph) - left:
            for peer in graph[number]:
                if peer in left and peer in agents[number]._here:
                    agents[number].disconnect(peer, now)
            if agents[number].may_leave(now):
                assert finished == set(graph)
                left.add(number)
    assert left == set(graph)


def test_statuses_reach_all_and_an_agent_that_is_silent_is_awaited_everywhere():
    graph, now = nx.path_graph(4), 0.0
    agents = make(graph)
    for step in range(200):
        now += 0.1
        for one, other in graph.edges:
            if step < 50 or 3 not in (one, other):
                tell(agents, one, other, now)
                tell(agents, other, one, now)
        if step == 50:
            agents[2].disconnect(3, now)
    for number in range(3):
        [awaited] = agents[number].awaited(now)
        assert awaited.name == "party 3"
        assert awaited.seconds == pytest.approx(15.0, abs=0.5)
    assert agents[3].awaited(now)[0].seconds > FAR_LEASES * LEASE


def test_an_agent_that_was_started_again_goes_on_above_its_old_count():
    graph = nx.path_graph(3)
    agents = make(graph)
    for step in range(50):
        tell(agents, 0, 1, float(step))
        tell(agents, 1, 2, float(step))
    agents[0] = Presence(0, agents[0].names, [1], LEASE, 50.0)
    agents[0].connect(1, 50.0)
    tell(agents, 1, 0, 50.0)
    tell(agents, 0, 1, 51.0)
    tell(agents, 1, 2, 51.0)
    assert agents[2]._heard[0] == 51.0


def test_agents_that_are_done_are_not_awaited():
    agents = make(nx.path_graph(2))
    agents[0].finish(0.0)
    tell(agents, 0, 1, 0.0)
    agents[1].disconnect(0, 1.0)
    assert agents[1].awaited(100.0) == []
