"""Links that fail: what is drawn, and averages over what is left, against rounds written as naively as possible."""

import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oracles import connected_graphs, examples, mixing_weights
from vpem import Consensus, Failures, RunningSums, Tree
from vpem.core.network.adders import MessageAdder, linear_adder
from vpem.core.network.failures import link_pairs, message_numbers
from vpem.core.network.parties import make_network
from vpem.core.network.rounds import can_have_sent
from vpem.core.network.sums import Place, Shape, WrongMessageError
from vpem.datasets import random_geometric_graph

N_VALUES = 5
SHAPE = Shape(N_VALUES, 1)


def network_on(graph, hops=0, seed=0):
    return make_network({n: [n] for n in sorted(graph)}, graph, hops, np.random.default_rng(seed))


def add(summation, network, terms, n_sums=1):
    """What every root gets of the last of some sums, (n_hubs, n_values)."""
    adder = MessageAdder(summation, network)
    for _ in range(n_sums):
        found, _ = adder.add(terms, SHAPE)
    return found


def begin(network, terms):
    """Every agent's share of its hub's term."""
    state = np.empty((len(network.parties), N_VALUES))
    for hub, term in zip(network.hubs, terms, strict=True):
        state[list(hub.members)] = len(network.parties) * term / len(hub.members)
    return state


def fails(failures, network, count, number):
    """Links that fail in a round, as networkx has them."""
    broken = failures.links(network, count, number)
    return [tuple(pair) for pair in link_pairs(network)[broken].tolist()]


# What is drawn


def test_the_same_failures_in_any_order_and_in_every_network_of_the_same_links():
    failures, graph = Failures(0.3, seed=5), nx.cycle_graph(6)
    one, other = network_on(graph), network_on(nx.Graph(sorted(graph.edges, reverse=True)))
    rounds = [(count, number) for count in (0, 1, 7) for number in (0, 1, 63, 64, 200)]
    expected = {at: failures.messages(one, *at).tolist() for at in rounds}
    assert {at: failures.messages(other, *at).tolist() for at in rounds[::-1]} == expected
    assert len({str(drawn) for drawn in expected.values()}) > 10, "rounds and sums differ"
    assert failures.messages(one, 0, 3).tolist() != replace(failures, seed=6).messages(one, 0, 3).tolist()


def test_these_are_the_failures_of_this_seed():
    # Written down: another process, processor or version of numpy must not find others.
    drawn = Failures(0.5, seed=1).links(network_on(nx.path_graph(17)), 2, 5)
    assert "".join("x" if fails else "." for fails in drawn) == FIRST


FIRST = "xx.xx....x.x..xx"


@pytest.mark.parametrize(("share", "burst"), [(0.1, None), (0.1, 1.0), (0.1, 4.0), (0.6, 3.0), (0.6, None)])
def test_the_share_and_the_length_of_failures(share, burst):
    failures, network = Failures(share, burst), network_on(nx.path_graph(30))
    rounds = np.array([failures.links(network, 0, number) for number in range(2000)])
    ends = rounds[:-1] & ~rounds[1:]
    begins = ~rounds[:-1] & rounds[1:]
    # 58,000 draws; in bursts neighbouring rounds depend on each other. Six standard deviations of independent draws,
    # times the length of a burst.
    length = 1 / (1 - share) if burst is None else burst
    deviation = 6 * length * math.sqrt(share * (1 - share) / rounds.size)
    assert abs(rounds.mean() - share) < deviation
    assert abs(rounds[0].mean() - share) < 6 * math.sqrt(share * (1 - share) / 29), "from the first round on"
    assert rounds[:-1].sum() / ends.sum() == pytest.approx(length, rel=0.1)
    assert ends.sum() == pytest.approx(begins.sum(), abs=30)


