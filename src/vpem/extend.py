"""What an author of another summation needs: the protocol, and the parts that it is made of.

A summation is a frozen dataclass that inherits `Summation`. To save models that were fitted with it, register it:
`vpem.model_format.SUMMATIONS["its name in files"] = ItsClass`.
"""

from vpem.core.network.parties import Network
from vpem.core.network.summation import (
    Memory,
    Payload,
    Place,
    Round,
    Shape,
    Summation,
    WrongMessageError,
    add_in_order,
    flood_rounds,
)

__all__ = [
    "Memory",
    "Network",
    "Payload",
    "Place",
    "Round",
    "Shape",
    "Summation",
    "WrongMessageError",
    "add_in_order",
    "flood_rounds",
]
