"""Columns divided by their own deviations for the fit, and everything back in their own units after it.

Every party scales its own columns and needs no message for it. A density of scaled columns is that of the columns
themselves times the scales, so that log-likelihoods differ by a sum of logarithms, which each party knows of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.density import Density
from vpem.core.blocks.factors import rescaled
from vpem.core.blocks.overall import column_moments
from vpem.core.network.parties import Network
from vpem.core.rows import Rows, Table, row_chunks
from vpem.simulation.em import Certificate, MixtureFit
from vpem.simulation.model import Mixture

Array = NDArray[np.float64]

SAME = 1e-12
"""Deviation of a column, beside its largest value, that the rounding of many sums could leave."""


class ScaledTable:
    """Rows of a table, whose columns are divided by their scales as they are read.

    Parameters
    ----------
    table : Table of shape (n_samples, n_features)
    scale : array of shape (n_features,)
    """

    def __init__(self, table: Table, scale: Array):
        self.table, self.scale = table, scale
        self.is_in_memory = isinstance(table, np.ndarray)

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns."""
        return self.table.shape

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: Any) -> Rows:
        """Rows by slice or by number; (n_rows, n_features)."""
        found: Rows = self.table[rows] / self.scale
        return found


@dataclass(frozen=True, eq=False)
class Units:
    """In which units a fit works; without a scale, in those of the table."""

    scale: Array | None = None
    """(n_features,): what each column is divided by."""
    shift: float = 0.0
    """Log-likelihood per row of the columns themselves, minus that of the scaled ones."""

    def scaled(self, table: Table) -> Table:
        """What is fitted."""
        return table if self.scale is None else ScaledTable(table, self.scale)

    def arrays(self, given: list[dict[str, Array]], network: Network, density: Density) -> list[dict[str, Array]]:
        """Means and covariances that a user gave of each block, as the fit needs them."""
        if self.scale is None:
            return given
        found = []
        for own, hub, columns in zip(given, network.named_hubs(), network.block_columns, strict=True):
            factors = 1.0 / self.scale[columns][density.scaled_columns(len(columns), hub.members)]
            scaled: dict[str, Array] = dict(own)
            for name in {"means", "covariances"} & set(own):
                scaled[name] = rescaled(name, own[name], factors)
            found.append(scaled)
        return found

    def mixture(self, mixture: Mixture, network: Network, *, back: bool) -> Mixture:
        """Parameters of scaled columns; with `back`, in the columns' own units again."""
        if self.scale is None:
            return mixture
        factors = self.scale if back else 1.0 / self.scale
        pairs = zip(mixture.blocks, network.block_columns, strict=True)
        rescale = mixture.density.rescale
        return replace(mixture, blocks=tuple(rescale(block, factors[columns]) for block, columns in pairs))

    def fit(self, result: MixtureFit, network: Network, *, back: bool) -> MixtureFit:
        """A fit of scaled columns; with `back`, in the columns' own units again."""
        shift = self.shift if back else -self.shift
        return replace(
            result,
            mixture=self.mixture(result.mixture, network, back=back),
            lower_bounds=tuple(bounds + shift for bounds in result.lower_bounds) if shift else result.lower_bounds,
        )

    def certificate(self, found: Certificate) -> Certificate:
        """With the likelihood of the columns themselves."""
        likelihood = found.log_likelihood
        return found if likelihood is None else replace(found, log_likelihood=likelihood + self.shift)


def find_units(table: Table, scale: Array | None = None, scaled: NDArray[np.intp] | None = None) -> Units:
    """Deviations of a table's columns, of what is there; or given ones, for these rows.

    Parameters
    ----------
    table : Table of shape (n_samples, n_features)
    scale : array of shape (n_features,), optional
        Of an earlier fit that this one goes on with.
    scaled : array of int, optional
        Columns that have a scale, by default all; that of the others is 1.
    """
    counts, _, variances, largest = column_moments(table)
    if scale is None:
        with np.errstate(invalid="ignore", over="ignore"):
            # What does not vary stays as it is, and so does what is too large, to be refused later.
            varies = (variances > (SAME * largest) ** 2) & np.isfinite(variances)
            varies &= scaled is None or np.isin(np.arange(len(variances)), scaled)
        scale = np.sqrt(np.where(varies, variances, 1.0))
    n_rows = len(table)
    if (counts < n_rows).any():
        chunks = row_chunks(0, n_rows, table.shape[1])
        n_rows = sum(int((~np.isnan(table[rows]).all(axis=1)).sum()) for rows in chunks)
    return Units(scale, -float(counts @ np.log(scale)) / max(n_rows, 1))
