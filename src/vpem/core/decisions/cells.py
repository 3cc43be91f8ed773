"""Clustering of rows from the labels of local clusters alone.

A row's codes, one for each hub, make a *cell*: rows with the same codes are indistinguishable. A group of cells has a
*profile* at each hub: the shares of the hub's local clusters in the group. For squared distances D between the
centres of local clusters, the squared distance of cluster l to the mean of a group with profile p is
``(D p)_l - p' D p / 2``. The distances suffice; the centres are not needed. A hub that lacks a row adds nothing, as
in k-means with gaps.

Cells are clustered in several tries, which need no message. Each try starts with k-means. The weights of the hubs
differ from try to try, because no single scale of columns suits all mixtures. A few iterations of EM follow, which
approximate the mixture of the study at the resolution of cells: in each component, a hub's rows have a covariance of
their own, between local clusters (whose places follow from the distances, up to a rotation) and within them. The try
with the highest likelihood is kept. With many iterations, EM would fit the coarse cells rather than the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks import family_kernels
from vpem.core.blocks.weights import make_weights, normalize
from vpem.core.decisions.initial import draw_candidates, n_candidates, potentials
from vpem.core.network.packets import ABSENT, LocalLabels

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Codes = NDArray[np.uint8]

N_TRIES = 8
"""Number of tries, of which the one with the highest likelihood is kept."""

MOST_CELLED = 2**14
"""Maximum number of rows whose cells are clustered; the others are assigned to their most probable component."""

KMEANS_ITERATIONS = 100
EM_ITERATIONS = 10
"""Maximum numbers of iterations on cells."""

DIVERSITY = 1.0
"""Standard deviation of the logarithm of a hub's weight in a try."""

LEAST_VARIANCE = 1e-3
"""Smallest variance within local clusters, in units of the columns' variances."""

NEGLIGIBLE = 1e-6
"""Eigenvalue, relative to the largest, below which a dimension is attributed to the rounding of distances."""

NO_LABEL = -1
"""Label of a row that no hub has."""


class Cells(NamedTuple):
    """Distinct combinations of local labels."""

    codes: Codes
    """(n_cells, n_hubs): local clusters, or `ABSENT`."""
    weights: Array
    """(n_cells,): number of rows."""
    distances: Array
    """(n_hubs, n_codes, n_codes): squared distances between centres of local clusters; zeros beyond the last one."""
    spreads: Array
    """(n_hubs, n_codes): mean squared distance of rows to their centre."""
    places: Array
    """(n_hubs, n_codes, n_dimensions): places of the centres, up to a rotation; zeros beyond a hub's dimensions."""
    n_columns: Array
    """(n_hubs,): number of columns of each hub."""

    @property
    def overall(self) -> Array:
        """Profile of all cells; (n_hubs, n_codes, 1)."""
        return self.profiles(np.ones((len(self.weights), 1)), np.zeros((*self.spreads.shape, 1)))

    def profiles(self, shares: Array, before: Array) -> Array:
        """Profiles of groups, (n_hubs, n_codes, n_groups), from the shares (n_cells, n_groups) of cells in each.

        A hub that lacks all rows of a group keeps its profile in `before`.
        """
        counts = np.zeros(before.shape)
        family_kernels.count_codes(self.codes, shares * self.weights[:, None], counts)
        counts[:, ABSENT] = 0.0
        totals = counts.sum(axis=1, keepdims=True)
        found: Array = np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), before)
        return found

    def at(self, cells: NDArray[np.intp]) -> Array:
        """Profiles of single cells, (n_hubs, n_codes, n_chosen); at a hub that lacks a cell, that of all cells."""
        codes = self.codes[cells].T
        found = (np.arange(ABSENT + 1)[:, None] == codes[:, None, :]).astype(np.float64)
        return np.where((codes == ABSENT)[:, None, :], self.overall, found)

    def squares(self, profiles: Array) -> Array:
        """Squared distances of local clusters to the means of groups; (n_hubs, n_codes, n_groups)."""
        found = self.distances @ profiles
        found -= 0.5 * (profiles * found).sum(axis=1, keepdims=True)
        found[:, ABSENT] = 0.0
        return found

    def weigh(self, factors: Array) -> Cells:
        """Return the cells with the hubs' distances multiplied by factors, (n_hubs,)."""
        return self._replace(distances=self.distances * factors[:, None, None])

    def sums(self, tables: Array) -> Array:
        """Sums of table entries at each cell's codes; (n_cells, n_groups)."""
        return look_up(self.codes, tables)


