"""Driver that runs the script of a fit with the blocks of all parties, and computes exchanges as passes over rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from vpem.core.blocks.overall import Overall, describe
from vpem.core.blocks.sweep import Disagreement, Sums
from vpem.core.blocks.tiles import Numbers
from vpem.core.decisions.local_clusters import Run
from vpem.core.network.parties import Network
from vpem.core.network.traffic import pooling_traffic
from vpem.core.rows import Holders, Table, without_rows
from vpem.core.script.context import (
    Context,
    Distances,
    LogDensities,
    Offer,
    StudyError,
    label_exchange,
)
from vpem.core.script.phases import DONE, PHASES, settle
from vpem.core.script.state import FORGET, KEEP, ROLL_BACK, Array, Model, Progress
from vpem.core.settings import Agreement
from vpem.simulation.channel import Channel
from vpem.simulation.model import Problem
from vpem.simulation.simulated_pass import Halves, RowSum, Sum, distances_seen_first, em_halves, kmeans_halves

NO_DECISION: Array = np.empty(0)


class Watch(Protocol):
    """Observer of starts and iterations, which may stop the fit."""

    @property
    def stopped(self) -> bool:
        """True if the fit must stop with the best run so far."""

    def note(self, text: str) -> None:
        """Receive a line about the whole fit."""

    def start(self, number: int) -> None:
        """Receive the beginning of a run."""

    def iteration(self, number: int, lower_bound: float) -> bool:
        """Receive the end of an iteration and its log-likelihood per row; return True to stop the fit."""

    def end(self, converged: bool, n_iter: int, n_repairs: int) -> None:
        """Receive the end of a run."""

    def fail(self, reason: str) -> None:
        """Receive the failure of a run."""


@dataclass(eq=False, kw_only=True)
class SimulatedContext(Context):
    """The blocks of all parties, and the network between them."""

    problem: Problem
    channel: Channel
    keeps_responsibilities: bool = False
    remembers_rows: bool = False
    reports_runs: bool = True

    @property
    def table(self) -> Table:
        """Columns of all parties."""
        return self.problem.X

    @property
    def local(self) -> Network:
        """The whole network."""
        return self.problem.network

    @property
    def overall(self) -> Overall:
        """Moments of all blocks."""
        return self.problem.overall

    @property
    def view_of_block(self) -> Numbers:
        """(n_blocks,): number of the view that each root has of a sum."""
        return self.channel.view_of_hub

    @property
    def n_views(self) -> int:
        """Number of different results of a sum."""
        return self.channel.n_views

    def blurs(self, _: Progress) -> Iterable[float]:
        """Bounds on the rounding of the last sums of each series."""
        return self.channel.blurs()

    @property
    def map(self) -> Run:
        """Map over blocks, in threads."""
        return self.problem.threads.map


class SimulatedOutcome:
    """Result of an exchange; passes over the rows are made only if a phase reads them.

    All parties take part in sums, so the decision is the one that all of them offer together.
    """

    def __init__(self, context: SimulatedContext, offer: Offer, phase: str, start: int):
        self.context, self.offer = context, offer
        self.decision = NO_DECISION if offer.decision is None else offer.decision
        self.values: Array = np.empty((1, 0))
        self._sum: RowSum | None = None
        channel, terms, kind = context.channel, offer.terms, PHASES[phase].exchange
        if kind == "columns":
            channel.traffic += pooling_traffic(context.network, context.n_rows)
        elif kind == "decision":
            channel.flood(len(self.decision))
        elif isinstance(terms, LogDensities):
            about = Sum(offer.series, len(self.decision), terms.scalars)
            self._sum = RowSum(context.problem, channel, self._halves(terms), about, terms.rows)
        elif isinstance(terms, Distances):
            about = Sum(offer.series, len(self.decision))
            self._sum = RowSum(context.problem, channel, self._halves(terms), about)
        else:
            assert terms is not None, "all parties are here"
            if kind == "labels":
                self.values = channel.exchange(label_exchange(context.agreement, start), terms, offer.shape)[None]
            else:
                self.values = channel.add(np.asarray(terms), offer.shape, offer.series, len(self.decision))

    def _halves(self, terms: LogDensities | Distances) -> Halves:
        problem, channel, density = self.context.problem, self.context.channel, self.context.density
        if isinstance(terms, LogDensities):
            return em_halves(problem, channel, density, terms)
        return kmeans_halves(problem, channel, density, terms)

    @property
    def scalars(self) -> Array:
        """Sums of the numbers that blocks added in addition to their rows; (n_views, n_scalars)."""
        return self._rows.scalars

    @property
    def _rows(self) -> RowSum:
        assert self._sum is not None, "the exchange was a sum over rows"
        return self._sum

    def collect(self, terms: LogDensities | Distances) -> Sums:
        """Statistics of each block, weighted by the responsibilities that its root sees."""
        return self._rows.collect(self._halves(terms).together(True))

    def compare(self, terms: LogDensities) -> Disagreement | None:
        """Disagreement of the roots; None if the sum is a matrix, since a new sum would give the same."""
        if self.context.channel.linear is not None:
            return None
        return self._rows.collect(self._halves(terms).together(False), compare=True).disagreement

    def distances(self) -> Iterator[tuple[slice, Array]]:
        """Yield the squared distances, (n_rows, n_centres), that the first hub's root gets, in chunks of rows."""
        return self._distances(slice(None))

    def distances_to(self, centre: int) -> Array:
        """Squared distances to one centre, (n_rows,); recomputing them is cheaper than storing all distances."""
        return np.concatenate([found[:, 0] for _, found in self._distances(slice(centre, centre + 1))])

    def _distances(self, which: slice) -> Iterator[tuple[slice, Array]]:
        channel, terms = self.context.channel, self.offer.terms
        assert isinstance(terms, Distances), "the exchange was of distances"
        if channel.linear is not None:
            centres = np.concatenate([part[which] for part in terms.centres], axis=1)
            yield from distances_seen_first(self.context.problem, channel, centres)
        else:
            seen = self._rows.whole[int(channel.view_of_hub[0]), which]
            yield slice(0, seen.shape[1]), -2.0 * seen.T


