"""What the messages hold, and what they tell: the figures are in docs/privacy.md."""

import re
from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import vpem
from oracles import by_row
from studies import make_study, table
from vpem.core.network.consensus import Consensus
from vpem.transports import wire
from vpem.transports.inprocess import InProcess

PRIVACY = Path(__file__).parents[1] / "docs" / "privacy.md"


def holdings(agents):
    """Of each agent, all bytes that it sends and all states that it is in."""
    sent = {agent.number: [] for agent in agents}
    states = {agent.number: [] for agent in agents}
    transport = InProcess(agents)

    def watch(message):
        sent[message.sender].append(wire.encode(message))
        states[message.receiver].append(wire.encode_state(transport.agents[message.receiver].state))

    transport.watch = watch
    transport.start().run()
    assert all(agent.is_done for agent in agents)
    for agent in agents:
        states[agent.number].append(wire.encode_state(agent.state))
    return ({number: b"".join(parts) for number, parts in found.items()} for found in (sent, states))


def parties_found(content, X, network):
    """Parties of whose columns some value is among the bytes."""
    return {
        party
        for party, columns in enumerate(network.columns)
        if any(value.tobytes() in content for value in X[:, columns].ravel())
    }


@pytest.mark.parametrize("init_params", ["kmeans", "labels", "random", "random_from_data"])
@pytest.mark.parametrize("graph", ["star", nx.cycle_graph(5)])
def test_without_hops_no_column_leaves_its_party(graph, init_params):
    X = table(gaps=False)
    agents, network = make_study(graph, X, init_params=init_params, batch_size=10)
    sent, states = holdings(agents)
    for number in sent:
        assert parties_found(sent[number], X, network) == set(), "not even its own"
        # A start from rows has the party's own values in it, as means.
        assert parties_found(states[number], X, network) <= {number}


@pytest.mark.parametrize("hops", [1, 2])
def test_with_hops_columns_stay_in_their_hub(hops):
    X = table(gaps=False, n_columns=7)
    agents, network = make_study(nx.path_graph(7), X, hops=hops, init_params="random")
    assert len(network.hubs) > 1
    sent, states = holdings(agents)
    pooled = 0
    for hub in network.hubs:
        for member in hub.members:
            found = parties_found(sent[member], X, network) | parties_found(states[member], X, network)
            assert found <= set(hub.members)
        pooled += parties_found(states[hub.root], X, network) == set(hub.members)
    assert pooled == len(network.hubs), "the search finds what is there"


def r_squared(column, contributions):
    """How much of a column a linear regression on its party's contributions explains."""
    design = np.column_stack([np.ones(len(column)), *contributions])
    coefficients, *_ = np.linalg.lstsq(design / np.abs(design).max(axis=0), column, rcond=None)
    residuals = column - design / np.abs(design).max(axis=0) @ coefficients
    return 1 - residuals.var() / column.var()


def attack(n_columns, n_components, n_iterations, graph="star"):
    """What a curious receiver recovers of one party's columns: the worst and the best R^2."""
    rng = np.random.default_rng(0)
    groups = rng.integers(3, size=400)
    mixing = rng.normal(size=(n_columns + 2, n_columns + 2))
    X = rng.normal(size=(400, n_columns + 2)) @ mixing + 3 * rng.normal(size=(3, n_columns + 2))[groups]
    columns = {0: list(range(n_columns)), 1: [n_columns], 2: [n_columns + 1]}
    agents, _ = make_study(
        graph,
        X,
        columns=columns,
        n_components=n_components,
        max_iter=n_iterations - 1,
        init_params="random",
        **({} if graph == "star" else {"summation": Consensus(3)}),
    )
    seen = []
    watch = lambda message: message.sender == 0 and message.kind == "sum" and seen.append(message)  # noqa: E731
    InProcess(agents, watch=watch).start().run()
    if graph != "star":  # the first round of each sum holds the sender's own term
        receiver = seen[0].receiver
        seen = [message for message in seen if message.receiver == receiver][::3]
    assert len(seen) == n_iterations
    contributions = [by_row(message.values, 400, n_components) for message in seen]
    return [r_squared(X[:, column], contributions) for column in range(n_columns)]


def claimed(what):
    """A figure of the document's table."""
    line = next(line for line in PRIVACY.read_text().splitlines() if line.startswith(f"| {what}"))
    return [float(number) for number in re.findall(r"\d\.\d\d", line)]


