"""Fits of a mixture: by a simulated network, by agents, or step by step from a stream of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vpem.core.agent.meeting import meeting_traffic
from vpem.core.blocks.density import Density
from vpem.core.blocks.overall import look_again
from vpem.core.blocks.packed import warm_up
from vpem.core.decisions.starts import Given
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.network.traffic import pooling_traffic
from vpem.core.rows import Table, without_rows
from vpem.core.settings import STARTS, Agreement, Settings
from vpem.estimators import checks, judging
from vpem.estimators.checks import make_agreement, make_settings
from vpem.estimators.column_scales import Units, find_units, make_fitted
from vpem.estimators.joined import Data, Source, make_source
from vpem.estimators.predictions import FittedMixture
from vpem.estimators.progress import Progress
from vpem.estimators.row_counts import count_rows
from vpem.estimators.second_look import check_sample, take_sample
from vpem.estimators.weighting import counts_each_row_once
from vpem.model.fitted import Fitted
from vpem.model.judgement import Judgement
from vpem.overlap import RowSummary
from vpem.simulation import fit as simulated
from vpem.simulation.certificate import certify
from vpem.simulation.channel import Channel
from vpem.simulation.fit import make_start
from vpem.simulation.model import MixtureFit, Problem, find_holders, make_problem
from vpem.simulation.streams import Stream, online_step
from vpem.simulation.threads import one_blas_thread
from vpem.verdict import Finding

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
            return self._fit(make_source(self, X, on))

    def check_arguments(self) -> Self:
        """Raise an error for arguments that are invalid for any data.

        `fit` makes the same checks. Programs call this method to fail before they read a table.
        """
        self._settings()
        checks.check_count("n_init", self.n_init, 1)
        checks.check_count("hops", self.hops, 0)
        if self.batch_size is not None:
            checks.check_count("batch_size", self.batch_size, 1)
        checks.check_choice("init_params", self.init_params, STARTS)
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
            return self._partial_fit(make_source(self, X, on))

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
        fitted = self._fitted
        partition = self.partition if fitted is None or fitted.on is None else fitted.partition
        arguments = partition, self.graph, self.hops, self.summation
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
    def _show(self, fitted: Fitted) -> None:
        """Set the fitted attributes that are specific to the estimator."""

    # Fits

    def _fit(self, source: Source) -> Self:
        settings = self._settings()
        n_init = checks.check_count("n_init", self.n_init, 1)
        batch_size = None if self.batch_size is None else checks.check_count("batch_size", self.batch_size, 1)
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"expected callback to be None or callable, got {self.callback!r}")
        progress = Progress(checks.check_count("verbose", self.verbose, 0), self.callback)
        before = self._fitted if self.warm_start else None
        table, words = checks.read_values(self, source.table, reset=before is None, min_rows=2)
        table = table if before is None else before.coding.code(table, words, before.names)
        checks.check_enough_rows(len(table), "n_components", settings.n_components)
        network, summation, seed = self._build(table, settings, source, before, "warm_start=False")
        about = self._about(source)
        about["rows"] = self._count_rows(table, network, summation, source)
        table, settings, families, before = self._with_families(table, words, network, settings, source, before)
        units = self._units(table, network, settings, before)
        holders = find_holders(table, network, summation)
        if holders is not None:
            units = units.for_rows(without_rows(table, holders))
        progress.shift = units.shift
        for finding in judging.about_the_sum(summation, network):
            progress.note(f"{finding.sentence} Try: {finding.remedy}.")
        table = units.scaled(table)
        given = [] if before is not None else self._given(network, settings, units)
        agreement = self._agreement(settings, summation, seed, given, n_init=n_init, batch_size=batch_size)
        problem = make_problem(table, network, summation, settings.density)
        if self._engine(goes_on=before is not None) == "agents":
            from vpem.estimators import agents_engine

            result = agents_engine.fit(table, network, agreement, given, progress)
        else:
            with progress.waiting("compiling the inner loops, which are kept for the next time,"):
                compile_once()
            last = None if before is None else units.fit(_last_fit(before), network, back=False)
            result = simulated.fit(problem, agreement, given, progress, last)
        if holders is not None and holders.n_left_out:  # certificate and verdict use only the rows of the fit
            problem = make_problem(without_rows(table, holders), network, summation, settings.density)
        certificate = certify(problem, result.mixture, settings, result.disagreement)
        is_start_found = before is None and agreement.init_params != "given"
        known = {"is_stopped": progress.stopped, "is_start_found": is_start_found, "holders": holders}
        facts = judging.gather_facts(problem, settings, result, certificate, scale=units.scale, **known)  # type: ignore[arg-type]
        check = partial(check_sample, take_sample(problem, result, units.scale))
        judgement = Judgement(replace(facts, rows=about["rows"]), about["names"], check)
        about |= {"certificate": units.certificate(certificate), "disagreement": certificate.disagreement}
        self._take(make_fitted(result, network, summation, seed, units, judgement=judgement, **families, **about))
        judging.warn(judgement.so_far(), is_stopped=progress.stopped, stacklevel=4)
        return self

    def _about(self, source: Source) -> dict[str, Any]:
        """Return what a source tells about a fit, by the fields of `Fitted`."""
        rows, names = source.rows, getattr(self, "feature_names_in_", None)
        about: dict[str, Any] = {"kinds": source.kinds, "on": source.on, "gaps": source.gaps}
        if rows is not None:
            names, about["read_as"] = rows.names, rows.read_as
        return {**about, "names": None if names is None else tuple(map(str, names))}

    def _count_rows(self, table: Table, network: Network, summation: Summation, source: Source) -> RowSummary:
        """Count the rows of a source."""
        if source.rows is not None:
            return count_rows(source.rows.values, network, summation, source.rows.names, source.rows)
        names = getattr(self, "feature_names_in_", range(table.shape[1]))
        return count_rows(table, network, summation, [*map(str, names)], source.table)

    @property
    def verdict_(self) -> list[Finding]:
        """Findings, the worst first; `vpem.verdict.colour(model.verdict_)` summarizes them.

        Some checks fit smaller models to a sample of the rows. They run when the verdict is first read.
        """
        if self._fitted is None:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet, so it has no verdict_")
        return self._fitted.judgement.findings

    def _partial_fit(self, source: Source) -> Self:
        settings = self._settings()
        self._engine(goes_on=True)
        before = self._fitted
        if before is not None and before.is_stream_lost:
            raise ValueError(
                "expected the model that the stream was fitted to, got one from a file, which keeps no stream; "
                "go on with warm_start=True, or begin a new estimator"
            )
        if before is not None and before.stream is None:
            before = None
        table, words = checks.read_values(self, source.table, reset=before is None)
        table = table if before is None else before.coding.code(table, words, before.names)
        remedy = "a new estimator, or fit first, which ends the stream"
        network, summation, seed = self._build(table, settings, source, before, remedy)
        table, settings, families, before = self._with_families(table, words, network, settings, source, before)
        units = self._units(table, network, settings, before)
        table = units.scaled(table)
        traffic, channel = pooling_traffic(network, len(table)), Channel(summation, network)
        if before is None:
            checks.check_enough_rows(len(table), "n_components", settings.n_components)
            problem = make_problem(table, network, summation, settings.density)
            given = self._given(network, settings, units)
            start = make_start(problem, channel, self._agreement(settings, summation, seed, given), given)
            traffic += meeting_traffic(network, len(table), int(self.hops), summation)
            stream, mixture = Stream(problem.overall, repairs=start.repairs), start.mixture
        else:
            assert before.stream is not None, "it goes on"
            stream = before.stream
            problem = Problem(table, network, summation, look_again(stream.overall, table, network))
            mixture = replace(units.mixture(before.mixture, network, back=False), density=settings.density)
            traffic = before.traffic + traffic
        result, stream, disagreement = online_step(problem, channel, mixture, settings, stream)
        about = self._about(source)
        facts = judging.gather_facts(problem, settings, result, None)
        repairs = (*stream.repairs, *(case.repair(network, restarted=False) for case in stream.waiting))
        result = replace(result, traffic=traffic + result.traffic, repairs=repairs)
        about |= {"judgement": Judgement(facts, about["names"]), "disagreement": disagreement, "stream": stream}
        about["n_steps"] = stream.n_steps
        return self._take(make_fitted(result, network, summation, seed, units, **families, **about))

    # Arguments

    def _settings(self) -> Settings:
        return make_settings(self._density(), self.n_components, self.tol, self.max_iter, self.accelerate)

    def _with_families(
        self,
        table: Table,
        words: Mapping[int, Sequence[str]],  # noqa: ARG002
        network: Network,  # noqa: ARG002
        settings: Settings,
        source: Source,  # noqa: ARG002
        before: Fitted | None,
    ) -> tuple[Table, Settings, dict[str, Any], Fitted | None]:
        """Return the coded table, settings whose density has the families of the columns, these, and the last fit.

        The families and their coding are fields of `Fitted`. The last fit is enlarged to hold larger counts.
        """
        return table, settings, {}, before

    def _units(self, table: Table, network: Network, settings: Settings, before: Fitted | None) -> Units:
        """Return the units of this fit; a fit that continues an earlier one keeps its scales."""
        if not isinstance(self.standardize, bool | np.bool_):
            raise TypeError(f"expected standardize to be True or False, got {self.standardize!r}")
        if not self.standardize:
            return Units()
        scaled = [
            columns[settings.density.scaled_columns(len(columns), hub.members)]
            for hub, columns in zip(network.named_hubs(), network.block_columns, strict=True)
        ]
        return find_units(table, None if before is None else before.scale, np.concatenate(scaled))

    def _build(
        self, X: Table, settings: Settings, source: Source, before: Fitted | None, remedy: str
    ) -> tuple[Network, Summation, int]:
        """Return network, summation and shared seed; check them against the fit that this one continues, if any.

        The remedy is part of the error message.
        """
        seed = checks.shared_seed(self.random_state) if before is None else before.seed
        names = getattr(self, "feature_names_in_", None)
        network, summation = checks.build_network(
            source.parties or self.partition, self.graph, self.hops, self.summation, X.shape[1], names, seed
        )
        if before is None:
            return network, summation, seed
        # Links and the number of iterations may change between fits; the model's structure may not.
        fitted, asked = before.mixture.density, settings.density
        is_same = type(fitted) is type(asked) and fitted.shapes(2, 2) == asked.shapes(2, 2)
        if before.n_components != settings.n_components or not is_same:
            raise ValueError(
                f"expected to go on with n_components={before.n_components} and {fitted}, as fitted, got "
                f"{settings.n_components} and {asked}; try {remedy}"
            )
        if not network.has_blocks_of(before.network):
            raise ValueError(
                "expected to go on with the fitted parties, columns and hubs, got others (did partition, graph or "
                f"hops change?); try {remedy}"
            )
        return network, summation, seed

    def _agreement(
        self, settings: Settings, summation: Summation, seed: int, given: Sequence[Given], **more: Any
    ) -> Agreement:
        """Return the agreement that all parties share."""
        start: dict[str, Any] = {"hops": self.hops, "init_params": self.init_params, "given": given}
        return make_agreement(settings, summation, seed, **start, **more)

    def _given(self, network: Network, settings: Settings, units: Units) -> list[Given]:
        """Return the initial values that the user gave for each block; empty without any."""
        weights = self.weights_init
        if weights is not None:
            weights = checks.check_weights_init(weights, settings.n_components)
        arrays = units.arrays(self._given_arrays(network, settings), network, settings.density)
        return [Given(weights, own) for own in arrays] if weights is not None or any(arrays) else []

    def _engine(self, goes_on: bool) -> str:
        engine = checks.check_choice("engine", self.engine, ("simulation", "agents"))
        if engine == "agents" and goes_on:
            raise ValueError(
                "expected engine='simulation' to go on with an earlier fit or with a stream, got 'agents'; "
                "try fit with warm_start=False"
            )
        return engine

    # Results

    def _take(self, fitted: Fitted) -> Self:
        """Set the fitted attributes, under scikit-learn's names."""
        self._fitted = fitted
        self.weights_, self.hub_weights_, self.means_ = fitted.weights, fitted.hub_weights, fitted.profile.means
        self.hubs_, self.partition_, self.graph_ = fitted.hubs, fitted.partition, fitted.network.named_graph()
        self.lower_bounds_, self.lower_bound_ = fitted.mean_bounds, fitted.lower_bound
        self.n_iter_, self.converged_ = fitted.n_iter, fitted.converged
        self.repairs_, self.traffic_ = list(fitted.repairs), fitted.traffic
        self.n_features_in_ = fitted.n_features
        known = {
            "scale_": fitted.scale,
            "certificate_": fitted.certificate,
            "log_likelihood_": fitted.log_likelihood,
            "disagreement_": fitted.disagreement,
            "rows_": fitted.rows,
            "on_": fitted.on,
            "read_as_": fitted.read_as or None,
            "gaps_": fitted.gaps or None,
            "part_": fitted.part,
            "feature_names_in_": None if fitted.names is None else np.array(fitted.names, dtype=object),
        }
        for name in known:
            vars(self).pop(name, None)
        vars(self).update({name: value for name, value in known.items() if value is not None})
        self._show(fitted)
        return self


def _last_fit(fitted: Fitted) -> MixtureFit:
    """Return the fit that `warm_start` continues."""
    bounds = fitted.lower_bounds[-1:] if fitted.stream is None else ()
    return MixtureFit(fitted.mixture, bounds, fitted.converged, (), fitted.traffic)
