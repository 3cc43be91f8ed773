"""Batch VP-EM: incremental EM (Neal and Hinton), an M-step after every batch; and stepwise EM for streams.

What does not fall is the *free energy*: the likelihood of the rows just visited, plus what the kept statistics
stand for under the new parameters. It costs one number more per agent and pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.batches import Kept, batch_slices, suffixes
from vpem.core.mixture import Statistics, n_present
from vpem.core.overall import Overall
from vpem.core.repair import Case, Repair, Ward
from vpem.core.settings import Settings
from vpem.core.stopping import has_converged
from vpem.core.summation import Adder
from vpem.core.sweep import Sweep, lowest
from vpem.core.traffic import FLOAT_BYTES, Traffic, make_traffic
from vpem.simulation.em import MixtureFit, Monitor, e_step, m_steps
from vpem.simulation.model import Mixture, Problem, adder_for
from vpem.simulation.repair import Infirmary

Array = NDArray[np.float64]

STEP_POWER = 0.7
"""Of stepwise EM; between 0.5 and 1, so that the steps add up to infinity and their squares do not."""


def incremental_em(
    problem: Problem,
    start: Mixture,
    settings: Settings,
    batch_size: int,
    *,
    before: Array | None = None,
    monitor: Monitor | None = None,
) -> MixtureFit:
    """Iterate over batches until every root's free energy per row changes by less than `tol` from pass to pass.

    The first pass, and the pass after a repair, visits all batches with the same parameters: an ordinary iteration
    of EM. The arguments are those of `vpem.simulation.em.em`; `lower_bounds` are free energies.
    """
    n_samples = len(problem.X)
    batches = batch_slices(n_samples, batch_size)
    adder, scalar_adder = (adder_for(problem, start) for _ in range(2))
    infirmary = Infirmary(problem)
    history = [] if before is None else [before]
    n_before = len(history)
    one_pass = pass_traffic(problem, settings, batches)
    mixture, converged, fresh = start, False, True
    kept: list[Any] = [None] * len(batches)
    while len(history) - n_before < settings.max_iter and not converged:
        iteration = len(history) - n_before + 1
        later = suffixes(kept)
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
                    terms = earlier.densities(mixture.blocks)[:, None, None]
                    densities = scalar_adder.add(terms, slice(0, 1))[:, 0, 0]
                    energy = energy + earlier.energy(densities, mixture.weights)
            earlier = kept[number] + earlier
            if is_last or not fresh:
                total = earlier if fresh else earlier + later[number + 1]
                mixture, broken = m_steps(problem, total.counts, total.statistics, settings.rule, mixture.blocks)
                collapsed = [old.union(new) for old, new in zip(collapsed, broken, strict=True)]
            scores, rows = (np.concatenate(pair) for pair in zip(worst, result.worst, strict=True))
            worst = lowest(scores, rows)
        assert earlier is not None, "a table has rows"
        history.append(energy / n_present(earlier.counts))
        with infirmary.counting(one_pass * (iteration + 1)):  # the last one tells all
            mixture, sound = infirmary.visit(
                iteration, mixture, earlier.counts, adder.view_of_hub, collapsed, worst[1]
            )
        fresh = not sound
        converged = sound and bool(has_converged(history, settings.tol).all())
        if monitor is not None and monitor(iteration, float(history[-1].mean())):
            break
    lower_bounds = tuple(history[n_before:])
    traffic = one_pass * (len(lower_bounds) + 1) + infirmary.traffic
    return MixtureFit(mixture, lower_bounds, converged, infirmary.all_repairs(), traffic)


@dataclass(frozen=True, eq=False)
class Stream:
    """What stepwise EM carries from one call to the next."""

    overall: Overall
    """Of the first call's rows."""
    kept: Kept | None = None
    """Running statistics, per row."""
    n_rows: float = 0.0
    """How many rows of equal weight would be worth as much."""
    n_steps: int = 0
    repairs: tuple[Repair, ...] = ()
    waiting: tuple[Case, ...] = ()
    """Components to be restarted with the next call."""


