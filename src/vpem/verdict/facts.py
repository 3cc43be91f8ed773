"""Facts on which a verdict is based: plain numbers of a finished fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.overlap import RowSummary

Array = NDArray[np.float64]


class CodeFacts(NamedTuple):
    """A value of a column that looks like a code, such as -999 for a gap."""

    column: str
    value: float
    share: float
    """Share of the rows with a value in this column."""


class DependenceFacts(NamedTuple):
    """Dependence between columns of different blocks, given the component."""

    nats: float
    """Information per row that the model leaves out, computed as for Gaussian columns."""
    correlation: float
    """Largest correlation between two columns. Without their names, that of two columns with this information."""
    one: str = ""
    """Name of the first of these two columns; empty if a party has found it, from sums."""
    other: str = ""
    """Name of the second."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockFacts:
    """One block of columns."""

    party: str
    """Party at the root of the block."""
    columns: Sequence[str]
    """Shape (n_columns,): names or numbers."""
    variances: Array
    """Shape (n_components or 1, n_columns): variances within each component, in the units of the fit."""
    overall: Array
    """Shape (n_columns,): variances of all rows, in the same units."""
    scale: Array | None = None
    """Shape (n_columns,): scales by which the columns were divided; None if they were not scaled."""
    is_one_value: NDArray[np.bool_] | None = None
    """Shape of `variances`: True if the rows near a component's mean have one value; None: `variances` decide."""
    added: float = 0.0
    """`reg_covar`, which is part of all `variances`."""
    is_matrix: bool = False
    """True if covariances are estimated as well as variances."""
    is_shared: bool = False
    """True if all components share one covariance."""
    is_shrunk: bool = False
    """True if covariances are shrunk, so that they exist with any number of rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """A finished fit in numbers. Unknown facts are None or empty."""

    n_components: int
    tol: float
    max_iter: int
    lower_bounds: Sequence[float]
    """Lower bound of every iteration."""
    converged: bool
    is_stopped: bool = False
    """True if a callback ended the fit."""
    is_start_found: bool = True
    """True if the fit found its own start, instead of continuing another fit or starting from given parameters."""
    start_bounds: Sequence[float] = ()
    """Final lower bound of each of the `n_init` starts."""
    gain: float | None = None
    """Gain in log-likelihood per row of one more exact step."""
    split: float = 0.0
    """Share of rows whose label differs between roots."""
    mean_disagreement: float = 0.0
    """Mean over rows of the largest difference between two roots' responsibilities."""
    effective_rows: Sequence[float] = ()
    """Shape (n_components,): effective number of rows of each component."""
    error_factor: float | None = 0.0
    """Error of a sum, as a share of the spread of its terms."""
    rounds_needed: int | None = None
    """Number of rounds that makes the error factor negligible."""
    blocks: Sequence[BlockFacts] = ()
    n_held: int = 0
    """Number of rows that some party has, if rows of too few parties are left out; otherwise 0."""
    n_left_out: int = 0
    """Number of these rows that are left out."""
    least_holders: int = 0
    """Number of parties that must have a row for it to be used."""
    start_agreement: Sequence[float] = ()
    """Adjusted Rand index of each start's labels with those of the best one; in the order of `start_bounds`."""
    fewer_by_bic: int | None = None
    """A smaller number of components that BIC prefers."""
    fewer_by_icl: int | None = None
    """A smaller number of components that ICL prefers."""
    lumped: Sequence[int] = ()
    """Components whose rows form two separate groups."""
    row_names: Sequence[str] = ()
    """Columns that look like ids or numbers of the rows."""
    twins: Sequence[tuple[str, str]] = ()
    """Pairs of columns of one block, one of which is a multiple of the other plus a constant."""
    rows: RowSummary | None = None
    """Number of rows of each party, and of common rows."""
    codes: Sequence[CodeFacts] = ()
    dependence: DependenceFacts | None = None
    """Dependence between blocks; None: no more than by chance."""
    unrelated: Sequence[str] = ()
    """Parties whose columns are independent of all others'."""
    is_structured: bool = False
    """True if one of these parties and another party each have some structure in their columns."""
