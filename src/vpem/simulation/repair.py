"""Broken components of a simulated run: see `vpem.core.decisions.repair` for how all agree."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.decisions.repair import MOST_REPAIRS, Repair, RepairQueue, repair_weights
from vpem.simulation.channel import Channel
from vpem.simulation.model import Mixture, Problem

Array = NDArray[np.float64]


class Repairer:
    """Finds components that cannot go on and repairs them, as agreed by the whole network."""

    def __init__(self, problem: Problem, channel: Channel, queue: RepairQueue | None = None):
        self.problem, self.channel = problem, channel
        self.queue = RepairQueue(most_repairs=MOST_REPAIRS) if queue is None else queue

    def visit(
        self,
        iteration: int,
        mixture: Mixture,
        counts: Array,
        collapsed: Sequence[Collection[int]],
        worst_rows: NDArray[np.intp],
    ) -> tuple[Mixture, bool]:
        """Restart what was found broken at the last visit; look for what is broken now.

        Parameters
        ----------
        iteration : int
        mixture : Mixture
            After the iteration's M-step.
        counts : array of shape (n_views, n_components)
            Of its E-step.
        collapsed : sequence of collections of int
            What each hub's root found collapsed.
        worst_rows : array
            Badly explained rows, no two the same, the worst first.

        Returns
        -------
        mixture : Mixture
        sound : bool
            Whether nothing was, or is to be, restarted.
        """
        problem, network = self.problem, self.problem.network
        repaired: list[int] = []
        if self.queue.waiting:
            self.channel.flood(len(self.queue.waiting))
            rows = self.queue.choose(worst_rows)
            self.queue, repaired = self.queue.take(len(rows))
            mixture = repair_mixture(problem, mixture, repaired, rows)
            if repaired:
                self.channel.forget()  # what is carried of a component that is another one now would only mislead
        findings = np.min(
            [
                self.queue.find_broken(counts[view], collapsed[hub], repaired, hub, len(network.hubs))
                for hub, view in enumerate(self.channel.view_of_hub)
            ],
            axis=0,
        )
        self.queue = self.queue.enqueue(iteration, findings, network)
        return mixture, not repaired and not self.queue.waiting

    def all_repairs(self) -> tuple[Repair, ...]:
        """What was restarted, and what was still waiting for it in the end."""
        return self.queue.repairs(self.problem.network)


def repair_mixture(problem: Problem, mixture: Mixture, components: Sequence[int], rows: NDArray[np.intp]) -> Mixture:
    """Put some components on some rows, otherwise as all rows are, with an average weight."""
    if not components:
        return mixture
    parts = problem.overall.rows(problem.X, rows, problem.network)
    blocks = tuple(
        mixture.density.restart(block, components, part, everything)
        for block, part, everything in zip(mixture.blocks, parts, problem.overall.blocks, strict=True)
    )
    return replace(mixture, weights=repair_weights(mixture.weights, components), blocks=blocks)
