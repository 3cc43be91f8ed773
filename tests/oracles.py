"""The paper's equations, written as naively as possible, and random problems to try them on."""

import os
from dataclasses import dataclass

import networkx as nx
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from scipy.special import logsumexp, xlogy
from scipy.stats import multivariate_normal

from vpem.core.blocks.factors import make_block
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.network.traffic import OVERHEAD_BYTES
from vpem.core.settings import Settings
from vpem.simulation.model import Mixture


def examples(number):
    """So many examples of hypothesis, divided by FEWER_EXAMPLES where tests are run again with other settings."""
    return settings(max_examples=max(3, number // int(os.environ.get("FEWER_EXAMPLES", "1"))))


def make_settings(covariance_type="full", reg_covar=1e-6, shrinkage=None, **arguments):
    """Settings of a Gaussian mixture."""
    density = Gaussian(covariance_type=covariance_type, reg_covar=reg_covar, shrinkage=shrinkage)
    return Settings(density=density, **arguments)


def contents(traffic):
    """Bytes without headers."""
    return traffic.bytes - OVERHEAD_BYTES * traffic.messages


def relative_error(found, expected):
    """Largest difference, relative to the largest expected entry."""
    return np.abs(np.asarray(found) - expected).max() / np.abs(expected).max()


def dense_covariances(blocks, n_features, covariances):
    """Block-diagonal (K, d, d) from lists of (K, d_b, d_b)."""
    dense = np.zeros((len(covariances[0]), n_features, n_features), dtype=covariances[0].dtype)
    for columns, block in zip(blocks, covariances, strict=True):
        for k, matrix in enumerate(block):
            dense[k][np.ix_(columns, columns)] = matrix
    return dense


def fill_row(x, mean, covariance):
    """A row with its gaps filled in by their conditional mean, and the conditional covariance (zero elsewhere)."""
    there = ~np.isnan(x)
    filled, left = x.copy(), np.zeros((len(x), len(x)))
    if not there.all():
        slope = covariance[np.ix_(~there, there)] @ np.linalg.inv(covariance[np.ix_(there, there)])
        filled[~there] = mean[~there] + slope @ (x[there] - mean[there])
        left[np.ix_(~there, ~there)] = covariance[np.ix_(~there, ~there)] - slope @ covariance[np.ix_(there, ~there)]
    return filled, left


def block_m_step(X, responsibilities, covariance_type, reg_covar, previous=None):
    """Equations 5b and 5c within one block, in two passes; means (K, d) and covariances (K, d, d).

    Rows that the block lacks are left out; gaps are filled in, row by row, with the previous parameters.
    """
    has_any = ~np.isnan(X).all(axis=1)
    X, responsibilities = X[has_any], responsibilities[has_any]
    counts = responsibilities.sum(axis=0)
    n_columns = X.shape[1]
    means = np.empty((len(counts), n_columns), X.dtype)
    covariances = np.empty((len(counts), n_columns, n_columns), X.dtype)
    for k, (column, n) in enumerate(zip(responsibilities.T, counts, strict=True)):
        filled, left = X, np.zeros((n_columns, n_columns))
        if np.isnan(X).any():
            rows = [fill_row(x, previous[0][k], previous[1][k]) for x in X]
            filled = np.array([row for row, _ in rows])
            left = np.einsum("m,mij->ij", column, np.array([more for _, more in rows])) / n
        means[k] = column @ filled / n
        covariances[k] = np.einsum("m,mi,mj->ij", column, filled - means[k], filled - means[k]) / n + left
    identity = np.eye(n_columns)
    if covariance_type == "tied":
        covariances[:] = np.einsum("k,kij->ij", counts, covariances) / counts.sum()
    elif covariance_type == "diag":
        covariances *= identity
    elif covariance_type == "spherical":
        covariances[:] = [identity * np.trace(matrix) / n_columns for matrix in covariances]
    return means, covariances + reg_covar * identity


def block_log_density(X, means, covariances):
    """(M, K) log-densities; row by row of what is there, if there are gaps."""
    if not np.isnan(X).any():
        columns = [
            multivariate_normal.logpdf(X, mean, matrix).reshape(len(X))
            for mean, matrix in zip(means, covariances, strict=True)
        ]
        return np.column_stack(columns)
    found = np.zeros((len(X), len(means)))
    for m, x in enumerate(X):
        there = ~np.isnan(x)
        for k, (mean, matrix) in enumerate(zip(means, covariances, strict=True)):
            part, deviation = matrix[np.ix_(there, there)], x[there] - mean[there]
            found[m, k] = -0.5 * (
                there.sum() * np.log(2 * np.pi)
                + np.linalg.slogdet(part)[1]
                + deviation @ np.linalg.solve(part, deviation)
            )
    return found


def precise_log_density(X, means, covariances):
    """(M, K) log-densities of what is there of each row, in long double, by a Cholesky factor written out.

    Raises LinAlgError if a covariance is not positive definite.
    """
    X, means, covariances = (np.asarray(array, dtype=np.longdouble) for array in (X, means, covariances))
    found = np.zeros((len(X), len(means)), dtype=np.longdouble)
    patterns, pattern_of = np.unique(np.isnan(X), axis=0, return_inverse=True)
    for number, gaps in enumerate(patterns):
        rows, there = pattern_of.ravel() == number, np.flatnonzero(~gaps)
        for k, (mean, matrix) in enumerate(zip(means, covariances, strict=True)):
            deviations = (X[np.ix_(rows, there)] - mean[there]).T
            root, whitened = np.zeros((len(there),) * 2, dtype=np.longdouble), np.zeros_like(deviations)
            for i, row in enumerate(there):
                for j, column in enumerate(there[:i]):
                    root[i, j] = (matrix[row, column] - root[i, :j] @ root[j, :j]) / root[j, j]
                square = matrix[row, row] - root[i, :i] @ root[i, :i]
                if not square > 0:
                    raise np.linalg.LinAlgError(f"component {k} has no positive definite covariance")
                root[i, i] = np.sqrt(square)
                whitened[i] = (deviations[i] - root[i, :i] @ whitened[:i]) / root[i, i]
            found[rows, k] = (
                -0.5 * (len(there) * np.log(2 * np.pi) + (whitened**2).sum(axis=0)) - np.log(np.diag(root)).sum()
            )
    return found


class CentralizedEM:
    """EM with dense block-diagonal covariances, all columns in one place."""

    def __init__(self, X, blocks, weights, means, covariances, covariance_type, reg_covar):
        self.X, self.blocks = X, blocks
        self.is_there = ~np.isnan(X).all(axis=1)  # rows without any value do not count
        self.weights, self.means = weights, means
        self.covariances = dense_covariances(blocks, X.shape[1], covariances)
        self.covariance_type, self.reg_covar = covariance_type, reg_covar

    def log_joint(self, rows=slice(None)):
        """Log of weight times density, for some rows."""
        return block_log_density(self.X[rows], self.means, self.covariances) + np.log(self.weights)

    def free_energy(self, responsibilities):
        """Per row, by its definition: expected log of the joint density, plus the entropy."""
        energies = (responsibilities * self.log_joint() - xlogy(responsibilities, responsibilities)).sum(axis=1)
        return energies[self.is_there].mean()

    def e_step(self, rows=slice(None)):
        """Responsibilities and log-likelihoods of some rows."""
        log_joint = self.log_joint(rows)
        log_likelihoods = logsumexp(log_joint, axis=1)
        return np.exp(log_joint - log_likelihoods[:, None]), log_likelihoods

    def m_step(self, X, responsibilities):
        """New parameters from (weighted) rows and their responsibilities."""
        counts = responsibilities.sum(axis=0)
        self.weights = counts / counts.sum()
        parts = []
        for columns in self.blocks:
            previous = self.means[:, columns], self.covariances[:, columns][:, :, columns]
            parts.append(
                block_m_step(X[:, columns], responsibilities, self.covariance_type, self.reg_covar, previous)
            )
        self.means = self.means.copy()
        for columns, (means, _) in zip(self.blocks, parts, strict=True):
            self.means[:, columns] = means
        self.covariances = dense_covariances(self.blocks, self.X.shape[1], [part[1] for part in parts])

    def step(self):
        """One iteration; returns the log-likelihood per row before it."""
        responsibilities, log_likelihoods = self.e_step()
        self.m_step(self.X[self.is_there], responsibilities[self.is_there])
        return log_likelihoods[self.is_there].mean()


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
        is_there, seen = ~np.isnan(self.X).all(axis=1), []
        for b, hub in enumerate(self.hubs):
            log_joint = state[hub.root] + np.log(self.weights[b])
            log_likelihood = logsumexp(log_joint, axis=1)
            responsibilities = np.exp(log_joint - log_likelihood[:, None])
            self.weights[b] = responsibilities[is_there].mean(axis=0)
            self.means[b], self.covariances[b] = block_m_step(
                self.X[:, self.columns[b]],
                responsibilities,
                "full",
                self.reg_covar,
                (self.means[b], self.covariances[b]),
            )
            seen.append(log_likelihood[is_there].mean())
        return seen


def make_mixture(network, weights, means, covariances):
    """Gaussian mixture of given parameters, cut into blocks; weights are (n_views, K) or (K,)."""
    parts = [means[:, columns] for columns in network.block_columns]
    density = Gaussian(covariance_type="full" if covariances[0].ndim == 3 else "diag")
    return Mixture(density, np.atleast_2d(weights), tuple(map(make_block, parts, covariances)))


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
        variances = np.nanvar(self.X, axis=0)
        return [np.array([np.diag(variances[held])] * self.n_components) for held in hubs_columns]


@st.composite
def problems(draw, most_parties=5, n_parties=None, gaps=False):
    """Random rows, parties and starts; components overlap but are all really there.

    With gaps, single values are missing, and whole rows of single parties; some rows are missing everywhere.
    """
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
    if gaps:
        X[rng.random(X.shape) < draw(st.sampled_from([0.0, 0.02, 0.2]))] = np.nan
        for held in partition:
            X[np.ix_(rng.random(n_samples) < draw(st.sampled_from([0.0, 0.1, 0.3])), held)] = np.nan
        X[rng.random(n_samples) < 0.02] = np.nan
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


def flat(rows):
    """Numbers of rows, (..., n_rows, width), as sums have them: all rows' first ones first; (..., n_rows * width)."""
    return rows.swapaxes(-1, -2).reshape(*rows.shape[:-2], -1)


def by_row(values, n_rows, width):
    """The other way: (..., n_rows, width)."""
    return values[..., : n_rows * width].reshape(*values.shape[:-1], width, n_rows).swapaxes(-1, -2)
