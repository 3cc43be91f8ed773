"""A start from labels: the same in both engines, however messages come, and from wrong messages safe."""

import networkx as nx
import numpy as np
import pytest

from studies import bits, die_and_come_back, make_study, run, table
from test_same_numbers import assert_same, fit_both
from vpem import Consensus, Tree, VerticalGaussianMixture
from vpem.core.agent.message import RemoteProtocolError
from vpem.core.network.packets import packed_bytes, packet_bytes
from vpem.core.settings import STARTS
from vpem.transports.inprocess import Disturbances, InProcess

PARTIES = {"a": [0, 1], "b": [2], "c": [3, 4], "d": [5]}
NETWORKS = {
    "star": {"graph": "star"},
    "ring": {"graph": "ring", "summation": Consensus(5)},
    "path": {"graph": "path", "summation": Consensus(3)},
    "tree": {"graph": "path", "summation": Tree()},
    "hubs": {"graph": "path", "hops": 1, "summation": Consensus(6)},
    "one hub": {"graph": "path", "hops": 3, "summation": Consensus(6)},
}


def rows(n_rows=300, gaps=True):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n_rows, 6)) + 4 * rng.integers(3, size=(n_rows, 1))
    if gaps:
        X[rng.random(X.shape) < 0.08] = np.nan
        X[5] = X[6] = np.nan
        X[10:40, :2] = np.nan
    return X


@pytest.mark.processors
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("n_components", [1, 3])
def test_both_engines_start_and_send_the_same(network, gaps, n_components):
    arguments = {"partition": PARTIES, "init_params": "labels", "n_init": 2, **network}
    for max_iter in (0, 4):
        both = fit_both(rows(gaps=gaps), n_components=n_components, max_iter=max_iter, **arguments)
        assert_same(*both, tolerance=1e-12)


@pytest.mark.processors
@pytest.mark.parametrize("graph", ["star", "path"])
def test_one_party_alone(graph):
    arguments = {"partition": [list(range(6))], "graph": graph, "init_params": "labels", "max_iter": 3}
    assert_same(*fit_both(rows(), n_components=2, **arguments), tolerance=1e-12)


@pytest.mark.parametrize("graph", ["star", "path"])
def test_what_a_start_sends(graph):
    X, arguments = rows(gaps=False), {"partition": PARTIES, "graph": graph, "max_iter": 0, "random_state": 0}
    sent = {
        kind: VerticalGaussianMixture(3, init_params=kind, **arguments).fit(X).traffic_
        for kind in ("labels", "random", "kmeans")
    }
    ups, n_messages = (4, 8) if graph == "star" else (1 + 2 + 1, 6)  # packets that travel one hop each
    expected = ups * packet_bytes(300) + n_messages // 2 * packed_bytes(300, 4) + n_messages * 68
    assert sent["labels"].bytes - sent["random"].bytes == expected
    assert sent["labels"].messages - sent["random"].messages == n_messages
    assert sent["labels"].bytes - sent["random"].bytes < 0.1 * (sent["kmeans"].bytes - sent["random"].bytes)


def test_starts_differ_and_follow_from_the_seed():
    X = np.random.default_rng(0).normal(size=(400, 6))
    one, other, again = (
        VerticalGaussianMixture(4, init_params="labels", max_iter=0, random_state=seed).fit(X) for seed in (0, 1, 0)
    )
    np.testing.assert_array_equal(one.means_, again.means_)
    assert np.abs(one.means_ - other.means_).max() > 1e-3


def test_the_start_does_not_depend_on_the_rounds():
    fits = [
        VerticalGaussianMixture(
            3, partition=PARTIES, graph="ring", summation=summation, init_params="labels", max_iter=0, random_state=0
        ).fit(rows())
        for summation in (Consensus(1), Consensus(40), Tree())
    ]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.means_, fits[0].means_)
        assert (other.hub_weights_ == other.hub_weights_[0]).all()


def test_rows_that_hardly_differ():
    X = np.tile([[0.0, 1.0], [1.0, 0.0]], (30, 1))
    X[:, 1] += np.linspace(0, 1e-9, 60)
    both = fit_both(X, n_components=3, partition=[[0], [1]], init_params="labels", max_iter=2, reg_covar=1e-2)
    assert_same(*both)


