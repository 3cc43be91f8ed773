"""VP-EM on a simulated network: Algorithms 1 and 2 of the paper, which differ only in how the network adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.mixture import (
    STRUCTURES,
    Block,
    CollapsedComponentError,
    Statistics,
    log_contribution,
    m_step,
    make_weights,
    normalize,
)
from vpem.core.network import Network
from vpem.core.stopping import has_converged
from vpem.core.summation import Adder, Summation, exact_adder
from vpem.core.traffic import FLOAT_BYTES, Traffic
from vpem.simulation.sweep import Sweep, Table, sweep

Array = NDArray[np.float64]
Monitor = Callable[[int, float], None]

DECISION_BYTES = 1 + FLOAT_BYTES
"""What rides on each sum: whether all would stop, and the smallest log-likelihood that any root sees."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all parties must agree on before they start."""

    n_components: int
    covariance_type: str
    tol: float
    reg_covar: float
    max_iter: int

    @property
    def is_matrix(self) -> bool:
        """Whether covariances are whole matrices."""
        return STRUCTURES[self.covariance_type].is_matrix


@dataclass(frozen=True, eq=False)
class Mixture:
    """All roots' parameters."""

    weights: Array
    """(n_views, n_components): each root's own estimate, or one if all are the same."""
    blocks: tuple[Block, ...]
    """Each hub's block, at its root."""


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """Result of one run of EM."""

    mixture: Mixture
    lower_bounds: tuple[Array, ...]
    """Log-likelihood per row before each M-step, as each root sees it; (n_views,) each."""
    converged: bool
    agreed_lower_bound: float
    """The last lower bound of the root that sees the smallest; flooded, so that all can compare restarts alike."""
    traffic: Traffic

    @property
    def n_iter(self) -> int:
        """Number of iterations, an E-step and an M-step each."""
        return len(self.lower_bounds)


@dataclass(frozen=True)
class Certificate:
    """How good a fit is, by numbers that anybody with the data can check.

    Computed by the simulation, which sees every column; not part of the fit's traffic.
    """

    gain: float
    """Log-likelihood per row that one more exact EM step from the assembled model would add: near zero at a
    stationary point. Negative values come from `reg_covar`; infinity means that the step collapses a component."""
    disagreement: float
    """Largest difference between two roots' responsibilities, over all rows and components."""


def e_step(X: Table, network: Network, adder: Adder, mixture: Mixture, *, is_matrix: bool | None = None) -> Sweep:
    """One pass over the rows with fixed parameters; its scores are the roots' log-likelihoods."""
    log_weights = np.log(mixture.weights)[:, None, :]
    return sweep(
        X,
        network,
        adder,
        n_values=mixture.weights.shape[1],
        contribute=lambda number, block: log_contribution(block, mixture.blocks[number]),
        respond=lambda sums: normalize(sums + log_weights),
        is_matrix=is_matrix,
    )


def m_steps(network: Network, counts: Array, statistics: Sequence[Statistics], settings: Settings) -> Mixture:
    """Every root's M-step: its own estimate of the weights, and its block."""
    blocks = []
    for hub, of_block in zip(network.hubs, statistics, strict=True):
        try:
            blocks.append(m_step(of_block, settings.covariance_type, settings.reg_covar))
        except CollapsedComponentError as error:
            raise CollapsedComponentError(error.component, network.parties[hub.root]) from None
    return Mixture(make_weights(counts), tuple(blocks))


def em(
    X: Table,
    network: Network,
    summation: Summation,
    start: Mixture,
    settings: Settings,
    *,
    before: Array | None = None,
    monitor: Monitor | None = None,
) -> MixtureFit:
    """Iterate from a start until every root's log-likelihood per row changes by less than `tol`.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    network : Network
    summation : Summation
    start : Mixture
    settings : Settings
    before : array of shape (n_views,), optional
        Last lower bounds of the run that this one goes on with.
    monitor : callable, optional
        Called after each iteration with its number and the lower bound (mean over roots).
    """
    adder = summation.adder(network)
    history = [] if before is None else [before]
    n_before = len(history)
    mixture, converged = start, False
    while len(history) - n_before < settings.max_iter and not converged:
        result = e_step(X, network, adder, mixture, is_matrix=settings.is_matrix)
        mixture = m_steps(network, result.counts, result.statistics, settings)
        history.append(result.scores / len(X))
        converged = bool(has_converged(history, settings.tol).all())
        if monitor is not None:
            monitor(len(history) - n_before, float(history[-1].mean()))
    lower_bounds = tuple(history[n_before:])
    # An iteration's decision to stop rides on the next sum; the last one gives the final responsibilities.
    one_sum = summation.sum_traffic(network, FLOAT_BYTES * len(X) * settings.n_components, DECISION_BYTES)
    return MixtureFit(
        mixture,
        lower_bounds,
        converged,
        float(lower_bounds[-1].min()) if lower_bounds else -math.inf,
        one_sum * (len(lower_bounds) + 1),
    )


def certify(X: Table, network: Network, summation: Summation, mixture: Mixture, settings: Settings) -> Certificate:
    """Take one exact EM step from the assembled model, and compare the roots."""
    adder = summation.adder(network)
    here = final = e_step(X, network, adder, mixture, is_matrix=settings.is_matrix if adder.is_exact else None)
    exact = exact_adder(len(network.hubs))
    if not adder.is_exact:
        assembled = Mixture(mixture.weights.mean(axis=0, keepdims=True), mixture.blocks)
        here = e_step(X, network, exact, assembled, is_matrix=settings.is_matrix)
    try:
        stepped = m_steps(network, here.counts, here.statistics, settings)
    except CollapsedComponentError:
        return Certificate(math.inf, final.disagreement)
    there = e_step(X, network, exact, stepped)
    return Certificate(float(there.scores[0] - here.scores[0]) / len(X), final.disagreement)
