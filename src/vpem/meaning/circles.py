"""Means of angles and hours: half past eleven and half past twelve at night are one hour apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def mean_on_circle(shares: Array, means: Array, deviations: Array, period: float) -> tuple[Array, Array]:
    """Mean and deviation of a mixture on a circle; the arrays (n_components, ...) are summed over the first axis.

    The deviation is that of the arc, at most half a period.
    """
    turn = 2.0 * np.pi / period
    arrows = (shares * np.exp(-0.5 * np.square(turn * deviations) + 1j * turn * means)).sum(axis=0)
    lengths = np.clip(np.abs(arrows), 1e-300, 1.0)
    return np.angle(arrows) / turn % period, np.minimum(np.sqrt(-2.0 * np.log(lengths)) / turn, period / 2)


def arc(to: Array, since: Array | float, period: float) -> Array:
    """Return the signed length of the shorter arc from one angle to another."""
    found: Array = (to - since + period / 2) % period - period / 2
    return found
