"""The network of a simulated run: it computes each root's sum of the blocks' terms, and counts the traffic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.buffer_pool import BufferPool
from vpem.core.network.adders import (
    LinearAdder,
    MessageAdder,
    Terms,
    flood_traffic,
    linear_adder,
    sum_traffic,
    term_of,
)
from vpem.core.network.parties import Network
from vpem.core.network.steps import Run, one_by_one
from vpem.core.network.summation import Summation
from vpem.core.network.sums import SINGLE, Series, Shape
from vpem.core.network.traffic import Traffic, make_traffic

Array = NDArray[np.float64]


class Channel:
    """All sums and decisions of one fit, in the order in which agents would make them.

    Parameters
    ----------
    summation : Summation
    network : Network
    run : callable, optional
        Executor of the agents' independent tasks: by default they run sequentially.
    """

    def __init__(self, summation: Summation, network: Network, run: Run = one_by_one):
        self.summation, self.network, self.pool = summation, network, BufferPool()
        self.traffic = make_traffic(network.agents)
        self._costs: dict[tuple[Shape | None, int], Traffic] = {}
        self._whole: LinearAdder | MessageAdder
        matrix = summation.matrix(network)
        self._whole = MessageAdder(summation, network, run, self.pool) if matrix is None else linear_adder(matrix)
        self._adder = self._whole

    @property
    def linear(self) -> LinearAdder | None:
        """Sum as a matrix, which can be applied to chunks of rows; None if the summation needs whole terms."""
        return self._adder if isinstance(self._adder, LinearAdder) else None

    @property
    def path(self) -> str:
        """Description of how sums are computed."""
        return self._adder.path

    @property
    def is_exact(self) -> bool:
        """True if all roots get one result, and it is the exact sum."""
        return self._adder.is_exact

    @property
    def n_views(self) -> int:
        """Number of different results of a sum: 1 if all roots get the same."""
        return self._adder.n_views

    @property
    def view_of_hub(self) -> NDArray[np.int64]:
        """(n_hubs,): number of the result that each hub's root gets."""
        return np.asarray(self._adder.view_of_hub, dtype=np.int64)

    def begin(self, weights: Array) -> Channel:
        """Begin a run: drop the agents' memory of earlier sums.

        Roots with different weights, (n_roots or 1, n_components), cannot share a view.
        """
        differ = bool((weights != weights[0]).any())
        self._adder = self._whole.for_each_root() if differ else self._whole
        return self.forget()

    def forget(self) -> Channel:
        """Drop the agents' memory of earlier sums, so that the next sum of every series is its first."""
        if isinstance(self._adder, MessageAdder):
            self._adder.carries.clear()
        return self

    def retreat(self) -> None:
        """Replace the agents' memory of earlier sums after a rollback; see `Summation.retreat`."""
        if isinstance(self._adder, MessageAdder):
            self._adder.retreat()

    def blurs(self) -> list[float]:
        """Bounds on the rounding errors of the last sums of each series; see `Summation.blur`."""
        if isinstance(self._adder, LinearAdder):
            return []
        return [self.summation.blur(carry) for carries in self._adder.carries.values() for carry in carries]

    def add(self, terms: Terms, shape: Shape, series: Series = SINGLE, n_decisions: int = 0) -> Array:
        """Add the blocks' whole terms; return each root's result, (n_views, n_values)."""
        if isinstance(self._adder, LinearAdder):
            self.count(shape, n_decisions)
            return self._adder.add(np.array([term_of(terms, hub) for hub in range(len(self.network.hubs))]))
        sums, traffic = self._adder.add(terms, shape, series, n_decisions)
        self.traffic += traffic
        return sums

    def exchange(self, summation: Summation, terms: Sequence[NDArray[Any]], shape: Shape) -> Array:
        """Combine the blocks' terms once by another summation; return the result, which is common to all roots."""
        found, traffic = MessageAdder(summation, self.network, pool=self.pool).add(terms, shape)
        self.traffic += traffic
        common: Array = found[0]
        return common

    def count(self, shape: Shape, n_decisions: int = 0) -> None:
        """Count the traffic of a sum that was computed in chunks of rows."""
        self._spend(shape, n_decisions)

    def flood(self, n_numbers: int) -> None:
        """Count the traffic of a decision that does not travel with a sum."""
        self._spend(None, n_numbers)

    def _spend(self, shape: Shape | None, n_decisions: int) -> None:
        key = shape, n_decisions
        if key not in self._costs:
            parts = self.summation, self.network
            self._costs[key] = (
                flood_traffic(*parts, n_decisions) if shape is None else sum_traffic(*parts, shape, n_decisions)
            )
        self.traffic += self._costs[key]
