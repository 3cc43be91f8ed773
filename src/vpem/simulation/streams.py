"""Stepwise EM (Cappé and Moulines), for streams: the statistics of new rows are averaged with earlier ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.batches import Kept
from vpem.core.blocks.overall import Overall
from vpem.core.blocks.weights import make_weights, n_present
from vpem.core.decisions.repair import Case, Repair, RepairQueue
from vpem.core.script.em_phases import find_broken, restart
from vpem.core.script.state import Parameters
from vpem.core.settings import Agreement, Settings
from vpem.simulation.channel import Channel
from vpem.simulation.driver import simulated_context
from vpem.simulation.model import Mixture, MixtureFit, Problem
from vpem.simulation.simulated_pass import Sum, e_step

Array = NDArray[np.float64]

STEP_POWER = 0.7
"""Exponent of the step size of stepwise EM; between 0.5 and 1, so that the sum of the step sizes diverges and that
of their squares converges."""


@dataclass(frozen=True, eq=False)
class Stream:
    """State of stepwise EM between calls."""

    overall: Overall
    """Moments of the first call's rows."""
    kept: Kept | None = None
    """Running statistics, per row."""
    n_rows: float = 0.0
    """Effective number of rows: that of equally weighted rows with the same precision."""
    n_steps: int = 0
    repairs: tuple[Repair, ...] = ()
    waiting: tuple[Case, ...] = ()
    """Components to restart at the next call."""


def online_step(
    problem: Problem, channel: Channel, mixture: Mixture, settings: Settings, stream: Stream
) -> tuple[MixtureFit, Stream, float]:
    """Take one step of stepwise EM (Cappé and Moulines): average the statistics of new rows with earlier ones.

    At the t-th step the new rows have weight `t ** -0.7`: the first step uses only its own rows, and the weights of
    old rows decay slowly enough for the estimates to converge. Components are repaired as in EM, without a limit.

    Parameters
    ----------
    problem : Problem
        The new rows.
    channel : Channel
    mixture : Mixture
    settings : Settings
    stream : Stream

    Returns
    -------
    fit : MixtureFit
    stream : Stream
    disagreement : float
    """
    channel.begin(mixture.weights)
    result = e_step(problem, channel, mixture, Sum(n_decisions=settings.n_decisions), compare=True)
    new = Kept(result.counts, result.entropies, result.statistics())
    n_steps = stream.n_steps + 1
    share = n_steps**-STEP_POWER
    n_there = float(n_present(new.counts)[0])
    density = settings.density
    kept, n_rows = new.times(share / n_there, density), n_there
    if stream.kept is not None:
        kept = kept.plus(stream.kept.times(1.0 - share, density), density)
        n_rows = 1.0 / (share**2 / n_there + (1.0 - share) ** 2 / stream.n_rows)
    whole = kept.times(n_rows, density)
    blocks, collapsed = density.m_steps(whole.statistics, mixture.blocks, problem.overall.columns)
    stepped = Mixture(density, make_weights(whole.counts), tuple(blocks))
    context = simulated_context(problem, channel, Agreement(settings=settings, summation=channel.summation, seed=0))
    queue = RepairQueue(stream.waiting, most_repairs=math.inf)
    repaired: list[int] = []
    if queue.waiting:
        channel.flood(len(queue.waiting))
        rows = queue.choose(result.worst[1])
        queue, repaired = queue.take(len(rows))
        if repaired:
            parameters = restart(context, Parameters(stepped.weights, stepped.blocks), repaired, rows)
            stepped = Mixture(density, *parameters)
            channel.forget()
            kept = _forget(kept, stepped, repaired)
    findings = find_broken(context, queue, whole.counts, collapsed, repaired)
    queue = queue.enqueue(n_steps, findings, problem.network)
    fit = MixtureFit(stepped, (result.scores / n_there,), False, queue.repairs(problem.network), channel.traffic)
    done = (case.repair(problem.network, restarted=True) for case in queue.restarted)
    after = Stream(stream.overall, kept, n_rows, n_steps, (*stream.repairs, *done), queue.waiting)
    return fit, after, result.disagreement.largest


def _forget(kept: Kept, mixture: Mixture, components: list[int]) -> Kept:
    """Replace the statistics of restarted components by those of their new parameters."""
    counts = kept.counts.copy()
    counts[:, components] = np.broadcast_to(mixture.weights, counts.shape)[:, components]
    weights = mixture.weights.mean(axis=0)
    pairs = zip(kept.statistics, mixture.blocks, strict=True)
    found = tuple(mixture.density.forget(own, components, weights, block) for own, block in pairs)
    return Kept(counts, kept.entropy, found)