def test_links_fail_both_ways_and_messages_one_way():
    failures, network = Failures(0.5, listed=[(3, 2, 1), (None, 0, 1)]), network_on(nx.path_graph(3))
    numbers, quiet = message_numbers(network), replace(failures, probability=0.0)
    assert [fails(quiet, network, 4, number) for number in (2, 3)] == [[(0, 1)], [(0, 1), (1, 2)]]
    lost = [quiet.messages(network, 4, number) for number in (2, 3)]
    assert [np.flatnonzero(drawn).tolist() for drawn in lost] == [
        [numbers[0, 1]],
        sorted([numbers[0, 1], numbers[2, 1]]),
    ]
    assert quiet.loses(network, 4, 3, 2, 1)
    assert not quiet.loses(network, 4, 3, 1, 2)
    one, other = np.array([failures.messages(network, 0, number) for number in range(400)]).T[
        [numbers[1, 2], numbers[2, 1]]
    ]
    assert 100 < (one != other).sum() < 300, "each way by itself"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"probability": 1.0}, "from 0 to less than 1, got 1.0"),
        ({"probability": "often"}, "from 0 to less than 1, got 'often'"),
        ({"probability": 0.8, "burst": 2.0}, "that last burst=4 rounds or more, to have them in 80% of the rounds"),
        ({"burst": 0.5}, "burst=1 rounds or more"),
        ({"seed": -1}, "a seed from 0 on, got -1"),
        (
            {"listed": [(1, "a")]},
            r"\(round, sender, receiver\), the round from 0 on, or None for all, got \(1, 'a'\)",
        ),
        ({"listed": [(-1, "a", "b")]}, "the round from 0 on"),
    ],
)
def test_failures_that_cannot_be(arguments, problem):
    with pytest.raises(ValueError, match=problem):
        Failures(**arguments)


@pytest.mark.parametrize("kind", [Consensus, RunningSums])
def test_listed_links_must_be_there(kind):
    with pytest.raises(ValueError, match="got one between '0' and '2'; its parties are '0', '1', '2'"):
        kind(3, failures=Failures(listed=[(1, 0, 2)])).check(network_on(nx.path_graph(3)))


@pytest.mark.parametrize("rounds", [None, "auto"])
def test_consensus_over_links_that_fail_needs_a_number_of_rounds(rounds):
    with pytest.raises(ValueError, match=f"a number of rounds where links fail, got {rounds!r}"):
        Consensus(rounds, failures=Failures(0.1))


def test_summations_check_what_they_get():
    for kind in (Consensus, RunningSums):
        with pytest.raises(ValueError, match=r"failures to be None or Failures\(...\), got 0.1"):
            kind(3, failures=0.1)
    with pytest.raises(ValueError, match="a whole number, 1 to 65536, got 0"):
        RunningSums(0)
    with pytest.raises(ValueError, match=r"from 0 to less than 1, got 1\.5"):
        RunningSums(loss=1.5)
    with pytest.raises(ValueError, match="links between the parties for RunningSums, got a star"):
        RunningSums().check(make_network({0: [0], 1: [1]}, "star"))


# Consensus over what is left


@given(
    connected_graphs(fewest_agents=2),
    st.integers(0, 2),
    st.sampled_from(["metropolis", "laplacian"]),
    st.sampled_from([0.0, 0.2, 0.7]),
    st.sampled_from([None, 3.0]),
    st.integers(0, 2**32 - 1),
)
def test_consensus_is_the_product_of_the_weights_that_are_left(graph, hops, kind, share, burst, seed):
    network, failures, n_rounds = network_on(graph, hops, seed), Failures(share, burst, seed), 7
    terms = np.random.default_rng(seed).normal(size=(len(network.hubs), N_VALUES))
    state = begin(network, terms)
    whole = mixing_weights(graph, kind)
    for number in range(n_rounds):
        left = graph.copy()
        left.remove_edges_from(fails(failures, network, 1, number))
        if kind == "metropolis":
            W = mixing_weights(left, kind)
        else:  # the constant of all links
            W = np.where(nx.to_numpy_array(left, nodelist=range(len(left))) > 0, whole, 0.0)
            np.fill_diagonal(W, 1 - W.sum(axis=1))
        state = W @ state
        np.testing.assert_allclose(state.mean(axis=0), begin(network, terms).mean(axis=0), atol=1e-12)
    found = add(Consensus(n_rounds, kind, failures=failures), network, terms, n_sums=2)
    # Sums of at most eight terms of order 8: rounding stays far below.
    np.testing.assert_allclose(found, state[[hub.root for hub in network.hubs]], atol=1e-12)


