"""Components that cannot go on: found by one root, restarted by all.

A root that finds a broken component lets it keep its last parameters, and says so with its next sum. When that is
through, everybody knows; the root of the first hub floods the number of a row that the mixture explains badly, and
every party restarts the component there with its overall covariance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.weights import make_weights
from vpem.core.network.parties import Network

Array = NDArray[np.float64]

STARVED_COUNT = 1e-3
"""A component with less than this of a row, in all, is starved."""

MOST_REPAIRS = 3
"""How often a component is restarted; then it is left as it is if it starves, and an error if it collapses."""


class Repair(NamedTuple):
    """A component that could not go on."""

    iteration: int
    """When it was found; 0 at the start."""
    component: int
    party: Hashable
    """The party that found it."""
    reason: str
    """"collapsed" (its rows do not determine its parameters) or "starved" (no rows)."""
    restarted: bool = True
    """Whether it was put on another row; otherwise it kept what it had, or began as all rows are."""


class Case(NamedTuple):
    """A broken component, in numbers that agents can send."""

    iteration: int
    component: int
    finding: int
    """Number of the hub that found it collapsed; if it is starved, plus the number of hubs."""

    def party(self, network: Network) -> Hashable:
        """Name of the party that found it."""
        return network.parties[network.hubs[self.finding % len(network.hubs)].root]

    def repair(self, network: Network, *, restarted: bool) -> Repair:
        """The same for people."""
        reason = "collapsed" if self.finding < len(network.hubs) else "starved"
        return Repair(self.iteration, self.component, self.party(network), reason, restarted)


@dataclass(frozen=True)
class RepairQueue:
    """Which components wait for a repair, and which have had one: the same for all agents."""

    waiting: tuple[Case, ...] = ()
    restarted: tuple[Case, ...] = ()
    most_repairs: float = MOST_REPAIRS

    def n_repairs(self, component: int) -> int:
        """How often a component has been restarted."""
        return sum(case.component == component for case in self.restarted)

    def find_broken(
        self, counts: Array, collapsed: Collection[int], repaired: Collection[int], hub: int, n_hubs: int
    ) -> Array:
        """What one root finds broken after its M-step; the smallest findings of all roots count.

        Parameters
        ----------
        counts : array of shape (n_components,)
            Sums of its responsibilities.
        collapsed : collection of int
            Components that kept their parameters in its M-step.
        repaired : collection of int
            Components that were restarted just now.
        hub, n_hubs : int
            Its number, and how many there are.

        Returns
        -------
        array of shape (n_components,)
            `Case.finding`; infinity if nothing is wrong.
        """
        findings = np.full(len(counts), math.inf)
        for component in set(range(len(counts))) - set(repaired):
            if component in collapsed:
                findings[component] = hub
            elif counts[component] < STARVED_COUNT and self.n_repairs(component) < self.most_repairs:
                findings[component] = n_hubs + hub
        return findings

    def enqueue(self, iteration: int, findings: Array, network: Network) -> RepairQueue:
        """Let broken components wait for their repair.

        Parameters
        ----------
        iteration : int
            After which they were found.
        findings : array of shape (n_components,)
            The smallest of all roots.
        network : Network

        Raises
        ------
        CollapsedComponentError
            If a component has collapsed again after its last repair.
        """
        waiting = {case.component: case for case in make_cases(iteration, findings)}
        for component, case in waiting.items():
            repairs = self.n_repairs(component)
            if case.finding < len(network.hubs) and repairs >= self.most_repairs:
                raise CollapsedComponentError(component, case.party(network), repairs)
        waiting |= {case.component: case for case in self.waiting}
        return replace(self, waiting=tuple(waiting[component] for component in sorted(waiting)))

    def choose(self, worst_rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Rows to put waiting components on, perhaps fewer than wait; a row that was tried before comes last."""
        return np.roll(worst_rows, -len(self.restarted))[: len(self.waiting)]

    def take(self, n_cases: int) -> tuple[RepairQueue, list[int]]:
        """Restart the first that wait; returns their components too."""
        now = self.waiting[:n_cases]
        queue = replace(self, waiting=self.waiting[n_cases:], restarted=self.restarted + now)
        return queue, [case.component for case in now]

    def repairs(self, network: Network) -> tuple[Repair, ...]:
        """What was restarted, and what was still waiting for it in the end."""
        done = tuple(case.repair(network, restarted=True) for case in self.restarted)
        return done + tuple(case.repair(network, restarted=False) for case in self.waiting)


def make_cases(iteration: int, findings: Array) -> list[Case]:
    """Cases of what was found, by component."""
    return [Case(iteration, int(k), int(findings[k])) for k in np.flatnonzero(np.isfinite(findings))]


def repair_weights(weights: Array, components: Sequence[int]) -> Array:
    """Weights (..., n_components) in which some components have an average one."""
    n_components = weights.shape[-1]
    weights = weights.copy()
    weights[..., components] = 0.0
    others = weights.sum(axis=-1, keepdims=True)
    weights *= (n_components - len(components)) / np.where(others > 0, others, 1.0)
    weights[..., components] = 1.0
    return make_weights(weights)
