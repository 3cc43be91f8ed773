"""What the compiled kernels compute, in plain numpy: the tests hold them to it.

Rows with gaps (NaN): exact EM on what was observed.

Gaps must be missing at random: whether a value is missing may depend on what was observed, not on the value
itself. A row that a block lacks altogether adds nothing to the sum and is left out of the block's M-step. Of a row
that it has in part, the E-step takes the marginal density of what is there, and the M-step fills in the conditional
mean and covariance of the rest, component by component. Rows are handled together by pattern (which columns are
there).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array, Block, Columns, Statistics
from vpem.core.blocks.factors import (
    add_statistics,
    block_statistics,
    log_contribution,
    make_block,
    make_statistics,
)
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.weights import EPSILON, normalize

KEPT_VALUES = 2**20
"""Values of marginals that are kept: 8 MiB."""


def patterns(X: NDArray[np.floating]) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.intp]]]:
    """Which columns are there, and the rows of which that is true.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)

    Yields
    ------
    observed : array of bool of shape (n_columns,)
    rows : array of shape (n_rows,)
    """
    observed = ~np.isnan(X)
    bits = np.ascontiguousarray(np.packbits(observed, axis=1))
    codes = bits.view(np.dtype((np.void, bits.shape[1]))).ravel()
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.cumsum(np.bincount(inverse))
    for row, start, end in zip(first, [0, *ends[:-1]], ends, strict=True):
        yield observed[row], order[start:end]


def observed_contribution(X: NDArray[np.floating], block: Block, marginals: Marginals | None = None) -> Array:
    """Log-density of what each row has, under each component; zero for a row without anything.

    A contribution counts its own observed columns times `log 2 pi`, as nobody else knows how many those are.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    block : Block
    marginals : Marginals, optional
        Kept from the same block's other rows.

    Returns
    -------
    array of shape (n_samples, n_components)
    """
    marginals = Marginals(block) if marginals is None else marginals
    if not np.isnan(X).any():
        return log_contribution(X, block)
    contribution = np.zeros((len(X), len(block.means)))
    for observed, rows in patterns(X):
        if observed.any():
            contribution[rows] = log_contribution(X[rows][:, observed], marginals.of(observed))
    return contribution


def expected_statistics(
    X: NDArray[np.floating], responsibilities: Array, block: Block, marginals: Marginals | None = None
) -> Statistics:
    """Statistics of the rows with their gaps filled in as the block expects them.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    responsibilities : array of shape (n_samples, n_components)
    block : Block
        The parameters with which the responsibilities were found.
    marginals : Marginals, optional
        Kept from the same block's other rows.
    """
    marginals = Marginals(block) if marginals is None else marginals
    is_matrix = block.covariances.ndim == 3
    if not np.isnan(X).any():
        return block_statistics(X, responsibilities, is_matrix=is_matrix)
    parts = []
    for observed, rows in patterns(X):
        if observed.any():
            seen = block_statistics(X[rows][:, observed], responsibilities[rows], is_matrix=is_matrix)
            parts.append(seen if observed.all() else fill_in(seen, block, marginals.of(observed), observed))
    return reduce(add_statistics, parts, no_statistics(block))


def no_statistics(block: Block) -> Statistics:
    """Statistics of no rows, for this block's shapes."""
    n_components, n_columns = block.means.shape
    shape = (n_components, n_columns, n_columns) if block.covariances.ndim == 3 else (n_components, n_columns)
    return make_statistics(np.zeros(n_components), block.means, np.zeros(shape))


class Marginals:
    """A block's parts that belong to some of its columns, kept as long as they are few."""

    def __init__(self, block: Block):
        self.block = block
        self.kept: dict[bytes, Block] = {}

    def of(self, observed: NDArray[np.bool_]) -> Block:
        """Means and covariances of the observed columns."""
        key = observed.tobytes()
        if key not in self.kept:
            if len(self.kept) * self.block.covariances.size > KEPT_VALUES:
                self.kept.clear()
            self.kept[key] = marginal(self.block, observed)
        return self.kept[key]


def marginal(block: Block, observed: NDArray[np.bool_]) -> Block:
    """The block's part that belongs to some of its columns."""
    covariances = block.covariances
    if covariances.ndim == 3:
        covariances = covariances[:, observed][:, :, observed]
    elif covariances.shape[1] > 1:  # a spherical variance is any column's
        covariances = covariances[:, observed]
    return make_block(block.means[:, observed], covariances)


