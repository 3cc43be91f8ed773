"""The paper's equations, written as naively as possible, and random problems to try them on."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import multivariate_normal


def relative_error(found, expected):
    """Largest difference, relative to the largest expected entry."""
    return np.abs(np.asarray(found) - expected).max() / np.abs(expected).max()


def dense_covariances(blocks, n_features, covariances):
    """Block-diagonal (K, d, d) from lists of (K, d_b, d_b)."""
    dense = np.zeros((len(covariances[0]), n_features, n_features))
    for columns, block in zip(blocks, covariances, strict=True):
        for k, matrix in enumerate(block):
            dense[k][np.ix_(columns, columns)] = matrix
    return dense


def block_m_step(X, responsibilities, covariance_type, reg_covar):
    """Equations 5b and 5c within one block, row sums in two passes; means (K, d) and covariances (K, d, d)."""
    counts = responsibilities.sum(axis=0)
    means = np.array([r @ X / n for r, n in zip(responsibilities.T, counts, strict=True)])
    covariances = np.array(
        [
            np.einsum("m,mi,mj->ij", column, X - mean, X - mean) / n
            for column, mean, n in zip(responsibilities.T, means, counts, strict=True)
        ]
    )
    identity = np.eye(X.shape[1])
    if covariance_type == "tied":
        covariances[:] = np.einsum("k,kij->ij", counts, covariances) / counts.sum()
    elif covariance_type == "diag":
        covariances *= identity
    elif covariance_type == "spherical":
        covariances[:] = [identity * np.trace(matrix) / len(identity) for matrix in covariances]
    return means, covariances + reg_covar * identity


def block_log_density(X, means, covariances):
    """(M, K) log-densities within one block."""
    return np.column_stack(
        [
            multivariate_normal.logpdf(X, mean, matrix, allow_singular=False).reshape(len(X))
            for mean, matrix in zip(means, covariances, strict=True)
        ]
    )


class CentralizedEM:
    """EM with dense block-diagonal covariances, all columns in one place."""

    def __init__(self, X, blocks, weights, means, covariances, covariance_type, reg_covar):
        self.X, self.blocks = X, blocks
        self.weights, self.means = weights, means
        self.covariances = dense_covariances(blocks, X.shape[1], covariances)
        self.covariance_type, self.reg_covar = covariance_type, reg_covar

    def step(self):
        """One iteration; returns the log-likelihood per row before it."""
        log_joint = block_log_density(self.X, self.means, self.covariances) + np.log(self.weights)
        log_likelihood = logsumexp(log_joint, axis=1)
        responsibilities = np.exp(log_joint - log_likelihood[:, None])
        self.weights = responsibilities.mean(axis=0)
        parts = [
            block_m_step(self.X[:, columns], responsibilities, self.covariance_type, self.reg_covar)
            for columns in self.blocks
        ]
        for columns, (means, _) in zip(self.blocks, parts, strict=True):
            self.means[:, columns] = means
        self.covariances = dense_covariances(self.blocks, self.X.shape[1], [part[1] for part in parts])
        return log_likelihood.mean()


def mixing_weights(graph, kind):
    """Metropolis weights or I - alpha L, from the definitions."""
    n = len(graph)
    W = np.zeros((n, n))
    if kind == "metropolis":
        for i in range(n):
            for j in graph[i]:
                W[i, j] = 1 / (1 + max(len(graph[i]), len(graph[j])))
            W[i, i] = 1 - W[i].sum()
        return W
    laplacian = nx.laplacian_matrix(graph, nodelist=range(n)).toarray().astype(float)
    spectrum = np.sort(np.linalg.eigvalsh(laplacian))
    return np.eye(n) - 2 / (spectrum[1] + spectrum[-1]) * laplacian if n > 1 else np.eye(1)


class LiteralAgents:
    """Algorithm 2, agent by agent and round by round."""

    def __init__(self, X, graph, columns, hubs, weights, means, covariances, kind, rounds, reg_covar):
        self.X, self.graph, self.hubs, self.rounds = X, graph, hubs, rounds
        self.W = mixing_weights(graph, kind)
        self.columns = [np.concatenate([columns[member] for member in hub.members]) for hub in hubs]
        self.weights = [weights.copy() for _ in hubs]
        self.means = [means[:, held] for held in self.columns]
        self.covariances = list(covariances)
        self.reg_covar = reg_covar

    def sum_at_every_agent(self, terms):
        """S rounds of z <- W z; every agent mixes what its neighbours hold."""
        n = len(self.graph)
        state = [None] * n
        for hub, term in zip(self.hubs, terms, strict=True):
            for member in hub.members:
                state[member] = n * term / len(hub.members)
        for _ in range(self.rounds):
            state = [self.W[i, i] * state[i] + sum(self.W[i, j] * state[j] for j in self.graph[i]) for i in range(n)]
        return state

    def step(self):
        """One iteration; returns each root's log-likelihood per row before it."""
        terms = [
            block_log_density(self.X[:, held], means, covariances)
            for held, means, covariances in zip(self.columns, self.means, self.covariances, strict=True)
        ]
        state = self.sum_at_every_agent(terms)
        seen = []
        for b, hub in enumerate(self.hubs):
            log_joint = state[hub.root] + np.log(self.weights[b])
            log_likelihood = logsumexp(log_joint, axis=1)
            responsibilities = np.exp(log_joint - log_likelihood[:, None])
            self.weights[b] = responsibilities.mean(axis=0)
            self.means[b], self.covariances[b] = block_m_step(
                self.X[:, self.columns[b]], responsibilities, "full", self.reg_covar
            )
            seen.append(log_likelihood.mean())
        return seen


