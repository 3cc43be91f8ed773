"""Going back in a simulated run, when sums have misled all parties: see `vpem.core.decisions.retreating`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vpem.core.decisions.retreating import ITERATIONS_BACK, must_retreat
from vpem.simulation.channel import Channel
from vpem.simulation.model import Mixture

Array = NDArray[np.float64]


class Guard:
    """Keeps the last parameters, to go back to if the likelihood falls."""

    def __init__(self, channel: Channel):
        self.channel, self.is_on = channel, channel.summation.is_guarded
        self.earlier: list[Mixture] = []
        self.n_retreats = 0

    def keep(self, mixture: Mixture) -> Mixture:
        """Parameters before an iteration."""
        if self.is_on:
            self.earlier = [*self.earlier, mixture][-ITERATIONS_BACK:]
        return mixture

    def must_retreat(self, history: Sequence[Array], has_way_back: bool, goes_on: bool) -> bool:
        """Whether the last iteration has ended lower than the one before.

        Parameters
        ----------
        history : sequence of arrays of shape (n_views,)
            Bounds of all iterations.
        has_way_back : bool
            Whether no component was restarted.
        goes_on : bool
            Whether another iteration follows.
        """
        if not has_way_back:
            self.earlier = []
        bounds = [float(bounds.min()) for bounds in history[-2:]]
        return self.is_on and goes_on and must_retreat(bounds, len(self.earlier), self.n_retreats)

    def retreat(self) -> Mixture:
        """Go back; returns where to."""
        mixture = self.earlier[0]
        self.channel.retreat()
        self.earlier, self.n_retreats = [], self.n_retreats + 1
        return mixture
