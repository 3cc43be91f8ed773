"""Registry of the built-in summations: one line each. Their classes are imported only when they are needed."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from vpem.core.network.summation import Summation


class BuiltIn(NamedTuple):
    """Where a summation is defined, and how users ask for it."""

    module: str
    kind: str
    """Name of its class."""
    way: str
    """Its name in `--sum` and in study files."""
    about: str
    """What it does, for `vpem --help`."""

    def load(self) -> Any:
        """Import the class."""
        return getattr(import_module(self.module), self.kind)


EXACT, EXACTLY = "exact", "a server, or a tree on other graphs"

BUILT_IN = {
    "star": BuiltIn("vpem.core.network.star", "Star", EXACT, EXACTLY),
    "tree": BuiltIn("vpem.core.network.tree", "Tree", EXACT, EXACTLY),
    "differences": BuiltIn(
        "vpem.core.network.differences", "Differences", "differences", "exact with rounded changes, far fewer bytes"
    ),
    "masked": BuiltIn("vpem.privacy.masks", "Masked", "masked", "only the sum can be read"),
    "consensus": BuiltIn("vpem.core.network.consensus", "Consensus", "consensus", "the paper's averages"),
    "running": BuiltIn(
        "vpem.core.network.running_sums", "RunningSums", "running", "averages over links that lose messages"
    ),
}
"""Built-in summations by their names in model files."""

WAYS = {one.way: one.about for one in BUILT_IN.values()}
"""Names in `--sum` and in study files, and what they mean."""


def load_all() -> dict[str, type[Any]]:
    """Return the classes by their names in model files."""
    return {name: one.load() for name, one in BUILT_IN.items()}


def named_summation(way: str, rounds: int | Literal["auto"] | None = None, *, is_star: bool) -> Summation:
    """Return the summation of a name in `WAYS`; rounds are those of consensus."""
    exact: Summation = BUILT_IN["star" if is_star else "tree"].load()()
    if way == EXACT:
        return exact
    (kind,) = (one.load() for one in BUILT_IN.values() if one.way == way)
    first = exact if "around" in {part.name for part in fields(kind)} else rounds
    found: Summation = kind() if first is None else kind(first)
    return found


def way_of(summation: Summation) -> str:
    """Return the name in `WAYS` of a built-in summation."""
    return next(one.way for one in BUILT_IN.values() if one.kind == type(summation).__name__)
