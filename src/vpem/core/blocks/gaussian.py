"""One block of a Gaussian mixture: what its rows add to the network's sum, its statistics, its M-step.

A block is the part of every component's mean and covariance that belongs to one hub's columns. Blocks never
look at each other: all that they share is the sum of their contributions (equation 12 of the paper), from
which every root computes the responsibilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.covariances import (
    EPSILON,
    STRUCTURES,
    TINY_COUNT,
    CovarianceRule,
    estimate_covariances,
    per_component,
)

Array = NDArray[np.float64]


LOWEST = -1e300
"""Least contribution of a row: minus infinity would turn into NaN where a network takes zero times it."""


SINGULAR = 64 * EPSILON
"""Share of its variance, per column of the block, that a column must have left, given the others.

Sums in another order, and other processors, round differently, by about EPSILON per column: a matrix that is singular
must be found so by all of them.
"""


class CollapsedComponentError(ValueError):
    """A covariance within one block is not positive definite, to rounding.

    Parameters
    ----------
    component : int or None
        None: the block's columns have no covariance at all, whatever the component.
    party : object
    repairs : int
        How often the component was repaired in vain.
    """

    def __init__(self, component: int | None, party: object = None, repairs: int = 0):
        self.component = component
        self.party = party
        where = "" if party is None else f" at party {party!r}"
        what = "no component can have a covariance" if component is None else f"component {component} has collapsed"
        again = f" ({repairs} repairs did not help)" if repairs else ""
        super().__init__(
            f"{what}{where}{again}: expected a positive definite covariance, got one that is singular or not "
            "finite (too few distinct rows for the component, or columns that are constant, multiples of each other "
            "or too large); try fewer components, a larger reg_covar, another covariance_type, shrinkage='oas', or "
            "scaling or leaving out columns"
        )


@dataclass(frozen=True, eq=False)
class Block:
    """The parameters of one block; made by `make_block`.

    `covariances` and `whiteners` broadcast against the components: (n_components, n_columns, n_columns) for
    full, (1, n_columns, n_columns) for tied, (n_components, n_columns) for diag, (n_components, 1) for spherical.
    """

    means: Array
    """(n_components, n_columns)"""
    covariances: Array
    whiteners: Array
    """Upper triangular U with U U^T = precision (scikit-learn: precisions_cholesky_), or 1 / deviation."""
    log_normalizers: Array
    """(n_components,): log of the density's factor in front of the exponential."""


class Statistics(NamedTuple):
    """Sufficient statistics of a block's rows, around their own means, so that large offsets cost no digits."""

    counts: Array
    """(n_components,): sum of responsibilities."""
    means: Array
    """(n_components, n_columns): weighted means."""
    scatters: Array
    """(n_components, n_columns[, n_columns]): weighted sum of (x - mean)(x - mean)^T, or of its diagonal."""
    gap_entropy: float = 0.0
    """Entropy of what partly observed rows lack, given what they have; the free energy needs it."""


def log_contribution(X: NDArray[np.floating], block: Block) -> Array:
    """Log-density of each row under each component, within one block.

    This is what the block adds to the network's sum. It holds all constants: with the paper's
    `Q = log|S| + |x - mu|^2_S` it is `-(Q + n_columns log 2 pi) / 2`. (The supplement drops `-N/2 log 2 pi`,
    N being the number of agents; the exponent is a slip for the number d of columns.)

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    block : Block

    Returns
    -------
    array of shape (n_samples, n_components)
    """
    deviations = X - block.means[:, None, :]
    with np.errstate(over="ignore"):  # beyond 1e154 deviations the density is zero
        if block.whiteners.ndim == 3:
            whitened = deviations @ block.whiteners
        else:
            whitened = deviations * block.whiteners[:, None, :]
        distances = np.einsum("kmd,kmd->km", whitened, whitened)
    contribution: Array = np.maximum(block.log_normalizers[:, None] - 0.5 * distances, LOWEST).T
    return contribution


def normalize(log_joint: Array) -> tuple[Array, Array]:
    """Responsibilities and log-likelihoods of rows (equation 4), without leaving log space too early.

    Parameters
    ----------
    log_joint : array of shape (..., n_components)
        Log of weight times density.

    Returns
    -------
    responsibilities : array of shape (..., n_components)
    log_likelihoods : array of shape (...)
    """
    largest = log_joint.max(axis=-1)
    joint = np.exp(log_joint - largest[..., None])
    total = joint.sum(axis=-1)
    joint /= total[..., None]
    return joint, np.log(total) + largest


def n_present(counts: Array) -> Array:
    """How many rows some party has, from sums of responsibilities; (..., n_components) to (...).

    Responsibilities of such a row add up to one; of others, to zero.
    """
    found: Array = np.maximum(np.rint(counts.sum(axis=-1)), 1.0)
    return found


