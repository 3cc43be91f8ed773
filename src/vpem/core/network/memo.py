"""Arrays that several agents of one process have in common, so that they are computed and stored once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

Arrays = tuple[NDArray[Any], ...]
References = list[weakref.ref[NDArray[Any]]]


class Memo:
    """Results for the agents of one process. Only weak references are held."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[References, References]] = {}
        self._told: dict[tuple[str, int], tuple[weakref.ref[NDArray[Any]], Any]] = {}

    def once(self, name: str, given: list[NDArray[Any]], make: Callable[[], Arrays]) -> Arrays:
        """Return `make()`, or the last result of this name while it exists and `given` are the same objects."""
        before, results = self._last.get(name, ([], []))
        if len(before) == len(given) and all(ref() is array for ref, array in zip(before, given, strict=True)):
            found = [ref() for ref in results]
            if found and all(one is not None for one in found):
                return tuple(one for one in found if one is not None)
        made = make()
        self._last[name] = [weakref.ref(array) for array in given], [weakref.ref(array) for array in made]
        return made

    def tell(self, name: str, about: NDArray[Any], known: Any) -> None:
        """Keep a fact about an array for other agents, while the array exists."""
        key, facts = (name, id(about)), self._told
        facts[key] = weakref.ref(about, lambda _: facts.pop(key, None)), known

    def told(self, name: str, about: NDArray[Any]) -> Any:
        """Return the fact about this array object; None without one."""
        ref, known = self._told.get((name, id(about)), (None, None))
        return known if ref is not None and ref() is about else None
