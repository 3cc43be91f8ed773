"""Fits of a mixture: by a simulated network, by agents, or step by step from a stream of rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vpem.core.agent.meeting import meeting_traffic
from vpem.core.blocks.density import Density
from vpem.core.blocks.overall import look_again
from vpem.core.blocks.packed import warm_up
from vpem.core.decisions.starts import Given
from vpem.core.network.parties import Network
from vpem.core.network.pooling import pooling_traffic
from vpem.core.network.summation import Summation
from vpem.core.network.traffic import Traffic
from vpem.core.rows import Table, without_rows
from vpem.core.settings import ACCELERATIONS, STARTS, Agreement, Settings
from vpem.estimators import checks, judging
from vpem.estimators.fitted import FittedMixture
from vpem.estimators.joined import Data, join_to_fit
from vpem.estimators.progress import Progress
from vpem.estimators.row_counts import count_rows
from vpem.estimators.second_look import Sample, check_sample, take_sample
from vpem.estimators.units import Units, find_units
from vpem.estimators.weighting import counts_each_row_once
from vpem.overlap import RowSummary
from vpem.simulation import fit as simulated
from vpem.simulation.certificate import Certificate, certify
from vpem.simulation.channel import Channel
from vpem.simulation.fit import make_start
from vpem.simulation.model import Mixture, MixtureFit, Problem, find_holders, make_problem
from vpem.simulation.streams import Stream, online_step
from vpem.simulation.threads import one_blas_thread
from vpem.verdict import Facts, Finding, judge

Array = NDArray[np.float64]

compile_once = cache(warm_up)
"""Compile the kernels, once per process."""


class FittingMixture(FittedMixture):
    """Fitting methods of a mixture estimator. The constructor's arguments are attributes of the estimator."""

    n_components: int
    partition: Any
    graph: Any
    hops: int
    summation: Summation | None
    tol: float
    batch_size: int | None
    accelerate: str | None
    max_iter: int
    n_init: int
    init_params: str
    weights_init: ArrayLike | None
    warm_start: bool
    engine: str
    verbose: int
    callback: Any
    standardize: bool = False

    scale_: Array
    log_likelihood_: float
    traffic_: Traffic
    certificate_: Certificate
    rows_: RowSummary
    _summation: Summation
    _seed: int
    _last_lower_bounds: Array | None
    _stream: Stream | None
    _facts: Facts
    _sample: Sample | None
    _verdict: list[Finding] | None
    _held: dict[str, list[str]] | None = None

    @counts_each_row_once
    def fit(
        self,
        X: Data,
        y: object = None,  # noqa: ARG002 (scikit-learn's signature)
        *,
        on: str | Sequence[str] | None = None,
    ) -> Self:
        """Fit the mixture.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or dict
            Columns of all parties, as a numpy array or a data frame of pandas or polars. Or a dict from party to its
            own table: the tables are joined by `vpem.tables.join`, and the parties are the partition. All methods
            accept such dicts; methods other than `fit` also accept dicts in which a party is missing.
        y : ignored
        on : str or sequence of str, optional
            Id columns that every table of a dict has. The rows of the results are in the order of
            ``vpem.tables.join(X, on).ids``.

        Returns
        -------
        self
        """
        with checks.unchanged_on_error(self), one_blas_thread():
            return self._fit(join_to_fit(self, X, on))

    def check_arguments(self) -> Self:
        """Raise an error for arguments that are invalid for any data.

        `fit` makes the same checks. Programs call this method to fail before they read a table.
        """
        self._settings()
        checks.check_count("n_init", self.n_init, 1)
        checks.check_count("hops", self.hops, 0)
        if self.batch_size is not None:
            checks.check_count("batch_size", self.batch_size, 1)
        self._init_params()
        self._engine(goes_on=False)
        return self

    @counts_each_row_once
    def partial_fit(
        self,
        X: Data,
        y: object = None,  # noqa: ARG002 (scikit-learn's signature)
        *,
        on: str | Sequence[str] | None = None,
    ) -> Self:
        """Take one step of stepwise EM with new rows, for streams.

        The first call chooses a start from its rows, as `fit` does. At the t-th call the new rows have weight
        ``t ** -0.7``, and all earlier rows together have the remaining weight. A call after `fit` starts a new
        stream. Traffic and `repairs_` accumulate over the calls.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New rows of the same columns; at least `n_components` rows in the first call. Or a dict of tables, as for
            `fit`.
        y : ignored
        on : str or sequence of str, optional
            As for `fit`; needed in the first call only.

        Returns
        -------
        self
        """
        with checks.unchanged_on_error(self), one_blas_thread():
            return self._partial_fit(join_to_fit(self, X, on))

    @counts_each_row_once
    def fit_predict(self, X: Data, y: object = None, *, on: str | Sequence[str] | None = None) -> NDArray[np.intp]:
        """Fit, and return the label of each row."""
        return self.fit(X, y, on=on).predict(X)

    def about_the_sum(self, n_features: int) -> list[Finding]:
        """Return findings on the accuracy of the network's sum before a fit; empty if it is accurate enough.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.
        """
        arguments = self._held or self.partition, self.graph, self.hops, self.summation
        network, summation = checks.build_network(*arguments, n_features, None, 0)
        return judging.about_the_sum(summation, network)

    # Methods that each estimator defines

    @abstractmethod
    def _density(self) -> Density:
        """Return the density of the columns; raise an error for invalid arguments."""

    @abstractmethod
    def _given_arrays(self, network: Network, settings: Settings) -> list[dict[str, Array]]:
        """Return the initial parameters that the user gave for each block, by name."""

    @abstractmethod
    def _show(self, mixture: Mixture) -> None:
        """Set the fitted attributes that are specific to the estimator."""

    # Fits

    def _fit(self, X: Data) -> Self:
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
        names = getattr(self, "feature_names_in_", range(table.shape[1]))
        self.rows_ = count_rows(table, network, summation, [*map(str, names)], X)
        table, settings = self._with_families(table, network, settings, goes_on=goes_on)
        units = self._units(table, network, settings, goes_on=goes_on)
        holders = find_holders(table, network, summation)
        if holders is not None:
            units = units.for_rows(without_rows(table, holders))
        progress.shift = units.shift
        for finding in judging.about_the_sum(summation, network):
            progress.note(f"{finding.sentence} Try: {finding.remedy}.")
        table = units.scaled(table)
        given = [] if goes_on else self._given(network, settings, units)
        agreement = self._agreement(settings, summation, seed, given, n_init=n_init, batch_size=batch_size)
        problem = make_problem(table, network, summation, settings.density)
        if self._engine(goes_on) == "agents":
            from vpem.estimators import agents

            result = agents.fit(table, network, agreement, given, progress)
        else:
            with progress.waiting("compiling the inner loops, which are kept for the next time,"):
                compile_once()
            before = units.fit(self._last_fit(), network, back=False) if goes_on else None
            result = simulated.fit(problem, agreement, given, progress, before)
        if holders is not None and holders.n_left_out:  # certificate and verdict use only the rows of the fit
            problem = make_problem(without_rows(table, holders), network, summation, settings.density)
        is_start_found = not goes_on and agreement.init_params != "given"
        facts = {"is_stopped": progress.stopped, "is_start_found": is_start_found, "holders": holders}
        return self._end_fit(problem, settings, seed, units, result, facts)

    def _last_fit(self) -> MixtureFit:
        """Return the last fit, which `warm_start` continues."""
        bounds = () if self._last_lower_bounds is None else (self._last_lower_bounds,)
        return MixtureFit(self._mixture, bounds, self.converged_, (), self.traffic_)

    def _end_fit(
        self,
        problem: Problem,
        settings: Settings,
        seed: int,
        units: Units,
        result: MixtureFit,
        about: dict[str, Any],
    ) -> Self:
        """Set the fitted attributes, including certificate and verdict; warn about severe findings."""
        self._keep(problem.network, problem.summation, settings, seed, units, result, result.traffic)
        self.repairs_ = list(result.repairs)
        certificate = certify(problem, result.mixture, settings, result.disagreement)
        self.certificate_ = units.certificate(certificate)
        assert self.certificate_.log_likelihood is not None, "computed just now"
        self.log_likelihood_ = self.certificate_.log_likelihood
        self.disagreement_ = self.certificate_.disagreement
        self._stream = None
        self._stream_is_lost = False
        facts = judging.gather_facts(problem, settings, result, certificate, scale=units.scale, **about)
        facts = replace(facts, rows=self.rows_)
        self._judge(facts, take_sample(problem, result, units.scale))
        judging.warn(judge(self._named(facts)), is_stopped=about["is_stopped"], stacklevel=5)
        return self

    def _judge(self, facts: Facts, sample: Sample | None = None) -> None:
        """Store the facts and the sample from which `verdict_` is computed."""
        self._facts, self._sample, self._verdict = facts, sample, None

    @property
    def verdict_(self) -> list[Finding]:
        """Findings, the worst first; `vpem.verdict.colour(model.verdict_)` summarizes them.

        Some checks fit smaller models to a sample of the rows. They run when the verdict is first read.
        """
        if not hasattr(self, "_verdict"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet, so it has no verdict_")
        self._look_again()
        if self._verdict is None:
            self._verdict = judge(self._named(self._facts))
        return self._verdict

    @verdict_.setter
    def verdict_(self, findings: list[Finding]) -> None:
        self._verdict = findings

    def _look_again(self) -> None:
        """Run the checks on the sample once, then drop the sample."""
        if getattr(self, "_sample", None) is not None:
            assert self._sample is not None, "just seen"
            self._facts, self._sample = replace(self._facts, **check_sample(self._sample)), None

    def __getstate__(self) -> Any:
        """Return the state for copies and pickles: with the findings, without the rows of the sample."""
        self._look_again()
        return super().__getstate__()

    def _named(self, facts: Facts) -> Facts:
        """Return the facts with column names in place of column numbers, if the columns have names."""
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return facts

        def name(own: str) -> str:
            return str(names[int(own)]) if own.isdecimal() else own

        blocks = [replace(block, columns=[*map(name, block.columns)]) for block in facts.blocks]
        twins = [(name(one), name(other)) for one, other in facts.twins]
        codes = [own._replace(column=name(own.column)) for own in facts.codes]
        between = facts.dependence
        if between is not None and between.one:
            between = between._replace(one=name(between.one), other=name(between.other))
        named: Any = {"row_names": [*map(name, facts.row_names)], "codes": codes, "dependence": between}
        return replace(facts, blocks=blocks, twins=twins, **named)

    def _partial_fit(self, X: Data) -> Self:
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
        table, settings = self._with_families(table, network, settings, goes_on=stream is not None)
        stream = getattr(self, "_stream", None)  # `_with_families` may have enlarged it for larger counts
        units = self._units(table, network, settings, goes_on=stream is not None)
        table = units.scaled(table)
        traffic, channel = pooling_traffic(network, len(table)), Channel(summation, network)
        if stream is None:
            checks.check_enough_rows(len(table), "n_components", settings.n_components)
            problem = make_problem(table, network, summation, settings.density)
            given = self._given(network, settings, units)
            start = make_start(problem, channel, self._agreement(settings, summation, seed, given), given)
            traffic += meeting_traffic(network, len(table), int(self.hops), summation)
            stream, mixture = Stream(problem.overall, repairs=start.repairs), start.mixture
        else:
            overall = look_again(stream.overall, table, network)
            problem = Problem(table, network, summation, overall)
            mixture = replace(units.mixture(self._mixture, network, back=False), density=settings.density)
            traffic = self.traffic_ + traffic
        result, stream, disagreement = online_step(problem, channel, mixture, settings, stream)
        self._keep(network, summation, settings, seed, units, result, traffic + result.traffic)
        self.repairs_ = [*stream.repairs, *(case.repair(network, restarted=False) for case in stream.waiting)]
        self.n_iter_, self.disagreement_ = stream.n_steps, disagreement
        self._stream, self._last_lower_bounds = stream, None
        for name in ("certificate_", "log_likelihood_", "rows_"):  # they describe the rows of an earlier `fit` only
            if hasattr(self, name):
                delattr(self, name)
        self._judge(judging.gather_facts(problem, settings, result, None))
        return self

    # Arguments

    def _settings(self) -> Settings:
        return Settings(
            density=self._density(),
            n_components=checks.check_count("n_components", self.n_components, 1),
            tol=checks.check_non_negative("tol", self.tol),
            max_iter=checks.check_count("max_iter", self.max_iter, 0),
            accelerate=self._accelerate(),
        )

    def _with_families(
        self,
        table: Table,
        network: Network,  # noqa: ARG002
        settings: Settings,
        *,
        goes_on: bool,  # noqa: ARG002
    ) -> tuple[Table, Settings]:
        """Return the coded table, and settings whose density has the families of the columns."""
        return table, settings

    def _units(self, table: Table, network: Network, settings: Settings, *, goes_on: bool) -> Units:
        """Return the units of this fit; a fit that continues an earlier one keeps its scales."""
        if not isinstance(self.standardize, bool | np.bool_):
            raise TypeError(f"expected standardize to be True or False, got {self.standardize!r}")
        if not self.standardize:
            return Units()
        scaled = [
            columns[settings.density.scaled_columns(len(columns), hub.members)]
            for hub, columns in zip(network.named_hubs(), network.block_columns, strict=True)
        ]
        return find_units(table, getattr(self, "scale_", None) if goes_on else None, np.concatenate(scaled))

    def _build(self, X: Table, settings: Settings, *, goes_on: str) -> tuple[Network, Summation, int]:
        """Return network, summation and shared seed; check them against the fit that this one continues.

        `goes_on` is empty for a new fit. Otherwise it is the remedy in the error message.
        """
        seed = self._seed if goes_on else checks.shared_seed(self.random_state)
        names = getattr(self, "feature_names_in_", None)
        network, summation = checks.build_network(
            self._held or self.partition, self.graph, self.hops, self.summation, X.shape[1], names, seed
        )
        if not goes_on:
            return network, summation, seed
        # Links and the number of iterations may change between fits; the model's structure may not.
        fitted, asked = self._mixture.density, settings.density
        is_same = type(fitted) is type(asked) and fitted.shapes(2, 2) == asked.shapes(2, 2)
        if len(self.weights_) != settings.n_components or not is_same:
            raise ValueError(
                f"expected to go on with n_components={len(self.weights_)} and {fitted}, as fitted, got "
                f"{settings.n_components} and {asked}; try {goes_on}"
            )
        if not network.has_blocks_of(self._network):
            raise ValueError(
                "expected to go on with the fitted parties, columns and hubs, got others (did partition, graph or "
                f"hops change?); try {goes_on}"
            )
        return network, summation, seed

    def _agreement(
        self, settings: Settings, summation: Summation, seed: int, given: Sequence[Given], **more: Any
    ) -> Agreement:
        """Return the agreement that all parties share."""
        kind = self._init_params()
        if given and given[0].is_complete(settings.density):
            kind = "given"
        return Agreement(
            settings=settings, summation=summation, seed=seed, hops=int(self.hops), init_params=kind, **more
        )

    def _given(self, network: Network, settings: Settings, units: Units) -> list[Given]:
        """Return the initial values that the user gave for each block; empty without any."""
        weights = self.weights_init
        if weights is not None:
            weights = checks.check_weights_init(weights, settings.n_components)
        arrays = units.arrays(self._given_arrays(network, settings), network, settings.density)
        return [Given(weights, own) for own in arrays] if weights is not None or any(arrays) else []

    def _accelerate(self) -> str | None:
        return None if self.accelerate is None else checks.check_choice("accelerate", self.accelerate, ACCELERATIONS)

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

    # Results

    def _keep(
        self,
        network: Network,
        summation: Summation,
        settings: Settings,
        seed: int,
        units: Units,
        result: MixtureFit,
        traffic: Traffic,
    ) -> None:
        """Set the fitted attributes common to all kinds of fits, in the units of the table."""
        result = units.fit(result, network, back=True)
        mixture = result.mixture
        vars(self).pop("scale_", None)
        if units.scale is not None:
            self.scale_ = units.scale
        self._network, self._summation, self._mixture, self._seed = network, summation, mixture, seed
        self._last_lower_bounds = result.lower_bounds[-1] if result.lower_bounds else None
        self.weights_ = mixture.weights.mean(axis=0)
        self.hub_weights_ = np.empty((len(network.hubs), settings.n_components))
        self.hub_weights_[:] = mixture.weights
        self.means_ = self._profile().means
        self._show(mixture)
        self.hubs_ = network.named_hubs()
        self.partition_ = network.named_columns()
        self.graph_ = network.named_graph()
        self.lower_bounds_ = [float(bounds.mean()) for bounds in result.lower_bounds]
        self.lower_bound_ = self.lower_bounds_[-1] if self.lower_bounds_ else -math.inf
        self.n_iter_ = result.n_iter
        self.converged_ = result.converged
        self.traffic_ = traffic
