"""Accelerated EM of a simulated run: see `vpem.core.decisions.acceleration`."""

from __future__ import annotations

from dataclasses import replace

from vpem.core.decisions.acceleration import SIZES, Cycle, Decision, make_point, take_point
from vpem.simulation.channel import Channel
from vpem.simulation.model import Mixture


class Jumper:
    """Lets all parties jump after every other iteration, as they agree; never, if `accelerate` is None."""

    def __init__(self, channel: Channel, accelerate: str | None):
        self.channel, self.cycle, self.is_on = channel, Cycle(), accelerate is not None

    def visit(self, before: Mixture, after: Mixture, decision: Decision, may_go_on: bool, may_jump: bool) -> Mixture:
        """The mixture to go on from.

        Parameters
        ----------
        before, after : Mixture
            Around an iteration.
        decision : array of shape (3,)
        may_go_on : bool
            Whether the cycle goes on: no component was restarted.
        may_jump : bool
            Whether another iteration follows.
        """
        if not self.is_on:
            return after
        if not may_go_on:
            self.cycle = self.cycle.afresh()
            return after
        points = [make_point(own.weights[0], own.blocks, own.density) for own in (before, after)]
        self.cycle = self.cycle.passed(*points)
        if not self.cycle.is_due or not may_jump:
            return after
        sizes = self.cycle.sizes()
        terms = sizes[1:].copy()
        terms[0] += sizes[0]
        total = self.channel.add(terms, SIZES, n_decisions=len(decision))
        point, self.cycle = self.cycle.jump(total[0], decision)
        if point is None:
            return after
        weights, blocks = take_point(point, after.blocks, after.density)
        return replace(after, weights=weights[None], blocks=blocks)