def fill_in(seen: Statistics, block: Block, part: Block, observed: NDArray[np.bool_]) -> Statistics:
    """Statistics of whole rows from those of their observed columns.

    Filling in is linear: a row's expected deviation is `T (x_o - mu_o)` with `T = [I; S_uo S_oo^-1]`, and what
    stays uncertain has the covariance `S_uu - S_uo S_oo^-1 S_ou`, whatever was observed. So it can be done once for
    all rows of one pattern.
    """
    n_components, n_columns = block.means.shape
    n_gaps = int((~observed).sum())
    deviations = seen.means - part.means
    means = block.means.copy()
    entropies = 0.5 * n_gaps + part.log_normalizers - block.log_normalizers
    if block.covariances.ndim == 3:
        covariances = block.covariances
        precisions = part.whiteners @ part.whiteners.transpose(0, 2, 1)
        slopes = covariances[:, ~observed][:, :, observed] @ precisions
        transform = np.zeros((len(covariances), n_columns, n_columns - n_gaps))
        transform[:, observed] = np.eye(n_columns - n_gaps)
        transform[:, ~observed] = slopes
        left = np.zeros((len(covariances), n_columns, n_columns))
        left[np.ix_(np.arange(len(left)), ~observed, ~observed)] = (
            covariances[:, ~observed][:, :, ~observed] - slopes @ covariances[:, observed][:, :, ~observed]
        )
        means += np.einsum("kdo,ko->kd", np.broadcast_to(transform, (n_components, *transform.shape[1:])), deviations)
        scatters = transform @ seen.scatters @ transform.transpose(0, 2, 1) + seen.counts[:, None, None] * left
    else:
        means[:, observed] += deviations
        scatters = seen.counts[:, None] * np.broadcast_to(block.covariances, (n_components, n_columns))
        scatters[:, observed] = seen.scatters
    return make_statistics(seen.counts, means, scatters, float(seen.counts @ entropies))


def respond(sums: Array, log_weights: Array) -> tuple[Array, Array]:
    """E-step of rows from the network's sums: responsibilities and log-likelihoods.

    A row that no party has adds nothing to any sum: its sums are zero, and so are its responsibilities and its
    log-likelihood. It does not count.

    Parameters
    ----------
    sums : array of shape (..., n_components)
    log_weights : array that broadcasts against it

    Returns
    -------
    responsibilities : array of shape (..., n_components)
    log_likelihoods : array of shape (...)
    """
    responsibilities, log_likelihoods = normalize(sums + log_weights)
    is_there = (sums != 0).any(axis=-1)
    return responsibilities * is_there[..., None], log_likelihoods * is_there


def squared_distances(X: NDArray[np.floating], centres: Array) -> Array:
    """Squared distances within one block: what it adds to the network's sum in k-means. A gap adds nothing.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    centres : array of shape (n_centres, n_columns)

    Returns
    -------
    array of shape (n_samples, n_centres)
    """
    deviations = X - centres[:, None, :]
    deviations[np.isnan(deviations)] = 0.0
    distances: Array = np.einsum("kmd,kmd->km", deviations, deviations).T
    return distances


def centre_sums(X: NDArray[np.floating], responsibilities: Array) -> Array:
    """Of each cluster, how many values there are in each column, and their sum; sums of other rows can be added.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    responsibilities : array of shape (n_samples, n_clusters)

    Returns
    -------
    array of shape (2, n_clusters, n_columns)
    """
    there = ~np.isnan(X)
    return np.stack([responsibilities.T @ there, responsibilities.T @ np.where(there, X, 0.0)])


def nearest(distances: Array) -> tuple[Array, Array]:
    """Hard responsibilities, and the distances to the nearest centres.

    Parameters
    ----------
    distances : array of shape (..., n_centres)

    Returns
    -------
    responsibilities : array of shape (..., n_centres)
        One for the nearest centre (the first of equals), zero for the others. A row at no distance from any centre,
        as one that is missing everywhere, belongs to all alike.
    smallest : array of shape (...)
    """
    labels = distances.argmin(axis=-1)
    responsibilities = (labels[..., None] == np.arange(distances.shape[-1])).astype(np.float64)
    responsibilities[~distances.any(axis=-1)] = 1.0 / distances.shape[-1]
    return responsibilities, distances.min(axis=-1)


def columns_with_noise(noise: Array) -> Columns:
    """Columns of which rounding alone would leave so much of a variance; (n_columns,)."""
    ones = np.ones(len(noise))
    return Columns(
        party="a party",
        counts=ones,
        means=0 * ones,
        variances=ones,
        largest=np.sqrt(noise) / (16 * EPSILON),
        has_gaps=ones > 1,
    )


def m_step(statistics: Statistics, density: Gaussian) -> Block:
    """M-step in which nothing collapses."""
    columns = columns_with_noise(np.zeros(statistics.means.shape[1]))
    shapes = density.shapes(*statistics.means.shape)
    ones = np.eye(shapes["covariances"][-1]) if density.is_matrix else np.ones(1)
    previous = make_block(np.zeros(shapes["means"]), np.broadcast_to(ones, shapes["covariances"]).copy())
    block, collapsed = density.m_step(statistics, previous, columns)
    assert not collapsed
    return block
