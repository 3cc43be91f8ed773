"""Blocks of Gaussian and other columns: put together, seen by k-means, given room for larger counts."""

from __future__ import annotations

import numpy as np

from vpem.core.blocks.arrays import Array, Block, Statistics
from vpem.core.blocks.mixed_pass import join_statistics
from vpem.core.blocks.structure import Structure


def no_gaussian(n_components: int, is_matrix: bool) -> Block:
    """Parameters of no Gaussian column."""
    empty = np.zeros((n_components, 0, 0) if is_matrix else (n_components, 0))
    return Block(
        means=np.zeros((n_components, 0)), covariances=empty, whiteners=empty, log_normalizers=np.zeros(n_components)
    )


def join_blocks(gaussian: Block, others: Array, like: Block) -> Block:
    """A block of Gaussian and other columns."""
    inner = {name: array for name, array in gaussian.arrays.items() if name not in ("others", "structure")}
    return Block(**inner, others=others, structure=like.structure)


def mixed_features(structure: Structure, deviations: Array, everything: Array, XT: Array) -> Array:
    """Rows as k-means compares them."""
    found, parts = [], {part.column: part for part in structure.others}
    for column, x in enumerate(XT):
        part = parts.get(column)
        if part is None:
            found.append((x / deviations[column])[None])
        else:
            found.append(part.family.features(x, everything[:, part.parameters]))
    return np.concatenate(found)


def grow_block(block: Block, structure: Structure) -> Block:
    """The same parameters, with room for larger counts: no parameter depends on how many values are counted."""
    return Block(**{**block.arrays, "structure": structure.array()})


def grow_statistics(statistics: Statistics, old: Structure, new: Structure) -> Statistics:
    """The same rows, of which none has the larger counts."""
    others = np.zeros((len(statistics.others), sum(part.family.n_statistics for part in new.others)))
    for before, after in zip(old.statistics, new.statistics, strict=True):
        others[:, after.start : after.start + before.stop - before.start] = statistics.others[:, before]
    inner = {name: array for name, array in statistics.arrays.items() if name != "others"}
    return join_statistics(Statistics(**inner), others)
