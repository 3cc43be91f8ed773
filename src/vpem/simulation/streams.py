"""Stepwise EM (Cappé and Moulines), for streams: an E-step of new rows, whose statistics then count for a share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.batches import Kept
from vpem.core.blocks.overall import Overall
from vpem.core.blocks.weights import n_present
from vpem.core.decisions.repair import Case, Repair, RepairQueue
from vpem.core.settings import Settings
from vpem.simulation.channel import Channel
from vpem.simulation.em import MixtureFit, e_step, m_steps
from vpem.simulation.model import Mixture, Problem
from vpem.simulation.repair import Repairer
from vpem.simulation.sweep import Sum

Array = NDArray[np.float64]

STEP_POWER = 0.7
"""Of stepwise EM; between 0.5 and 1, so that the steps add up to infinity and their squares do not."""


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
    problem: Problem, channel: Channel, mixture: Mixture, settings: Settings, stream: Stream
) -> tuple[MixtureFit, Stream, float]:
    """One step of stepwise EM (Cappé and Moulines): an E-step of new rows, whose statistics then count for a share.

    The share of the t-th step is `t ** -0.7`: the first step takes its rows alone, and old rows fade slowly enough
    for the estimates to settle. Components are repaired as in EM, without a limit.

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
    result, _ = e_step(problem, channel, mixture, Sum("", settings.n_decisions), compare=True)
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
    stepped, collapsed = m_steps(problem, whole.counts, whole.statistics, density, mixture.blocks)
    repairer = Repairer(problem, channel, RepairQueue(stream.waiting, most_repairs=math.inf))
    stepped, _ = repairer.visit(n_steps, stepped, whole.counts, collapsed, result.worst[1])
    repaired = [case.component for case in repairer.queue.restarted]
    if repaired:
        kept = _forget(kept, stepped, repaired)
    fit = MixtureFit(stepped, (result.scores / n_there,), False, repairer.all_repairs(), channel.traffic)
    done = (case.repair(problem.network, restarted=True) for case in repairer.queue.restarted)
    after = Stream(stream.overall, kept, n_rows, n_steps, (*stream.repairs, *done), repairer.queue.waiting)
    return fit, after, result.disagreement


def _forget(kept: Kept, mixture: Mixture, components: list[int]) -> Kept:
    """Statistics in which some components count for what they were restarted with."""
    counts = kept.counts.copy()
    counts[:, components] = np.broadcast_to(mixture.weights, counts.shape)[:, components]
    weights = mixture.weights.mean(axis=0)
    pairs = zip(kept.statistics, mixture.blocks, strict=True)
    found = tuple(mixture.density.forget(own, components, weights, block) for own, block in pairs)
    return Kept(counts, kept.entropy, found)
