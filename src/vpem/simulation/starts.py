"""Where a simulated run of EM begins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.decisions.initial import KMEANS_MAX_ITER, KMEANS_TOL
from vpem.core.decisions.labels import Labels
from vpem.core.decisions.local import describe_rows, draw_seed
from vpem.core.decisions.repair import Case, Repair
from vpem.core.decisions.starts import start_from_labels, start_from_seed
from vpem.core.network.packets import encode_packet
from vpem.core.network.parties import Network
from vpem.core.network.summation import Shape
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
    kind : {"kmeans", "k-means++", "labels", "random", "random_from_data"}
        - "kmeans": M-step from the labels of a vertical k-means.
        - "k-means++": the same from its first centres, without moving them.
        - "labels": M-step from labels that one agent finds in the labels of all parties' own clusters.
        - "random": M-step from random responsibilities; a shared seed is enough.
        - "random_from_data": random rows as means, each party's overall covariance, equal weights; likewise.
    rng : numpy.random.Generator
        Shared by all parties.
    """
    network, overall = problem.network, problem.overall
    n_components, density = settings.n_components, settings.density
    if kind in ("random", "random_from_data"):
        weights, blocks, collapsed = start_from_seed(kind, problem.X, network, overall, density, n_components, rng)
        mixture = Mixture(density, weights[None], tuple(blocks))
    elif kind == "labels":
        labels = agree_on_labels(problem, channel, n_components, rng)
        weights, blocks, collapsed = start_from_labels(problem.X, network, overall, density, n_components, labels)
        mixture = Mixture(density, weights[None], tuple(blocks))
    else:
        max_iter = KMEANS_MAX_ITER if kind == "kmeans" else 0
        found = kmeans(problem, channel, n_components, "k-means++", rng, max_iter=max_iter, tol=KMEANS_TOL)
        pairs = zip(found.centres, overall.blocks, strict=True)
        before = tuple(density.around(part, block) for part, block in pairs)
        labelled = assign(problem, channel, found.centres, fill=problem.pack(density, before, n_components))
        # All roots begin with the same weights: what the root of the first hub sees, flooded where roots may differ.
        counts = labelled.counts[[channel.view_of_hub[0]]]
        if not channel.summation.is_common and len(network.hubs) > 1:
            channel.flood(n_components)
        mixture, collapsed = m_steps(problem, counts, labelled.statistics(), density, before)
    return Start(mixture, _first_repairs(network, collapsed))


def agree_on_labels(problem: Problem, channel: Channel, n_components: int, rng: np.random.Generator) -> Array:
    """One label for each row, (n_samples,), from the labels of all blocks' own clusters."""
    blocks, seed = problem.network.block_columns, draw_seed(rng)
    counts, hubs = [int(own.counts.max()) for own in problem.overall.columns], range(len(blocks))
    features = problem.overall.features
    found = describe_rows(problem.X, blocks, counts, hubs, seed, problem.threads.map, features)
    packets = [encode_packet(hub, own) for hub, own in zip(hubs, found, strict=True)]
    return channel.exchange(Labels(n_components, seed), packets, Shape(len(problem.X), len(blocks)))


def _first_repairs(network: Network, collapsed: list[list[int]]) -> tuple[Repair, ...]:
    """Components that some block begins without rows of its own, as the first such block reports them."""
    first: dict[int, int] = {}
    for hub, components in enumerate(collapsed):
        for component in components:
            first.setdefault(component, hub)
    cases = (Case(0, component, first[component]) for component in sorted(first))
    return tuple(case.repair(network, restarted=False) for case in cases)
