"""Quality of a simulated fit: the gain of one more exact step, and the disagreement of the roots."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from vpem.core.blocks.sweep import Disagreement, Sums
from vpem.core.blocks.weights import make_weights, n_present
from vpem.core.network.star import ExactSum
from vpem.core.settings import Settings
from vpem.simulation.channel import Channel
from vpem.simulation.model import Mixture, Problem
from vpem.simulation.simulated_pass import e_step


@dataclass(frozen=True)
class Certificate:
    """Quality of a fit, as numbers that can be verified from the data.

    The simulation, which has all columns, computes them; they are not part of the fit's traffic.
    """

    gain: float
    """Increase in log-likelihood per row by one more exact EM step from the assembled model: near zero at a
    stationary point. `reg_covar` or `shrinkage` can make it negative; infinity means that the step collapses a
    component."""
    disagreement: float
    """Largest difference between two roots' responsibilities in the last E-step of the fit, over all rows and
    components."""
    mean_disagreement: float = 0.0
    """Mean over rows of the largest difference between two roots' responsibilities."""
    split: float = 0.0
    """Share of the rows whose most probable component differs between roots."""
    log_likelihood: float | None = None
    """Log-likelihood per row of the assembled model, with an exact sum."""
    effective_rows: tuple[float, ...] = ()
    """Sum of each component's responsibilities under the assembled model; (n_components,)."""


def certify(problem: Problem, mixture: Mixture, settings: Settings, seen: Disagreement | None = None) -> Certificate:
    """Take one exact EM step from the assembled model, and compare the roots.

    Parameters
    ----------
    problem : Problem
    mixture : Mixture
    settings : Settings
    seen : Disagreement, optional
        Disagreement of the roots in the fit; None: computed here from a new sum.
    """
    exact = channel = problem.channel().begin(mixture.weights)
    here: Sums | None = None
    if seen is None:
        here = e_step(problem, channel, mixture, statistics=channel.is_exact, compare=True)
        seen = here.disagreement
    if here is None or not channel.is_exact:
        exact = Channel(ExactSum(), problem.network)
        assembled = replace(mixture, weights=mixture.weights.mean(axis=0, keepdims=True))
        here = e_step(problem, exact, assembled)
    n_rows = float(n_present(here.counts)[0])
    about = {
        "mean_disagreement": seen.total / n_rows,
        "split": seen.n_split / n_rows,
        "log_likelihood": float(here.scores[0]) / n_rows,
        "effective_rows": tuple(here.counts[0].tolist()),
    }
    density = settings.density
    blocks, collapsed = density.m_steps(here.statistics(), mixture.blocks, problem.overall.columns)
    if any(collapsed):
        return Certificate(math.inf, seen.largest, **about)  # type: ignore[arg-type]
    stepped = Mixture(density, make_weights(here.counts), tuple(blocks))
    there = e_step(problem, exact, stepped, statistics=False)
    gain = float(there.scores[0] - here.scores[0]) / n_rows
    return Certificate(gain, seen.largest, **about)  # type: ignore[arg-type]
