"""Repair of collapsed or starved components: found by one root, restarted by all parties.

A root that finds a broken component keeps the component's last parameters, and reports it with its next sum. After
that sum all agents know. The root of the first hub then floods the number of a row with a low likelihood, and every
party re-initializes the component at that row with its overall covariance.
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
"""Sum of responsibilities below which a component is starved."""

MOST_REPAIRS = 3
"""Maximum number of restarts of a component. After that, a starved one is left as it is; a collapse is an error."""


class Repair(NamedTuple):
    """Report of a component that collapsed or starved."""

    iteration: int
    """Iteration in which it was found; 0 at the start."""
    component: int
    party: Hashable
    """Name of the party that found it."""
    reason: str
    """"collapsed" (its rows do not determine its parameters) or "starved" (no rows)."""
    restarted: bool = True
    """True if it was restarted at another row; False if it kept its parameters, or started with those of all rows."""


class Case(NamedTuple):
    """A broken component, encoded in numbers that agents can send."""

    iteration: int
    component: int
    finding: int
    """Number of the hub that found it; plus the number of hubs if the component is starved, not collapsed."""

    def party(self, network: Network) -> Hashable:
        """Name of the party that found it."""
        return network.parties[network.hubs[self.finding % len(network.hubs)].root]

    def repair(self, network: Network, *, restarted: bool) -> Repair:
        """Return the case as a `Repair`, for reports."""
        reason = "collapsed" if self.finding < len(network.hubs) else "starved"
        return Repair(self.iteration, self.component, self.party(network), reason, restarted)


@dataclass(frozen=True)
class RepairQueue:
    """Components that wait for a repair, and those that were restarted; the same for all agents."""

    waiting: tuple[Case, ...] = ()
    restarted: tuple[Case, ...] = ()
    most_repairs: float = MOST_REPAIRS

    def n_repairs(self, component: int) -> int:
        """Number of restarts of a component."""
        return sum(case.component == component for case in self.restarted)

    def find_broken(
        self, counts: Array, collapsed: Collection[int], repaired: Collection[int], hub: int, n_hubs: int
    ) -> Array:
        """Find the components that are broken after one root's M-step; agents use the smallest finding of all roots.

        Parameters
        ----------
        counts : array of shape (n_components,)
            Sums of the root's responsibilities.
        collapsed : collection of int
            Components that kept their parameters in its M-step.
        repaired : collection of int
            Components that were restarted in this iteration.
        hub, n_hubs : int
            Number of the root's hub, and number of hubs.

        Returns
        -------
        array of shape (n_components,)
            `Case.finding`; infinity for sound components.
        """
        findings = np.full(len(counts), math.inf)
        for component in set(range(len(counts))) - set(repaired):
            if component in collapsed:
                findings[component] = hub
            elif counts[component] < STARVED_COUNT and self.n_repairs(component) < self.most_repairs:
                findings[component] = n_hubs + hub
        return findings

    def enqueue(self, iteration: int, findings: Array, network: Network) -> RepairQueue:
        """Add broken components to the queue.

        Parameters
        ----------
        iteration : int
            Iteration after which they were found.
        findings : array of shape (n_components,)
            Smallest findings of all roots.
        network : Network

        Raises
        ------
        CollapsedComponentError
            If a component has collapsed after its last permitted repair.
        """
        waiting = {case.component: case for case in make_cases(iteration, findings)}
        for component, case in waiting.items():
            repairs = self.n_repairs(component)
            if case.finding < len(network.hubs) and repairs >= self.most_repairs:
                raise CollapsedComponentError(component, case.party(network), repairs)
        waiting |= {case.component: case for case in self.waiting}
        return replace(self, waiting=tuple(waiting[component] for component in sorted(waiting)))

    def choose(self, worst_rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Choose rows for the waiting components, possibly fewer than wait; rows tried before are chosen last."""
        return np.roll(worst_rows, -len(self.restarted))[: len(self.waiting)]

    def take(self, n_cases: int) -> tuple[RepairQueue, list[int]]:
        """Move the first `n_cases` waiting cases to the restarted ones; return the queue and their components."""
        now = self.waiting[:n_cases]
        queue = replace(self, waiting=self.waiting[n_cases:], restarted=self.restarted + now)
        return queue, [case.component for case in now]

    def repairs(self, network: Network) -> tuple[Repair, ...]:
        """Reports of restarted components, then of those still waiting at the end."""
        done = tuple(case.repair(network, restarted=True) for case in self.restarted)
        return done + tuple(case.repair(network, restarted=False) for case in self.waiting)


def make_cases(iteration: int, findings: Array) -> list[Case]:
    """Return one case for each finite finding, by component."""
    return [Case(iteration, int(k), int(findings[k])) for k in np.flatnonzero(np.isfinite(findings))]


def repair_weights(weights: Array, components: Sequence[int]) -> Array:
    """Return weights (..., n_components) in which the given components have the average weight."""
    n_components = weights.shape[-1]
    weights = weights.copy()
    weights[..., components] = 0.0
    others = weights.sum(axis=-1, keepdims=True)
    weights *= (n_components - len(components)) / np.where(others > 0, others, 1.0)
    weights[..., components] = 1.0
    return make_weights(weights)