def block_statistics(X: NDArray[np.floating], responsibilities: Array, *, is_matrix: bool) -> Statistics:
    """Sufficient statistics of some rows within one block; those of other rows can be added to them.

    Two passes over rows that are in the cache, the second with a correction: as accurate as can be.

    Parameters
    ----------
    X : array of shape (n_samples, n_columns)
    responsibilities : array of shape (n_samples, n_components)
    is_matrix : bool
        Whole scatter matrices; otherwise their diagonals.
    """
    counts = responsibilities.sum(axis=0)
    present = np.where(counts > 0, counts, 1.0)
    rough = responsibilities.T @ X / present[:, None]
    deviations = X - rough[:, None, :]
    weighted = deviations * responsibilities.T[:, :, None]
    sums = weighted.sum(axis=1)
    shifts = sums / present[:, None]
    if is_matrix:
        scatters = weighted.transpose(0, 2, 1) @ deviations - sums[:, :, None] * shifts[:, None, :]
    else:
        scatters = np.einsum("kmd,kmd->kd", weighted, deviations) - sums * shifts
    return Statistics(counts, rough + shifts, scatters)


def add_statistics(first: Statistics, second: Statistics) -> Statistics:
    """Statistics of the union of two sets of rows (Chan, Golub and LeVeque's update)."""
    counts = first.counts + second.counts
    share = second.counts / np.where(counts > 0, counts, 1.0)
    gaps = second.means - first.means
    means = first.means + share[:, None] * gaps
    outer = gaps[:, :, None] * gaps[:, None, :] if first.scatters.ndim == 3 else gaps**2
    scatters = first.scatters + second.scatters + per_component(first.counts * share, outer) * outer
    return Statistics(counts, means, scatters, first.gap_entropy + second.gap_entropy)


def scale_statistics(statistics: Statistics, factor: float) -> Statistics:
    """Statistics of the same rows with another weight."""
    counts, means, scatters, gap_entropy = statistics
    return Statistics(factor * counts, means, factor * scatters, factor * gap_entropy)


def m_step(statistics: Statistics, rule: CovarianceRule) -> Block:
    """Means and covariances of one block from its statistics (equations 9 and 11)."""
    return make_block(statistics.means, estimate_covariances(statistics.counts, statistics.scatters, rule))


def careful_m_step(
    statistics: Statistics, rule: CovarianceRule, previous: Block, smallest_variances: Array
) -> tuple[Block, list[int]]:
    """M-step in which a component that would collapse keeps what it had.

    A component of which the block has no rows keeps its parameters too, and counts as sound: nothing depends on
    it.

    Parameters
    ----------
    statistics : Statistics
    rule : CovarianceRule
    previous : Block
    smallest_variances : array of shape (n_columns,) or (n_components, n_columns)
        What rounding alone would leave of a variance.

    Returns
    -------
    block : Block
    collapsed : list of int
        The components that could not be updated. Of tied covariances, which collapse for all, the smallest.
    """
    means = statistics.means.copy()
    covariances = estimate_covariances(statistics.counts, statistics.scatters, rule)
    empty = statistics.counts <= TINY_COUNT
    unusable = empty | ~np.isfinite(means).all(axis=1)
    means[unusable] = previous.means[unusable]
    tied = STRUCTURES[rule.covariance_type].shared_by == "components"
    broken = np.zeros(len(covariances), dtype=bool) if tied else empty
    diagonals = np.diagonal(covariances, axis1=1, axis2=2) if covariances.ndim == 3 else covariances
    with np.errstate(invalid="ignore"):
        broken = broken | ~(diagonals > smallest_variances).all(axis=1)
    while True:
        kept = np.broadcast_to(previous.covariances, covariances.shape)
        covariances[broken] = kept[broken]
        if not tied:
            means[broken] = previous.means[broken]
        try:
            block = make_block(means, covariances)
        except CollapsedComponentError as error:
            if error.component is None or broken[error.component]:
                raise
            broken[error.component] = True
            continue
        if tied:
            return block, [int(statistics.counts.argmin())] if broken[0] else []
        return block, np.flatnonzero(broken & ~empty).tolist()


