"""A whole fit by a simulated network: the meeting, the starts, and the best run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from vpem.core.agent.meeting import meeting_traffic
from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.overall import Overall, describe
from vpem.core.decisions.initial import START, shared_generator
from vpem.core.decisions.starts import Given
from vpem.core.decisions.stopping import is_better
from vpem.core.network.parties import Network
from vpem.core.network.pooling import pooling_traffic
from vpem.core.rooms import rooms_wanted
from vpem.core.rows import Table
from vpem.core.settings import Agreement
from vpem.simulation.channel import Channel
from vpem.simulation.em import MixtureFit, em
from vpem.simulation.holders import leave_out
from vpem.simulation.model import Mixture, Problem
from vpem.simulation.starts import Start, make_start
from vpem.simulation.watching import Watch


@rooms_wanted()
def fit(
    table: Table,
    network: Network,
    agreement: Agreement,
    given: Sequence[Given],
    watch: Watch,
    *,
    overall: Overall | None = None,
    before: MixtureFit | None = None,
) -> MixtureFit:
    """Fit with a simulated network.

    Parameters
    ----------
    table : Table of shape (n_samples, n_features)
    network : Network
    agreement : Agreement
    given : sequence of Given
        Starts of all blocks, or parts of them, if there are any.
    watch : Watch
    overall : Overall, optional
        What the parties know of their columns, if they have looked.
    before : MixtureFit, optional
        A fit to go on with, instead of a start.

    Returns
    -------
    MixtureFit
        The best run, with the traffic of all.
    """
    settings = agreement.settings
    overall = describe(table, network, settings.density) if overall is None else overall
    problem = Problem(table, network, agreement.summation, overall)
    channel = problem.channel()
    channel.traffic += meeting_traffic(network, len(table), agreement.hops, agreement.summation)
    channel.traffic += pooling_traffic(network, len(table))
    kept = leave_out(table, network, channel)
    if kept is not table:
        problem = Problem(kept, network, agreement.summation, describe(kept, network, settings.density))
    watch.note(f"the network's sum is computed as {channel.path}")
    best: MixtureFit | None = None
    failure: CollapsedComponentError | None = None
    bounds: list[float] = []
    ends: list[Mixture] = []
    for number in range(agreement.n_init if before is None else 1):
        watch.start(number)
        start = begin(problem, channel, agreement, given, number) if before is None else go_on(before, agreement)
        history = before.lower_bounds[-1] if before is not None and before.lower_bounds else None
        run = partial(em, batch_size=agreement.batch_size, before=history, monitor=watch.iteration)
        try:
            found = run(problem, channel, start.mixture, settings)
        except CollapsedComponentError as error:  # another start may do better
            failure = error
            watch.fail(error)
            continue
        watch.end(found.converged, found.n_iter, len(found.repairs))
        bounds.append(found.agreed_lower_bound)
        ends.append(found.mixture)
        if best is None or is_better(found.agreed_lower_bound, best.agreed_lower_bound):
            best = replace(found, repairs=(*start.repairs, *found.repairs))
        if watch.stopped:
            break
    if best is None:
        raise failure or ValueError("expected at least one start, got none")
    return replace(best, traffic=channel.traffic, start_bounds=tuple(bounds), start_ends=tuple(ends))


def go_on(before: MixtureFit, agreement: Agreement) -> Start:
    """Start where another fit has ended; how the density is estimated may have changed."""
    return Start(replace(before.mixture, density=agreement.settings.density))


def begin(problem: Problem, channel: Channel, agreement: Agreement, given: Sequence[Given], number: int) -> Start:
    """One of the starts: what was given, and for the rest what the agreement says."""
    density = agreement.settings.density
    if agreement.init_params == "given":
        found = Start(Mixture(density, np.empty((1, 0)), ()))
        parts = [own.complete(None, None, density) for own in given]
    else:
        rng = shared_generator(agreement.seed, START, number)
        found = make_start(problem, channel, agreement.settings, agreement.init_params, rng)
        if not given:
            return found
        pairs = zip(given, found.mixture.blocks, strict=True)
        parts = [own.complete(found.mixture.weights[0], block, density) for own, block in pairs]
    weights = np.array([parts[0][0]]) if given[0].weights is not None else found.mixture.weights
    return found._replace(mixture=replace(found.mixture, weights=weights, blocks=tuple(block for _, block in parts)))
