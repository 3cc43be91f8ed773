"""Where a simulated run of EM begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block
from vpem.core.blocks.density import Density
from vpem.core.blocks.overall import Overall, shared_statistics
from vpem.core.decisions.initial import KMEANS_MAX_ITER, KMEANS_TOL, random_responsibilities, random_rows
from vpem.core.decisions.repair import Case, Repair
from vpem.core.network.summation import flood_traffic
from vpem.core.network.traffic import FLOAT_BYTES, Traffic, make_traffic
from vpem.core.settings import Settings
from vpem.simulation.em import m_steps
from vpem.simulation.kmeans import assign, kmeans
from vpem.simulation.model import Mixture, Problem

Array = NDArray[np.float64]


class Start(NamedTuple):
    """Common starting point."""

    mixture: Mixture
    traffic: Traffic
    """What agreeing on it costs."""
    repairs: tuple[Repair, ...] = ()
    """Components that start with the overall covariance, as their own rows have none."""


def make_start(problem: Problem, settings: Settings, kind: str, rng: np.random.Generator) -> Start:
    """Find a common starting point.

    Parameters
    ----------
    problem : Problem
    settings : Settings
    kind : {"kmeans", "k-means++", "random", "random_from_data"}
        - "kmeans": M-step from the labels of a vertical k-means.
        - "k-means++": the same from its first centres, without moving them.
        - "random": M-step from random responsibilities; a shared seed is enough.
        - "random_from_data": random rows as means, each party's overall covariance, equal weights; likewise.
    rng : numpy.random.Generator
        Shared by all parties.
    """
    X, network, summation, overall = problem.X, problem.network, problem.summation, problem.overall
    n_components, density = settings.n_components, settings.density
    traffic = make_traffic(network.agents)
    if kind == "random_from_data":
        rows = random_rows(rng, len(X), n_components)
        means = overall.rows(X, rows, network)
        weights = np.full((1, n_components), 1.0 / n_components)
        return Start(Mixture(density, weights, _around(means, overall, density)), traffic)
    if kind == "random":
        # Gaps are filled in as one component for all rows expects them.
        centres = [np.repeat(density.means(block), n_components, axis=0) for block in overall.blocks]
        before = _around(centres, overall, density)
        counts, statistics = shared_statistics(
            X,
            network,
            density,
            before,
            lambda n_rows: random_responsibilities(rng, n_rows, n_components),
            overall.has_gaps,
        )
    else:
        max_iter = KMEANS_MAX_ITER if kind == "kmeans" else 0
        found = kmeans(problem, n_components, "k-means++", rng, max_iter=max_iter, tol=KMEANS_TOL)
        before = _around(found.centres, overall, density)
        adder = summation.adder(network)
        labelled = assign(problem, adder, found.centres, fill=problem.pack(density, before, n_components))
        # All roots begin with the same weights: what the root of the first hub sees, flooded where roots may differ.
        counts, statistics = labelled.counts[[adder.view_of_hub[0]]], labelled.statistics()
        traffic = found.traffic
        if not summation.is_common and len(network.hubs) > 1:
            traffic += flood_traffic(summation, network, FLOAT_BYTES * n_components)
    mixture, collapsed = m_steps(problem, counts, statistics, density, before)
    first: dict[int, int] = {}
    for hub, components in enumerate(collapsed):
        for component in components:
            first.setdefault(component, hub)
    cases = (Case(0, component, first[component]) for component in sorted(first))
    return Start(mixture, traffic, tuple(case.repair(network, restarted=False) for case in cases))


def _around(centres: Sequence[Array], overall: Overall, density: Density) -> tuple[Block, ...]:
    """Each block around given centres, otherwise as all its rows are."""
    return tuple(density.start(part, block) for part, block in zip(centres, overall.blocks, strict=True))
