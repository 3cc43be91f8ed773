"""Units of a fit: columns are divided by their own deviations, and results are converted back to the table's units.

Every party scales its own columns, without a message. The density of the scaled columns is that of the original
columns times the scales. Log-likelihoods therefore differ by a sum of logarithms of scales, of which each party knows
its own.
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
from vpem.core.network.summation import Summation
from vpem.core.rows import Rows, Table, row_chunks
from vpem.model.fitted import Fitted
from vpem.simulation.certificate import Certificate
from vpem.simulation.model import Mixture, MixtureFit

Array = NDArray[np.float64]

SAME = 1e-12
"""Largest deviation of a column, relative to its largest value, that rounding in sums could cause."""


class ScaledTable:
    """Table whose columns are divided by their scales when rows are read.

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
    """Units of a fit; without a scale, those of the table."""

    scale: Array | None = None
    """(n_features,): divisor of each column."""
    shift: float = 0.0
    """Log-likelihood per row of the original columns, minus that of the scaled columns."""

    def scaled(self, table: Table) -> Table:
        """Return the table in the units of the fit."""
        return table if self.scale is None else ScaledTable(table, self.scale)

    def for_rows(self, table: Table) -> Units:
        """Return units with the same scales, and the shift of the given rows, which are those of the fit."""
        return self if self.scale is None else replace(self, shift=find_units(table, self.scale).shift)

    def arrays(self, given: list[dict[str, Array]], network: Network, density: Density) -> list[dict[str, Array]]:
        """Convert the user's means and covariances of each block to the units of the fit."""
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
        """Convert a mixture to the units of the fit, or with `back` to the units of the table."""
        if self.scale is None:
            return mixture
        factors = self.scale if back else 1.0 / self.scale
        pairs = zip(mixture.blocks, network.block_columns, strict=True)
        rescale = mixture.density.rescale
        return replace(mixture, blocks=tuple(rescale(block, factors[columns]) for block, columns in pairs))

    def fit(self, result: MixtureFit, network: Network, *, back: bool) -> MixtureFit:
        """Convert a fit to the units of the fit, or with `back` to the units of the table."""
        shift = self.shift if back else -self.shift
        return replace(
            result,
            mixture=self.mixture(result.mixture, network, back=back),
            lower_bounds=tuple(bounds + shift for bounds in result.lower_bounds) if shift else result.lower_bounds,
        )

    def certificate(self, found: Certificate) -> Certificate:
        """Convert the log-likelihood of a certificate to the units of the table."""
        likelihood = found.log_likelihood
        return found if likelihood is None else replace(found, log_likelihood=likelihood + self.shift)


def find_units(table: Table, scale: Array | None = None, scaled: NDArray[np.intp] | None = None) -> Units:
    """Compute the units of a fit from the deviations of the observed values, or from given scales.

    Parameters
    ----------
    table : Table of shape (n_samples, n_features)
    scale : array of shape (n_features,), optional
        Scales of an earlier fit that this one continues.
    scaled : array of int, optional
        Columns to scale, by default all; other columns have scale 1.
    """
    counts, _, variances, largest = column_moments(table)
    if scale is None:
        with np.errstate(invalid="ignore", over="ignore"):
            # Constant columns are not scaled. Neither are overflowing ones, which a later check rejects.
            varies = (variances > (SAME * largest) ** 2) & np.isfinite(variances)
            varies &= scaled is None or np.isin(np.arange(len(variances)), scaled)
        scale = np.sqrt(np.where(varies, variances, 1.0))
    n_rows = len(table)
    if (counts < n_rows).any():
        chunks = row_chunks(0, n_rows, table.shape[1])
        n_rows = sum(int((~np.isnan(table[rows]).all(axis=1)).sum()) for rows in chunks)
    return Units(scale, -float(counts @ np.log(scale)) / max(n_rows, 1))


def make_fitted(
    result: MixtureFit, network: Network, summation: Summation, seed: int, units: Units, **about: Any
) -> Fitted:
    """Return a fit as one value, in the units of the table; `about` has further fields of `Fitted`."""
    result = units.fit(result, network, back=True)
    return Fitted(
        mixture=result.mixture,
        network=network,
        summation=summation,
        seed=seed,
        lower_bounds=result.lower_bounds,
        converged=result.converged,
        traffic=result.traffic,
        repairs=result.repairs,
        scale=units.scale,
        **about,
    )
