"""Blocks of Gaussian and other columns: joining, features for k-means, and extension to larger counts."""

from __future__ import annotations

import numpy as np

from vpem.core.blocks.arrays import Array, Block, Statistics
from vpem.core.blocks.mixed_pass import join_statistics
from vpem.core.blocks.structure import Structure


def no_gaussian(n_components: int, is_matrix: bool) -> Block:
    """Empty parameters of a block without Gaussian columns."""
    empty = np.zeros((n_components, 0, 0) if is_matrix else (n_components, 0))
    return Block(
        means=np.zeros((n_components, 0)), covariances=empty, whiteners=empty, log_normalizers=np.zeros(n_components)
    )


def join_blocks(gaussian: Block, others: Array, like: Block) -> Block:
    """Join the parameters of Gaussian and other columns into a block."""
    inner = {name: array for name, array in gaussian.arrays.items() if name not in ("others", "structure")}
    return Block(**inner, others=others, structure=like.structure)


def mixed_features(structure: Structure, deviations: Array, everything: Array, XT: Array) -> Array:
    """Features by which k-means compares rows (n_columns, n_rows)."""
    found, parts = [], {part.column: part for part in structure.others}
    for column, x in enumerate(XT):
        part = parts.get(column)
        if part is None:
            found.append((x / deviations[column])[None])
        else:
            found.append(part.family.features(x, everything[:, part.parameters]))
    return np.concatenate(found)


def grow_block(block: Block, structure: Structure) -> Block:
    """Return the block with a structure for larger counts; no parameter depends on the number of counted values."""
    return Block(**{**block.arrays, "structure": structure.array()})


def grow_statistics(statistics: Statistics, old: Structure, new: Structure) -> Statistics:
    """Return the statistics with a structure for larger counts, which none of the rows has."""
    others = np.zeros((len(statistics.others), sum(part.family.n_statistics for part in new.others)))
    for before, after in zip(old.statistics, new.statistics, strict=True):
        others[:, after.start : after.start + before.stop - before.start] = statistics.others[:, before]
    inner = {name: array for name, array in statistics.arrays.items() if name != "others"}
    return join_statistics(Statistics(**inner), others)