def online_step(
    problem: Problem, mixture: Mixture, settings: Settings, stream: Stream
) -> tuple[MixtureFit, Stream, float]:
    """One step of stepwise EM (Cappé and Moulines): an E-step of new rows, whose statistics then count for a share.

    The share of the t-th step is `t ** -0.7`: the first step takes its rows alone, and old rows fade slowly enough
    for the estimates to settle. Components are repaired as in EM, without a limit.

    Parameters
    ----------
    problem : Problem
        The new rows.
    mixture : Mixture
    settings : Settings
    stream : Stream

    Returns
    -------
    fit : MixtureFit
    stream : Stream
    disagreement : float
    """
    n_samples, summation = len(problem.X), problem.summation
    adder = adder_for(problem, mixture)
    result, new = visit(problem, adder, mixture, slice(0, n_samples), compare=True)
    n_steps = stream.n_steps + 1
    share = n_steps**-STEP_POWER
    n_there = float(n_present(new.counts)[0])
    kept, n_rows = new * (share / n_there), n_there
    if stream.kept is not None:
        kept += stream.kept * (1.0 - share)
        n_rows = 1.0 / (share**2 / n_there + (1.0 - share) ** 2 / stream.n_rows)
    whole = kept * n_rows
    stepped, collapsed = m_steps(problem, whole.counts, whole.statistics, settings.rule, mixture.blocks)
    infirmary = Infirmary(problem, Ward(stream.waiting, most_restarts=math.inf))
    stepped, _ = infirmary.visit(n_steps, stepped, whole.counts, adder.view_of_hub, collapsed, result.worst[1])
    treated = [case.component for case in infirmary.ward.restarted]
    if treated:
        kept = _forget(kept, stepped, treated)
    value_bytes = FLOAT_BYTES * n_samples * settings.n_components
    traffic = summation.sum_traffic(problem.network, value_bytes, FLOAT_BYTES * settings.n_decisions)
    traffic += infirmary.traffic
    fit = MixtureFit(stepped, (result.scores / n_there,), False, infirmary.all_repairs(), traffic)
    done = (case.repair(problem.network, restarted=True) for case in infirmary.ward.restarted)
    after = Stream(stream.overall, kept, n_rows, n_steps, (*stream.repairs, *done), infirmary.ward.waiting)
    return fit, after, result.disagreement


def _forget(kept: Kept, mixture: Mixture, components: list[int]) -> Kept:
    """Statistics in which some components count for what they were restarted with."""
    counts = kept.counts.copy()
    counts[:, components] = np.broadcast_to(mixture.weights, counts.shape)[:, components]
    found = []
    for own, block in zip(kept.statistics, mixture.blocks, strict=True):
        weights, means, scatters = own.counts.copy(), own.means.copy(), own.scatters.copy()
        weights[components] = mixture.weights.mean(axis=0)[components]
        means[components] = block.means[components]
        covariances = np.broadcast_to(block.covariances, scatters.shape)
        scatters[components] = (covariances.T * weights).T[components]
        found.append(Statistics(weights, means, scatters, own.gap_entropy))
    return Kept(counts, kept.entropy, tuple(found))


def pass_traffic(problem: Problem, settings: Settings, batches: Sequence[slice]) -> Traffic:
    """Traffic of one pass: the bytes of one full iteration in more messages, and one number for the free energy.

    The last pass's decisions ride on the first sum: after it nobody may update who is to stop. The free energy's
    number rides on the last sum.
    """
    traffic = make_traffic(problem.network.agents)
    for number, batch in enumerate(batches):
        is_first, is_last = number == 0, number == len(batches) - 1
        value_bytes = FLOAT_BYTES * ((batch.stop - batch.start) * settings.n_components + is_last)
        decision_bytes = FLOAT_BYTES * settings.n_decisions * is_first
        traffic += problem.summation.sum_traffic(problem.network, value_bytes, decision_bytes)
    return traffic


def visit(
    problem: Problem, adder: Adder, mixture: Mixture, batch: slice, *, compare: bool = False
) -> tuple[Sweep[Statistics], Kept]:
    """E-step of one batch, and what it leaves behind."""
    result = e_step(problem, adder, mixture, within=batch, compare=compare)
    assert result.entropies is not None, "EM has entropies"
    return result, Kept(result.counts, result.entropies, result.collected)
