"""How inner loops are compiled: at their first call, to run without the interpreter's lock.

Compiled code is kept on disk beside the package, or in the user's cache. The compiler itself, which takes a while to
import, comes with the first call too: a program that only reads a model or prints its help does without.

The same input gives the same bits wherever it lies in memory. A loop that adds up in lanes and writes to memory is
compiled twice, with and without lanes, and which of the two runs depends on how far apart its arrays are: so such a
loop touches one work array only, which holds all that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REORDER = {"reassoc", "contract", "nsz"}
"""Sums may run in several lanes. Infinity and NaN keep their meaning."""
PRECISE = {"contract", "nsz"}


class Loop:
    """A function that will be compiled; from its first call on, its module has the compiled one in its place.

    Compiled code can only call compiled code. So the first call replaces every loop that the function's module knows.
    """

    def __init__(self, function: Callable[..., Any], fastmath: set[str]):
        self._function, self._fastmath = function, fastmath
        self._made: list[Any] = []

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        return (self._made[0] if self._made else self.prepare())(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # questions of copy, pickle and doctest
            raise AttributeError(name)
        return getattr(self.prepare(), name)

    def prepare(self) -> Any:
        """The compiler's own object for the function and, in its module, for all others."""
        names = self._function.__globals__
        for name, value in list(names.items()):
            if isinstance(value, Loop):
                names[name] = value._make() if value._function.__globals__ is names else value.prepare()
        return self._make()

    def _make(self) -> Any:
        if not self._made:
            import numba

            try:
                made = numba.njit(nogil=True, fastmath=self._fastmath, cache=True)(self._function)
            except RuntimeError:  # nowhere to write
                made = numba.njit(nogil=True, fastmath=self._fastmath)(self._function)
            self._made.append(made)
        return self._made[0]


def compiled(fastmath: set[str]) -> Callable[[Callable[..., Any]], Any]:
    """Compile at the first call; keep the result on disk, if possible."""
    return lambda function: Loop(function, fastmath)
