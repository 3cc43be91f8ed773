"""VP-EM on a simulated network: Algorithms 1 and 2 of the paper, which differ only in how the network adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block, Statistics
from vpem.core.blocks.batches import Kept, batch_slices
from vpem.core.blocks.density import CollapsedComponentError, Density
from vpem.core.blocks.sweep import ONE_VIEW, Pass, Sums, em_pass
from vpem.core.blocks.weights import make_weights, n_present
from vpem.core.decisions.passes import BatchPass, begin_pass
from vpem.core.decisions.repair import Repair
from vpem.core.decisions.stopping import comparable_bound, has_converged, n_small_changes
from vpem.core.network.star import ExactSum
from vpem.core.network.summation import Shape
from vpem.core.network.traffic import Traffic
from vpem.core.settings import Settings
from vpem.simulation.channel import Channel
from vpem.simulation.guarding import Guard
from vpem.simulation.jumps import Jumper
from vpem.simulation.model import Mixture, Problem
from vpem.simulation.repair import Repairer
from vpem.simulation.sweep import Sum, sweep

Array = NDArray[np.float64]
Monitor = Callable[[int, float], bool]


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """Result of one run of EM."""

    mixture: Mixture
    lower_bounds: tuple[Array, ...]
    """Log-likelihood per row before each M-step, as each root sees it; (n_views,) each."""
    converged: bool
    repairs: tuple[Repair, ...]
    traffic: Traffic
    start_bounds: tuple[float, ...] = ()
    """What each start counted for in the end; empty if that is not known."""
    start_ends: tuple[Mixture, ...] = ()
    """What each start came to; empty likewise."""

    @property
    def n_iter(self) -> int:
        """Number of iterations, an E-step and an M-step each."""
        return len(self.lower_bounds)

    @property
    def agreed_lower_bound(self) -> float:
        """What this run counts for beside others; every agent knows it, from the smallest bounds of all roots."""
        return comparable_bound([float(bounds.min()) for bounds in self.lower_bounds], self.converged)


@dataclass(frozen=True)
class Certificate:
    """How good a fit is, by numbers that anybody with the data can check.

    Computed by the simulation, which sees every column; not part of the fit's traffic.
    """

    gain: float
    """Log-likelihood per row that one more exact EM step from the assembled model would add: near zero at a
    stationary point. Negative values come from `reg_covar` or `shrinkage`; infinity means that the step
    collapses a component."""
    disagreement: float
    """Largest difference between two roots' responsibilities, over all rows and components."""
    mean_disagreement: float = 0.0
    """Mean over rows of the largest difference between two roots' responsibilities."""
    split: float = 0.0
    """Share of the rows whose most probable component is not the same at all roots."""
    log_likelihood: float | None = None
    """Per row, of the assembled model, with an exact sum. Not in model files of format 3 and older."""
    effective_rows: tuple[float, ...] = ()
    """Sum of each component's responsibilities under the assembled model; (n_components,)."""


def e_step(
    problem: Problem,
    channel: Channel,
    mixture: Mixture,
    about: Sum = Sum(),  # noqa: B008 (it cannot be changed)
    *,
    statistics: bool = True,
    within: slice | None = None,
    compare: bool = False,
) -> tuple[Sums, Array]:
    """One pass over rows with fixed parameters, and the sum of the scalars; scores are the roots' log-likelihoods."""
    weights = mixture.weights[:1] if channel.n_views == 1 else mixture.weights
    log_weights = np.log(np.broadcast_to(weights, (channel.n_views, weights.shape[1])))
    n_components = weights.shape[1]

    def alone(hub: int) -> Pass:
        packed = problem.pack(mixture.density, mixture.blocks[hub : hub + 1], n_components, hub)
        found = em_pass(packed, problem.columns_of[hub], None, log_weights[:1], ONE_VIEW)
        return replace(found, has_gaps=problem.overall.has_gaps[problem.order])

    halves = em_pass(
        problem.pack(mixture.density, mixture.blocks, n_components),
        problem.order,
        problem.overall,
        log_weights,
        channel.view_of_hub,
        separate=not channel.is_exact,
        statistics=statistics,
        # Agents, who know of no gaps but their own, take a sum of zeros for a row that no party has.
        may_lack_rows=channel.linear is None or bool(problem.overall.has_gaps.any()),
    )
    return sweep(problem, channel, halves, alone, about, within=within, compare=compare)