def test_what_is_not_known_of_consensus_over_links_that_fail():
    summation, network = Consensus(50, failures=Failures(0.1)), network_on(nx.cycle_graph(4))
    assert summation.matrix(network) is None
    assert summation.error_factor(network) is None
    assert summation.rounds_needed(network, 1e-6) is None


# Running sums


def naive_running_sums(graph, masses, lost, n_rounds):
    """Mass / weight of each agent: totals of shares are sent, and what they have grown by is added.

    lost(number, sender, receiver) says whether a message is lost; those of the last round are not. An agent that has
    less than an eighth of the weight that it has at least without losses holds what it has.
    """
    n, most = len(graph), max(len(graph[i]) for i in graph)
    mass = [np.append(own, 1.0) for own in masses]
    told = [np.zeros(N_VALUES + 1) for _ in range(n)]
    seen = {(i, j): np.zeros(N_VALUES + 1) for i in range(n) for j in graph[i]}
    for number in range(n_rounds):
        shares = [own / (1 + len(graph[i])) for i, own in enumerate(mass)]
        shares = [share if share[-1] * (1 + most) >= 1 / 8 else 0 * share for share in shares]
        told = [total + share for total, share in zip(told, shares, strict=True)]
        mass = [own - len(graph[i]) * share for i, (own, share) in enumerate(zip(mass, shares, strict=True))]
        for i in range(n):
            for j in sorted(graph[i]):
                if number + 1 == n_rounds or not lost(number, j, i):
                    mass[i] += told[j] - seen[i, j]
                    seen[i, j] = told[j]
    return np.array([own[:-1] / own[-1] for own in mass]), np.array(mass), told, seen


@given(
    connected_graphs(fewest_agents=2),
    st.integers(0, 2),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([None, 3.0]),
    st.integers(0, 2**32 - 1),
)
def test_running_sums_are_as_many_literal_rounds(graph, hops, share, burst, seed):
    network, failures, n_rounds = network_on(graph, hops, seed), Failures(share, burst, seed), 12
    terms = np.random.default_rng(seed).normal(size=(len(network.hubs), N_VALUES))

    def lost(number, sender, receiver):
        return failures.loses(network, 0, number, sender, receiver)

    expected, mass, told, seen = naive_running_sums(graph, begin(network, terms), lost, n_rounds)
    on_its_way = sum((told[j] - total for (_, j), total in seen.items()), np.zeros(N_VALUES + 1))
    everything = np.append(len(graph) * terms.sum(axis=0), len(graph))
    np.testing.assert_allclose(mass.sum(axis=0) + on_its_way, everything, atol=1e-10, err_msg="nothing is lost")
    found = add(RunningSums(n_rounds, loss=0.9, failures=failures), network, terms)
    np.testing.assert_allclose(found, expected[[hub.root for hub in network.hubs]], rtol=1e-10, atol=1e-10)


@given(connected_graphs(), st.integers(0, 2), st.sampled_from([None, 1, 9]), st.integers(0, 2**32 - 1))
def test_without_losses_they_are_a_matrix(graph, hops, rounds, seed):
    network, summation = network_on(graph, hops, seed), RunningSums(rounds)
    terms = np.random.default_rng(seed).normal(size=(len(network.hubs), N_VALUES))
    adder = linear_adder(summation.matrix(network))
    np.testing.assert_allclose(adder.add(terms)[adder.view_of_hub], add(summation, network, terms), atol=1e-11)
    if rounds is None:
        np.testing.assert_allclose(add(summation, network, terms), terms.sum(axis=0) + 0 * terms, atol=1e-8)


