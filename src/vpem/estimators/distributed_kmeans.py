"""K-means with distributed dimensions: one message from each party."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from vpem.core.network.parties import assign_columns, make_network
from vpem.core.network.traffic import FLOAT_BYTES, Sending, make_traffic
from vpem.estimators import checks
from vpem.estimators.weighting import counts_each_row_once

Array = NDArray[np.float64]


class DistributedDimensionKMeans(ClusterMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Ding, Liu, Huang and Li's algorithm (2016): local clusters span a grid, the server clusters the grid.

    Every party clusters its own columns, and sends its centres and each row's membership once. A combination of
    local clusters is a cell of a grid. The position of a cell is the concatenation of its centres; its weight is the
    number of its rows. The server runs a weighted k-means on the cells that are not empty. If both k-means are
    optimal, the sum of squares is at most 9 times the smallest possible; a test checks the inequality behind this
    bound on `inertia_`.

    The server learns each row's cluster at every party, and the local centres.

    Parameters
    ----------
    n_clusters : int, default=8
    partition : list, dict or None, default=None
        Columns of each party, as in `VerticalGaussianMixture`; None: one party per column.
    n_local_clusters : int or None, default=None
        Number of clusters of each party; None: `n_clusters`, as in the paper. More clusters make a finer grid, with
        the same number of messages.
    n_init : int, default=10
        Number of starts of every k-means.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features)
    labels_ : array of shape (n_samples,)
        Cluster of each row's cell.
    inertia_ : float
        Sum of squared distances of the rows to their cluster's centre.
    local_inertia_, grid_inertia_ : float
        Sums of squares from rows to cells, and from cells to centres: the square root of `inertia_` is at most the
        sum of theirs.
    n_cells_ : int
        Number of cells that are not empty.
    traffic_ : Traffic
        One message of each party: centres, and memberships in as few bytes as needed. Labels stay at the server.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        partition: Any = None,
        n_local_clusters: int | None = None,
        n_init: int = 10,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.partition = partition
        self.n_local_clusters = n_local_clusters
        self.n_init = n_init
        self.random_state = random_state

    @counts_each_row_once
    def fit(self, X: ArrayLike, y: object = None) -> DistributedDimensionKMeans:  # noqa: ARG002 (scikit-learn's)
        """Cluster at every party, then at the server.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Without gaps.
        y : ignored
        """
        n_clusters = checks.check_count("n_clusters", self.n_clusters, 1)
        n_local = n_clusters
        if self.n_local_clusters is not None:
            n_local = checks.check_count("n_local_clusters", self.n_local_clusters, 1)
        n_init = checks.check_count("n_init", self.n_init, 1)
        table = validate_data(self, X, dtype=[np.float64, np.float32])
        checks.check_enough_rows(len(table), "n_clusters", n_clusters)
        random_state = check_random_state(self.random_state)
        names = getattr(self, "feature_names_in_", None)
        network = make_network(assign_columns(self.partition, table.shape[1], names), "star")
        centres, memberships = [], []
        for held in network.columns:
            own = table[:, held]
            # At most one cluster for each distinct row of the party.
            n_own = min(n_local, len(np.unique(own, axis=0)))
            found = KMeans(n_own, n_init=n_init, random_state=random_state.randint(2**31)).fit(own)
            centres.append(found.cluster_centers_.astype(np.float64))
            memberships.append(found.labels_)
        cells, cell_of_row, weights = np.unique(
            np.column_stack(memberships), axis=0, return_inverse=True, return_counts=True
        )
        cell_of_row = cell_of_row.ravel()
        if len(cells) < n_clusters:
            raise ValueError(
                f"expected at least n_clusters = {n_clusters} different combinations of the parties' clusters, got "
                f"{len(cells)}; try a smaller n_clusters or a larger n_local_clusters"
            )
        grid = np.empty((len(cells), table.shape[1]))
        for number, held in enumerate(network.columns):
            grid[:, held] = centres[number][cells[:, number]]
        final = KMeans(n_clusters, n_init=n_init, random_state=random_state.randint(2**31))
        final.fit(grid, sample_weight=weights)
        self.cluster_centers_: Array = final.cluster_centers_
        self.labels_ = final.labels_[cell_of_row]
        self.n_cells_ = len(cells)
        self.local_inertia_ = float(np.square(table - grid[cell_of_row]).sum())
        self.grid_inertia_ = float(final.inertia_)
        self.inertia_ = float(np.square(table - self.cluster_centers_[self.labels_]).sum())
        server = len(network.parties)
        self.traffic_ = make_traffic(
            network.agents,
            [
                Sending(number, server, 1, FLOAT_BYTES * own.size + len(table) * _label_bytes(n_local))
                for number, own in enumerate(centres)
            ],
            rounds=1,
        )
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Nearest centre of each row; (n_samples,)."""
        check_is_fitted(self, "cluster_centers_")
        table = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        nearest: NDArray[np.intp] = pairwise_distances_argmin(table, self.cluster_centers_)
        return nearest


def _label_bytes(n_labels: int) -> int:
    """Bytes of one membership."""
    return int(np.min_scalar_type(n_labels - 1).itemsize)
