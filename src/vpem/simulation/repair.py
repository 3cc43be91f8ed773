"""Components that cannot go on: found by one root, restarted by all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.mixture import CollapsedComponentError, make_block, make_weights
from vpem.core.traffic import FLOAT_BYTES, Traffic, make_traffic
from vpem.simulation.model import Mixture, Problem

Array = NDArray[np.float64]

STARVED_COUNT = 1e-3
"""A component with less than this of a row, in all, is starved."""

MOST_RESTARTS = 3
"""How often a component is restarted; then it is left as it is if it starves, and an error if it collapses."""


class Repair(NamedTuple):
    """A component that could not go on."""

    iteration: int
    """When it was found; 0 at the start."""
    component: int
    party: Hashable
    """The party that found it."""
    reason: str
    """"collapsed" (no positive definite covariance) or "starved" (no rows)."""
    restarted: bool = True
    """Whether it was put on another row; otherwise it kept what it had, or began with the overall covariance."""


class Infirmary:
    """Finds components that cannot go on and restarts them, as agreed by the whole network.

    A root that finds a broken component lets it keep its last parameters and says so with its next sum. When that
    is through, everybody knows; the root of the first hub floods the number of a row that the mixture explains
    badly, and every party restarts the component there with its overall covariance.
    """

    def __init__(self, problem: Problem, most_restarts: float = MOST_RESTARTS):
        self.problem, self.most_restarts = problem, most_restarts
        self.repairs: list[Repair] = []
        self.traffic = make_traffic(problem.network.agents)
        self.waiting: list[Repair] = []

    def visit(
        self,
        iteration: int,
        mixture: Mixture,
        counts: Array,
        view_of_hub: NDArray[np.intp],
        collapsed: Mapping[int, Hashable],
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
        collapsed : mapping
            Component to the party that found it collapsed.
        worst_rows : array
            Badly explained rows, no two alike, the worst first.

        Returns
        -------
        mixture : Mixture
        sound : bool
            Whether nothing was, or is to be, restarted.
        """
        problem = self.problem
        # Not more than there are rows to put them on; the rest has to wait. A row that was tried before comes last.
        rows = np.roll(worst_rows, -len(self.repairs))[: len(self.waiting)]
        now, self.waiting = self.waiting[: len(rows)], self.waiting[len(rows) :]
        treated = [repair.component for repair in now]
        if treated:
            mixture = restart(problem, mixture, treated, rows)
            self.traffic += problem.summation.flood_traffic(problem.network, FLOAT_BYTES * len(treated))
            self.repairs += now
        broken = {component: party for component, party in collapsed.items() if component not in treated}
        found = self._examine(iteration, counts[view_of_hub], broken)
        waiting = {repair.component: repair for repair in found if repair.component not in treated}
        waiting |= {repair.component: repair for repair in self.waiting}
        self.waiting = [waiting[component] for component in sorted(waiting)]
        return mixture, not treated and not self.waiting

    def all_repairs(self) -> tuple[Repair, ...]:
        """What was restarted, and what was still waiting for it in the end."""
        return tuple(self.repairs + [repair._replace(restarted=False) for repair in self.waiting])

    @contextmanager
    def counting(self, sent: Traffic) -> Iterator[None]:
        """Let an error that ends the run know what was sent before it."""
        try:
            yield
        except CollapsedComponentError as error:
            error.traffic = sent + self.traffic
            raise

    def _examine(self, iteration: int, counts: Array, collapsed: Mapping[int, Hashable]) -> list[Repair]:
        """What is broken now, by component; `counts` are each hub's."""
        found = []
        for component in range(counts.shape[1]):
            restarts = sum(repair.component == component for repair in self.repairs)
            starved = counts[:, component] < STARVED_COUNT
            if component in collapsed:
                if restarts >= self.most_restarts:
                    raise CollapsedComponentError(component, collapsed[component], restarts)
                found.append(Repair(iteration, component, collapsed[component], "collapsed"))
            elif starved.any() and restarts < self.most_restarts:
                network = self.problem.network
                party = network.parties[network.hubs[int(starved.argmax())].root]
                found.append(Repair(iteration, component, party, "starved"))
        return found


def restart(problem: Problem, mixture: Mixture, components: Sequence[int], rows: NDArray[np.intp]) -> Mixture:
    """Put some components on some rows, with each party's overall covariance and an average weight."""
    n_components = mixture.weights.shape[1]
    weights = mixture.weights.copy()
    weights[:, components] = 0.0
    others = weights.sum(axis=1, keepdims=True)
    weights *= (n_components - len(components)) / np.where(others > 0, others, 1.0)
    weights[:, components] = 1.0
    blocks = []
    parts = problem.overall.rows(problem.X, rows, problem.network)
    for part, block, everything in zip(parts, mixture.blocks, problem.overall.blocks, strict=True):
        means, covariances = block.means.copy(), block.covariances.copy()
        means[components] = part
        if len(covariances) == n_components:  # tied covariances stay
            covariances[components] = everything.covariances[0]
        blocks.append(make_block(means, covariances))
    return Mixture(make_weights(weights), tuple(blocks))
