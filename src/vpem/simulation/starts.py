"""Where a simulated run of EM begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.gaussian import Block
from vpem.core.blocks.overall import Overall, shared_statistics
from vpem.core.blocks.packed import Densities
from vpem.core.decisions.initial import KMEANS_MAX_ITER, KMEANS_TOL, around, random_responsibilities, random_rows
from vpem.core.decisions.repair import Case, Repair
from vpem.core.settings import Settings
from vpem.simulation.channel import Channel
from vpem.simulation.em import m_steps
from vpem.simulation.kmeans import assign, kmeans
from vpem.simulation.model import Mixture, Problem

Array = NDArray[np.float64]


class Start(NamedTuple):
    """Common starting point."""

    mixture: Mixture
    repairs: tuple[Repair, ...] = ()
    """Components that start with the overall covariance, as their own rows have none."""


def make_start(problem: Problem, channel: Channel, settings: Settings, kind: str, rng: np.random.Generator) -> Start:
    """Find a common starting point.

    Parameters
    ----------
    problem : Problem
    channel : Channel
    settings : Settings
    kind : {"kmeans", "k-means++", "random", "random_from_data"}
        - "kmeans": M-step from the labels of a vertical k-means.
        - "k-means++": the same from its first centres, without moving them.
        - "random": M-step from random responsibilities; a shared seed is enough.
        - "random_from_data": random rows as means, each party's overall covariance, equal weights; likewise.
    rng : numpy.random.Generator
        Shared by all parties.
    """
    X, network, overall = problem.X, problem.network, problem.overall
    n_components = settings.n_components
    if kind == "random_from_data":
        rows = random_rows(rng, len(X), n_components)
        means = overall.rows(X, rows, network)
        weights = np.full((1, n_components), 1.0 / n_components)
        return Start(Mixture(weights, _around(means, overall, settings)))
    if kind == "random":
        # Gaps are filled in as each party's overall Gaussian expects them.
        before = _around(
            [np.repeat(block.means, n_components, axis=0) for block in overall.blocks], overall, settings
        )
        counts, statistics = shared_statistics(
            X,
            network,
            before,
            lambda n_rows: random_responsibilities(rng, n_rows, n_components),
            overall.has_gaps,
        )
    else:
        max_iter = KMEANS_MAX_ITER if kind == "kmeans" else 0
        found = kmeans(problem, channel, n_components, "k-means++", rng, max_iter=max_iter, tol=KMEANS_TOL)
        before = _around(found.centres, overall, settings)
        layout = problem.layout(n_components, is_matrix=settings.rule.is_matrix)
        labelled = assign(problem, channel, found.centres, fill=Densities(layout, before))
        # All roots begin with the same weights: what the root of the first hub sees, flooded where roots may differ.
        counts, statistics = labelled.counts[[channel.view_of_hub[0]]], labelled.statistics()
        if not channel.summation.is_common and len(network.hubs) > 1:
            channel.flood(n_components)
    mixture, collapsed = m_steps(problem, counts, statistics, settings.rule, before)
    first: dict[int, int] = {}
    for hub, components in enumerate(collapsed):
        for component in components:
            first.setdefault(component, hub)
    cases = (Case(0, component, first[component]) for component in sorted(first))
    return Start(mixture, tuple(case.repair(network, restarted=False) for case in cases))


def _around(means: Sequence[Array], overall: Overall, settings: Settings) -> tuple[Block, ...]:
    """Each block with given means and its party's overall covariance for every component."""
    return tuple(
        around(part, block, settings.covariance_type) for part, block in zip(means, overall.blocks, strict=True)
    )
