"""Convert values of a model to plain values of a page: rounded numbers, settings as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np

from vpem.core.blocks.density import Density


def short(value: Any) -> Any:
    """Round numbers to six significant digits, in lists as deep as the array; None if not finite."""
    if value is None:
        return None
    if isinstance(value, np.ndarray | list | tuple):
        return [short(part) for part in value]
    number = float(value)
    return float(f"{number:.6g}") if math.isfinite(number) else None


def say(value: Any) -> str:
    """Describe a setting in a few words, without the content of arrays, lists or tables, which may be rows."""
    if value is None or isinstance(value, bool | int | str | np.bool_ | np.integer):
        return str(value)[:200]
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if isinstance(value, nx.Graph):
        return f"graph with {len(value)} agents, {value.number_of_edges()} links"
    if hasattr(value, "shape"):
        return f"array of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"{len(value)} parties"
    if hasattr(value, "schedule") or isinstance(value, Density):  # its repr is short: a few numbers
        return repr(value)[:200]
    if isinstance(value, Sequence):
        return f"list of {len(value)}"
    return type(value).__name__
