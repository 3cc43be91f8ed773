"""What a simulated run works on: the problem, the settings, and all roots' parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vpem.core.covariances import CovarianceRule
from vpem.core.mixture import Block
from vpem.core.network import Network
from vpem.core.overall import Overall, describe
from vpem.core.rows import Table
from vpem.core.summation import Summation

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, the parties that hold their columns, how these add, and what each knows by itself."""

    X: Table
    """(n_samples, n_features)"""
    network: Network
    summation: Summation
    overall: Overall


def make_problem(X: Table, network: Network, summation: Summation, rule: CovarianceRule | None = None) -> Problem:
    """Look at the columns once; with a rule for covariances, for EM."""
    return Problem(X, network, summation, describe(X, network, rule))


@dataclass(frozen=True, eq=False)
class Mixture:
    """All roots' parameters."""

    weights: Array
    """(n_views, n_components): each root's own estimate, or one if all are the same."""
    blocks: tuple[Block, ...]
    """Each hub's block, at its root."""
