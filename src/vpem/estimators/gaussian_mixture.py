"""VerticalGaussianMixture: VP-EM of Gaussian columns, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.mixture import GaussianMixture

from vpem.core.blocks.covariances import STRUCTURES, n_covariance_parameters
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.settings import Settings
from vpem.estimators import checks
from vpem.estimators.mixture import VerticalMixture
from vpem.estimators.precisions import covariances_from_precisions
from vpem.model.fitted import Fitted

Array = NDArray[np.float64]


class BlockMixture(GaussianMixture):  # type: ignore[misc]  # scikit-learn has no types
    """`sklearn.mixture.GaussianMixture` that counts the parameters of block-diagonal covariances in `bic` and `aic`.

    scikit-learn would count every entry of the dense matrices. After a new fit the covariances have no blocks, and
    the count is scikit-learn's.

    Attributes
    ----------
    n_block_parameters_ : int
        Number of free parameters of the block structure.
    """

    n_block_parameters_: int

    def fit_predict(self, X: ArrayLike, y: object = None) -> NDArray[np.intp]:
        """Fit as scikit-learn does, without blocks."""
        labels: NDArray[np.intp] = super().fit_predict(X, y)
        if hasattr(self, "n_block_parameters_"):
            del self.n_block_parameters_
        return labels

    def _n_parameters(self) -> int:
        return int(getattr(self, "n_block_parameters_", super()._n_parameters()))


class VerticalGaussianMixture(VerticalMixture):
    """Gaussian mixture for parties that each hold some columns of the same rows.

    Each component's covariance is block-diagonal, with one block for each party (or hub of parties). A party updates
    its own block from its own columns; the only quantity that parties share is the sum of their log-densities. On a
    star, a server adds. On any other connected graph, terms travel up and down a spanning tree. Both are equivalent
    to centralized EM with block-diagonal covariances. If parties average with their neighbours instead (consensus),
    every root keeps its own estimates. The whole network runs in this process (see `engine`), and the messages that
    it would send are counted.

    Gaps (NaN) are allowed, including whole rows of a party: the fit is exact EM on the observed values, if values
    are missing at random.

    Parameters
    ----------
    n_components : int, default=1
    partition : list, dict or None, default=None
        Columns of each party: a list of columns per party, or a dict from party name to columns. Columns are given by
        position or, for a data frame, by name, and each exactly once. None: one party per column.
    graph : {"star", "ring", "complete", "path"} or networkx.Graph, default="star"
        Links between the parties. A star has a server that is not a party and holds no columns. The nodes of a graph
        are the party names or 0, ..., N-1.
    hops : int, default=0
        Largest number of links over which columns are pooled at the root of a hub; not on a star.
    summation : Star, Tree, Differences, Masked, Consensus, RunningSums or None, default=None
        Algorithm by which the network adds. None: the exact sum, ``Star()`` on a star, else ``Tree()``.
        ``Differences(...)`` around one of these sends far fewer bytes. ``Consensus(rounds)`` is the paper's
        algorithm, for comparison and for links that fail at times; ``Consensus("auto")`` averages with far fewer
        rounds and bytes. ``RunningSums()`` is for links that lose messages.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        Covariance types of scikit-learn, within each block.
    shrinkage : float, "oas", "auto" or None, default=None
        Shrinkage of the covariances, for parties with many columns relative to their rows. A number from 0 to 1 is
        the amount of shrinkage of each block's covariances toward their diagonals; "oas" estimates the amount. Both
        are for "full" and "tied". "auto", for all types, shrinks the covariances of components with few rows relative
        to their columns toward a common estimate of all components, and does not change the others. With shrinkage
        the likelihood may decrease.
    tol : float, default=1e-3
        Stop when every root's log-likelihood per row changes by less.
    reg_covar : float, default=1e-6
        Added to every variance; with `standardize`, in the units of the fit.
    standardize : bool, default=False
        Divide each column by its own deviation, at its own party, before the fit, so that the fit does not depend on
        the units of the columns. All attributes and methods use the columns' own units. `partial_fit` and
        `warm_start` keep the deviations of the first rows. Not with "spherical", which compares columns with each
        other.
    batch_size : int or None, default=None
        Number of rows after which the parameters are updated (incremental EM). An iteration is still one pass over
        all rows. The fit stops on the free energy, which is then in `lower_bounds_`.
    accelerate : "squarem" or None, default=None
        Extrapolate after every other iteration, for fewer iterations. Needs sums that are equal for all parties, and
        no `batch_size`. The fit may reach another optimum than plain EM.
    max_iter : int, default=100
        Largest number of iterations. 0 keeps the initial model, with `lower_bound_` minus infinity, as in
        scikit-learn.
    n_init : int, default=1
        Number of starts, of which the best is kept.
    init_params : {"kmeans", "k-means++", "labels", "random", "random_from_data"}, default="kmeans"
        "kmeans" and "k-means++" use the network's sum. "labels" needs one small message from each party: every party
        clusters its own columns and sends the labels in a few bits per row; one agent, the server or the root of a
        spanning tree, combines them into common labels. "random" (random responsibilities) and "random_from_data"
        (random rows as means, overall covariances) need only a shared seed.
    weights_init : array-like of shape (n_components,), optional
    means_init : array-like of shape (n_components, n_features), optional
        In the order of X's columns.
    precisions_init : list of array-likes, optional
        One entry for each block b, in the order of ``hubs_[b].columns`` and in scikit-learn's shape for the
        covariance type.
    random_state : int, RandomState or None, default=None
        Source of the seed that the parties share.
    warm_start : bool, default=False
        Continue from the last fit, each root from its own estimates. The links and the summation may have changed.
    engine : {"simulation", "agents"}, default="simulation"
        "simulation" computes a whole network as linear algebra. "agents" runs every party separately, as on its own
        machine, and delivers the messages: much slower, with the same numbers and bytes. Not with `warm_start` or
        `partial_fit`.
    verbose : int, default=0
        1 prints a line for each start, 2 also for each iteration.
    callback : callable or None, default=None
        Called after every iteration with the number of the start, the number of the iteration and the log-likelihood
        per row. If it returns a true value, the fit stops with the best model so far. For engine="simulation".

    Attributes
    ----------
    weights_ : array of shape (n_components,)
        Mean over the roots' estimates.
    hub_weights_ : array of shape (n_hubs, n_components)
        Each root's own estimate.
    means_ : array of shape (n_components, n_features)
    covariances_ : list of arrays
        One for each block, in scikit-learn's shape for the covariance type; see also `covariance_matrix`.
    partition_ : dict
        Party to its column numbers.
    on_ : tuple of str
        Id columns, after a fit to a dict of tables.
    read_as_ : dict
        Column to the way in which it was read, after a fit by the program to files with percentages, money or dates.
    gaps_ : dict
        Column to its words for gaps, `*` for all others, after a fit by the program with ``--gaps``.
    graph_ : networkx.Graph
        Links between the parties, by name; in a star, between them and the server.
    hubs_ : list of NamedHub
        Root, members and column numbers of each hub; without hops, each party is its own hub.
    log_likelihood_ : float
        Exact log-likelihood per row of the assembled model, on the rows that the fit used (`Masked` leaves out rows
        of fewer than three parties). Use it to compare fits. It is computed with all columns, and this is not part of
        the traffic. Not after `partial_fit`.
    lower_bound_ : float
        Log-likelihood per row before the last M-step, as in scikit-learn; mean of the roots' values. If sums are not
        exact, a root's value may be far from the exact `log_likelihood_`. With batches, a free energy.
    lower_bounds_ : list of float
        `lower_bound_` of every iteration.
    n_iter_ : int
    converged_ : bool
    disagreement_ : float
        Largest difference between two roots' responsibilities for the rows of the fit; 0 on a star.
    certificate_ : Certificate
        ``gain`` of one more exact EM step, the disagreement of the roots, and further numbers for the verdict; not
        after `partial_fit`.
    rows_ : RowSummary
        Numbers of rows of each party, in common and used, and gaps of each column (`vpem.overlap`); not after
        `partial_fit`.
    verdict_ : list of Finding
        Problems of the fit and notes on it, the worst first: ``code``, ``severity`` ("red", "amber" or "note"),
        ``sentence`` and ``remedy``; `vpem.verdict.colour` summarizes them. A fit with red findings warns
        (`vpem.FitWarning`).
    scale_ : array of shape (n_features,)
        Scale that divided each column for the fit; only with `standardize`.
    repairs_ : list of Repair
        Components that collapsed or starved: iteration, component, party, reason, and True if restarted.
    traffic_ : Traffic
        ``messages``, ``bytes``, ``rounds`` and ``per_agent`` that a real network would send.
    fitted_ : Fitted
        All of these in one value, which model files, reports and figures take.
    n_features_in_ : int
    feature_names_in_ : array of str

    Examples
    --------
    >>> import numpy as np
    >>> from vpem import VerticalGaussianMixture
    >>> X = np.random.default_rng(0).normal(size=(60, 3)) + 9 * (np.arange(60) % 2)[:, None]
    >>> parties = {"bank": [0, 1], "shop": [2]}
    >>> mixture = VerticalGaussianMixture(2, partition=parties, random_state=0).fit(X)
    >>> mixture.predict([[0, 0, 0]]) == mixture.predict([[2, 1, 1]])
    array([ True])
    >>> mixture.traffic_.per_agent["bank"].messages_sent
    12
    """

    covariances_: list[Array]
    _has_families = False
    _kind = "VerticalGaussianMixture"

    def __init__(  # replaces that of VerticalMixture: these arguments define the density
        self,
        n_components: int = 1,
        *,
        partition: Any = None,
        graph: Any = "star",
        hops: int = 0,
        summation: Summation | None = None,
        covariance_type: str = "full",
        shrinkage: float | str | None = None,
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        standardize: bool = False,
        batch_size: int | None = None,
        accelerate: str | None = None,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "kmeans",
        weights_init: ArrayLike | None = None,
        means_init: ArrayLike | None = None,
        precisions_init: Sequence[ArrayLike] | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        engine: str = "simulation",
        verbose: int = 0,
        callback: Any = None,
    ):
        self.n_components = n_components
        self.partition = partition
        self.graph = graph
        self.hops = hops
        self.summation = summation
        self.covariance_type = covariance_type
        self.shrinkage = shrinkage
        self.tol = tol
        self.reg_covar = reg_covar
        self.standardize = standardize
        self.batch_size = batch_size
        self.accelerate = accelerate
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.engine = engine
        self.verbose = verbose
        self.callback = callback

    def covariance_matrix(self) -> Array:
        """Dense covariances in the order of X's columns; (n_components, n_features, n_features)."""
        fitted = self._found
        dense = np.zeros((fitted.n_components, fitted.n_features, fitted.n_features))
        for columns, block in zip(fitted.network.block_columns, fitted.mixture.blocks, strict=True):
            if _gaussian(fitted).is_matrix:
                dense[:, columns[:, None], columns] = block.covariances
            else:
                dense[:, columns, columns] = block.covariances
        return dense

    def to_sklearn(self) -> GaussianMixture:
        """Return a fitted `sklearn.mixture.GaussianMixture` with the same densities, `bic` and `aic`.

        It has the covariance type of the fit, except that "spherical" with several blocks, each of which has its own
        variance, becomes "diag". If scikit-learn's number of parameters differs from that of the blocks, the result
        is a `BlockMixture`, a subclass that differs only in this number.
        """
        dense, n_parameters = self.covariance_matrix(), self._found.n_parameters
        n_components, n_features = self.means_.shape
        kind = _gaussian(self._found).covariance_type
        if kind == "spherical" and len(self.hubs_) > 1:
            kind = "diag"
        counted = (
            n_components - 1 + n_components * n_features + n_covariance_parameters(n_components, n_features, kind)
        )
        model = (GaussianMixture if counted == n_parameters else BlockMixture)(
            n_components,
            covariance_type=kind,
            tol=self.tol,
            reg_covar=self.reg_covar,
            max_iter=self.max_iter,
            random_state=self.random_state,
        )
        if counted != n_parameters:
            model.n_block_parameters_ = n_parameters
        factors = np.linalg.inv(np.linalg.cholesky(dense)).transpose(0, 2, 1)
        if kind == "tied":
            dense, factors = dense[0], factors[0]
        elif kind == "diag":
            dense, factors = (np.diagonal(part, axis1=1, axis2=2).copy() for part in (dense, factors))
        elif kind == "spherical":
            dense, factors = dense[:, 0, 0].copy(), factors[:, 0, 0].copy()
        model.weights_, model.means_ = self.weights_.copy(), self.means_.copy()
        model.covariances_, model.precisions_cholesky_ = dense, factors
        is_matrix = STRUCTURES[kind].is_matrix
        model.precisions_ = factors @ np.swapaxes(factors, -1, -2) if is_matrix else factors**2
        for name in ("converged_", "n_iter_", "lower_bound_", "lower_bounds_", "n_features_in_"):
            setattr(model, name, getattr(self, name))
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        return model

    def _density(self) -> Gaussian:
        return make_gaussian(self.covariance_type, self.reg_covar, self.shrinkage, standardize=self.standardize)

    def _given_arrays(self, network: Network, settings: Settings) -> list[dict[str, Array]]:
        """Return each block's means and covariances from `means_init` and `precisions_init`."""
        found: list[dict[str, Array]] = [{} for _ in network.hubs]
        if self.means_init is not None:
            n_features = sum(map(len, network.columns))
            means = checks.finite_array("means_init", self.means_init, (settings.n_components, n_features))
            for own, columns in zip(found, network.block_columns, strict=True):
                own["means"] = means[:, columns]
        if self.precisions_init is not None:
            covariances = covariances_from_precisions(
                self.precisions_init, self.covariance_type, settings.n_components, network
            )
            for own, part in zip(found, covariances, strict=True):
                own["covariances"] = part
        return found

    def _show(self, fitted: Fitted) -> None:
        shared_by = STRUCTURES[_gaussian(fitted).covariance_type].shared_by
        shown: Any = {"components": 0, "columns": np.s_[:, 0], None: np.s_[:]}[shared_by]
        self.covariances_ = [block.covariances[shown] for block in fitted.mixture.blocks]


def make_gaussian(
    covariance_type: str, reg_covar: float, shrinkage: float | str | None, *, standardize: Any
) -> Gaussian:
    """Return the density of Gaussian columns; raise ValueError for arguments that contradict each other."""
    if standardize is True and covariance_type == "spherical":
        raise ValueError(
            "expected covariance_type 'full', 'tied' or 'diag' with standardize=True, got 'spherical', "
            "whose columns have the same variance in their own units only; try standardize=False or "
            "covariance_type='diag'"
        )
    return Gaussian(covariance_type=covariance_type, reg_covar=reg_covar, shrinkage=shrinkage)


def from_fitted(fitted: Fitted) -> VerticalMixture:
    """Return the estimator of a fit, with the parameters that the value has."""
    make = VerticalGaussianMixture if fitted.estimator == VerticalGaussianMixture.__name__ else VerticalMixture
    return make(**fitted.parameters)._take(fitted)


def _gaussian(fitted: Fitted) -> Gaussian:
    """Density of a fit by `VerticalGaussianMixture`."""
    density = fitted.mixture.density
    assert isinstance(density, Gaussian), "fitted by this estimator"
    return density
