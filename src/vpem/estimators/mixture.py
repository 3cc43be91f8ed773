"""VerticalGaussianMixture: VP-EM as a scikit-learn estimator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.utils.validation import check_is_fitted, validate_data

from vpem.core.initial import shared_generator
from vpem.core.mixture import STRUCTURES, log_contribution, n_covariance_parameters, normalize
from vpem.core.network import Network
from vpem.core.summation import Summation
from vpem.core.traffic import Traffic, make_traffic, pooling_traffic
from vpem.estimators import checks
from vpem.estimators.progress import Progress
from vpem.simulation.em import Mixture, MixtureFit, Settings, certify, em
from vpem.simulation.starts import STARTS, make_mixture, make_start
from vpem.simulation.sweep import row_chunks

Array = NDArray[np.float64]


class VerticalGaussianMixture(DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Gaussian mixture of parties that each hold some columns of the same rows.

    Each component's covariance is block-diagonal, one block for each party (or hub of parties): a party updates
    its own block from its own columns, and the parties need nothing from each other but the sum of their
    log-densities. On a star, where a server adds, this equals centralized EM with block-diagonal covariances. On
    any other connected graph the parties average with their neighbours (consensus), and every root keeps its own
    estimates. This estimator simulates the network in one process and counts what it would send.

    Parameters
    ----------
    n_components : int, default=1
    partition : list, dict or None, default=None
        Who holds which columns: a list of columns per party, or a dict from party name to columns; columns by
        position or, for a data frame, by name. Every column exactly once. None: one party per column.
    graph : {"star", "ring", "complete", "path"} or networkx.Graph, default="star"
        Who talks to whom. A star has a server that is no party and holds no columns. A graph's nodes are the
        party names or 0, ..., N-1.
    hops : int, default=0
        How far columns may travel to be pooled at the root of a hub; not on a star.
    summation : Star, Consensus or None, default=None
        How the network adds. None: the exact sum on a star, else ``Consensus(rounds=100, weights="metropolis")``.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        As scikit-learn defines them, within each block.
    tol : float, default=1e-3
        Stop when every root's log-likelihood per row changes by less.
    reg_covar : float, default=1e-6
        Added to every variance.
    max_iter : int, default=100
        0 leaves the model at its start, with `lower_bound_` minus infinity, as in scikit-learn.
    n_init : int, default=1
        Number of starts, of which the best is kept.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default="kmeans"
        "kmeans" and "k-means++" use the network's sum; "random" (random responsibilities) and "random_from_data"
        (random rows as means, overall covariances) need nothing but a shared seed.
    weights_init : array-like of shape (n_components,), optional
    means_init : array-like of shape (n_components, n_features), optional
        In the order of X's columns.
    precisions_init : list of array-likes, optional
        One entry for each block b, in the order of ``hubs_[b].columns`` and in scikit-learn's shape for the
        covariance type.
    random_state : int, RandomState or None, default=None
        Source of the seed that the parties share.
    warm_start : bool, default=False
        Go on from the last fit, each root from its own estimates; the links and the summation may have changed.
    verbose : int, default=0
        1 tells of each start, 2 of each iteration.

    Attributes
    ----------
    weights_ : array of shape (n_components,)
        Mean over the roots' estimates.
    hub_weights_ : array of shape (n_hubs, n_components)
        Each root's own estimate.
    means_ : array of shape (n_components, n_features)
    covariances_ : list of arrays
        One for each block, in scikit-learn's shape for the covariance type; see also `covariance_matrix`.
    hubs_ : list of NamedHub
        Root, members and column numbers of each hub; without hops, each party is its own.
    lower_bound_ : float
        Log-likelihood per row, as scikit-learn's: before the last M-step, mean over roots.
    lower_bounds_ : list of float
        The same for every iteration.
    n_iter_ : int
    converged_ : bool
    disagreement_ : float
        Largest difference between two roots' responsibilities for the rows of the fit; 0 on a star.
    certificate_ : Certificate
        ``gain`` of one more exact EM step, and the ``disagreement``.
    traffic_ : Traffic
        ``messages``, ``bytes``, ``rounds`` and ``per_agent``, as a real network would send them.
    n_features_in_ : int
    feature_names_in_ : array of str

    Examples
    --------
    >>> import numpy as np
    >>> from vpem import VerticalGaussianMixture
    >>> X = np.array([[1, 2, 0], [1, 4, 1], [1, 0, 0], [10, 2, 9], [10, 4, 8], [10, 0, 9]])
    >>> parties = {"bank": [0, 1], "shop": [2]}
    >>> mixture = VerticalGaussianMixture(2, partition=parties, random_state=0).fit(X)
    >>> mixture.predict([[0, 0, 0]]) == mixture.predict([[2, 1, 1]])
    array([ True])
    >>> mixture.traffic_.per_agent["bank"].messages_sent
    10
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        partition: Any = None,
        graph: Any = "star",
        hops: int = 0,
        summation: Summation | None = None,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "kmeans",
        weights_init: ArrayLike | None = None,
        means_init: ArrayLike | None = None,
        precisions_init: Sequence[ArrayLike] | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
    ):
        self.n_components = n_components
        self.partition = partition
        self.graph = graph
        self.hops = hops
        self.summation = summation
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None) -> VerticalGaussianMixture:  # noqa: ARG002 (scikit-learn's signature)
        """Fit the mixture.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All parties' columns; numpy, pandas or polars.
        y : ignored

        Returns
        -------
        self
        """
        settings = self._settings()
        n_init = checks.check_count("n_init", self.n_init, 1)
        progress = Progress(checks.check_count("verbose", self.verbose, 0))
        goes_on = bool(self.warm_start) and hasattr(self, "_mixture")
        table = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2, reset=not goes_on)
        checks.check_enough_rows(len(table), "n_components", settings.n_components)
        seed = self._seed if goes_on else checks.shared_seed(self.random_state)
        names = getattr(self, "feature_names_in_", None)
        network, summation = checks.build_network(
            self.partition, self.graph, self.hops, self.summation, table.shape[1], names, seed
        )
        if goes_on:
            self._check_goes_on(settings, network)
        traffic = pooling_traffic(network, len(table))
        best: MixtureFit | None = None
        for restart in range(1 if goes_on else n_init):
            progress.start(restart)
            before = None
            if goes_on:
                start, before = self._mixture, self._last_lower_bounds
            else:
                start, spent = self._start(table, network, summation, settings, seed, restart)
                traffic += spent
            result = em(table, network, summation, start, settings, before=before, monitor=progress.iteration)
            progress.end(result.converged, result.n_iter)
            traffic += result.traffic
            if best is None or result.agreed_lower_bound > best.agreed_lower_bound:
                best = result
        assert best is not None, "n_init is at least 1"
        self._keep(table, network, summation, settings, seed, best, traffic)
        if not best.converged and settings.max_iter > 0:
            warnings.warn(
                f"the best start did not converge in {settings.max_iter} iterations; "
                "try a larger max_iter or tol, or another init_params",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def fit_predict(self, X: ArrayLike, y: object = None) -> NDArray[np.intp]:
        """Fit, and return the label of each row."""
        return self.fit(X, y).predict(X)

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Most probable component of each row, under the assembled model; (n_samples,)."""
        labels: NDArray[np.intp] = self.predict_proba(X).argmax(axis=1)
        return labels

    def predict_proba(self, X: ArrayLike) -> Array:
        """Responsibilities under the assembled model; (n_samples, n_components)."""
        return np.concatenate([responsibilities for responsibilities, _ in self._evaluate(X)])

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of each row under the assembled model; (n_samples,)."""
        return np.concatenate([log_likelihoods for _, log_likelihoods in self._evaluate(X)])

    def score(self, X: ArrayLike, y: object = None) -> float:  # noqa: ARG002 (scikit-learn's signature)
        """Mean log-density per row under the assembled model."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1) -> tuple[Array, NDArray[np.intp]]:
        """Draw rows from the assembled model, as scikit-learn does: component after component.

        Returns
        -------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        """
        check_is_fitted(self, "weights_")
        rng = np.random.default_rng(checks.shared_seed(self.random_state))
        counts = rng.multinomial(checks.check_count("n_samples", n_samples, 1), self.weights_)
        labels = np.repeat(np.arange(len(counts)), counts)
        X = self.means_[labels]
        for columns, block in zip(self._network.block_columns, self._mixture.blocks, strict=True):
            noise = rng.standard_normal((len(labels), len(columns)))
            for k in range(len(counts)):
                chosen = labels == k
                covariance = block.covariances[k % len(block.covariances)]
                if covariance.ndim == 2:
                    noise[chosen] = noise[chosen] @ np.linalg.cholesky(covariance).T
                else:
                    noise[chosen] *= np.sqrt(covariance)
            X[:, columns] += noise
        return X, labels

    def bic(self, X: ArrayLike) -> float:
        """Bayesian information criterion on X; the lower, the better. Parameters count as the blocks have them."""
        scores = self.score_samples(X)
        return float(-2 * scores.sum() + self._n_parameters() * math.log(len(scores)))

    def aic(self, X: ArrayLike) -> float:
        """Akaike information criterion on X; the lower, the better. Parameters count as the blocks have them."""
        return float(-2 * self.score_samples(X).sum() + 2 * self._n_parameters())

    def covariance_matrix(self) -> Array:
        """Dense covariances in the order of X's columns; (n_components, n_features, n_features)."""
        check_is_fitted(self, "weights_")
        n_components, n_features = self.means_.shape
        dense = np.zeros((n_components, n_features, n_features))
        for columns, block in zip(self._network.block_columns, self._mixture.blocks, strict=True):
            if block.covariances.ndim == 3:
                dense[:, columns[:, None], columns] = block.covariances
            else:
                dense[:, columns, columns] = block.covariances
        return dense

    def to_sklearn(self) -> GaussianMixture:
        """Fitted `sklearn.mixture.GaussianMixture` with the same densities.

        It is "full", "tied" or "diag"; "spherical" blocks, each with a variance of its own, become "diag".
        """
        dense = self.covariance_matrix()
        kind = "diag" if self._covariance_type == "spherical" else self._covariance_type
        model = GaussianMixture(
            len(self.weights_),
            covariance_type=kind,
            tol=self.tol,
            reg_covar=self.reg_covar,
            max_iter=self.max_iter,
            random_state=self.random_state,
        )
        factors = np.linalg.inv(np.linalg.cholesky(dense)).transpose(0, 2, 1)
        if kind == "tied":
            dense, factors = dense[0], factors[0]
        elif kind == "diag":
            dense, factors = (np.diagonal(part, axis1=1, axis2=2).copy() for part in (dense, factors))
        model.weights_, model.means_ = self.weights_.copy(), self.means_.copy()
        model.covariances_, model.precisions_cholesky_ = dense, factors
        model.precisions_ = factors**2 if kind == "diag" else factors @ np.swapaxes(factors, -1, -2)
        for name in ("converged_", "n_iter_", "lower_bound_", "lower_bounds_", "n_features_in_"):
            setattr(model, name, getattr(self, name))
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        return model

    def _settings(self) -> Settings:
        return Settings(
            n_components=checks.check_count("n_components", self.n_components, 1),
            covariance_type=checks.check_choice("covariance_type", self.covariance_type, tuple(STRUCTURES)),
            tol=checks.check_non_negative("tol", self.tol),
            reg_covar=checks.check_non_negative("reg_covar", self.reg_covar),
            max_iter=checks.check_count("max_iter", self.max_iter, 0),
        )

    def _check_goes_on(self, settings: Settings, network: Network) -> None:
        """A warm start can change the links and how long EM runs, not what it fits."""
        fitted = (len(self.weights_), self._covariance_type)
        asked = (settings.n_components, settings.covariance_type)
        if fitted != asked:
            raise ValueError(
                f"expected a warm start with the fitted n_components={fitted[0]} and covariance_type="
                f"{fitted[1]!r}, got {asked[0]} and {asked[1]!r}; try warm_start=False"
            )
        if not network.has_blocks_of(self._network):
            raise ValueError(
                "expected a warm start with the fitted parties, columns and hubs, got others (did partition, "
                "graph or hops change?); try warm_start=False"
            )

    def _start(
        self, X: Array, network: Network, summation: Summation, settings: Settings, seed: int, restart: int
    ) -> tuple[Mixture, Traffic]:
        """Starting point of one restart: what the user gave, and for the rest what `init_params` finds."""
        n_components = settings.n_components
        weights, means, covariances = self.weights_init, self.means_init, None
        if weights is not None:
            weights = checks.check_weights_init(weights, n_components)
        if means is not None:
            means = checks.check_means_init(means, n_components, X.shape[1])
        if self.precisions_init is not None:
            covariances = checks.covariances_from_precisions(
                self.precisions_init, settings.covariance_type, n_components, network
            )
        kind = checks.check_choice("init_params", self.init_params, STARTS)
        if weights is not None and means is not None and covariances is not None:
            return make_mixture(network, weights, means, covariances), make_traffic(network.agents)
        generator = shared_generator(seed, checks.RESTART, restart)
        found, traffic = make_start(X, network, summation, settings, kind, generator)
        mixture = make_mixture(
            network,
            found.weights if weights is None else weights,
            network.assemble([block.means for block in found.blocks]) if means is None else means,
            [block.covariances for block in found.blocks] if covariances is None else covariances,
        )
        return mixture, traffic

    def _keep(
        self,
        X: Array,
        network: Network,
        summation: Summation,
        settings: Settings,
        seed: int,
        result: MixtureFit,
        traffic: Traffic,
    ) -> None:
        """Set the fitted attributes."""
        mixture = result.mixture
        self._network, self._mixture, self._seed = network, mixture, seed
        self._covariance_type = settings.covariance_type
        self._last_lower_bounds = result.lower_bounds[-1] if result.lower_bounds else None
        self.weights_ = mixture.weights.mean(axis=0)
        self.hub_weights_ = np.empty((len(network.hubs), settings.n_components))
        self.hub_weights_[:] = mixture.weights
        self.means_ = network.assemble([block.means for block in mixture.blocks])
        shared_by = STRUCTURES[settings.covariance_type].shared_by
        shown: Any = {"components": 0, "columns": np.s_[:, 0], None: np.s_[:]}[shared_by]
        self.covariances_ = [block.covariances[shown] for block in mixture.blocks]
        self.hubs_ = network.named_hubs()
        self.lower_bounds_ = [float(bounds.mean()) for bounds in result.lower_bounds]
        self.lower_bound_ = self.lower_bounds_[-1] if self.lower_bounds_ else -math.inf
        self.n_iter_ = result.n_iter
        self.converged_ = result.converged
        self.certificate_ = certify(X, network, summation, mixture, settings)
        self.disagreement_ = self.certificate_.disagreement
        self.traffic_ = traffic

    def _evaluate(self, X: ArrayLike) -> Iterator[tuple[Array, Array]]:
        """Responsibilities and log-densities of X, some rows at a time."""
        check_is_fitted(self, "weights_")
        table = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        log_weights = np.log(self.weights_)
        blocks = list(zip(self._network.block_columns, self._mixture.blocks, strict=True))
        widest = max(len(columns) for columns, _ in blocks)
        for rows in row_chunks(len(table), len(log_weights) * widest):
            total = sum(log_contribution(table[rows][:, columns], block) for columns, block in blocks)
            yield normalize(total + log_weights)

    def _n_parameters(self) -> int:
        """Free parameters of the block structure."""
        n_components, n_features = map(int, self.means_.shape)
        covariances = (
            n_covariance_parameters(n_components, len(hub.columns), self._covariance_type) for hub in self.hubs_
        )
        return int(n_components - 1 + n_components * n_features + sum(covariances))
