"""Simulated fits: complete fits, runs of EM from given parameters, starts alone, and k-means alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.meeting import meeting_traffic
from vpem.core.decisions.initial import START, random_rows, shared_generator
from vpem.core.decisions.repair import Repair, make_cases
from vpem.core.decisions.starts import Given
from vpem.core.script.start_phases import begin_clusters
from vpem.core.script.state import Clustering, Model, Parameters, Progress
from vpem.core.settings import Agreement, Settings
from vpem.simulation.channel import Channel
from vpem.simulation.driver import Driver, Watch, simulated_context
from vpem.simulation.model import Mixture, MixtureFit, Problem

Array = NDArray[np.float64]


def fit(
    problem: Problem, agreement: Agreement, given: Sequence[Given], watch: Watch, before: MixtureFit | None = None
) -> MixtureFit:
    """Fit with a simulated network.

    Parameters
    ----------
    problem : Problem
        With the moments for the agreement's density.
    agreement : Agreement
    given : sequence of Given
        Initial values of all blocks, complete or partial; may be empty.
    watch : Watch
    before : MixtureFit, optional
        Fit to continue, in place of a start.

    Returns
    -------
    MixtureFit
        Best run, with the traffic of all runs.
    """
    channel = problem.channel()
    channel.traffic += meeting_traffic(problem.network, len(problem.X), agreement.hops, agreement.summation)
    watch.note(f"the network's sum is computed as {channel.path}")
    with channel.pool.in_use(channel):
        if before is not None:
            bound = before.lower_bounds[-1] if before.lower_bounds else None
            return _go_on(problem, channel, replace(agreement, n_init=1), before.mixture, bound, watch)
        driver = Driver(simulated_context(problem, channel, agreement, given=tuple(given)), watch)
        return _result(driver, driver.run(Progress()))


def em(
    problem: Problem,
    channel: Channel,
    start: Mixture,
    settings: Settings,
    *,
    batch_size: int | None = None,
) -> MixtureFit:
    """Run EM from given parameters until every root's lower bound per row changes by less than `tol`."""
    agreement = Agreement(settings=settings, summation=channel.summation, seed=0, batch_size=batch_size)
    return _go_on(problem, channel, agreement, start, None, None, phase="start")


def _go_on(
    problem: Problem,
    channel: Channel,
    agreement: Agreement,
    start: Mixture,
    bound: Array | None,
    watch: Watch | None,
    phase: str = "begin",
) -> MixtureFit:
    """Run EM from given parameters; roots whose weights differ each have a view of their own."""
    channel.begin(start.weights)
    resumed = Parameters(start.weights, start.blocks)
    context = simulated_context(problem, channel, agreement, resumed=resumed, bound_before=bound)
    driver = Driver(context, watch)
    return _result(driver, driver.run(Progress(phase=phase)))


def _result(driver: Driver, progress: Progress) -> MixtureFit:
    """Return the best run, with the final models of all runs."""
    context, best = driver.context, progress.best
    assert best is not None, "a fit without an error has a result"

    def mixture(model: Model) -> Mixture:
        assert model.weights is not None, "all roots are here"
        return Mixture(context.density, model.weights, model.blocks)

    names = {str(party): party for party in context.network.parties}
    return MixtureFit(
        mixture(best),
        best.history,
        best.converged,
        tuple(Repair(*case[:2], names[case[2]], *case[3:]) for case in best.repairs),
        context.channel.traffic,
        progress.bounds,
        tuple(map(mixture, driver.ends)),
        best.disagreement,
    )


@dataclass(frozen=True, eq=False)
class Start:
    """Initial parameters, common to all parties."""

    mixture: Mixture
    repairs: tuple[Repair, ...] = ()
    """Components that start with the overall covariance, because their own rows determine none."""


def make_start(
    problem: Problem, channel: Channel, agreement: Agreement, given: Sequence[Given] = (), number: int = 0
) -> Start:
    """Find the parameters from which one of the starts begins EM."""
    context = simulated_context(problem, channel, agreement, given=tuple(given))
    # Holders of rows are counted before the starts, or not at all, as in streams.
    holders = np.full(len(problem.X), len(problem.network.hubs)) if context.least_holders > 1 else None
    run = Driver(context).run(Progress(phase="start", start=number, holders=holders), until=("iterate",)).run
    assert run is not None, "EM comes next"
    assert run.weights is not None, "all roots are here"
    cases = make_cases(0, run.findings)
    repairs = tuple(case.repair(problem.network, restarted=False) for case in cases)
    return Start(Mixture(agreement.settings.density, run.weights, run.blocks), repairs)


@dataclass(frozen=True, eq=False)
class KMeansFit:
    """Result of one run of k-means."""

    centres: tuple[Array, ...]
    """Part of the centres of each block, at its root: (n_clusters, n_columns)."""
    n_iter: int
    converged: bool
    inertia: Array
    """(n_views,): sum of squared distances to the nearest centres, in each root's view."""


def kmeans_driver(
    problem: Problem, channel: Channel, agreement: Agreement, *, max_iter: int = 300, tol: float = 1e-4
) -> Driver:
    """Make a driver for k-means alone; see `kmeans`."""
    limits = {"kmeans_max_iter": max_iter, "kmeans_tol": tol, "is_clustering_only": True}
    return Driver(simulated_context(problem, channel, agreement, **limits))


def kmeans(driver: Driver, init: str | Array = "k-means++", number: int = 0) -> KMeansFit:
    """Run Lloyd's algorithm; each root updates its block of the centres from its own labels.

    Parameters
    ----------
    driver : Driver
        From `kmeans_driver`; the same for all starts.
    init : {"k-means++", "random"} or array of shape (n_clusters, n_features)
    number : int, default=0
        Number of the start, which determines its random numbers.
    """
    first = Progress(phase="start", start=number, holders=driver.context.holders)
    progress, context = driver.run(first, until=("first row", "cluster")), driver.context
    if not isinstance(init, str):
        given = [np.asarray(init, dtype=np.float64)[:, held] for held in context.network.block_columns]
        progress = begin_clusters(context, progress, given)
    elif init == "random":
        generator = shared_generator(context.agreement.seed, START, number)
        rows = random_rows(generator, context.n_rows, context.settings.n_components).astype(np.int64)
        progress = begin_clusters(context, replace(progress, clustering=Clustering(rows, rows[:0])))
    found = driver.run(progress).clustering
    assert found is not None, "it has been found"
    assert found.inertia is not None, "with its inertia"
    return KMeansFit(found.centres, found.n_iter, found.settled, found.inertia)
