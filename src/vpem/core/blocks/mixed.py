"""Mixed columns: a block's Gaussian columns with their joint covariance, and other columns with their own families.

Within a component, the other columns are independent of each other and of the Gaussian ones. The array `structure` of
a block holds the family of each column. The array `others` holds the parameters of all non-Gaussian columns, column
by column. The remaining arrays are those of the Gaussian family.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array, Block, Columns, Statistics
from vpem.core.blocks.density_core import OWN, CollapsedComponentError
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.kmeans_features import Features
from vpem.core.blocks.mixed_pass import PackedMixed, join_statistics
from vpem.core.blocks.mixed_people import DescribedMixed
from vpem.core.blocks.structure import Part, Structure, join_blocks, no_gaussian, parse_families
from vpem.core.blocks.tiles import Layout


@dataclass(frozen=True, kw_only=True)
class Mixed(DescribedMixed):
    """Columns of different families.

    Parameters
    ----------
    families : tuple of tuples
        For each party: its name, and the family of each of its columns, in their order, as a string; see
        `vpem.core.blocks.families`. An agent needs the families of its own block, and sends them to no other agent.
    covariance_type, reg_covar, shrinkage :
        Settings of each block's Gaussian columns; see `Gaussian`.
    smoothing : float, default=1.0
        Number of pseudo-rows, with all categories equally often, that are added to each component, so that no
        category has probability zero.
    """

    families: tuple[tuple[Hashable, ...], ...] = field(metadata={OWN: True})
    covariance_type: str = "full"
    reg_covar: float = 1e-6
    shrinkage: float | str | None = None
    smoothing: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "families", tuple(map(tuple, self.families)))
        for _, *own in self.families:
            parse_families(tuple(map(str, own)))
        amount = self.smoothing
        if not isinstance(amount, Real) or isinstance(amount, bool) or not 0 <= float(amount) < inf:
            raise ValueError(f"expected smoothing to be a finite number, 0 or more, got {amount!r}")
        object.__setattr__(self, "smoothing", float(amount))
        object.__setattr__(self, "reg_covar", self.gaussian.reg_covar)
        object.__setattr__(self, "shrinkage", self.gaussian.shrinkage)

    @cached_property
    def gaussian(self) -> Gaussian:
        """Density of the Gaussian columns."""
        return Gaussian(covariance_type=self.covariance_type, reg_covar=self.reg_covar, shrinkage=self.shrinkage)

    @property
    def is_matrix(self) -> bool:
        """True if covariances are full matrices."""
        return self.gaussian.is_matrix

    @property
    def is_tied(self) -> bool:
        """True if all components share one covariance."""
        return self.gaussian.is_tied

    # Parameters

    def families_of(self, parties: Sequence[Hashable]) -> tuple[str, ...]:
        """Families of the given parties' columns, party by party."""
        known = {
            str(party): tuple(map(str, own)) for party, *own in self.families
        }  # agents have names that are strings
        missing = [party for party in parties if str(party) not in known]
        if missing:
            raise ValueError(f"expected families of the columns of party {missing[0]!r}, got those of {list(known)}")
        return tuple(text for party in parties for text in known[str(party)])

    def shapes(self, n_components: int, n_columns: int) -> dict[str, tuple[int, ...]]:
        """Shapes of a block with Gaussian columns alone; see `block_shapes`."""
        return {
            **self.gaussian.shapes(n_components, n_columns),
            "others": (n_components, 0),
            "structure": (n_columns, 2),
        }

    def block_shapes(
        self, n_components: int, n_columns: int, parties: Sequence[Hashable]
    ) -> dict[str, tuple[int, ...]]:
        """See `Density`."""
        structure = parse_families(self.families_of(parties))
        if len(structure.families) != n_columns:
            raise ValueError(f"expected families of {n_columns} columns, got {len(structure.families)}")
        shapes = self.shapes(n_components, len(structure.gaussian))
        return {**shapes, "others": (n_components, structure.n_parameters), "structure": (n_columns, 2)}

    def fixed_arrays(self, shapes: Mapping[str, tuple[int, ...]], parties: Sequence[Hashable]) -> dict[str, Array]:
        """See `Density`: the structure, and empty arrays."""
        structure = parse_families(self.families_of(parties)).array()
        return {**super().fixed_arrays(shapes, parties), "structure": structure}

    def make(self, arrays: Mapping[str, Array]) -> Block:
        """See `Density`."""
        structure = Structure.of(Block(structure=arrays["structure"]))
        others = arrays["others"]
        if others.shape[1] != structure.n_parameters:
            raise ValueError(f"expected {structure.n_parameters} parameters of other columns, got {others.shape[1]}")
        for part in structure.others:
            part.family.check(others[:, part.parameters])
        inner = {name: arrays[name] for name in ("means", "covariances")}
        made = self.gaussian.make(inner) if len(structure.gaussian) else no_gaussian(len(others), self.is_matrix)
        return Block(**made.arrays, others=others, structure=arrays["structure"])

    def scaled_columns(self, n_columns: int, parties: Sequence[Hashable]) -> NDArray[np.intp]:
        """Gaussian columns of the block."""
        return parse_families(self.families_of(parties)).gaussian

    def rescale(self, block: Block, factors: Array) -> Block:
        """See `Density`."""
        chosen = Structure.of(block).gaussian
        return (
            join_blocks(self.gaussian.rescale(block, factors[chosen]), block.others, block) if len(chosen) else block
        )

    def n_parameters(self, n_components: int, n_columns: int) -> int:
        """Number of free parameters of Gaussian columns alone; see `n_block_parameters`."""
        return self.gaussian.n_parameters(n_components, n_columns)

    def n_block_parameters(self, block: Block) -> int:
        """See `Density`."""
        structure, k = Structure.of(block), len(block.others)
        inner = self.gaussian.n_parameters(k, len(structure.gaussian)) if len(structure.gaussian) else 0
        return inner + k * sum(part.family.n_free for part in structure.others)

    def to_vector(self, block: Block) -> Array:
        """Concatenated vectors of the non-Gaussian columns, then of the Gaussian ones."""
        structure = Structure.of(block)
        parts = [part.family.to_vector(block.others[:, part.parameters]).ravel() for part in structure.others]
        inner = [self.gaussian.to_vector(block)] if len(structure.gaussian) else []
        return np.concatenate([*parts, *inner])

    def from_vector(self, vector: Array, like: Block) -> Block:
        """Inverse of `to_vector`."""
        structure, others, start = Structure.of(like), like.others.copy(), 0
        for part in structure.others:
            own = like.others[:, part.parameters]
            shape = part.family.to_vector(own).shape
            end = start + shape[0] * shape[1]
            others[:, part.parameters] = part.family.from_vector(vector[start:end].reshape(shape), own)
            start = end
        inner = self.gaussian.from_vector(vector[start:], like) if len(structure.gaussian) else like
        return join_blocks(inner, others, like)

    # EM

    def add(self, one: Statistics, other: Statistics) -> Statistics:
        """See `Density`."""
        return join_statistics(self.gaussian.add(one, other), one.others + other.others)

    def scale(self, statistics: Statistics, factor: float) -> Statistics:
        """See `Density`."""
        return join_statistics(self.gaussian.scale(statistics, factor), factor * statistics.others)

    def forget(self, statistics: Statistics, components: Sequence[int], weights: Array, block: Block) -> Statistics:
        """See `Density`; Gaussian columns get the statistics of the restart, others zeros."""
        others = statistics.others.copy()
        others[components] = 0.0
        has_gaussian = statistics.means.shape[1] > 0
        inner = self.gaussian.forget(statistics, components, weights, block) if has_gaussian else None
        return join_statistics(inner, others)

    def m_step(self, statistics: Statistics, previous: Block, columns: Columns) -> tuple[Block, list[int]]:
        """See `Density`. Only Gaussian columns can collapse, because the parameters of others have bounds."""
        structure, others = Structure.of(previous), self._others(statistics, previous)
        if not len(structure.gaussian):
            return join_blocks(previous, others, previous), []
        inner, collapsed = self.gaussian.m_step(statistics, previous, columns.take(structure.gaussian))
        return join_blocks(inner, others, previous), collapsed

    def expected_log_density(self, statistics: Statistics, block: Block) -> float:
        """See `Density`."""
        structure = Structure.of(block)
        total = self.gaussian.expected_log_density(statistics, block) if len(structure.gaussian) else 0.0
        for _, family, own, sums in structure.others:
            total += family.expected_log_density(statistics.others[:, sums], block.others[:, own])
        return total

    # Initialization

    def first(self, columns: Columns) -> Block:
        """See `Density`; most families accept constant columns."""
        structure = parse_families(columns.families)
        others = np.empty((1, structure.n_parameters))
        for column, family, own, _ in structure.others:
            mean, variance = float(columns.means[column]), float(columns.variances[column])
            if not variance > columns.noise[column] and not family.can_be_constant(mean):
                raise CollapsedComponentError(None, columns.party, lacking="parameters")
            others[:, own] = family.first(mean, variance)
        has_gaussian = len(structure.gaussian) > 0
        inner = (
            self.gaussian.first(columns.take(structure.gaussian)) if has_gaussian else no_gaussian(1, self.is_matrix)
        )
        return Block(**inner.arrays, others=others, structure=structure.array())

    def overall(
        self, columns: Sequence[Columns], collect: Callable[[Sequence[Block]], Sequence[Statistics]]
    ) -> list[Block]:
        """See `Density`; the bounds of parameters follow from all rows."""
        first = [self.first(own) for own in columns]
        statistics = collect(first)
        others = [self._others(*pair) for pair in zip(statistics, first, strict=True)]
        near = [
            Structure.of(block).change(own, lambda part, before: part.family.recentre(before))
            for block, own in zip(first, others, strict=True)
        ]
        if not all(map(np.array_equal, near, others)):
            first = [join_blocks(block, own, block) for block, own in zip(first, near, strict=True)]
            statistics = collect(first)
            others = [self._others(*pair) for pair in zip(statistics, first, strict=True)]
        found = []
        for own, before, sums, after in zip(columns, first, statistics, others, strict=True):
            inner, structure = before, Structure.of(before)
            if len(structure.gaussian):
                (inner,) = self.gaussian.overall([own.take(structure.gaussian)], lambda _: [sums])  # noqa: B023 (called at once)
            found.append(
                join_blocks(inner, structure.change(after, lambda part, own: part.family.settle(own)), before)
            )
        return found

    def _others(self, statistics: Statistics, previous: Block) -> Array:
        """M-step of the non-Gaussian columns; (n_components, n_parameters)."""

        def estimate(part: Part, before: Array) -> Array:
            return part.family.m_step(statistics.others[:, part.statistics], before, self.smoothing)

        return Structure.of(previous).change(previous.others, estimate)

    def start(self, centres: Array, everything: Block) -> Block:
        """See `Density`."""
        structure = Structure.of(everything)
        others = np.empty((len(centres), structure.n_parameters))
        for column, family, own, _ in structure.others:
            others[:, own] = family.start(centres[:, column], everything.others[:, own])
        return self._around(centres[:, structure.gaussian], others, everything)

    def _around(self, means: Array, others: Array, everything: Block) -> Block:
        if means.shape[1] == 0:
            return join_blocks(no_gaussian(len(means), self.is_matrix), others, everything)
        return join_blocks(self.gaussian.start(np.ascontiguousarray(means), everything), others, everything)

    def restart(self, block: Block, components: Sequence[int], rows: Array, everything: Block) -> Block:
        """See `Density`."""
        fresh, others = self.start(rows, everything), block.others.copy()
        others[components] = fresh.others
        chosen = Structure.of(block).gaussian
        inner = self.gaussian.restart(block, components, rows[:, chosen], everything) if len(chosen) else block
        return join_blocks(inner, others, block)

    def features(self, everything: Block) -> Features:
        """See `Density`."""
        structure, deviations = Structure.of(everything), self.deviations(everything)[0]
        widths = [1 if family is None else family.n_features for family in structure.families]
        is_gaussian = np.isin(np.arange(len(widths)), structure.gaussian)
        scales = np.repeat(np.where(is_gaussian, deviations, np.nan), widths)
        return Features(tuple(widths), scales, partial(mixed_features, structure, deviations, everything.others))

    def around(self, centres: Array, everything: Block) -> Block:
        """See `Density`: centres set the means of Gaussian columns; others start with the parameters of all rows."""
        scales = self.features(everything).scales
        is_gaussian = ~np.isnan(scales)
        means = centres[:, is_gaussian] * scales[is_gaussian]
        return self._around(means, np.repeat(everything.others, len(centres), axis=0), everything)

    # Many blocks at once

    def pack(self, blocks: Sequence[Block], layout: Layout) -> PackedMixed:
        """Pack Gaussian columns into a few arrays for compiled kernels, and the others into tables."""
        return PackedMixed(layout, blocks, is_matrix=self.is_matrix)


def mixed_features(structure: Structure, deviations: Array, everything: Array, XT: Array) -> Array:
    """Features by which k-means compares rows (n_columns, n_rows)."""
    found = []
    for column, x in enumerate(XT):
        part = structure.by_column.get(column)
        if part is None:
            found.append((x / deviations[column])[None])
        else:
            found.append(part.family.features(x, everything[:, part.parameters]))
    return np.concatenate(found)
