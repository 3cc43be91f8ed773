"""Settings that all parties must share before they start."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, is_dataclass
from numbers import Real
from typing import Any

from vpem.core.blocks.density import OWN, Density
from vpem.core.network.packets import MOST_LABELS
from vpem.core.network.summation import Summation

ACCELERATIONS = ("squarem",)
STARTS = ("kmeans", "k-means++", "labels", "random", "random_from_data")


def n_decisions(n_components: int) -> int:
    """Number of decision values in each sum of EM: stop, smallest bound, and the finder of each broken component."""
    return 2 + n_components


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a fit from a given start."""

    n_components: int
    density: Density
    """Distribution of the columns within a component."""
    tol: float
    max_iter: int
    accelerate: str | None = None
    """One of `ACCELERATIONS`; see `vpem.core.decisions.acceleration`."""

    @property
    def n_decisions(self) -> int:
        """Number of decision values sent with each sum."""
        return n_decisions(self.n_components)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """All shared settings: agents with the same agreement and the same links take the same decisions."""

    settings: Settings
    summation: Summation
    seed: int
    """Shared seed, which breaks ties between hubs and draws starts."""
    hops: int = 0
    init_params: str = "kmeans"
    n_init: int = 1
    batch_size: int | None = None
    audience: tuple[int, ...] | None = None
    """Agents to which a server sends predictions; None: all. In consensus, every agent sees the sum."""

    def __post_init__(self) -> None:
        if self.init_params not in (*STARTS, "given"):
            raise ValueError(f"expected init_params to be one of {(*STARTS, 'given')}, got {self.init_params!r}")
        if self.n_init < 1 or self.hops < 0 or (self.batch_size is not None and self.batch_size < 1):
            raise ValueError(
                "expected n_init and batch_size of at least 1 and hops of at least 0, got "
                f"{self.n_init}, {self.batch_size} and {self.hops}"
            )
        if self.settings.accelerate is not None and (self.batch_size is not None or not self.summation.is_common):
            raise ValueError(
                "expected accelerate with sums that are the same for all parties, and without batch_size, got "
                f"{self.summation!r} and batch_size={self.batch_size}; try Tree() or Differences(Tree()), or "
                "accelerate=None"
            )
        if self.init_params == "labels" and self.settings.n_components > MOST_LABELS:
            raise ValueError(
                f"expected at most {MOST_LABELS} components with init_params='labels', got "
                f"{self.settings.n_components}; try 'kmeans'"
            )
        if self.init_params == "labels" and self.summation.is_masked:
            raise ValueError(
                "expected another start than 'labels' with masks, as it shows each party's labels to another; try "
                "'kmeans' or 'random'"
            )
        if self.audience is not None and not self.summation.has_server:
            raise ValueError("expected no audience without a server: in consensus every agent sees the sum")

    @property
    def digest(self) -> str:
        """Digest of the agreement, 16 characters."""
        return hashlib.sha256(repr(plain(self)).encode()).hexdigest()[:16]


def plain(value: Any) -> Any:
    """Convert a value so that equal values have equal representations; drop fields private to a party (`OWN`)."""
    if is_dataclass(value):
        shared = (part.name for part in fields(value) if not part.metadata.get(OWN))
        return type(value).__name__, *(plain(getattr(value, name)) for name in shared)
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return float(value) if isinstance(value, Real) else value
