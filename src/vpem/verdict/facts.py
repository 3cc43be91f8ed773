"""What a verdict is about: plain numbers of a finished fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockFacts:
    """One block of columns."""

    party: str
    """Of its root."""
    columns: Sequence[str]
    """Names or numbers; (n_columns,)."""
    variances: Array
    """Within each component, in the units of the fit; (n_components or 1, n_columns)."""
    overall: Array
    """Of all rows, in the same units; (n_columns,)."""
    added: float = 0.0
    """`reg_covar`, which is part of all `variances`."""
    is_matrix: bool = False
    """Whether covariances are estimated beside the variances."""
    is_shared: bool = False
    """Whether all components have one covariance."""
    is_shrunk: bool = False
    """Whether covariances are shrunk, so that they exist with any number of rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """A finished fit in numbers; what is not known is None or empty."""

    n_components: int
    tol: float
    max_iter: int
    lower_bounds: Sequence[float]
    """Of every iteration."""
    converged: bool
    is_stopped: bool = False
    """Whether a callback ended the fit."""
    is_start_found: bool = True
    """Whether the fit found its own start, instead of going on with another fit or with given parameters."""
    start_bounds: Sequence[float] = ()
    """What each of `n_init` starts came to."""
    gain: float | None = None
    """Per row, of one more exact step."""
    split: float = 0.0
    """Share of rows whose label differs between roots."""
    mean_disagreement: float = 0.0
    """Mean over rows of the largest difference between two roots' responsibilities."""
    effective_rows: Sequence[float] = ()
    """Of each component; (n_components,)."""
    error_factor: float | None = 0.0
    """How far a sum is from the exact one, as a share of the spread of its terms."""
    rounds_needed: int | None = None
    """For an error factor that is negligible."""
    blocks: Sequence[BlockFacts] = ()
    start_agreement: Sequence[float] = ()
    """Adjusted Rand index of each start's labels with those of the best one; in the order of `start_bounds`."""
    fewer_by_bic: int | None = None
    """A smaller number of components that BIC prefers."""
    fewer_by_icl: int | None = None
    """The same by ICL."""
    lumped: Sequence[int] = ()
    """Components whose rows fall into two heaps."""
    row_names: Sequence[str] = ()
    """Columns that look like ids, or numbers, of the rows."""
    twins: Sequence[tuple[str, str]] = ()
    """Columns of one block of which one is a multiple of the other, plus a constant."""
