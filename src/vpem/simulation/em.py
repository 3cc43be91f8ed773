"""VP-EM on a simulated network: Algorithms 1 and 2 of the paper, which differ only in how the network adds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block, Statistics
from vpem.core.blocks.batches import Kept, batch_slices, suffixes
from vpem.core.blocks.density import Density
from vpem.core.blocks.sweep import Sums, em_pass, lowest
from vpem.core.blocks.weights import make_weights, n_present
from vpem.core.decisions.repair import Repair
from vpem.core.decisions.stopping import comparable_bound, has_converged
from vpem.core.network.summation import Adder, exact_adder, sum_traffic
from vpem.core.network.traffic import FLOAT_BYTES, Traffic, make_traffic
from vpem.core.settings import Settings
from vpem.simulation.model import Mixture, Problem, adder_for
from vpem.simulation.repair import Repairer
from vpem.simulation.sweep import sweep

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


def e_step(
    problem: Problem,
    adder: Adder,
    mixture: Mixture,
    *,
    statistics: bool = True,
    within: slice | None = None,
    compare: bool = False,
) -> Sums:
    """One pass over rows with fixed parameters; its scores are the roots' log-likelihoods."""
    weights = mixture.weights[:1] if adder.n_views == 1 else mixture.weights
    log_weights = np.log(np.broadcast_to(weights, (adder.n_views, weights.shape[1])))
    views, separate = np.asarray(adder.view_of_hub, dtype=np.int64), not adder.is_exact
    halves = em_pass(
        problem.pack(mixture.density, mixture.blocks, mixture.weights.shape[1]),
        problem.order,
        problem.overall,
        log_weights,
        views,
        separate=separate,
        statistics=statistics,
        may_lack_rows=bool(problem.overall.has_gaps.any()),
    )
    return sweep(problem, adder, halves, within=within, compare=compare)


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
    problem : Problem
    start : Mixture
    settings : Settings
    batch_size : int, optional
        Rows in a batch; None: all, whose free energy is the log-likelihood.
    before : array of shape (n_views,), optional
        Last lower bounds of the run that this one goes on with.
    monitor : callable, optional
        Called after each iteration with its number and the lower bound (mean over roots); True ends the run there.
    """
    n_samples = len(problem.X)
    batches = batch_slices(n_samples, batch_size or n_samples)
    adder, scalar_adder = (adder_for(problem, start) for _ in range(2))
    repairer = Repairer(problem)
    history = [] if before is None else [before]
    n_before = len(history)
    one_pass = pass_traffic(problem, settings, batches, has_energy=batch_size is not None)
    mixture, converged, fresh = start, False, True
    kept: list[Any] = [None] * len(batches)
    while len(history) - n_before < settings.max_iter and not converged:
        iteration = len(history) - n_before + 1
        later = suffixes(kept, settings.density)
        earlier: Kept | None = None
        collapsed: list[set[int]] = [set() for _ in problem.network.hubs]
        energy = np.zeros(adder.n_views)
        worst: tuple[Any, Any] = (np.empty(0), np.empty(0, dtype=np.intp))
        for number, batch in enumerate(batches):
            result, kept[number] = visit(problem, adder, mixture, batch)
            is_last = number == len(batches) - 1
            if fresh:
                energy += result.scores
            elif is_last:
                energy = result.scores
                if earlier is not None:
                    terms = earlier.densities(mixture.blocks, settings.density)[:, None, None]
                    densities = scalar_adder.add(terms, slice(0, 1))[:, 0, 0]
                    energy = energy + earlier.energy(densities, mixture.weights)
            earlier = kept[number].plus(earlier, settings.density)
            if is_last or not fresh:
                total = earlier if fresh else earlier.plus(later[number + 1], settings.density)
                mixture, broken = m_steps(problem, total.counts, total.statistics, settings.density, mixture.blocks)
                collapsed = [old.union(new) for old, new in zip(collapsed, broken, strict=True)]
            scores, rows = (np.concatenate(pair) for pair in zip(worst, result.worst, strict=True))
            worst = lowest(scores, rows)
        assert earlier is not None, "a table has rows"
        history.append(energy / n_present(earlier.counts))
        with repairer.counting(one_pass * (iteration + 1)):  # the last one tells all
            mixture, sound = repairer.visit(
                iteration, mixture, earlier.counts, adder.view_of_hub, collapsed, worst[1]
            )
        fresh = not sound
        converged = sound and bool(has_converged(history, settings.tol).all())
        if monitor is not None and monitor(iteration, float(history[-1].mean())):
            break
    lower_bounds = tuple(history[n_before:])
    traffic = one_pass * (len(lower_bounds) + 1) + repairer.traffic
    return MixtureFit(mixture, lower_bounds, converged, repairer.all_repairs(), traffic)


def pass_traffic(problem: Problem, settings: Settings, batches: Sequence[slice], *, has_energy: bool) -> Traffic:
    """Traffic of one pass: the bytes of one full iteration in more messages, and with batches one number more.

    The last pass's decisions ride on the first sum, as an agent that stops must not update after it. The number is
    for the free energy, and rides on the last sum.
    """
    sizes: Counter[tuple[int, int]] = Counter()
    for number, batch in enumerate(batches):
        is_first, is_last = number == 0, number == len(batches) - 1
        value_bytes = FLOAT_BYTES * ((batch.stop - batch.start) * settings.n_components + (has_energy and is_last))
        sizes[value_bytes, FLOAT_BYTES * settings.n_decisions * is_first] += 1
    parts = (sum_traffic(problem.summation, problem.network, *size) * times for size, times in sizes.items())
    return sum(parts, make_traffic(problem.network.agents))


def visit(
    problem: Problem, adder: Adder, mixture: Mixture, batch: slice, *, compare: bool = False
) -> tuple[Sums, Kept]:
    """E-step of one batch, and what it leaves behind."""
    result = e_step(problem, adder, mixture, within=batch, compare=compare)
    return result, Kept(result.counts, result.entropies, result.statistics())


def certify(problem: Problem, mixture: Mixture, settings: Settings) -> Certificate:
    """Take one exact EM step from the assembled model, and compare the roots."""
    adder = adder_for(problem, mixture)
    here = final = e_step(problem, adder, mixture, statistics=adder.is_exact, compare=True)
    exact = exact_adder(len(problem.network.hubs))
    if not adder.is_exact:
        assembled = replace(mixture, weights=mixture.weights.mean(axis=0, keepdims=True))
        here = e_step(problem, exact, assembled)
    stepped, collapsed = m_steps(problem, here.counts, here.statistics(), settings.density, mixture.blocks)
    if any(collapsed):
        return Certificate(math.inf, final.disagreement)
    there = e_step(problem, exact, stepped, statistics=False)
    gain = float((there.scores[0] - here.scores[0]) / n_present(here.counts)[0])
    return Certificate(gain, final.disagreement)