class Driver:
    """Driver that runs the script with all blocks.

    Parameters
    ----------
    context : SimulatedContext
        Context with all rows, including those that will be left out because too few parties have them.
    watch : Watch, optional
    """

    def __init__(self, context: SimulatedContext, watch: Watch | None = None):
        self.whole, self.watch = context, watch
        self.context = context
        self.ends: list[Model] = []
        """Results of all runs that did not fail."""

    def run(self, progress: Progress, until: Collection[str] = (DONE,)) -> Progress:
        """Run phases until one of `until` is next.

        Raises
        ------
        CollapsedComponentError, ValueError
            If every start fails.
        """
        try:
            progress = self._settle(progress)
            while progress.phase not in until:
                progress = self._settle(self._step(progress))
        except StudyError as error:
            raise error.__cause__ or ValueError(str(error)) from None
        return progress

    def _step(self, before: Progress) -> Progress:
        phase = PHASES[before.phase]
        offer = phase.offer(self.context, before)
        outcome = SimulatedOutcome(self.context, offer, before.phase, before.start)
        after = phase.absorb(self.context, before, outcome)
        return self._report(before, after)

    def _settle(self, progress: Progress) -> Progress:
        """Apply the state's instructions: leave out rows, drop memories, begin the next start."""
        if progress.holders is not None and self.context.holders is None:
            self.context = without_lone_rows(self.whole, progress)
        after = self._carry(settle(self.context, self._carry(progress)))
        begins = progress.phase in ("begin", "start") and after.phase not in ("pool", "holders")
        if self.watch is not None and begins:
            self.watch.start(after.start)
        return after

    def _carry(self, progress: Progress) -> Progress:
        if progress.carry == FORGET:
            self.context.channel.forget()
        elif progress.carry == ROLL_BACK:
            self.context.channel.retreat()
        return progress if progress.carry == KEEP else replace(progress, carry=KEEP)

    def _report(self, before: Progress, after: Progress) -> Progress:
        """Keep the results of runs; report runs and iterations to the watch, which may end the fit."""
        run, old = after.run, before.run
        if run is None and old is not None and after.ended is not None:
            self.ends.append(after.ended)
        if self.watch is None:
            return after
        if run is not None and old is not None and run.iteration > old.iteration:
            if self.watch.iteration(run.iteration, float(run.history[-1].mean())):
                return replace(after, interrupted=True)
        elif run is None and old is not None:
            if after.collapse:
                self.watch.fail(after.collapse)
            elif after.ended is not None:
                n_repairs = sum(case[0] > 0 for case in after.ended.repairs)
                self.watch.end(after.ended.converged, len(after.ended.history), n_repairs)
        return after


def simulated_context(problem: Problem, channel: Channel, agreement: Agreement, **others: object) -> SimulatedContext:
    """Make the context of a simulated fit; `others` are further fields by name."""
    network = problem.network
    return SimulatedContext(
        network=network,
        agreement=agreement,
        n_rows=len(problem.X),
        hubs=tuple(range(len(network.hubs))),
        pool=channel.pool,
        problem=problem,
        channel=channel,
        **others,  # type: ignore[arg-type]
    )


def without_lone_rows(context: SimulatedContext, progress: Progress) -> SimulatedContext:
    """Restrict a study to the rows that enough parties have."""
    assert progress.holders is not None, "they were counted"
    problem = context.problem
    density = None if context.is_clustering_only else context.density
    kept = without_rows(problem.X, Holders(progress.holders, context.least_holders))
    overall = problem.overall if kept is problem.X else describe(kept, problem.network, density)
    changed = Problem(kept, problem.network, problem.summation, overall)
    return replace(context, problem=changed, holders=progress.holders)