def look_up(codes: Codes, tables: Array) -> Array:
    """Sums over hubs of the entries of tables (n_hubs, n_codes, n) at codes (n_rows, n_hubs); (n_rows, n)."""
    found = np.zeros((len(codes), tables.shape[2]))
    family_kernels.look_up(codes, np.ascontiguousarray(tables), found)
    return found


def make_cells(codes: Codes, found: Sequence[LocalLabels], n_columns: Sequence[int]) -> Cells:
    """Return the cells of rows with the given codes, (n_rows, n_hubs); every row is present at some hub."""
    keys = np.ascontiguousarray(codes).view(np.dtype((np.void, codes.shape[1]))).ravel()
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    distances, spreads = np.zeros((len(found), ABSENT + 1, ABSENT + 1)), np.zeros((len(found), ABSENT + 1))
    points = [find_places(own.distances, width) for own, width in zip(found, n_columns, strict=True)]
    places = np.zeros((len(found), ABSENT + 1, max(own.shape[1] for own in points)))
    for hub, (own, where) in enumerate(zip(found, points, strict=True)):
        distances[hub, : own.n_local, : own.n_local] = own.distances
        spreads[hub, : own.n_local] = own.spreads
        places[hub, : own.n_local, : where.shape[1]] = where
    weights, widths = counts.astype(np.float64), np.array(n_columns, dtype=np.float64)
    return Cells(codes[first], weights, distances, spreads, places, widths)


def cluster_cells(cells: Cells, n_clusters: int, rng: np.random.Generator) -> tuple[Array, float]:
    """Cluster cells by weighted k-means, from k-means++; return hard shares (n_cells, n_clusters) and the inertia.

    A cluster that loses all its cells keeps its mean.
    """
    profiles = _plus_plus(cells, n_clusters, rng)
    labels, inertia = np.full(len(cells.weights), NO_LABEL), np.inf
    shares = np.zeros((len(labels), n_clusters))
    for _ in range(KMEANS_ITERATIONS):
        distances = cells.sums(cells.squares(profiles))
        nearest, before = distances.argmin(axis=1), labels
        labels, inertia = nearest, float(cells.weights @ distances[np.arange(len(nearest)), nearest])
        shares = (labels[:, None] == np.arange(n_clusters)).astype(np.float64)
        if np.array_equal(labels, before):
            break
        profiles = cells.profiles(shares, profiles)
    return shares, inertia


def fit_cells(cells: Cells, shares: Array) -> tuple[Array, Array, float]:
    """Run EM on cells, starting from the shares of k-means.

    Returns
    -------
    tables : array of shape (n_hubs, n_codes, n_components)
        Log-densities of local clusters; zeros for the code `ABSENT`.
    log_weights : array of shape (n_components,)
    bound : float
        Log-likelihood per row.
    """
    profiles = np.broadcast_to(cells.overall, (*cells.spreads.shape, shares.shape[1]))
    for _ in range(EM_ITERATIONS):
        profiles = cells.profiles(shares, profiles)
        log_weights = np.log(make_weights(cells.weights @ shares))
        tables = log_densities(cells, profiles)
        shares, log_likelihoods = normalize(cells.sums(tables) + log_weights)
    return tables, log_weights, float(cells.weights @ log_likelihoods / cells.weights.sum())


