"""Room for large arrays, used again when they are gone.

Memory that is fresh from the system takes as much time as what is done with it. Rooms are kept only while a fit, or
an agent, is at work: afterwards the system has them back, also those of arrays that live longer.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

STEP = 2**20
"""Bytes of which rooms have a multiple; smaller arrays are made as usual."""
MOST_FREE = 3
"""Rooms that are kept for arrays to come."""

_free: deque[NDArray[np.uint8]] = deque(maxlen=MOST_FREE)
_users: dict[int, weakref.finalize[..., object]] = {}
"""Those at work, by `id`, and what is done if one is gone before it has said that it is done."""


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
    weakref.finalize(found, _keep, room).atexit = False  # all views of the array have a reference to this one
    return found


def keep_rooms(user: object) -> None:
    """Keep rooms from now on, until `forget_rooms` is called for this user, or the user is gone."""
    if id(user) not in _users:
        end = weakref.finalize(user, _leave, id(user))
        end.atexit = False
        _users[id(user)] = end


def forget_rooms(user: object) -> None:
    """Give free rooms back to the system, if no other user is at work."""
    if id(user) in _users:
        _users[id(user)].detach()
        _leave(id(user))


@contextmanager
def rooms_wanted() -> Iterator[None]:
    """Keep rooms while something is at work."""
    user = _User()
    keep_rooms(user)
    try:
        yield
    finally:
        forget_rooms(user)


class _User:
    """Something at work."""


def _leave(number: int) -> None:
    _users.pop(number, None)
    if not _users:
        _free.clear()


def _keep(room: NDArray[np.uint8]) -> None:
    """An array is gone."""
    if _users:
        _free.append(room)
