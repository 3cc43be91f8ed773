"""Gaussian columns: means and covariances within each block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array, Block, Columns, Statistics, equal_keys, stack, unstack
from vpem.core.blocks.covariances import STRUCTURES, estimate_covariances, n_covariance_parameters
from vpem.core.blocks.density import PackedDensity
from vpem.core.blocks.density_core import CollapsedComponentError
from vpem.core.blocks.factors import (
    add_statistics,
    block_of_vector,
    expected_contribution,
    make_block,
    make_statistics,
    parameter_vector,
    regressions,
    rescaled,
    scale_statistics,
    variances,
)
from vpem.core.blocks.layouts import MatrixLayout, make_layout
from vpem.core.blocks.packed import Densities
from vpem.core.blocks.tiles import Layout
from vpem.core.blocks.weights import LOWEST, TINY_COUNT

LEANING = 1e-8
"""Largest relative difference across the diagonal at which a covariance counts as symmetric."""


@dataclass(frozen=True, kw_only=True)
class Gaussian(PackedDensity):
    """Gaussian distribution of each block's columns; see `vpem.core.blocks.factors` for the arrays.

    With the paper's `Q = log|S| + |x - mu|^2_S`, a log-density is `-(Q + n_columns log 2 pi) / 2`.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        Types as in scikit-learn, within each block.
    reg_covar : float, default=1e-6
        Added to every variance, as in scikit-learn.
    shrinkage : float, "oas", "auto" or None, default=None
        Shrinkage of covariances toward their diagonals, from 0 to 1; for "full" and "tied". "auto" shrinks those of
        components with few rows for their columns toward the common covariance of all components, for all types.
    """

    covariance_type: str = "full"
    reg_covar: float = 1e-6
    shrinkage: float | str | None = None

    def __post_init__(self) -> None:
        kind, amount, added = self.covariance_type, self.shrinkage, self.reg_covar
        if not isinstance(kind, str) or kind not in STRUCTURES:
            raise ValueError(
                f"expected covariance_type to be one of {', '.join(map(repr, STRUCTURES))}, got {kind!r}"
            )
        if not _is_number(added) or not 0 <= float(added) < inf:
            raise ValueError(f"expected reg_covar to be a finite number, 0 or more, got {added!r}")
        object.__setattr__(self, "reg_covar", float(added))
        if amount is None or (isinstance(amount, str) and amount == "auto"):
            return
        if not (isinstance(amount, str) and amount == "oas"):
            if not _is_number(amount) or not 0 <= float(amount) <= 1:
                raise ValueError(
                    f"expected shrinkage to be None, 'auto', 'oas' or a number from 0 to 1, got {amount!r}"
                )
            object.__setattr__(self, "shrinkage", float(amount))
        if amount != 0 and not self.is_matrix:
            raise ValueError(
                "expected covariance_type 'full' or 'tied' with shrinkage, which draws covariances toward their "
                f"diagonals, got shrinkage={self.shrinkage!r} with {kind!r}; try shrinkage=None"
            )

    @property
    def is_matrix(self) -> bool:
        """True if covariances are full matrices."""
        return STRUCTURES[self.covariance_type].is_matrix

    @property
    def is_tied(self) -> bool:
        """True if all components share one covariance."""
        return STRUCTURES[self.covariance_type].shared_by == "components"

    # Parameters

    def shapes(self, n_components: int, n_columns: int) -> dict[str, tuple[int, ...]]:
        """Shapes of means and covariances, by the covariance type."""
        width = 1 if STRUCTURES[self.covariance_type].shared_by == "columns" else n_columns
        sizes = (width, width) if self.is_matrix else (width,)
        return {"means": (n_components, n_columns), "covariances": (1 if self.is_tied else n_components, *sizes)}

    def make(self, arrays: Mapping[str, Array]) -> Block:
        """Make a block with the factors of its covariances; raise ValueError if a covariance is not valid."""
        covariances = arrays["covariances"]
        if self.is_matrix:
            leaning = np.abs(covariances - covariances.transpose(0, 2, 1)).max()
            if not leaning <= LEANING * np.abs(covariances).max():
                raise ValueError("expected symmetric covariances, got one that is not")
        return make_block(arrays["means"], covariances)

    def complete(self, found: Block | None, given: Mapping[str, Array]) -> Block:
        """See `Density`; does not check symmetry, as inverses of given precisions are symmetric up to rounding."""
        if found is not None and not given:
            return found
        arrays = {**({} if found is None else found.arrays), **given}
        return make_block(arrays["means"], arrays["covariances"])

    def rescale(self, block: Block, factors: Array) -> Block:
        """See `Density`."""
        return make_block(*(rescaled(name, block.arrays[name], factors) for name in ("means", "covariances")))

    def n_parameters(self, n_components: int, n_columns: int) -> int:
        """Number of free parameters in means and covariances."""
        return n_components * n_columns + n_covariance_parameters(n_components, n_columns, self.covariance_type)

    def to_vector(self, block: Block) -> Array:
        """See `parameter_vector`."""
        return parameter_vector(block)

    def from_vector(self, vector: Array, like: Block) -> Block:
        """Inverse of `to_vector`."""
        return block_of_vector(vector, like)

    # EM

    def add(self, one: Statistics, other: Statistics) -> Statistics:
        """Return the statistics of the rows of both, around their common means."""
        return add_statistics(one, other)

    def scale(self, statistics: Statistics, factor: float) -> Statistics:
        """Multiply the weights of the rows by a factor; means do not change."""
        return scale_statistics(statistics, factor)

    def forget(self, statistics: Statistics, components: Sequence[int], weights: Array, block: Block) -> Statistics:
        """Replace the statistics of restarted components by their new weights, means and covariances."""
        counts, means, scatters = (statistics.arrays[name].copy() for name in ("counts", "means", "scatters"))
        counts[components] = weights[components]
        means[components] = block.means[components]
        covariances = np.broadcast_to(block.covariances, scatters.shape)
        scatters[components] = (covariances.T * counts).T[components]
        return make_statistics(counts, means, scatters, statistics.gap_entropy)

    def m_step(self, statistics: Statistics, previous: Block, columns: Columns) -> tuple[Block, list[int]]:
        """See `Density`; a variance within rounding of zero is a collapse.

        A tied covariance collapses for all components; the component with the smallest count is reported.
        """
        return self._m_step(statistics, previous, columns.noise)

    def adds(self, ones: Sequence[Statistics], others: Sequence[Statistics]) -> list[Statistics]:
        """`add` of many blocks; blocks of equal width are stacked as one block of many components."""
        found = list(ones)
        for members in equal_keys([own.means.shape[1] for own in ones]):
            if len(members) == 1:
                found[members[0]] = self.add(ones[members[0]], others[members[0]])
                continue
            names = tuple(ones[0].arrays)
            both = (Statistics(**stack([parts[b].arrays for b in members], names)) for parts in (ones, others))
            for b, arrays in zip(members, unstack(self.add(*both).arrays, len(members)), strict=True):
                found[b] = Statistics(**arrays)
        return found

    def m_steps(
        self, statistics: Sequence[Statistics], previous: Sequence[Block], columns: Sequence[Columns]
    ) -> tuple[list[Block], list[list[int]]]:
        """`m_step` of many blocks; blocks of equal width are stacked as one block of many components.

        Blocks are not stacked if covariances are tied or shrink toward each other, because components of different
        blocks must not be mixed.
        """
        is_one_affair = self.is_tied or self.shrinkage == "auto"
        n_components = len(statistics[0].counts)
        found: list[Block] = list(previous)
        broken: list[list[int]] = [[] for _ in statistics]
        for members in equal_keys([(own.means.shape[1], b * is_one_affair) for b, own in enumerate(statistics)]):
            if len(members) == 1:
                (b,) = members
                found[b], broken[b] = self.m_step(statistics[b], previous[b], columns[b])
                continue
            together = Statistics(**stack([statistics[b].arrays for b in members], ("counts", "means", "scatters")))
            before = Block(**stack([previous[b].arrays for b in members], ("means", "covariances")))
            smallest = np.repeat([columns[b].noise for b in members], n_components, axis=0)
            block, collapsed = self._m_step(together, before, smallest)
            for place, (b, arrays) in enumerate(zip(members, unstack(block.arrays, len(members)), strict=True)):
                found[b] = Block(**arrays)
                broken[b] = [k % n_components for k in collapsed if k // n_components == place]
        return found, broken

    def _m_step(self, statistics: Statistics, previous: Block, smallest: Array) -> tuple[Block, list[int]]:
        """`m_step`, given the variances that rounding alone can produce, ([n_components,] n_columns)."""
        means = statistics.means.copy()
        covariances = self._covariances(statistics)
        empty = statistics.counts <= TINY_COUNT
        unusable = empty | ~np.isfinite(means).all(axis=1)
        means[unusable] = previous.means[unusable]
        broken = np.zeros(len(covariances), dtype=bool) if self.is_tied else empty
        with np.errstate(invalid="ignore"):
            broken = broken | ~(variances(covariances) > smallest).all(axis=1)
        while True:
            kept = np.broadcast_to(previous.covariances, covariances.shape)
            covariances[broken] = kept[broken]
            if not self.is_tied:
                means[broken] = previous.means[broken]
            try:
                block = make_block(means, covariances)
            except CollapsedComponentError as error:
                if error.component is None or broken[error.component]:
                    raise
                broken[error.component] = True
                continue
            if self.is_tied:
                return block, [int(statistics.counts.argmin())] if broken[0] else []
            return block, np.flatnonzero(broken & ~empty).tolist()

    def _covariances(self, statistics: Statistics) -> Array:
        rule = self.covariance_type, self.reg_covar, self.shrinkage
        return estimate_covariances(statistics.counts, statistics.scatters, *rule)

    def expected_log_density(self, statistics: Statistics, block: Block) -> float:
        """See `Density`."""
        return expected_contribution(statistics, block)

    # Initialization

    def first(self, columns: Columns) -> Block:
        """See `Density`; the columns are independent.

        Gaps of a constant column must not be filled in with an arbitrary variance.
        """
        varies = columns.variances > columns.noise
        own = STRUCTURES[self.covariance_type].shared_by != "columns"
        if not (varies.all() if own else varies.any()) and self.reg_covar == 0:
            raise CollapsedComponentError(None, columns.party)
        diagonal = np.where(varies, columns.variances, self.reg_covar or columns.variances.mean())
        return make_block(columns.means[None], np.diag(diagonal)[None] if self.is_matrix else diagonal[None])

    def overall(
        self, columns: Sequence[Columns], collect: Callable[[Sequence[Block]], Sequence[Statistics]]
    ) -> list[Block]:
        """See `Density`. Independent columns need no pass, because their moments are known."""
        first = [self.first(own) for own in columns]
        if all(len(own.means) == 1 or not (self.is_matrix or own.has_gaps.any()) for own in columns):
            statistics: Sequence[Statistics] = [self._from_moments(own) for own in columns]
        else:
            statistics = collect(first)
        blocks = []
        for own, found, diagonal in zip(columns, statistics, first, strict=True):
            try:
                block = make_block(found.means, self._covariances(found))
            except CollapsedComponentError:
                # If clusters are far apart, components can have covariances although all rows together have none.
                block = diagonal
            if (variances(block.covariances)[0] <= own.noise).any():
                raise CollapsedComponentError(None, own.party)
            blocks.append(block)
        return blocks

    def _from_moments(self, columns: Columns) -> Statistics:
        scatters = (columns.variances * columns.counts)[None]
        shaped = scatters[:, :, None] if self.is_matrix else scatters
        return make_statistics(columns.counts[:1], columns.means[None], shaped)

    def start(self, centres: Array, everything: Block) -> Block:
        """Return a block with the centres as means, and the overall covariance for every component."""
        return make_block(centres, np.repeat(everything.covariances, 1 if self.is_tied else len(centres), axis=0))

    def restart(self, block: Block, components: Sequence[int], rows: Array, everything: Block) -> Block:
        """Re-initialize components with rows as means and the overall covariance; tied covariances do not change."""
        means, covariances = block.means.copy(), block.covariances.copy()
        means[components] = rows
        if len(covariances) == len(means):
            covariances[components] = everything.covariances[0]
        return make_block(means, covariances)

    # Predictions and reports

    def means(self, block: Block) -> Array:
        """Means of the components."""
        return block.means

    def deviations(self, block: Block) -> Array:
        """Square roots of the variances."""
        return np.sqrt(np.broadcast_to(variances(block.covariances), block.means.shape))

    def correlations(self, block: Block) -> Array | None:
        """See `Density`; None for a single column, and without full matrices."""
        if not self.is_matrix or block.means.shape[1] == 1:
            return None
        deviations = np.sqrt(variances(block.covariances))
        correlations: Array = block.covariances / deviations[:, :, None] / deviations[:, None, :]
        return correlations

    def marginal(self, block: Block, column: int, points: Array) -> Array:
        """See `Density`; a normal density for each component."""
        deviations = self.deviations(block)[:, [column]]
        distances = (points - block.means[:, [column]]) / deviations
        found: Array = np.maximum(-0.5 * (distances**2 + np.log(2 * np.pi)) - np.log(deviations), LOWEST)
        return found

    def conditional(self, block: Block, XT: Array) -> Array:
        """See `Density`; gaps are regressed on the other columns."""
        filled = super().conditional(block, XT)
        for gone, rows, slopes in regressions(block.covariances, XT) if self.is_matrix else ():
            moved = XT[~gone][:, rows] - block.means[:, ~gone, None]
            filled[np.ix_(np.arange(len(filled)), gone, rows)] += slopes.transpose(0, 2, 1) @ moved
        return filled

    def conditional_deviations(self, block: Block, XT: Array) -> Array:
        """See `Density`; deviations depend on which columns are gaps, not on the values of the others."""
        found = super().conditional_deviations(block, XT)
        for gone, rows, slopes in regressions(block.covariances, XT) if self.is_matrix else ():
            explained = (block.covariances[:, ~gone][:, :, gone] * slopes).sum(axis=1)
            left = variances(block.covariances)[:, gone] - explained
            found[np.ix_(np.arange(len(found)), gone, rows)] = np.sqrt(np.maximum(left, 0.0))[:, :, None]
        return found

    def sample(self, block: Block, labels: NDArray[np.intp], rng: np.random.Generator) -> Array:
        """See `Density`."""
        noise = rng.standard_normal((len(labels), block.means.shape[1]))
        for k in range(len(block.means)):
            chosen, covariance = labels == k, block.covariances[k % len(block.covariances)]
            if self.is_matrix:
                noise[chosen] = noise[chosen] @ np.linalg.cholesky(covariance).T
            else:
                noise[chosen] *= np.sqrt(covariance)
        found: Array = block.means[labels] + noise
        return found

    # Many blocks at once

    def layout(self, widths: Sequence[int], n_components: int) -> MatrixLayout:
        """Positions of the blocks in the packed arrays."""
        return make_layout(widths, n_components, is_matrix=self.is_matrix)

    def pack(self, blocks: Sequence[Block], layout: Layout) -> Densities:
        """Pack the parameters into a few arrays for compiled kernels."""
        assert isinstance(layout, MatrixLayout), "of this family"
        return Densities(layout, blocks)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)