def test_more_components_than_a_byte_can_tell():
    with pytest.raises(ValueError, match="at most 255 components"):
        VerticalGaussianMixture(256, init_params="labels").fit(np.random.default_rng(0).normal(size=(300, 2)))
    assert "labels" in STARTS


# Agents


def study(graph, **arguments):
    return make_study(graph, init_params="labels", n_init=2, **arguments)[0]


GRAPHS = {"star": "star", "path": nx.path_graph(5), "ring": nx.cycle_graph(5)}


@pytest.mark.parametrize(("graph", "hops"), [("star", 0), ("path", 0), ("path", 1), ("ring", 0), ("ring", 1)])
@pytest.mark.parametrize("seed", range(6))
def test_however_messages_are_delivered_the_bits_are_the_same(graph, hops, seed):
    graph = GRAPHS[graph]
    expected = bits(run(study(graph, hops=hops)).agents.values())
    disturbed = Disturbances(np.random.default_rng(seed), delay=0.3, duplicate=0.1, kill=0.1)
    found = run(study(graph, hops=hops), encoded=True, disturbances=disturbed).agents
    assert bits(found.values()) == expected


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("stop_after", [6, 18, 22, 25, 28, 31, 60])
def test_an_agent_that_dies_and_comes_back(graph, stop_after):
    expected = bits(run(study(graph)).agents.values())
    assert bits(die_and_come_back(study(graph), stop_after)) == expected


def corrupt(graph, change, which):
    """Run a study in which some messages with labels are changed."""
    transport = InProcess(study(graph))
    transport.start()
    while (message := transport._next()) is not None:
        if message.kind == "labels" and which(message):
            message = message._replace(values=change(message.values.copy()))
        transport._deliver(message)


def short(values):
    return values[:-1]


def unknown_hub(values):
    values[0] = 77
    return values


def not_finite(values):
    values[-4:] = 255
    return values


def ones(values):
    values[:] = 255
    return values


@pytest.mark.parametrize(
    ("graph", "change", "sender", "problem"),
    [
        ("star", short, 2, "peer 2: expected labels of a hub"),
        ("star", unknown_hub, 2, r"peer 2: expected the local labels of hubs \[2\], got \[77\]"),
        ("star", not_finite, 2, "peer 2: expected distances"),
        ("star", ones, 4, "peer 4: expected labels from 0 to 2, got 3"),
        ("star", short, 4, r"peer 4: expected labels in 6 bytes, got 5"),
        (nx.path_graph(5), unknown_hub, 4, r"peer 4: expected the local labels of hubs \[4\], got \[77\]"),
        (nx.path_graph(5), not_finite, 1, "peer 1: expected distances"),
    ],
    ids=["short", "hub", "not finite", "labels", "few labels", "hub, path", "not finite, path"],
)
def test_wrong_labels_are_blamed_on_their_sender(graph, change, sender, problem):
    with pytest.raises(RemoteProtocolError, match=problem):
        corrupt(graph, change, lambda message: message.sender == sender)


def test_labels_are_refused_where_none_are_agreed():
    agents, _ = make_study("star", init_params="random")
    labelled = []
    InProcess(study("star"), watch=lambda m: m.kind == "labels" and labelled.append(m)).start().run()
    transport = InProcess(agents).start()
    first = transport._next()
    transport._deliver(first)
    server = transport.agents[4]
    with pytest.raises(RemoteProtocolError, match="labels"):
        server.receive(labelled[0]._replace(round=server.state.round + 1))


def test_no_number_of_a_packet_is_a_value_of_the_table():
    X = table(gaps=False)
    carried = []
    agents, _ = make_study("star", X, init_params="labels")
    InProcess(agents, watch=lambda m: m.kind == "labels" and carried.append(m.values.tobytes())).start().run()
    assert len(carried) == 8
    content = b"".join(carried)
    for value in X.ravel():
        assert np.float64(value).tobytes() not in content
        assert np.float32(value).tobytes() not in content
