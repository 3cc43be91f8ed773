"""VP-EM on a simulated network: Algorithms 1 and 2 of the paper, which differ only in how the network adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.covariances import CovarianceRule
from vpem.core.mixture import Block, Statistics, careful_m_steps, make_weights, n_present
from vpem.core.packed import FAR, Densities
from vpem.core.repair import Repair
from vpem.core.settings import Settings
from vpem.core.stopping import comparable_bound, has_converged
from vpem.core.summation import Adder, exact_adder
from vpem.core.sweep import Sweep
from vpem.core.traffic import FLOAT_BYTES, Traffic
from vpem.simulation.model import Mixture, Problem, adder_for
from vpem.simulation.repair import Infirmary
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
) -> Sweep[Statistics]:
    """One pass over rows with fixed parameters; its scores are the roots' log-likelihoods."""
    layout = problem.layout(mixture.weights.shape[1], is_matrix=mixture.blocks[0].covariances.ndim == 3)
    densities = Densities(layout, mixture.blocks)
    weights = mixture.weights[:1] if adder.n_views == 1 else mixture.weights
    weights = np.broadcast_to(weights, (adder.n_views, weights.shape[1]))
    result, tally = sweep(
        problem,
        adder,
        densities,
        layout,
        log_weights=np.log(weights),
        shifts=_near(problem, densities.means) if statistics else None,
        fill=densities,
        within=within,
        compare=compare,
    )
    return replace(result, collected=() if tally is None else tally.statistics())


def _near(problem: Problem, means: Array) -> Array:
    """Where to collect statistics around, (n_components, n_features): the means, but for those that are far away."""
    overall = problem.overall.means[problem.order]
    with np.errstate(over="ignore"):
        is_near = (means - overall) ** 2 <= FAR * problem.overall.variances[problem.order]
    return np.where(is_near, means, overall)


def m_steps(
    problem: Problem,
    counts: Array,
    statistics: Sequence[Statistics],
    rule: CovarianceRule,
    previous: Sequence[Block],
) -> tuple[Mixture, list[list[int]]]:
    """Every root's M-step: its own estimate of the weights, and its block.

    Returns
    -------
    mixture : Mixture
    collapsed : list of lists of int
        Components that kept their last parameters, in each block.
    """
    blocks, collapsed = careful_m_steps(statistics, rule, previous, problem.overall.smallest_variances)
    return Mixture(make_weights(counts), tuple(blocks)), collapsed


def em(
    problem: Problem,
    start: Mixture,
    settings: Settings,
    *,
    before: Array | None = None,
    monitor: Monitor | None = None,
) -> MixtureFit:
    """Iterate from a start until every root's log-likelihood per row changes by less than `tol`.

    Parameters
    ----------
    problem : Problem
    start : Mixture
    settings : Settings
    before : array of shape (n_views,), optional
        Last lower bounds of the run that this one goes on with.
    monitor : callable, optional
        Called after each iteration with its number and the lower bound (mean over roots); True ends the run there.
    """
    n_samples, summation = len(problem.X), problem.summation
    adder = adder_for(problem, start)
    infirmary = Infirmary(problem)
    history = [] if before is None else [before]
    n_before = len(history)
    mixture, converged = start, False
    # An iteration's decision to stop rides on the next sum; the last one gives the final responsibilities.
    value_bytes = FLOAT_BYTES * n_samples * settings.n_components
    one_sum = summation.sum_traffic(problem.network, value_bytes, FLOAT_BYTES * settings.n_decisions)
    while len(history) - n_before < settings.max_iter and not converged:
        result = e_step(problem, adder, mixture)
        history.append(result.scores / n_present(result.counts))
        iteration = len(history) - n_before
        mixture, collapsed = m_steps(problem, result.counts, result.collected, settings.rule, mixture.blocks)
        with infirmary.counting(one_sum * (iteration + 1)):  # the last one tells all
            mixture, sound = infirmary.visit(
                iteration, mixture, result.counts, adder.view_of_hub, collapsed, result.worst[1]
            )
        converged = sound and bool(has_converged(history, settings.tol).all())
        if monitor is not None and monitor(iteration, float(history[-1].mean())):
            break
    lower_bounds = tuple(history[n_before:])
    traffic = one_sum * (len(lower_bounds) + 1) + infirmary.traffic
    return MixtureFit(mixture, lower_bounds, converged, infirmary.all_repairs(), traffic)


def certify(problem: Problem, mixture: Mixture, settings: Settings) -> Certificate:
    """Take one exact EM step from the assembled model, and compare the roots."""
    adder = adder_for(problem, mixture)
    here = final = e_step(problem, adder, mixture, statistics=adder.is_exact, compare=True)
    exact = exact_adder(len(problem.network.hubs))
    if not adder.is_exact:
        assembled = Mixture(mixture.weights.mean(axis=0, keepdims=True), mixture.blocks)
        here = e_step(problem, exact, assembled)
    stepped, collapsed = m_steps(problem, here.counts, here.collected, settings.rule, mixture.blocks)
    if any(collapsed):
        return Certificate(math.inf, final.disagreement)
    there = e_step(problem, exact, stepped, statistics=False)
    gain = float((there.scores[0] - here.scores[0]) / n_present(here.counts)[0])
    return Certificate(gain, final.disagreement)
