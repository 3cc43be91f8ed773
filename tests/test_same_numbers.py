"""Every way of running gives the same numbers: simulation, agents in one process, and centralized EM."""

import warnings

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from oracles import (
    CentralizedEM,
    connected_graphs,
    dense_covariances,
    examples,
    make_settings,
    problems,
    relative_error,
)
from vpem import Consensus, Star, Tree, VerticalGaussianMixture
from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.decisions.starts import Given
from vpem.core.network.parties import make_network
from vpem.core.settings import Agreement
from vpem.transports import wire
from vpem.transports.inprocess import InProcess, make_agents

pytestmark = pytest.mark.processors

# The same operations in another order: rounding, which a few iterations of EM on few rows may enlarge.
TOLERANCE = 1e-9


def fit_both(X, **arguments):
    """The same fit by both engines; both must come to the same end, an error included."""
    return [fit(X, engine=engine, **arguments) for engine in ("simulation", "agents")]


def fit(X, **arguments):
    model = VerticalGaussianMixture(random_state=0, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return model.fit(X)
        except CollapsedComponentError as error:
            return error


def assert_same(simulated, agents, tolerance=TOLERANCE):
    if isinstance(simulated, CollapsedComponentError):
        assert str(simulated) == str(agents)
        return
    assert len(agents.lower_bounds_) == len(simulated.lower_bounds_)
    for name in ("hub_weights_", "means_", "lower_bounds_")[: 3 if simulated.lower_bounds_ else 2]:
        assert relative_error(getattr(agents, name), getattr(simulated, name)) < tolerance, name
    for found, expected in zip(agents.covariances_, simulated.covariances_, strict=True):
        assert relative_error(found, expected) < tolerance
    for name in ("n_iter_", "converged_", "hubs_", "repairs_"):
        assert getattr(agents, name) == getattr(simulated, name), name
    np.testing.assert_array_equal(agents.traffic_.table, simulated.traffic_.table)
    assert agents.traffic_.rounds == simulated.traffic_.rounds


@examples(60)
@given(data=st.data())
def test_agents_equal_the_simulation_on_any_graph(data):
    graph = data.draw(connected_graphs(most_agents=6))
    problem = data.draw(problems(n_parties=len(graph), gaps=True))
    rounds = data.draw(st.sampled_from([1, 2, 5, 20]))
    simulated, agents = fit_both(
        problem.X,
        n_components=problem.n_components,
        partition=problem.partition,
        graph=graph,
        hops=data.draw(st.integers(0, 2)),
        summation=Consensus(rounds, data.draw(st.sampled_from(["metropolis", "laplacian"]))),
        batch_size=data.draw(st.sampled_from([None, 13, 40, 10_000])),
        covariance_type=data.draw(st.sampled_from(["full", "tied", "diag", "spherical"])),
        init_params=data.draw(st.sampled_from(["kmeans", "k-means++", "labels", "random", "random_from_data"])),
        n_init=data.draw(st.sampled_from([1, 1, 3])),
        max_iter=data.draw(st.integers(0, 6)),
        reg_covar=1e-3,
    )
    assert_same(simulated, agents)


@examples(40)
@given(data=st.data())
def test_federated_agents_equal_the_simulation(data):
    problem = data.draw(problems(gaps=True))
    simulated, agents = fit_both(
        problem.X,
        n_components=problem.n_components,
        partition=problem.partition,
        batch_size=data.draw(st.sampled_from([None, 13, 40])),
        covariance_type=data.draw(st.sampled_from(["full", "tied", "diag", "spherical"])),
        init_params=data.draw(st.sampled_from(["kmeans", "k-means++", "labels", "random", "random_from_data"])),
        n_init=data.draw(st.sampled_from([1, 2])),
        max_iter=data.draw(st.integers(0, 30)),
        reg_covar=1e-3,
    )
    assert_same(simulated, agents)


@pytest.mark.parametrize("arguments", [{}, {"graph": "path", "summation": Tree()}, {"batch_size": 90}], ids=str)
@pytest.mark.parametrize("gaps", [False, True])
def test_where_sums_are_exact_the_engines_agree_to_rounding(arguments, gaps):
    # 1e-12: the same compiled halves; only a tree adds its terms in another order. Thirty iterations of a
    # well-posed problem hardly enlarge that.
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 7)) + 4 * rng.integers(3, size=(400, 1))
    X[rng.random(X.shape) < 0.05 * gaps] = np.nan
    parties = [[0, 1], [2], [3, 4], [5], [6]]
    both = fit_both(X, n_components=3, partition=parties, tol=0, max_iter=30, **arguments)
    assert_same(*both, tolerance=1e-12)


@examples(30)
@given(problems(gaps=True))
def test_federated_agents_equal_centralized_em(problem):
    columns = dict(enumerate(problem.partition))
    network = make_network(columns, "star")
    rules = make_settings(
        n_components=problem.n_components, covariance_type="full", tol=0.0, reg_covar=1e-3, max_iter=10
    )
    agreement = Agreement(settings=rules, summation=Star(), seed=0, init_params="given")
    covariances = problem.covariances(problem.partition)
    starts = [
        Given(problem.weights, {"means": problem.means[:, held], "covariances": own})
        for held, own in zip(problem.partition, covariances, strict=True)
    ]
    agents = InProcess(make_agents(problem.X, network, agreement, starts)).start().run().agents
    oracle = CentralizedEM(
        problem.X, problem.partition, problem.weights, problem.means, covariances, "full", reg_covar=1e-3
    )
    history = [oracle.step() for _ in range(10)]
    blocks = [agents[number].model.block for number in range(len(columns))]
    assert relative_error(agents[0].model.history, history) < TOLERANCE
    for number, held in enumerate(problem.partition):
        assert relative_error(agents[number].model.weights, oracle.weights) < TOLERANCE
        assert relative_error(blocks[number].means, oracle.means[:, held]) < TOLERANCE
    dense = dense_covariances(problem.partition, problem.X.shape[1], [block.covariances for block in blocks])
    assert relative_error(dense, oracle.covariances) < TOLERANCE
    expected, _ = oracle.e_step()
    assert relative_error(agents[0].model.responsibilities, expected) < 1e-7, "of the final parameters"


