"""VerticalKMeans: Lloyd's algorithm with distances summed by the network, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from vpem.core.agent.meeting import meeting_traffic
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.kernels import add_row_distances
from vpem.core.network.summation import Summation
from vpem.core.rows import Table, row_chunks
from vpem.core.settings import Agreement, Settings
from vpem.estimators import checks
from vpem.estimators.weighting import counts_each_row_once
from vpem.simulation.channel import Channel
from vpem.simulation.fit import kmeans, kmeans_driver
from vpem.simulation.model import make_problem
from vpem.simulation.threads import one_blas_thread

Array = NDArray[np.float64]


class VerticalKMeans(ClusterMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """K-means for parties that each hold some columns of the same rows.

    Each party adds its squared distances to the network's sum and updates its own part of the centres. On a star
    this is exactly Lloyd's algorithm. Gaps (NaN) add nothing to a distance, and a centre is the mean of the observed
    values.

    Parameters
    ----------
    n_clusters : int, default=8
    partition : list, dict or None, default=None
        Columns of each party; see `VerticalGaussianMixture`.
    graph : {"star", "ring", "complete", "path"} or networkx.Graph, default="star"
    summation : Star, Consensus or None, default=None
    init : {"k-means++", "random"} or array-like of shape (n_clusters, n_features), default="k-means++"
    n_init : int or "auto", default="auto"
        Number of starts, of which the best is kept; "auto" is 10 for random starts, else 1.
    max_iter : int, default=300
    tol : float, default=1e-4
        Stop when the total movement of the centres is at most `tol` times the mean variance of the columns; every
        party checks its share.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    cluster_centers_ : array of shape (n_clusters, n_features)
    labels_ : array of shape (n_samples,)
        Nearest centre of each row, computed exactly from the assembled centres.
    inertia_ : float
        Sum of squared distances of the rows to their nearest centre.
    n_iter_ : int
    traffic_ : Traffic
    n_features_in_ : int
    feature_names_in_ : array of str
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        partition: Any = None,
        graph: Any = "star",
        summation: Summation | None = None,
        init: Any = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: Any = None,
    ):
        self.n_clusters = n_clusters
        self.partition = partition
        self.graph = graph
        self.summation = summation
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @counts_each_row_once
    @one_blas_thread()
    def fit(self, X: ArrayLike, y: object = None) -> VerticalKMeans:  # noqa: ARG002 (scikit-learn's signature)
        """Find the centres.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self
        """
        n_clusters = checks.check_count("n_clusters", self.n_clusters, 1)
        max_iter = checks.check_count("max_iter", self.max_iter, 1)
        tol = checks.check_non_negative("tol", self.tol)
        table = checks.read_table(self, X, reset=True)
        checks.check_enough_rows(len(table), "n_clusters", n_clusters)
        init: str | Array
        if isinstance(self.init, str):
            init = checks.check_choice("init", self.init, ("k-means++", "random"))
        else:
            init = checks.finite_array("init", self.init, (n_clusters, table.shape[1]))
        n_init = self._n_init(init)
        seed = checks.shared_seed(self.random_state)
        names = getattr(self, "feature_names_in_", None)
        network, summation = checks.build_network(
            self.partition, self.graph, 0, self.summation, table.shape[1], names, seed
        )
        channel = Channel(summation, network)
        settings = Settings(n_components=n_clusters, density=Gaussian(), tol=0.0, max_iter=0)
        agreement = Agreement(settings=settings, summation=summation, seed=seed)
        problem = make_problem(table, network, summation)
        driver = kmeans_driver(problem, channel, agreement, max_iter=max_iter, tol=tol)
        fits, inertias = [], []
        for number in range(n_init):
            found = kmeans(driver, init, number)
            fits.append(found)
            inertias.append(float(found.inertia.max()))
            if n_init > 1:  # all keep the same run: the largest inertia of any root is flooded after each
                channel.flood(1)
        best = fits[int(np.argmin(inertias))]
        self.traffic_ = meeting_traffic(network, len(table), 0, summation) + channel.traffic
        self.cluster_centers_ = network.assemble(best.centres)
        self.n_iter_ = best.n_iter
        self.labels_, distances = self._nearest(table)
        self.inertia_ = float(distances.sum())
        if not best.converged:
            warnings.warn(
                f"k-means did not converge in {best.n_iter} iterations; try a larger max_iter or tol, or more "
                "rounds if the sum is not exact",
                ConvergenceWarning,
                stacklevel=4,
            )
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Nearest centre of each row; (n_samples,)."""
        check_is_fitted(self, "cluster_centers_")
        return self._nearest(checks.read_table(self, X, reset=False))[0]

    @counts_each_row_once
    def score(self, X: ArrayLike, y: object = None) -> float:  # noqa: ARG002 (scikit-learn's signature)
        """Negative sum of squared distances to the nearest centres."""
        check_is_fitted(self, "cluster_centers_")
        return -float(self._nearest(checks.read_table(self, X, reset=False))[1].sum())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _nearest(self, table: Table) -> tuple[NDArray[np.intp], Array]:
        """Label of each row, and its squared distance to the nearest centre."""
        labels = np.empty(len(table), dtype=np.intp)
        smallest = np.empty(len(table))
        for rows in row_chunks(0, len(table), self.cluster_centers_.size):
            chunk = np.ascontiguousarray(table[rows])
            closeness = np.zeros((len(self.cluster_centers_), len(chunk)))
            add_row_distances(chunk, self.cluster_centers_, closeness)
            labels[rows] = closeness.argmax(axis=0)
            smallest[rows] = -2.0 * closeness.max(axis=0)
        return labels, smallest

    def _n_init(self, init: str | Array) -> int:
        if isinstance(self.n_init, str) and self.n_init == "auto":
            return 10 if isinstance(init, str) and init == "random" else 1
        return checks.check_count("n_init", self.n_init, 1)