@examples(60)
@given(connected_graphs(fewest_agents=2, most_agents=6), st.sampled_from([None, 2.0]), st.integers(0, 2**32 - 1))
def test_sums_are_exact_with_lost_messages_and_a_link_that_fails_for_long(graph, burst, seed):
    network, (link, *_) = network_on(graph), graph.edges
    listed = [(number, *ends) for number in range(10) for ends in (link, link[::-1])]
    terms = 100 + 10 * np.random.default_rng(seed).normal(size=(len(graph), N_VALUES))
    # Rounds for more losses than there are, and those in which the link does not work.
    summation = RunningSums(10 + RunningSums(loss=0.3).n_rounds(network), failures=Failures(0.1, burst, seed, listed))
    found = add(summation, network, terms)
    np.testing.assert_allclose(found, np.broadcast_to(terms.sum(axis=0), found.shape), rtol=1e-9)


@examples(30)
@given(connected_graphs(fewest_agents=3, most_agents=6), st.integers(0, 2**32 - 1))
def test_a_link_that_never_works_is_no_link_for_consensus(graph, seed):
    spare = [link for link in graph.edges if nx.is_connected(nx.restricted_view(graph, [], [link]))]
    assume(spare)
    network, left = network_on(graph), graph.copy()
    left.remove_edge(*spare[0])
    terms = np.random.default_rng(seed).normal(size=(len(graph), N_VALUES))
    broken = Failures(listed=[(None, *spare[0]), (None, *spare[0][::-1])])
    expected = add(Consensus(20), network_on(left), terms)
    np.testing.assert_allclose(add(Consensus(20, failures=broken), network, terms), expected, atol=1e-12)


def test_a_link_that_never_works_is_an_error_for_running_sums_of_many_rounds():
    network, terms = network_on(nx.cycle_graph(3)), np.random.default_rng(0).normal(size=(3, N_VALUES))
    broken = Failures(listed=[(None, 0, 1)])
    with pytest.raises(ValueError, match="messages from every neighbour in 2099 rounds, got none from party 0; take"):
        add(RunningSums(2100, failures=broken), network, terms)
    assert np.isfinite(add(RunningSums(failures=broken), network, terms)).all(), "that may be an outage"


def test_shares_that_are_sent_as_they_are_lose_mass():
    graph, failures = nx.cycle_graph(5), Failures(0.1, seed=1)
    network, terms = network_on(graph), np.random.default_rng(0).normal(size=(5, N_VALUES))
    mass = np.column_stack([5 * terms, np.ones(5)])
    for number in range(50):
        shares, mass = mass / 3, mass / 3
        for i in graph:
            arrive = [shares[j] for j in graph[i] if not failures.loses(network, 0, number, j, i)]
            mass[i] = shares[i] + sum(arrive)
    plain, running = mass[:, :-1] / mass[:, -1:], add(RunningSums(50, failures=failures), network, terms)
    assert mass[:, -1].sum() < 1, "of five"
    assert np.abs(plain - terms.sum(axis=0)).max() > 0.01
    np.testing.assert_allclose(running, terms.sum(axis=0) + 0 * running, rtol=1e-9, atol=1e-9)


GRAPHS = {
    "ring of 5": nx.cycle_graph(5),
    "ring of 8": nx.cycle_graph(8),
    "geometric": random_geometric_graph(20, 5, 0),
}


def rounds_to(graph, failures, tolerance=1e-9):
    """Rounds after which every agent's sum is exact, and stays so, as a share of the largest term.

    The naive rounds above for all agents at once, as arrays [receiver, sender].
    """
    network, n = network_on(graph), len(graph)
    terms = np.random.default_rng(0).normal(size=n)
    links = nx.to_numpy_array(graph, nodelist=range(n))[..., None]
    senders, receivers = np.array(list(message_numbers(network))).T
    mass, told, seen = np.column_stack([n * terms, np.ones(n)]), np.zeros((n, 2)), np.zeros((n, n, 2))
    errors = []
    for number in range(RunningSums(loss=0.3).n_rounds(network)):
        mass /= 1 + links.sum(axis=1)
        told = told + mass
        arrives = links.copy()
        arrives[receivers, senders] -= failures.messages(network, 0, number)[:, None]
        growth = arrives * (told - seen)
        mass, seen = mass + growth.sum(axis=1), seen + growth
        errors.append(np.abs(mass[:, 0] / mass[:, 1] - terms.sum()).max() / np.abs(terms).max())
    assert errors[-1] < tolerance
    return 1 + np.flatnonzero(np.array(errors) >= tolerance)[-1] + 1


