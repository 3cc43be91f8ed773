"""Mixing weights of a connected graph, and the rate at which repeated mixing averages.

Graphs are undirected `networkx.Graph` objects whose nodes are 0, ..., N-1. Consensus repeats `z <- W z`
(equation 6). W is symmetric, is zero where agents are not linked, and preserves averages because its rows add up to
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import networkx as nx

Array = NDArray[np.float64]


def metropolis_weights(graph: nx.Graph) -> Array:
    """Return Metropolis weights: `1 / (1 + larger degree)` on each link, the rest on the diagonal.

    An agent needs only its neighbours' degrees.

    Returns
    -------
    W : array of shape (n_agents, n_agents)
    """
    W = np.zeros((len(graph), len(graph)))
    for one, other in graph.edges:
        W[one, other] = W[other, one] = 1.0 / (1 + max(graph.degree[one], graph.degree[other]))
    np.fill_diagonal(W, 1.0 - W.sum(axis=1))
    return W


def laplacian_weights(graph: nx.Graph, alpha: float | None = None) -> Array:
    """Return constant weights `I - alpha L`, where L is the Laplacian.

    They average if and only if alpha is in (0, 2 / lambda_max): every eigenvalue `1 - alpha lambda` except that of
    the constant vector must be in (-1, 1). (The paper gives the interval as (0, lambda_max), which is a slip.)

    Parameters
    ----------
    graph : networkx.Graph
    alpha : float, optional
        By default the fastest constant, `2 / (lambda_2 + lambda_max)`.

    Returns
    -------
    W : array of shape (n_agents, n_agents)
    """
    n_agents = len(graph)
    laplacian = np.zeros((n_agents, n_agents))
    for one, other in graph.edges:
        laplacian[one, other] = laplacian[other, one] = -1.0
    np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
    if n_agents == 1:
        return np.ones((1, 1))
    eigenvalues = np.linalg.eigvalsh(laplacian)
    if alpha is None:
        alpha = 2.0 / (eigenvalues[1] + eigenvalues[-1])
    elif not 0 < alpha < 2.0 / eigenvalues[-1]:
        raise ValueError(
            f"expected alpha in (0, 2 / lambda_max) = (0, {2.0 / eigenvalues[-1]:.6g}) for this graph, "
            f"got {alpha}; try alpha=None, which takes the fastest constant"
        )
    return np.eye(n_agents) - alpha * laplacian


def contraction(W: Array) -> float:
    """Factor rho by which one round shrinks the distance to the average: the largest other |eigenvalue| of W."""
    deviation = W - 1.0 / len(W)
    return float(np.abs(np.linalg.eigvalsh(deviation)).max())


def diameter(graph: nx.Graph) -> int:
    """Largest number of hops between two agents: the number of rounds in which a flood reaches all agents."""
    return int(hop_distances(graph).max())


def hop_distances(graph: nx.Graph) -> Array:
    """Number of hops between each two agents of a connected graph, (n_agents, n_agents), in the graph's order."""
    import networkx as nx
    from scipy.sparse.csgraph import shortest_path

    links = nx.to_scipy_sparse_array(graph, dtype=np.float64, weight=None)
    distances: Array = shortest_path(links, unweighted=True)
    return distances