def careful_m_steps(
    statistics: Sequence[Statistics],
    rule: CovarianceRule,
    previous: Sequence[Block],
    smallest_variances: Sequence[Array],
) -> tuple[list[Block], list[list[int]]]:
    """`careful_m_step` of many blocks; those that are equally wide at once, as one block of many components.

    Tied covariances are one block's affair.
    """
    n_components = len(statistics[0].counts)
    is_tied = STRUCTURES[rule.covariance_type].shared_by == "components"
    groups: dict[tuple[int, int], list[int]] = {}
    for b, own in enumerate(statistics):
        groups.setdefault((own.means.shape[1], b if is_tied else 0), []).append(b)
    found: list[Block] = list(previous)
    broken: list[list[int]] = [[] for _ in statistics]
    for members in groups.values():
        if len(members) == 1:
            (b,) = members
            found[b], broken[b] = careful_m_step(statistics[b], rule, previous[b], smallest_variances[b])
            continue
        together = Statistics(
            np.concatenate([statistics[b].counts for b in members]),
            np.concatenate([statistics[b].means for b in members]),
            np.concatenate([statistics[b].scatters for b in members]),
        )
        smallest = np.repeat([smallest_variances[b] for b in members], n_components, axis=0)
        block, collapsed = careful_m_step(together, rule, _stack([previous[b] for b in members]), smallest)
        for place, b in enumerate(members):
            own_part = slice(place * n_components, (place + 1) * n_components)
            parts = block.means, block.covariances, block.whiteners, block.log_normalizers
            found[b] = Block(*(part[own_part] for part in parts))
            broken[b] = [component % n_components for component in collapsed if component // n_components == place]
    return found, broken


def _stack(blocks: Sequence[Block]) -> Block:
    """Equally wide blocks with covariances of their own for every component, as one block with all components."""
    return Block(
        np.concatenate([block.means for block in blocks]),
        np.concatenate([block.covariances for block in blocks]),
        np.concatenate([block.whiteners for block in blocks]),
        np.concatenate([block.log_normalizers for block in blocks]),
    )


def expected_log_density(statistics: Statistics, block: Block) -> float:
    """Expected log-density of rows that these statistics stand for, gaps filled in, plus the gaps' entropy.

    This is what a block adds to the free energy: with the paper's symbols
    `-1/2 sum_k n_k (log|S_k| + tr(S_k^-1 C_k) + d log 2 pi)`.
    """
    moved = statistics.means - block.means
    if block.whiteners.ndim == 3:
        spread = ((statistics.scatters @ block.whiteners) * block.whiteners).sum(axis=(1, 2))
        distances = np.square(moved[:, None, :] @ block.whiteners).sum(axis=(1, 2))
    else:
        precisions = block.whiteners**2
        spread = (statistics.scatters * precisions).sum(axis=1)
        distances = (moved**2 * precisions).sum(axis=1)
    counts = statistics.counts
    total = counts @ block.log_normalizers - 0.5 * (spread + counts * distances).sum()
    return float(total) + statistics.gap_entropy


def make_weights(counts: Array) -> Array:
    """Component weights from sums of responsibilities (equation 5a); (..., n_components) to the same shape."""
    counts = counts + TINY_COUNT
    weights: Array = counts / counts.sum(axis=-1, keepdims=True)
    return weights


def make_block(means: Array, covariances: Array) -> Block:
    """Block with the factors that its densities need.

    Parameters
    ----------
    means : array of shape (n_components, n_columns)
    covariances : array
        In the broadcastable shapes of `Block`.

    Raises
    ------
    CollapsedComponentError
        If a covariance is not positive definite.
    """
    n_components, n_columns = means.shape
    finite = np.isfinite(covariances).reshape(len(covariances), -1).all(axis=1)
    if not finite.all():
        raise CollapsedComponentError(int(np.argmin(finite)))
    if covariances.ndim == 3:
        # In the usual order in memory: an agent that is saved and restored must multiply the same way again.
        whiteners: Array = np.ascontiguousarray(np.linalg.inv(_factors(covariances)).transpose(0, 2, 1))
        log_determinants = np.log(np.diagonal(whiteners, axis1=1, axis2=2)).sum(axis=1)
    else:
        positive = (covariances > 0).all(axis=1)
        if not positive.all():
            raise CollapsedComponentError(int(np.argmin(positive)))
        whiteners = 1.0 / np.sqrt(covariances)
        log_determinants = np.log(np.broadcast_to(whiteners, means.shape)).sum(axis=1)
    log_normalizers = np.broadcast_to(log_determinants, n_components) - 0.5 * n_columns * np.log(2 * np.pi)
    return Block(means, covariances, whiteners, log_normalizers)


def _factors(covariances: Array) -> Array:
    """Lower Cholesky factors of (n_matrices, n_columns, n_columns)."""
    try:
        factors = np.asarray(np.linalg.cholesky(covariances), dtype=np.float64)
    except np.linalg.LinAlgError:
        # Find the matrix that failed. One that passed before must pass again, so that no other component is blamed.
        for component, covariance in enumerate(covariances):
            try:
                np.linalg.cholesky(covariance)
            except np.linalg.LinAlgError:
                raise CollapsedComponentError(component) from None
        raise
    # What a column has left, given the others, must be well above the rounding of its own variance.
    left, whole = (np.diagonal(part, axis1=1, axis2=2) for part in (factors, covariances))
    sound = (left**2 > SINGULAR * covariances.shape[1] * whole).all(axis=1)
    if not sound.all():
        raise CollapsedComponentError(int(np.argmin(sound)))
    return factors
