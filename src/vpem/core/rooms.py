"""Room for large arrays, used again when they are gone.

Memory that is fresh from the system takes as much time as what is done with it.
"""

from __future__ import annotations

import math
import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

STEP = 2**20
"""Bytes of which rooms have a multiple; smaller arrays are made as usual."""
MOST_FREE = 3
"""Rooms that are kept for arrays to come."""

_free: deque[NDArray[np.uint8]] = deque(maxlen=MOST_FREE)


def room_for(*shape: int) -> NDArray[np.float64]:
    """An array of this shape whose values are not set yet, as `numpy.empty` makes it."""
    n_values = math.prod(shape)
    return bytes_for(8 * n_values).view(np.float64).reshape(shape)


def bytes_for(n_bytes: int) -> NDArray[np.uint8]:
    """The same for bytes, (n_bytes,)."""
    if n_bytes < STEP:
        return np.empty(n_bytes, np.uint8)
    wanted, n_bytes = n_bytes, -(n_bytes // -STEP) * STEP
    try:
        room = _free.pop()
        if len(room) != n_bytes:
            room = np.empty(n_bytes, np.uint8)
    except IndexError:
        room = np.empty(n_bytes, np.uint8)
    found = np.frombuffer(room.data, np.uint8, wanted)
    weakref.finalize(found, _free.append, room).atexit = False  # all views of the array have a reference to this one
    return found


def forget_rooms() -> None:
    """Give free rooms back to the system."""
    _free.clear()
