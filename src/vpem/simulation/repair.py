"""Broken components of a simulated run: see `vpem.core.decisions.repair` for how all agree."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.decisions.repair import MOST_REPAIRS, Repair, RepairQueue, repair_weights
from vpem.core.network.summation import flood_traffic
from vpem.core.network.traffic import FLOAT_BYTES, Traffic, make_traffic
from vpem.simulation.model import Mixture, Problem

Array = NDArray[np.float64]


class Repairer:
    """Finds components that cannot go on and repairs them, as agreed by the whole network."""

    def __init__(self, problem: Problem, queue: RepairQueue | None = None):
        self.problem = problem
        self.queue = RepairQueue(most_repairs=MOST_REPAIRS) if queue is None else queue
        self.traffic = make_traffic(problem.network.agents)

    def visit(
        self,
        iteration: int,
        mixture: Mixture,
        counts: Array,
        view_of_hub: NDArray[np.intp],
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
        view_of_hub : array of shape (n_hubs,)
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
            n_bytes = FLOAT_BYTES * len(self.queue.waiting)
            self.traffic += flood_traffic(problem.summation, network, n_bytes)
            rows = self.queue.choose(worst_rows)
            self.queue, repaired = self.queue.take(len(rows))
            mixture = repair_mixture(problem, mixture, repaired, rows)
        findings = np.min(
            [
                self.queue.find_broken(counts[view], collapsed[hub], repaired, hub, len(network.hubs))
                for hub, view in enumerate(view_of_hub)
            ],
            axis=0,
        )
        self.queue = self.queue.enqueue(iteration, findings, network)
        return mixture, not repaired and not self.queue.waiting

    def all_repairs(self) -> tuple[Repair, ...]:
        """What was restarted, and what was still waiting for it in the end."""
        return self.queue.repairs(self.problem.network)

    @contextmanager
    def counting(self, sent: Traffic) -> Iterator[None]:
        """Let an error that ends the run know what was sent before it."""
        try:
            yield
        except CollapsedComponentError as error:
            error.traffic = sent + self.traffic
            raise


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