def test_one_column_and_two_components_are_an_open_book():
    assert attack(1, 2, 1) == pytest.approx([1.0], abs=1e-9)
    assert attack(1, 2, 1, nx.path_graph(3)) == pytest.approx([1.0], abs=1e-9), "to a neighbour as to a server"
    assert claimed("1 column, 2 components, 1 sum") == [1.0]


def test_more_columns_take_more_sums():
    for what, arguments in {
        "4 columns, 3 components, 1 sum": (4, 3, 1),
        "4 columns, 3 components, 3 sums": (4, 3, 3),
        "4 columns, 3 components, 5 sums": (4, 3, 5),
    }.items():
        found = attack(*arguments)
        assert claimed(what) == pytest.approx([min(found), max(found)], abs=0.011), (what, found)
    assert min(attack(4, 3, 5)) > 1 - 1e-6, "fifteen numbers a row, for fourteen powers and products of four columns"


def split_in_two(totals, sizes):
    """Decode sums of two parties' contributions that take few values: a part of each, found by enumeration.

    Parameters
    ----------
    totals : array of shape (n_rows, n_components)
    sizes : tuple of int
        How many categories the parties have.

    Returns
    -------
    list of pairs of arrays, (n_rows,) each
        All ways in which the sums can be divided, as categories without names.
    """
    points, which = np.unique(np.round(totals, 9), axis=0, return_inverse=True)
    which = which.ravel()
    n_one, n_other = sizes
    assert len(points) == n_one * n_other, "every pair of categories occurs"
    found = []
    for chosen in combinations(range(1, len(points)), n_other - 1):
        line = points[[0, *chosen]] - points[0]  # what the other party's categories would add
        left, groups = set(range(len(points))), np.full(len(points), -1)
        places = np.full(len(points), -1)
        while left:
            first = min(left)
            near = [np.abs(points - (points[first] + step)).max(axis=1).argmin() for step in line]
            misses = max(np.abs(points[p] - points[first] - step).max() for p, step in zip(near, line, strict=True))
            if misses > 1e-6 or not set(near) <= left:
                break
            groups[near], places[near] = groups.max() + 1, range(n_other)
            left -= set(near)
        if not left:
            found.append((groups[which], places[which]))
    return found


@pytest.mark.parametrize("sizes", [(3, 3), (2, 4)])
def test_a_total_of_two_parties_with_categories_is_decoded_by_enumeration(sizes):
    """An agent above two others on a tree sees only the sum of their contributions, and yet both their columns."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    columns = [
        np.where(rng.random(600) < 0.7, labels % size, rng.integers(size, size=600)).astype(float) for size in sizes
    ]
    X = np.column_stack([*columns, rng.normal(size=600) + 3 * labels])
    families = {0: "categorical", 1: "categorical", 2: "gaussian"}
    model = vpem.VerticalMixture(3, families=families, partition=[[0], [1], [2]], random_state=0).fit(X)
    density, blocks = model.fitted_.mixture.density, model.fitted_.mixture.blocks
    seen = sum(density.log_density(X[:, [b]].T, blocks[b]) for b in range(2)).T
    ways = split_in_two(seen, sizes)
    assert ways
    decoded = [max(adjusted_rand_score(part, X[:, b]) for part in way) for way in ways for b in range(2)]
    assert max(decoded[::2]) == max(decoded[1::2]) == 1.0
    # With a Gaussian column at one of them every total is another number: there is nothing to enumerate.
    mixed = seen + density.log_density(X[:, [2]].T, blocks[2]).T
    assert len(np.unique(np.round(mixed, 9), axis=0)) == 600


def test_one_party_with_categories_is_decoded_at_once():
    X = np.random.default_rng(0).integers(4, size=(300, 1)).astype(float)
    X = np.column_stack([X, X[:, 0] + np.random.default_rng(1).normal(size=300)])
    model = vpem.VerticalMixture(2, families={0: "categorical", 1: "gaussian"}, random_state=0).fit(X)
    sent = model.fitted_.mixture.density.log_density(X[:, :1].T, model.fitted_.mixture.blocks[0]).T
    _, codes = np.unique(np.round(sent, 9), axis=0, return_inverse=True)
    assert adjusted_rand_score(codes.ravel(), X[:, 0]) == 1.0