@pytest.mark.parametrize("name", GRAPHS)
def test_a_tenth_of_lost_messages_costs_few_rounds(name):
    graph = GRAPHS[name]
    plain = rounds_to(graph, Failures())
    lossy = [rounds_to(graph, Failures(0.1, seed=seed)) for seed in range(20)]
    assert np.median(lossy) <= 1.2 * plain, (plain, sorted(lossy))
    planned, network = RunningSums(), network_on(graph)
    assert max(lossy) <= planned.n_rounds(network) <= 1.5 * RunningSums(loss=0).n_rounds(network)
    assert planned.error_factor(network) < 1e-10


@examples(40)
@given(connected_graphs(fewest_agents=2), st.sampled_from([0.0, 0.1, 0.3, 0.5]))
def test_the_planned_rate_is_that_of_the_mean(graph, loss):
    """The largest eigenvalue but 1 of agents and links as unknowns, or what a link's own failures leave."""
    links = [(i, j) for i in graph for j in graph[i]]
    n = len(graph)
    M = np.zeros((n + len(links), n + len(links)))
    for i in graph:
        M[i, i] = 1 / (1 + len(graph[i]))
    for place, (i, j) in enumerate(links, n):  # what waits between i and j
        M[j, i] = (1 - loss) / (1 + len(graph[i]))
        M[j, place] = 1 - loss
        M[place, i] = loss / (1 + len(graph[i]))
        M[place, place] = loss
    found = RunningSums(loss=loss).rate(network_on(graph))
    second = np.sort(np.abs(np.linalg.eigvals(M)))[-2]
    # Eigenvalues that are not simple are exact to the square root of rounding only.
    assert found == pytest.approx(max(second, math.sqrt(loss), no_loss_rate(graph)), abs=1e-6)


def no_loss_rate(graph):
    n = len(graph)
    P = (nx.to_numpy_array(graph, nodelist=range(n)) + np.eye(n)) / [1 + len(graph[i]) for i in range(n)]
    return np.sort(np.abs(np.linalg.eigvals(P)))[-2]


def test_nothing_holds_an_agent_up_in_rounds_that_may_miss_messages():
    network, summation = network_on(nx.path_graph(3)), RunningSums(4)
    rounds = [summation.schedule(network, position, values=True, decision=True) for position in network.positions]
    assert [part.may_miss for part in rounds[0]] == 3 * [True] + 3 * [False]
    assert [(part.values, part.decision) for part in rounds[0]] == 4 * [(True, False)] + 2 * [(False, True)]
    # While agent 0 waits in its first round, its neighbour may have come to the last one of the values.
    assert [can_have_sent(rounds, 1, step, 0, 0) for step in range(6)] == [True] * 4 + [False] * 2
    tree = [Tree().schedule(network, position, values=True, decision=False) for position in network.positions]
    assert not can_have_sent(tree, 1, 1, 0, -1)
    *_, last = summation.schedule(network, 1, values=True, decision=False)
    assert last[:5] == ("flood", (0, 2), (0, 2), False, False)


def test_totals_that_no_agent_can_have_come_to_are_refused():
    network, shape = network_on(nx.path_graph(2)), Shape(3, 2)
    summation, place = RunningSums(rounds=5), Place(network, 0, shape)
    state = summation.combine(place, 0, summation.begin(place, {}, np.ones(6)), {1: np.append(np.ones(6), 0.5)})
    for weight in (0.5, 0.75):  # a neighbour that holds its mass sends the same total again
        assert summation.combine(place, 1, state, {1: np.append(np.ones(6), weight)})["mass"].shape == (7,)
    for weight in (0.25, 0.0, -1.0, 1e9, np.nan):
        with pytest.raises(WrongMessageError, match=r"whose weight grows from 0\.5, to 12") as raised:
            summation.combine(place, 1, state, {1: np.append(np.ones(6), weight)})
        assert raised.value.sender == 1
    with pytest.raises(WrongMessageError, match="finite numbers"):
        summation.combine(place, 1, state, {1: np.append(np.full(6, -1.7e308), 0.75)})
