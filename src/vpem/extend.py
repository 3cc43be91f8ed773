"""What an author of another density needs: the protocol, and the records that it exchanges.

A density is a frozen dataclass that inherits `Density`; `VerticalMixture(density=...)` fits it. To save models that
were fitted with it, register it: `vpem.extend.DENSITIES["its name in files"] = ItsClass`.
"""

from vpem.core.blocks.arrays import Array, Arrays, Block, Columns, Statistics
from vpem.core.blocks.density import CollapsedComponentError, Density
from vpem.core.blocks.weights import LOWEST
from vpem.model_format import DENSITIES

__all__ = [
    "Array",
    "Arrays",
    "Block",
    "CollapsedComponentError",
    "Columns",
    "DENSITIES",
    "Density",
    "LOWEST",
    "Statistics",
]
