"""Compilation of inner loops at their first call; compiled loops release the interpreter's lock.

Compiled code is cached on disk, in the package's directory or in the user's cache. The compiler itself, which is slow
to import, is also imported at the first call: a program that only reads a model or prints its help does not need it.

The same input gives the same bits, independent of its address in memory. A loop that adds in lanes and writes to
memory is compiled twice, with and without lanes, and the distance between its arrays decides which version runs. Such
a loop therefore uses a single work array, which contains all of its data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REORDER = {"reassoc", "contract", "nsz"}
"""Flags with which sums may be computed in several lanes. Infinity and NaN keep their meaning."""
PRECISE = {"contract", "nsz"}


class Loop:
    """A function that is compiled at its first call and then replaced by the compiled one in its module.

    Compiled code can call only compiled code, so the first call replaces all loops in the function's module.
    """

    def __init__(self, function: Callable[..., Any], fastmath: set[str]):
        self._function, self._fastmath = function, fastmath
        self._made: list[Any] = []

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        return (self._made[0] if self._made else self.prepare())(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up by copy, pickle and doctest
            raise AttributeError(name)
        return getattr(self.prepare(), name)

    def prepare(self) -> Any:
        """Compile all loops in the function's module, and return the compiled function."""
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
            except RuntimeError:  # no writable cache directory
                made = numba.njit(nogil=True, fastmath=self._fastmath)(self._function)
            self._made.append(made)
        return self._made[0]


def compiled(fastmath: set[str]) -> Callable[[Callable[..., Any]], Any]:
    """Compile at the first call, and cache the result on disk if possible."""
    return lambda function: Loop(function, fastmath)