def m_steps(
    problem: Problem,
    counts: Array,
    statistics: Sequence[Statistics],
    density: Density,
    previous: Sequence[Block],
) -> tuple[Mixture, list[list[int]]]:
    """Every root's M-step: its own estimate of the weights, and its block.

    Returns
    -------
    mixture : Mixture
    collapsed : list of lists of int
        Components that kept their last parameters, in each block.
    """
    blocks, collapsed = density.m_steps(statistics, previous, problem.overall.columns)
    return Mixture(density, make_weights(counts), tuple(blocks)), collapsed


def em(
    problem: Problem,
    channel: Channel,
    start: Mixture,
    settings: Settings,
    *,
    batch_size: int | None = None,
    before: Array | None = None,
    monitor: Monitor | None = None,
) -> MixtureFit:
    """Iterate from a start until every root's lower bound per row changes by less than `tol` from pass to pass.

    An iteration is a pass over all rows. With batches (Neal and Hinton's incremental EM) there is an M-step after
    each of them, and what does not fall is the free energy: the likelihood of the rows just visited, plus what the
    statistics that earlier batches left behind stand for under the new parameters. The first pass, and the pass after
    a repair, visits all batches with the same parameters: an ordinary iteration of EM.

    Parameters
    ----------
    problem, channel, start, settings :
    batch_size : int, optional
        Rows in a batch; None: all, whose free energy is the log-likelihood.
    before : array of shape (n_views,), optional
        Last lower bounds of the run that this one goes on with.
    monitor : callable, optional
        Called after each iteration with its number and the lower bound (mean over roots); True ends the run there.
    """
    batches = batch_slices(len(problem.X), batch_size or len(problem.X))
    channel.begin(start.weights)
    repairer, guard, jumper = Repairer(problem, channel), Guard(channel), Jumper(channel, settings.accelerate)
    history = [] if before is None else [before]
    n_before = len(history)
    mixture, sound, converged = start, False, False
    batched, lossy = batch_size is not None, channel.summation.is_lossy
    kept: Sequence[Kept | None] = [None] * len(batches)
    while len(history) - n_before < settings.max_iter and not converged:
        iteration, before_pass = len(history) - n_before + 1, guard.keep(mixture)
        now = begin_pass(kept, settings.density, channel.n_views, fresh=not sound, lossy=lossy)
        mixture, now, collapsed = _one_pass(problem, channel, mixture, settings, batches, now, batched)
        assert now.earlier is not None, "a table has rows"
        kept = now.kept
        history.append(now.lower_bounds)
        is_due = not repairer.queue.waiting
        try:
            mixture, sound = repairer.visit(iteration, mixture, now.earlier.counts, collapsed, now.worst_rows)
        except CollapsedComponentError:
            _last_sums(problem, channel, mixture, settings, batches[:1], kept, batched)  # on which all hear of it
            raise
        would_stop = bool(has_converged(history, settings.tol, n_small_changes(channel.summation)).all())
        converged = sound and would_stop
        decision = np.array([float(would_stop), history[-1].min(), float(sound)])
        mixture = jumper.visit(before_pass, mixture, decision, is_due, iteration < settings.max_iter)
        if monitor is not None and monitor(iteration, float(history[-1].mean())):
            break
        goes_on = sound and not converged and iteration < settings.max_iter
        if guard.must_retreat(history[n_before:], is_due, goes_on):
            _last_sums(problem, channel, mixture, settings, batches[:1], kept, batched)
            mixture, sound = guard.retreat(), False
    _last_sums(problem, channel, mixture, settings, batches, kept, batched)
    return MixtureFit(mixture, tuple(history[n_before:]), converged, repairer.all_repairs(), channel.traffic)


