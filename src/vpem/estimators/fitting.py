"""How a mixture is fitted: by a simulated network, by agents, or row after row from a stream."""

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
from vpem.core.rows import Table
from vpem.core.settings import ACCELERATIONS, STARTS, Agreement, Settings
from vpem.estimators import checks, judging
from vpem.estimators.fitted import FittedMixture
from vpem.estimators.joined import Data, join_to_fit
from vpem.estimators.progress import Progress
from vpem.estimators.second_look import Sample, check_sample, take_sample
from vpem.estimators.units import Units, find_units
from vpem.estimators.weighting import counts_each_row_once
from vpem.simulation import fit as simulated
from vpem.simulation.channel import Channel
from vpem.simulation.em import Certificate, MixtureFit, certify
from vpem.simulation.fit import begin
from vpem.simulation.model import Mixture, Problem, make_problem
from vpem.simulation.streams import Stream, online_step
from vpem.simulation.threads import one_blas_thread
from vpem.verdict import Facts, Finding, judge

Array = NDArray[np.float64]

compile_once = cache(warm_up)
"""Once per process."""


class FittingMixture(FittedMixture):
    """The fits of a mixture estimator, whose arguments are its attributes."""

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
            All parties' columns; numpy, pandas or polars. Or party to its own table, joined as `vpem.tables.join`
            does: the parties are then the partition. All methods take such dicts too; a party may be missing there.
        y : ignored
        on : str or sequence of str, optional
            With a dict: the columns that every table has and that name its rows. The results' rows are in the order
            of ``vpem.tables.join(X, on).ids``.

        Returns
        -------
        self
        """
        with checks.unchanged_on_error(self), one_blas_thread():
            return self._fit(join_to_fit(self, X, on))

    def check_arguments(self) -> Self:
        """Raise for arguments that are wrong whatever the data are; `fit` does so too.

        For programs that want to know before they read a table.
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
        """Take one step of stepwise EM with new rows: for streams.

        The first call starts from its rows, as `fit` would; at the t-th call the new rows count for ``t ** -0.7`` and
        all earlier ones for the rest. A call after `fit` begins anew. Traffic and `repairs_` add up over the calls.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New rows of the same columns; the first time at least `n_components`. Or a dict of tables, as for `fit`.
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
        """What can be said of the network's sum before a fit: findings as in `verdict_`, empty if it is near enough.

        Parameters
        ----------
        n_features : int
            Columns of the table.
        """
        arguments = self._held or self.partition, self.graph, self.hops, self.summation
        network, summation = checks.build_network(*arguments, n_features, None, 0)
        return judging.about_the_sum(summation, network)

    # What the estimators differ in

    @abstractmethod
    def _density(self) -> Density:
        """How columns are distributed; raises for arguments that are wrong."""

    @abstractmethod
    def _given_arrays(self, network: Network, settings: Settings) -> list[dict[str, Array]]:
        """Parameters that the user gave of each block's start, by name."""

    @abstractmethod
    def _show(self, mixture: Mixture) -> None:
        """Set the fitted attributes that not every estimator has."""

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
        table, settings = self._with_families(table, network, settings, goes_on=goes_on)
        units = self._units(table, network, settings, goes_on=goes_on)
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
            everything = {"overall": problem.overall, "before": before}
            result = simulated.fit(table, network, agreement, given, progress, **everything)  # type: ignore[arg-type]
        is_start_found = not goes_on and agreement.init_params != "given"
        facts = {"is_stopped": progress.stopped, "is_start_found": is_start_found}
        return self._end_fit(problem, settings, seed, units, result, facts)

    def _last_fit(self) -> MixtureFit:
        """What a fit with `warm_start` goes on with."""
        bounds = () if self._last_lower_bounds is None else (self._last_lower_bounds,)
        return MixtureFit(self._mixture, bounds, self.converged_, (), self.traffic_)

    def _end_fit(
        self,
        problem: Problem,
        settings: Settings,
        seed: int,
        units: Units,
        result: MixtureFit,
        about: dict[str, bool],
    ) -> Self:
        """Set the fitted attributes, certificate and verdict included; warn of what is wrong."""
        self._keep(problem.network, problem.summation, settings, seed, units, result, result.traffic)
        self.repairs_ = list(result.repairs)
        certificate = certify(problem, result.mixture, settings)
        self.certificate_ = units.certificate(certificate)
        assert self.certificate_.log_likelihood is not None, "computed just now"
        self.log_likelihood_ = self.certificate_.log_likelihood
        self.disagreement_ = self.certificate_.disagreement
        self._stream = None
        self._stream_is_lost = False
        facts = judging.gather_facts(problem, settings, result, certificate, **about)
        self._judge(facts, take_sample(problem, result, units.scale))
        judging.warn(judge(self._named(facts)), is_stopped=about["is_stopped"], stacklevel=5)
        return self

    def _judge(self, facts: Facts, sample: Sample | None = None) -> None:
        """Keep what `verdict_` is made from."""
        self._facts, self._sample, self._verdict = facts, sample, None

    @property
    def verdict_(self) -> list[Finding]:
        """Findings, the worst first; `vpem.verdict.colour(model.verdict_)` sums them up.

        Some checks fit smaller models to a sample of the rows. They run when the verdict is read for the first time.
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
        """Run the checks of the sample, once, and drop it."""
        if getattr(self, "_sample", None) is not None:
            assert self._sample is not None, "just seen"
            self._facts, self._sample = replace(self._facts, **check_sample(self._sample)), None

    def __getstate__(self) -> Any:
        """Copies and pickles have the findings, not the rows from which they are made."""
        self._look_again()
        return super().__getstate__()

    def _named(self, facts: Facts) -> Facts:
        """Facts with columns by their names, where they have some."""
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return facts

        def name(own: str) -> str:
            return str(names[int(own)]) if own.isdecimal() else own

        blocks = [replace(block, columns=[*map(name, block.columns)]) for block in facts.blocks]
        twins = [(name(one), name(other)) for one, other in facts.twins]
        return replace(facts, blocks=blocks, row_names=[*map(name, facts.row_names)], twins=twins)

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
        stream = getattr(self, "_stream", None)  # with room for larger counts
        units = self._units(table, network, settings, goes_on=stream is not None)
        table = units.scaled(table)
        traffic, channel = pooling_traffic(network, len(table)), Channel(summation, network)
        if stream is None:
            checks.check_enough_rows(len(table), "n_components", settings.n_components)
            problem = make_problem(table, network, summation, settings.density)
            given = self._given(network, settings, units)
            start = begin(problem, channel, self._agreement(settings, summation, seed, given), given, 0)
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
        for name in ("certificate_", "log_likelihood_"):  # of rows that are no longer all that counts
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
        """The table as the fit has it, and a density that knows the families of its columns."""
        return table, settings

    def _units(self, table: Table, network: Network, settings: Settings, *, goes_on: bool) -> Units:
        """Of this fit; one that goes on with another keeps its scales."""
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
        """Network, summation and shared seed; if this fit goes on with the last one, they must suit each other.

        `goes_on` is empty, or says what to try if they do not.
        """
        seed = self._seed if goes_on else checks.shared_seed(self.random_state)
        names = getattr(self, "feature_names_in_", None)
        network, summation = checks.build_network(
            self._held or self.partition, self.graph, self.hops, self.summation, X.shape[1], names, seed
        )
        if not goes_on:
            return network, summation, seed
        # Links and the length of a run may change, but not what is fitted.
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
        """What all parties share."""
        kind = self._init_params()
        if given and given[0].is_complete(settings.density):
            kind = "given"
        return Agreement(
            settings=settings, summation=summation, seed=seed, hops=int(self.hops), init_params=kind, **more
        )

    def _given(self, network: Network, settings: Settings, units: Units) -> list[Given]:
        """What the user gave of each block's start; empty if nothing."""
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
        """Set the fitted attributes that every kind of fit has, in the units of the table."""
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
