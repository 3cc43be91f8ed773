"""Buffers for large arrays, reused when the arrays are garbage-collected.

Fresh memory from the system takes as long as the computation on it. Buffers are kept only while a fit or an
agent is running; afterwards they are returned to the system, including those of arrays that live longer.
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
"""Unit of the sizes of buffers, in bytes; smaller arrays are allocated as usual."""
MOST_FREE = 3
"""Maximum number of free buffers that are kept."""

_free: deque[NDArray[np.uint8]] = deque(maxlen=MOST_FREE)
_users: dict[int, weakref.finalize[..., object]] = {}
"""Active users by `id`, each with a finalizer for a user that is collected before `forget_rooms` is called."""


def room_for(*shape: int) -> NDArray[np.float64]:
    """Return an uninitialized array of this shape, as `numpy.empty` does."""
    n_values = math.prod(shape)
    return bytes_for(8 * n_values).view(np.float64).reshape(shape)


def bytes_for(n_bytes: int) -> NDArray[np.uint8]:
    """Return an uninitialized array of bytes, (n_bytes,)."""
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
    weakref.finalize(found, _keep, room).atexit = False  # every view of the array holds a reference to this one
    return found


def keep_rooms(user: object) -> None:
    """Keep free buffers until `forget_rooms` is called for this user, or the user is garbage-collected."""
    if id(user) not in _users:
        end = weakref.finalize(user, _leave, id(user))
        end.atexit = False
        _users[id(user)] = end


def forget_rooms(user: object) -> None:
    """Return free buffers to the system, unless another user is active."""
    if id(user) in _users:
        _users[id(user)].detach()
        _leave(id(user))


@contextmanager
def rooms_wanted() -> Iterator[None]:
    """Keep free buffers within the context."""
    user = _User()
    keep_rooms(user)
    try:
        yield
    finally:
        forget_rooms(user)


class _User:
    """User of buffers for the duration of a context."""


def _leave(number: int) -> None:
    _users.pop(number, None)
    if not _users:
        _free.clear()


def _keep(room: NDArray[np.uint8]) -> None:
    """Keep the buffer of a garbage-collected array while a user is active."""
    if _users:
        _free.append(room)
