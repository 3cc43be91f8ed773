"""Cache of arrays that several agents of one process have in common, so that they are computed and stored once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

Arrays = tuple[NDArray[Any], ...]
_last: dict[str, tuple[list[weakref.ref[NDArray[Any]]], list[weakref.ref[NDArray[Any]]]]] = {}


def once(name: str, given: list[NDArray[Any]], make: Callable[[], Arrays]) -> Arrays:
    """Return `make()`, cached by name while its results exist and `given` are the same objects as at the last call.

    Only the last result of each name is cached, by weak references.
    """
    before, results = _last.get(name, ([], []))
    if len(before) == len(given) and all(ref() is array for ref, array in zip(before, given, strict=True)):
        found = [ref() for ref in results]
        if found and all(one is not None for one in found):
            return tuple(one for one in found if one is not None)
    made = make()
    _last[name] = [weakref.ref(array) for array in given], [weakref.ref(array) for array in made]
    return made


_told: dict[tuple[str, int], tuple[weakref.ref[NDArray[Any]], Any]] = {}


def tell(name: str, about: NDArray[Any], known: Any) -> None:
    """Cache a fact about an array for other agents in this process, while the array exists."""
    key = name, id(about)
    _told[key] = weakref.ref(about, lambda _: _told.pop(key, None)), known


def told(name: str, about: NDArray[Any]) -> Any:
    """Return the cached fact about this array object; None without one."""
    ref, known = _told.get((name, id(about)), (None, None))
    return known if ref is not None and ref() is about else None
