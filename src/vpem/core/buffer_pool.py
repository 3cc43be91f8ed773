"""Buffers for large arrays, reused when the arrays are garbage-collected.

Fresh memory from the system takes as long as the computation on it. A driver owns a pool and passes it to whoever
needs large arrays. Buffers are kept only while a fit or an agent is running; afterwards they are returned to the
system, including those of arrays that live longer.
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
"""Maximum number of free buffers that a pool keeps."""


class BufferPool:
    """Free buffers, which are kept while the pool has a user."""

    def __init__(self) -> None:
        self._free: deque[NDArray[np.uint8]] = deque(maxlen=MOST_FREE)
        self._users: dict[int, weakref.finalize[..., object]] = {}
        """Users by `id`, each with a finalizer for a user that is collected before `close` is called."""

    def array(self, *shape: int) -> NDArray[np.float64]:
        """Return an uninitialized array of this shape, as `numpy.empty` does."""
        return self.bytes(8 * math.prod(shape)).view(np.float64).reshape(shape)

    def bytes(self, n_bytes: int) -> NDArray[np.uint8]:
        """Return an uninitialized array of bytes, (n_bytes,)."""
        if n_bytes < STEP or not self._users:
            return np.empty(n_bytes, np.uint8)
        wanted, n_bytes = n_bytes, -(n_bytes // -STEP) * STEP
        try:
            buffer = self._free.pop()
            if len(buffer) != n_bytes:
                buffer = np.empty(n_bytes, np.uint8)
        except IndexError:
            buffer = np.empty(n_bytes, np.uint8)
        found = np.frombuffer(buffer.data, np.uint8, wanted)
        weakref.finalize(found, self._keep, buffer).atexit = False  # every view of it holds a reference to this array
        return found

    def open(self, user: object) -> None:
        """Keep free buffers until `close` is called for this user, or the user is garbage-collected."""
        if id(user) not in self._users:
            end = weakref.finalize(user, self._leave, id(user))
            end.atexit = False
            self._users[id(user)] = end

    def close(self, user: object) -> None:
        """Return free buffers to the system, unless there is another user."""
        if id(user) in self._users:
            self._users[id(user)].detach()
            self._leave(id(user))

    @contextmanager
    def in_use(self, user: object) -> Iterator[None]:
        """Keep free buffers within the context."""
        self.open(user)
        try:
            yield
        finally:
            self.close(user)

    def _leave(self, number: int) -> None:
        self._users.pop(number, None)
        if not self._users:
            self._free.clear()

    def _keep(self, buffer: NDArray[np.uint8]) -> None:
        """Keep the buffer of a garbage-collected array while there is a user."""
        if self._users:
            self._free.append(buffer)


NO_POOL = BufferPool()
"""Pool without users, which keeps nothing."""
