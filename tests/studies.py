"""Small studies of agents, for the tests of agents and transports."""

import networkx as nx
import numpy as np

from vpem.core.agent.machine import Agent
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.decisions.initial import HUB_TIES, shared_generator
from vpem.core.network.consensus import Consensus
from vpem.core.network.parties import make_network
from vpem.core.network.star import Star
from vpem.core.settings import Agreement, Settings
from vpem.transports import wire
from vpem.transports.inprocess import InProcess, make_agents

SEED = 3


def table(n_rows=24, n_columns=6, gaps=True):
    """Two groups of rows, with some gaps."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n_rows, n_columns)) + 4 * (np.arange(n_rows) % 2)[:, None]
    if gaps:
        X[3, :2] = X[5, -2:] = X[7] = np.nan
    return X


def agree(summation=None, n_components=2, max_iter=4, tol=0.0, reg_covar=1e-3, density=None, **arguments):
    """An agreement on a short fit."""
    density = Gaussian(reg_covar=reg_covar) if density is None else density
    settings = Settings(n_components=n_components, density=density, tol=tol, max_iter=max_iter)
    return Agreement(settings=settings, summation=summation or Consensus(4), seed=SEED, **arguments)


def make_study(graph, X=None, hops=0, columns=None, **arguments):
    """Agents of a graph (networkx or a name), and the network."""
    X = table() if X is None else X
    n_parties = 4 if isinstance(graph, str) else len(graph)
    if columns is None:
        columns = {number: held.tolist() for number, held in enumerate(np.array_split(range(X.shape[1]), n_parties))}
    network = make_network(columns, graph, hops, shared_generator(SEED, HUB_TIES))
    summation = Star() if network.graph is None else Consensus(4)
    agreement = agree(arguments.pop("summation", summation), hops=hops, **arguments)
    return make_agents(X, network, agreement), network


def two_agents(**arguments):
    """Agents 0 and 1, linked with each other."""
    X = table(n_columns=2, gaps=False)
    agreement = agree(**arguments)
    return [Agent(0, [1], agreement, X[:, :1], name="a"), Agent(1, [0], agreement, X[:, 1:], name="b")]


def bits(agents):
    """Everything that the agents have found, to compare without tolerance."""
    found = {}
    for agent in agents:
        assert agent.failure is None, agent.failure
        assert agent.is_done
        model = agent.model
        arrays = [model.weights, model.responsibilities]
        if model.block is not None:
            arrays += model.block.arrays.values()
        found[agent.number] = [
            model.history,
            model.converged,
            model.agreed,
            model.repairs,
            *(None if array is None else array.tobytes() for array in arrays),
        ]
    return found


def run(agents, **arguments):
    """Run agents to their end."""
    return InProcess(agents, **arguments).start().run()


STUDIES = {
    "star": ("star", {}),
    "ring": (nx.cycle_graph(5), {}),
    "path with hubs": (nx.path_graph(5), {"hops": 2, "init_params": "random"}),
    "tree with hubs": (nx.Graph([(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]), {"hops": 1}),
    "few rounds": (nx.path_graph(5), {"summation": Consensus(1), "n_init": 2, "max_iter": 2}),
    "batches": (nx.complete_graph(3), {"batch_size": 9, "init_params": "random_from_data"}),
    "alone": (nx.path_graph(1), {}),
}


def die_and_come_back(agents, stop_after):
    """All agents after one of them was lost, so many messages from the beginning, and came back from its bytes."""
    transport = InProcess(agents, encoded=True).start()
    left = iter(range(stop_after - 1, -1, -1))
    transport.run(lambda: next(left, 1) == 0)
    saved = wire.encode_state(transport.agents[1].state)
    transport.crash(1)
    transport.run()
    transport.recover(1, saved)
    transport.run()
    return transport.agents.values()
