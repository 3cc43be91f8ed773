"""What it costs to run 100 agents in one process: `python benchmarks/agents.py`.

One feature per agent, 2,000 rows, three components, 100 Metropolis rounds, on a sparse and on a dense random
geometric network. Seconds per iteration are the difference between a longer and a shorter fit.
"""

import time
import timeit
import warnings

import networkx as nx
import numpy as np

from vpem import Consensus, VerticalGaussianMixture

N_AGENTS, N_ROWS, N_COMPONENTS, ROUNDS = 100, 2_000, 3, 100
RADII = {"sparse": 0.19, "dense": 0.38}


def draw_network(radius: float) -> nx.Graph:
    """The first connected one."""
    for seed in range(1_000):
        graph = nx.random_geometric_graph(N_AGENTS, radius, seed=seed)
        if nx.is_connected(graph):
            return graph
    raise ValueError(f"expected a radius with which networks are connected, got {radius}")


def seconds_of_fit(X: np.ndarray, graph: nx.Graph, engine: str, iterations: int) -> tuple[float, int]:
    """Time and messages of a fit."""
    model = VerticalGaussianMixture(
        N_COMPONENTS,
        graph=graph,
        summation=Consensus(ROUNDS),
        init_params="random_from_data",
        max_iter=iterations,
        tol=0.0,
        engine=engine,
        random_state=0,
    )
    start = time.perf_counter()
    model.fit(X)
    return time.perf_counter() - start, model.traffic_.messages


def main() -> None:
    """Print one line for each network."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_AGENTS)) + rng.normal(scale=2, size=(3, N_AGENTS))[rng.integers(3, size=N_ROWS)]
    one, other = rng.normal(size=(2, N_ROWS * N_COMPONENTS))
    adding = min(timeit.repeat(lambda: np.add(one, 0.1 * other, out=one), number=2_000, repeat=5)) / 2_000
    print(f"{N_AGENTS} agents, {N_ROWS} rows, {N_COMPONENTS} components, {ROUNDS} rounds")
    print(f"one multiplication and addition of {one.size} numbers: {adding * 1e6:.1f} us\n")
    header = ("network", "degree", "messages", "agents", "per message", "adding", "simulation")
    print("{:<10}{:>8}{:>12}{:>12}{:>14}{:>9}{:>13}".format(*header))
    seconds_of_fit(X, draw_network(RADII["sparse"]), "simulation", 1)  # compile
    for name, radius in RADII.items():
        graph = draw_network(radius)
        seconds, messages = {}, 0
        for engine, n_more in (("agents", 2), ("simulation", 40)):
            short, fewer = seconds_of_fit(X, graph, engine, 1)
            long, more = seconds_of_fit(X, graph, engine, 1 + n_more)
            seconds[engine], messages = (long - short) / n_more, (more - fewer) // n_more
        each = seconds["agents"] / messages
        print(
            f"{name:<10}{2 * graph.number_of_edges() / N_AGENTS:>8.1f}{messages:>12,}{seconds['agents']:>10.2f} s"
            f"{each * 1e6:>11.0f} us{adding / each:>9.0%}{seconds['simulation'] * 1e3:>10.1f} ms"
        )


if __name__ == "__main__":
    main()
