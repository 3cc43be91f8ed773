"""VerticalGaussianMixture: VP-EM as a scikit-learn estimator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning

from vpem.core.agent.meeting import meeting_traffic
from vpem.core.agent.work import Given
from vpem.core.blocks.covariances import STRUCTURES
from vpem.core.blocks.gaussian import CollapsedComponentError, make_block
from vpem.core.blocks.overall import look_again
from vpem.core.blocks.packed import warm_up
from vpem.core.decisions.initial import START, shared_generator
from vpem.core.decisions.repair import Repair
from vpem.core.network.parties import Network
from vpem.core.network.pooling import pooling_traffic
from vpem.core.network.summation import Summation
from vpem.core.network.traffic import Traffic
from vpem.core.rows import Table
from vpem.core.settings import STARTS, Agreement, Settings
from vpem.estimators import checks
from vpem.estimators.agents import fit_with_agents
from vpem.estimators.fitted import FittedMixture
from vpem.estimators.progress import Progress
from vpem.simulation.channel import Channel
from vpem.simulation.em import MixtureFit, certify, em
from vpem.simulation.model import Mixture, Problem, make_problem
from vpem.simulation.starts import Start, make_start
from vpem.simulation.streams import Stream, online_step
from vpem.simulation.threads import one_blas_thread

Array = NDArray[np.float64]


class VerticalGaussianMixture(FittedMixture, DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Gaussian mixture of parties that each hold some columns of the same rows.

    Each component's covariance is block-diagonal, one block for each party (or hub of parties): a party updates
    its own block from its own columns, and the parties need nothing from each other but the sum of their
    log-densities. On a star, where a server adds, this equals centralized EM with block-diagonal covariances. On
    any other connected graph the parties average with their neighbours (consensus), and every root keeps its own
    estimates. The whole network lives in this process (see `engine`), and what it would send is counted.

    Gaps (NaN) are welcome, whole rows of a party among them: the fit is exact EM on what was observed, if values are
    missing at random.

    Parameters
    ----------
    n_components : int, default=1
    partition : list, dict or None, default=None
        Who holds which columns: a list of columns per party, or a dict from party name to columns; columns by
        position or, for a data frame, by name. Every column exactly once. None: one party per column.
    graph : {"star", "ring", "complete", "path"} or networkx.Graph, default="star"
        Which parties are linked. A star has a server that is not a party and holds no columns. A graph's nodes are
        the party names or 0, ..., N-1.
    hops : int, default=0
        How far columns may travel to be pooled at the root of a hub; not on a star.
    summation : Star, Consensus or None, default=None
        How the network adds. None: the exact sum on a star, else ``Consensus(rounds=100, weights="metropolis")``.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        As scikit-learn defines them, within each block.
    shrinkage : float, "oas" or None, default=None
        How far each block's covariances are drawn toward their diagonals, from 0 to 1: for parties with many columns
        beside their rows. "oas" finds the amount by itself. The likelihood may then fall. For "full" and "tied".
    tol : float, default=1e-3
        Stop when every root's log-likelihood per row changes by less.
    reg_covar : float, default=1e-6
        Added to every variance.
    batch_size : int or None, default=None
        Rows after which the parameters are updated (incremental EM). An iteration is still one pass over all rows; it
        stops on the free energy, which `lower_bounds_` then holds.
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
    engine : {"simulation", "agents"}, default="simulation"
        "simulation" computes a whole network as linear algebra. "agents" lets every party run by itself, as it would
        on its own machine, and delivers the messages: slower by far, to the same numbers and bytes. Not with
        `warm_start` or `partial_fit`.
    verbose : int, default=0
        1 tells of each start, 2 of each iteration.
    callback : callable or None, default=None
        Called after every iteration with the number of the start, of the iteration, and the log-likelihood per row;
        if it returns something true, the fit ends there, with the best model so far. For engine="simulation".

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
    graph_ : networkx.Graph
        Links between the parties, by name; in a star, between them and the server.
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
        ``gain`` of one more exact EM step, and the ``disagreement``; not after `partial_fit`.
    repairs_ : list of Repair
        Components that collapsed or starved: iteration, component, party, reason, and whether they were restarted.
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
    12
    """

    traffic_: Traffic
    _last_lower_bounds: Array | None

    def __init__(
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
        batch_size: int | None = None,
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
        self.batch_size = batch_size
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
        with checks.unchanged_on_error(self), one_blas_thread():
            return self._fit(X)

    def partial_fit(self, X: ArrayLike, y: object = None) -> VerticalGaussianMixture:  # noqa: ARG002 (scikit-learn's)
        """Take one step of stepwise EM with new rows: for streams.

        The first call starts from its rows, as `fit` would; at the t-th call the new rows count for ``t ** -0.7`` and
        all earlier ones for the rest. A call after `fit` begins anew. Traffic and `repairs_` add up over the calls.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New rows of the same columns; the first time at least `n_components`.
        y : ignored

        Returns
        -------
        self
        """
        with checks.unchanged_on_error(self), one_blas_thread():
            return self._partial_fit(X)

    def fit_predict(self, X: ArrayLike, y: object = None) -> NDArray[np.intp]:
        """Fit, and return the label of each row."""
        return self.fit(X, y).predict(X)

    def _fit(self, X: ArrayLike) -> VerticalGaussianMixture:
        settings = self._settings()
        n_init = checks.check_count("n_init", self.n_init, 1)
        batch_size = None if self.batch_size is None else checks.check_count("batch_size", self.batch_size, 1)
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"expected callback to be None or callable, got {self.callback!r}")
        progress = Progress(checks.check_count("verbose", self.verbose, 0), self.callback)
        goes_on = bool(self.warm_start) and hasattr(self, "_mixture")
        table = checks.read_table(self, X, reset=not goes_on, min_rows=2)
        checks.check_enough_rows(len(table), "n_components", settings.n_components)
        network, summation, seed = self._build(table, settings, goes_on="warm_start=False" if goes_on else "")
        problem = make_problem(table, network, summation, settings.rule)
        if self._engine(goes_on) == "agents":
            given = self._given(network, settings)
            agreement = Agreement(
                settings=settings,
                summation=summation,
                seed=seed,
                hops=int(self.hops),
                init_params="given" if given and given[0].is_complete else self._init_params(),
                n_init=n_init,
                batch_size=batch_size,
            )
            result = fit_with_agents(table, network, agreement, given, progress)
            return self._end_fit(problem, settings, seed, result, result.traffic, result.repairs)
        with progress.waiting("compiling the inner loops, which are kept for the next time,"):
            warm_up()
        channel = Channel(summation, network)
        progress.note(f"the network's sum is computed as {channel.path}")
        best: tuple[MixtureFit, Start] | None = None
        failure: CollapsedComponentError | None = None
        for number in range(1 if goes_on else n_init):
            progress.start(number)
            start = Start(self._mixture) if goes_on else self._start(problem, channel, settings, seed, number)
            watch: dict[str, Any] = {
                "batch_size": batch_size,
                "before": self._last_lower_bounds if goes_on else None,
                "monitor": progress.iteration,
            }
            try:
                result = em(problem, channel, start.mixture, settings, **watch)
            except CollapsedComponentError as error:  # another start may do better
                failure = error
                progress.fail(error)
                continue
            progress.end(result.converged, result.n_iter, len(result.repairs))
            if best is None or result.agreed_lower_bound > best[0].agreed_lower_bound:
                best = result, start
            if progress.stopped:
                break
        if best is None:
            raise failure or AssertionError("n_init is at least 1")
        result, start = best
        repairs = (*start.repairs, *result.repairs)
        traffic = meeting_traffic(network, len(table), int(self.hops), summation) + channel.traffic
        traffic += pooling_traffic(network, len(table))
        return self._end_fit(problem, settings, seed, result, traffic, repairs, stopped=progress.stopped)

    def _end_fit(
        self,
        problem: Problem,
        settings: Settings,
        seed: int,
        result: MixtureFit,
        traffic: Traffic,
        repairs: Sequence[Repair],
        stopped: bool = False,
    ) -> VerticalGaussianMixture:
        """Set the fitted attributes, certificate included; warn if the fit did not converge."""
        self._keep(problem.network, problem.summation, settings, seed, result, traffic)
        self.repairs_ = list(repairs)
        self.certificate_ = certify(problem, result.mixture, settings)
        self.disagreement_ = self.certificate_.disagreement
        self._stream: Stream | None = None
        self._stream_is_lost = False
        if not result.converged and settings.max_iter > 0 and not stopped:
            warnings.warn(
                f"the best start did not converge in {settings.max_iter} iterations; "
                "try a larger max_iter or tol, or another init_params",
                ConvergenceWarning,
                stacklevel=4,
            )
        return self

    def _partial_fit(self, X: ArrayLike) -> VerticalGaussianMixture:
        settings = self._settings()
        self._engine(goes_on=True)
        stream = getattr(self, "_stream", None)
        if getattr(self, "_stream_is_lost", False):
            raise ValueError(
                "expected the model that the stream was fitted to, got one from a file, which keeps no stream; "
                "go on with warm_start=True, or begin a new estimator"
            )
        table = checks.read_table(self, X, reset=stream is None)
        remedy = "" if stream is None else "a new estimator, or fit first, which ends the stream"
        network, summation, seed = self._build(table, settings, goes_on=remedy)
        traffic, channel = pooling_traffic(network, len(table)), Channel(summation, network)
        if stream is None:
            checks.check_enough_rows(len(table), "n_components", settings.n_components)
            problem = make_problem(table, network, summation, settings.rule)
            start = self._start(problem, channel, settings, seed, 0)
            traffic += meeting_traffic(network, len(table), int(self.hops), summation)
            stream, mixture = Stream(problem.overall, repairs=start.repairs), start.mixture
        else:
            overall = look_again(stream.overall, table, network)
            problem, mixture = Problem(table, network, summation, overall), self._mixture
            traffic = self.traffic_ + traffic
        result, stream, disagreement = online_step(problem, channel, mixture, settings, stream)
        self._keep(network, summation, settings, seed, result, traffic + result.traffic)
        self.repairs_ = [*stream.repairs, *(case.repair(network, restarted=False) for case in stream.waiting)]
        self.n_iter_, self.disagreement_ = stream.n_steps, disagreement
        self._stream, self._last_lower_bounds = stream, None
        if hasattr(self, "certificate_"):
            del self.certificate_  # of rows that are no longer all that counts
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _settings(self) -> Settings:
        covariance_type = checks.check_choice("covariance_type", self.covariance_type, tuple(STRUCTURES))
        return Settings(
            n_components=checks.check_count("n_components", self.n_components, 1),
            covariance_type=covariance_type,
            tol=checks.check_non_negative("tol", self.tol),
            reg_covar=checks.check_non_negative("reg_covar", self.reg_covar),
            max_iter=checks.check_count("max_iter", self.max_iter, 0),
            shrinkage=checks.check_shrinkage(self.shrinkage, covariance_type),
        )

    def _build(self, X: Table, settings: Settings, *, goes_on: str) -> tuple[Network, Summation, int]:
        """Network, summation and shared seed; if this fit goes on with the last one, they must suit each other.

        `goes_on` is empty, or says what to try if they do not.
        """
        seed = self._seed if goes_on else checks.shared_seed(self.random_state)
        names = getattr(self, "feature_names_in_", None)
        network, summation = checks.build_network(
            self.partition, self.graph, self.hops, self.summation, X.shape[1], names, seed
        )
        if not goes_on:
            return network, summation, seed
        # Links and the length of a run may change, but not what is fitted.
        fitted = (len(self.weights_), self._covariance_type)
        asked = (settings.n_components, settings.covariance_type)
        if fitted != asked:
            raise ValueError(
                f"expected to go on with n_components={fitted[0]} and covariance_type={fitted[1]!r}, as fitted, got "
                f"{asked[0]} and {asked[1]!r}; try {goes_on}"
            )
        if not network.has_blocks_of(self._network):
            raise ValueError(
                "expected to go on with the fitted parties, columns and hubs, got others (did partition, graph or "
                f"hops change?); try {goes_on}"
            )
        return network, summation, seed

    def _start(self, problem: Problem, channel: Channel, settings: Settings, seed: int, number: int) -> Start:
        """Starting point of one start: what the user gave, and for the rest what `init_params` finds."""
        given = self._given(problem.network, settings)
        kind = self._init_params()
        if given and given[0].is_complete:
            found = Start(Mixture(np.empty((1, 0)), ()))
        else:
            found = make_start(problem, channel, settings, kind, shared_generator(seed, START, number))
        if not given:
            return found
        weights = found.mixture.weights if given[0].weights is None else given[0].weights[None]
        blocks = []
        for block, own in enumerate(given):
            means = found.mixture.blocks[block].means if own.means is None else own.means
            covariances = found.mixture.blocks[block].covariances if own.covariances is None else own.covariances
            blocks.append(make_block(means, covariances))
        return Start(Mixture(weights, tuple(blocks)), found.repairs)

    def _given(self, network: Network, settings: Settings) -> list[Given]:
        """What the user gave of each block's start; empty if nothing."""
        weights, means, covariances = self.weights_init, self.means_init, None
        if weights is not None:
            weights = checks.check_weights_init(weights, settings.n_components)
        if means is not None:
            means = checks.check_means_init(means, settings.n_components, sum(map(len, network.columns)))
        if self.precisions_init is not None:
            covariances = checks.covariances_from_precisions(
                self.precisions_init, settings.covariance_type, settings.n_components, network
            )
        if weights is None and means is None and covariances is None:
            return []
        return [
            Given(
                weights,
                None if means is None else means[:, columns],
                None if covariances is None else covariances[number],
            )
            for number, columns in enumerate(network.block_columns)
        ]

    def _init_params(self) -> str:
        return checks.check_choice("init_params", self.init_params, STARTS)

    def _engine(self, goes_on: bool) -> str:
        engine = checks.check_choice("engine", self.engine, ("simulation", "agents"))
        if engine == "agents" and goes_on:
            raise ValueError(
                "expected engine='simulation' to go on with an earlier fit or with a stream, got 'agents'; "
                "try fit with warm_start=False"
            )
        return engine

    def _keep(
        self,
        network: Network,
        summation: Summation,
        settings: Settings,
        seed: int,
        result: MixtureFit,
        traffic: Traffic,
    ) -> None:
        """Set the fitted attributes that every kind of fit has."""
        mixture = result.mixture
        self._network, self._summation, self._mixture, self._seed = network, summation, mixture, seed
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
        self.partition_ = network.named_columns()
        self.graph_ = network.named_graph()
        self.lower_bounds_ = [float(bounds.mean()) for bounds in result.lower_bounds]
        self.lower_bound_ = self.lower_bounds_[-1] if self.lower_bounds_ else -math.inf
        self.n_iter_ = result.n_iter
        self.converged_ = result.converged
        self.traffic_ = traffic