def _one_pass(
    problem: Problem,
    channel: Channel,
    mixture: Mixture,
    settings: Settings,
    batches: Sequence[slice],
    now: BatchPass,
    batched: bool,
) -> tuple[Mixture, BatchPass, list[set[int]]]:
    """Visit all batches; returns the components that collapsed in each block too."""
    collapsed: list[set[int]] = [set() for _ in problem.network.hubs]
    density = settings.density
    for number, batch in enumerate(batches):
        about = _about(problem, settings, number, has_energy=now.has_energy(batched))
        if about.scalars is not None:
            about = about._replace(scalars=now.densities(mixture.blocks, density)[:, None])
        result, scalars = e_step(problem, channel, mixture, about, within=batch)
        extra = scalars[:, 0] if scalars.shape[1] else np.zeros(channel.n_views)
        now, total = now.take(result, extra, mixture.weights, density)
        if total is not None:
            mixture, broken = m_steps(problem, total.counts, total.statistics, density, mixture.blocks)
            collapsed = [old.union(new) for old, new in zip(collapsed, broken, strict=True)]
    return mixture, now, collapsed


def _about(problem: Problem, settings: Settings, number: int, *, has_energy: bool) -> Sum:
    """A batch's sum. On the first one ride the last pass's decisions, as an agent that stops must not update."""
    zeros = np.zeros((len(problem.network.hubs), 1)) if has_energy else None
    return Sum(f"iterate {number}", settings.n_decisions if number == 0 else 0, zeros)


def _last_sums(
    problem: Problem,
    channel: Channel,
    mixture: Mixture,
    settings: Settings,
    batches: Sequence[slice],
    kept: Sequence[Kept | None],
    batched: bool,
) -> None:
    """The E-step of the final parameters, with the decision to stop: made only if its bytes depend on the data."""
    now = begin_pass(kept, settings.density, lossy=channel.summation.is_lossy)
    for number, batch in enumerate(batches):
        about = _about(problem, settings, number, has_energy=now.has_energy(batched))
        now = now.skip()
        if channel.linear is None:
            e_step(problem, channel, mixture, about, statistics=False, within=batch)
        else:
            n_scalars = 0 if about.scalars is None else 1
            channel.count(Shape(batch.stop - batch.start, settings.n_components, n_scalars), about.n_decisions)


def certify(problem: Problem, mixture: Mixture, settings: Settings) -> Certificate:
    """Take one exact EM step from the assembled model, and compare the roots."""
    channel = problem.channel().begin(mixture.weights)
    final, _ = e_step(problem, channel, mixture, statistics=channel.is_exact, compare=True)
    here, exact = final, channel
    if not channel.is_exact:
        exact = Channel(ExactSum(), problem.network)
        assembled = replace(mixture, weights=mixture.weights.mean(axis=0, keepdims=True))
        here, _ = e_step(problem, exact, assembled)
    n_rows = float(n_present(here.counts)[0])
    about = {
        "mean_disagreement": final.differences / len(problem.X),
        "split": final.n_split / len(problem.X),
        "log_likelihood": float(here.scores[0]) / n_rows,
        "effective_rows": tuple(here.counts[0].tolist()),
    }
    stepped, collapsed = m_steps(problem, here.counts, here.statistics(), settings.density, mixture.blocks)
    if any(collapsed):
        return Certificate(math.inf, final.disagreement, **about)  # type: ignore[arg-type]
    there, _ = e_step(problem, exact, stepped, statistics=False)
    gain = float(there.scores[0] - here.scores[0]) / n_rows
    return Certificate(gain, final.disagreement, **about)  # type: ignore[arg-type]