def nasty(seed):
    """Rows that make components collapse and starve."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 4))
    X[:20] = X[0]
    X[20:24, :2] = 50.0
    X[:, 3] = np.round(X[:, 3])
    return X


@pytest.mark.parametrize("batch_size", [None, 17])
@pytest.mark.parametrize("graph", ["star", "path"])
@pytest.mark.parametrize("init_params", ["kmeans", "random_from_data"])
def test_repairs_and_failures_are_the_same(graph, batch_size, init_params):
    compared = 0
    for seed in range(6):
        simulated, agents = fit_both(
            nasty(seed),
            n_components=6,
            partition={"a": [0], "b": [1, 2], "c": [3]},
            graph=graph,
            summation=None if graph == "star" else Consensus(3),
            batch_size=batch_size,
            init_params=init_params,
            n_init=2,
            max_iter=25,
            reg_covar=0.0,
        )
        # A variance on its way to zero enlarges rounding in every iteration.
        assert_same(simulated, agents, tolerance=1e-4)
        compared += isinstance(simulated, Exception) or bool(simulated.repairs_)
    assert compared > 2, "the examples must have something to repair"


def test_parts_of_a_start_may_be_given():
    X = np.random.default_rng(0).normal(size=(80, 3)) + 4 * np.arange(80)[:, None].__mod__(2)
    for given_parts in ({"weights_init": [0.3, 0.7]}, {"means_init": X[:2]}, {"precisions_init": [[1.0, 2.0]] * 3}):
        simulated, agents = fit_both(
            X, n_components=2, graph="ring", covariance_type="spherical", **given_parts, max_iter=5
        )
        assert_same(simulated, agents)


@examples(25)
@given(data=st.data())
def test_the_wire_carries_the_bytes_that_the_simulation_predicts(data):
    graph = data.draw(connected_graphs(most_agents=7, fewest_agents=2))
    problem = data.draw(problems(n_parties=len(graph), gaps=True))
    star = data.draw(st.booleans())
    hops = 0 if star else data.draw(st.integers(0, 3))
    arguments = {
        "n_components": problem.n_components,
        "partition": {f"party {n}": held for n, held in enumerate(problem.partition)},
        "graph": "star" if star else nx.relabel_nodes(graph, {n: f"party {n}" for n in graph}),
        "hops": hops,
        "summation": None if star else Consensus(data.draw(st.sampled_from([1, 4, 12]))),
        "batch_size": data.draw(st.sampled_from([None, 25])),
        "max_iter": 4,
        "tol": 0.0,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = VerticalGaussianMixture(random_state=0, **arguments).fit(problem.X)
    rules = make_settings(
        n_components=problem.n_components, covariance_type="full", tol=0.0, reg_covar=1e-6, max_iter=4
    )
    agreement = Agreement(
        settings=rules,
        summation=Star() if star else arguments["summation"],
        seed=model.fitted_.seed,
        hops=hops,
        batch_size=arguments["batch_size"],
    )
    carried = np.zeros((len(model.fitted_.network.agents), 4), dtype=int)

    def watch(message):
        frame = len(wire.encode(message))
        carried[message.sender, :2] += 1, frame
        carried[message.receiver, 2:] += 1, frame

    agents = make_agents(problem.X, model.fitted_.network, agreement)
    InProcess(agents, encoded=True, watch=watch).start().run()
    np.testing.assert_array_equal(carried, model.traffic_.table)


def test_all_agents_stop_at_the_same_iteration_whatever_they_see():
    # One round on a long path: the roots' likelihoods differ a lot, and so would their own decisions.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 9)) + 3 * rng.integers(2, size=(60, 1))
    network = make_network({n: [n] for n in range(9)}, "path")
    rules = make_settings(n_components=2, covariance_type="full", tol=1e-2, reg_covar=1e-6, max_iter=200)
    for seed in range(5):
        agreement = Agreement(settings=rules, summation=Consensus(1), seed=seed)
        agents = InProcess(make_agents(X, network, agreement)).start().run().agents.values()
        histories = [agent.model.history for agent in agents]
        assert len({len(history) for history in histories}) == 1
        assert len({agent.state.round for agent in agents}) == 1
        steps = np.abs(np.diff(histories, axis=1)) < rules.tol
        own = [int(np.argmax(settled)) for settled in steps if settled.any()]
        if len(set(own)) > 1:
            return
    pytest.fail("the example must have roots that would stop at different iterations")


@pytest.mark.long
def test_a_hundred_agents():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 100)) + rng.normal(scale=2, size=(3, 100))[rng.integers(3, size=2000)]
    graph = nx.random_geometric_graph(100, 0.2, seed=1)
    assert nx.is_connected(graph)
    simulated, agents = fit_both(
        X, n_components=3, graph=graph, summation=Consensus(100), init_params="random_from_data", max_iter=2
    )
    assert_same(simulated, agents)