@dataclass
class Problem:
    """Rows from a mixture, a partition, and a start from which EM keeps all components."""

    X: np.ndarray
    partition: list
    weights: np.ndarray
    means: np.ndarray
    n_components: int

    def covariances(self, hubs_columns):
        """Each block's (K, d_b, d_b) start: the overall variances."""
        variances = self.X.var(axis=0)
        return [np.array([np.diag(variances[held])] * self.n_components) for held in hubs_columns]


@st.composite
def problems(draw, most_parties=5, n_parties=None):
    """Random rows, parties and starts; components overlap but are all really there."""
    seed = draw(st.integers(0, 2**32 - 1))
    n_components = draw(st.integers(1, 3))
    if n_parties is None:
        n_parties = draw(st.integers(1, most_parties))
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, size=n_parties)
    n_features = int(sizes.sum())
    partition = [held.tolist() for held in np.split(rng.permutation(n_features), np.cumsum(sizes)[:-1])]
    n_samples = int(rng.integers(30, 50)) * n_components
    labels = np.arange(n_samples) % n_components
    centres = rng.normal(scale=2.5, size=(n_components, n_features))
    shapes = rng.normal(size=(n_components, n_features, n_features)) / np.sqrt(n_features) + np.eye(n_features)
    noise = rng.normal(size=(n_samples, n_features))
    X = centres[labels] + np.einsum("mij,mj->mi", shapes[labels], noise)
    scales, offsets = 10 ** rng.uniform(-1, 1, n_features), rng.normal(scale=5, size=n_features)
    X = X * scales + offsets
    means = X[:n_components] + 0.1 * rng.normal(size=(n_components, n_features)) * X.std(axis=0)
    return Problem(X, partition, rng.dirichlet(np.full(n_components, 5.0)), means, n_components)


@st.composite
def connected_graphs(draw, most_agents=8, fewest_agents=1):
    """A random tree and some links more."""
    n = draw(st.integers(fewest_agents, most_agents))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from((int(rng.integers(node)), node) for node in range(1, n))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    graph.add_edges_from(pair for pair in pairs if rng.random() < draw(st.sampled_from([0.0, 0.2, 0.6])))
    return graph