def log_densities(cells: Cells, profiles: Array) -> Array:
    """Mean log-density of each local cluster's rows in components with these profiles, up to a constant.

    A hub's rows are Gaussian in each component. Between local clusters their covariance is that of the places. Within
    local clusters it is isotropic, including the dimensions that the places do not span.
    """
    places, n_columns = cells.places, cells.n_columns[:, None]
    n_dimensions = places.shape[2]
    deviations = places[:, None] - np.einsum("bck,bcd->bkd", profiles, places)[:, :, None]
    spreads = cells.spreads / n_columns
    within = np.maximum(np.einsum("bck,bc->bk", profiles, spreads), LEAST_VARIANCE)
    covariances = np.einsum("bck,bkcd,bkce->bkde", profiles, deviations, deviations, optimize=True)
    covariances += within[:, :, None, None] * np.eye(n_dimensions)
    precisions = np.linalg.inv(covariances)
    squares = np.einsum("bkcd,bkde,bkce->bck", deviations, precisions, deviations, optimize=True)
    traces = np.trace(precisions, axis1=2, axis2=3) + (n_columns - n_dimensions) / within
    volumes = np.linalg.slogdet(covariances)[1] + (n_columns - n_dimensions) * np.log(within)
    found: Array = -0.5 * (squares + spreads[:, :, None] * traces[:, None] + volumes[:, None])
    found[:, ABSENT] = 0.0
    return found


def find_places(distances: Array, n_columns: int) -> Array:
    """Find points with given squared distances, (n, n), in as few dimensions as needed, by classical scaling."""
    centred = -0.5 * (distances - distances.mean(axis=0) - distances.mean(axis=1)[:, None] + distances.mean())
    values, vectors = np.linalg.eigh(centred)
    most = min(n_columns, max(1, int((values > NEGLIGIBLE * max(values[-1], 0.0)).sum())))
    found: Array = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :most]
    return found


def label_rows(found: Sequence[LocalLabels], n_columns: Sequence[int], n_clusters: int, seed: int) -> Integers:
    """Find one label for each row from the local labels of all hubs.

    Parameters
    ----------
    found : sequence of LocalLabels
        Local labels of each hub.
    n_columns : sequence of int
        Number of columns of each hub.
    n_clusters : int
    seed : int

    Returns
    -------
    array of shape (n_rows,)
        From 0 to n_clusters - 1, or `NO_LABEL` for rows that no hub has. If there are enough rows, every label
        occurs: where there are too few distinct cells, rows of the largest cluster are reassigned.
    """
    rng = np.random.default_rng(seed)
    codes = np.column_stack([own.codes for own in found])
    rows = np.flatnonzero((codes != ABSENT).any(axis=1))
    labels = np.full(len(codes), NO_LABEL, dtype=np.int64)
    if len(rows) == 0:
        return labels
    codes = codes[rows]
    some = codes if len(rows) <= MOST_CELLED else codes[rng.choice(len(rows), MOST_CELLED, replace=False)]
    cells, best = make_cells(some, found, n_columns), (-np.inf, -np.inf)
    for number in range(N_TRIES):
        lots = np.exp(DIVERSITY * rng.normal(size=len(found))) if number else np.ones(len(found))
        shares, _ = cluster_cells(cells.weigh(lots), n_clusters, rng)
        tables, log_weights, bound = fit_cells(cells, shares)
        own = (look_up(codes, tables) + log_weights).argmax(axis=1)
        worth = float(len(np.unique(own))), bound
        if worth > best:
            best, labels[rows] = worth, own
    labels[rows] = _deal_out(labels[rows], n_clusters, rng)
    return labels


def _deal_out(labels: Integers, n_clusters: int, rng: np.random.Generator) -> Integers:
    """Assign to each unused label half of the rows of the most frequent one, drawn at random."""
    labels = labels.copy()
    for label in range(n_clusters):
        counts = np.bincount(labels, minlength=n_clusters)
        if counts[label] == 0 and counts.max() > 1:
            rows = np.flatnonzero(labels == counts.argmax())
            labels[rng.permutation(rows)[: len(rows) // 2]] = label
    return labels


def _plus_plus(cells: Cells, n_clusters: int, rng: np.random.Generator) -> Array:
    """Choose cells by k-means++, and return their profiles."""
    picked = draw_candidates(rng, cells.weights, 1)
    closest = cells.sums(cells.squares(cells.at(picked)))[:, 0]
    while len(picked) < n_clusters:
        drawn = draw_candidates(rng, closest * cells.weights, n_candidates(n_clusters))
        distances = cells.sums(cells.squares(cells.at(drawn)))
        best = int(potentials(closest * cells.weights, distances * cells.weights[:, None]).argmin())
        picked, closest = np.append(picked, drawn[best]), np.minimum(closest, distances[:, best])
    return cells.at(picked)
