"""Interfaces for user-defined densities and summations: the protocols, and the records that they exchange.

A density is a frozen dataclass that inherits `Density`; `VerticalMixture(density=...)` fits it. A summation is a
frozen dataclass that inherits `Summation`. To save models that were fitted with them, register them:
`vpem.extend.DENSITIES["its name in files"] = ItsClass`, or `SUMMATIONS`.
"""

from vpem.core.blocks.arrays import Array, Arrays, Block, Columns, Statistics
from vpem.core.blocks.density import CollapsedComponentError, Density
from vpem.core.blocks.weights import LOWEST
from vpem.core.network.parties import Network
from vpem.core.network.rounds import flood_rounds
from vpem.core.network.summation import Summation, add_in_order
from vpem.core.network.sums import (
    Lengths,
    Memory,
    Payload,
    Place,
    Round,
    Series,
    Shape,
    SumKind,
    Term,
    WrongMessageError,
)
from vpem.model_format import DENSITIES, SUMMATIONS

__all__ = [
    "Array",
    "Arrays",
    "Block",
    "CollapsedComponentError",
    "Columns",
    "DENSITIES",
    "Density",
    "LOWEST",
    "Lengths",
    "Memory",
    "Network",
    "Payload",
    "Place",
    "Round",
    "SUMMATIONS",
    "Series",
    "Shape",
    "Statistics",
    "SumKind",
    "Summation",
    "Term",
    "WrongMessageError",
    "add_in_order",
    "flood_rounds",
]
