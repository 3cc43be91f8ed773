"""What a pass over the rows leaves behind; and an agent's pass, after the network has added.

EM and k-means are the same pass with other responsibilities. An agent passes through its own block, with its own view
of the sum; `vpem.simulation.sweep` passes through all blocks and all roots' views at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from vpem.core.rows import Rows

Array = NDArray[np.float64]
Collected = TypeVar("Collected")

N_WORST = 16
"""How many badly explained rows a pass remembers."""

EQUAL = 1e-9
"""Relative difference of scores below which rows count as equal."""


@dataclass(frozen=True, eq=False)
class Sweep(Generic[Collected]):
    """What one pass leaves behind."""

    counts: Array
    """(n_views, n_components): sum of each root's responsibilities."""
    scores: Array
    """(n_views,): sum over rows of what `respond` returned beside them (log-likelihood, inertia)."""
    disagreement: float
    """Largest difference between two roots' responsibilities."""
    collected: tuple[Collected, ...]
    """What `collect` found for each block, from its own root's responsibilities; empty without it."""
    worst: tuple[Array, NDArray[np.intp]]
    """Lowest scores of single rows, as the root of the first hub sees them, in ascending order; and those rows."""
    entropies: Array | None = None
    """(n_views,): of the responsibilities, where they were asked for."""


def sweep(
    chunks: Iterable[tuple[slice, Sequence[Rows], Array]],
    view_of_hub: NDArray[np.intp],
    *,
    respond: Callable[[Array], tuple[Array, Array]],
    collect: Callable[[int, Rows, Array], Collected] | None = None,
    merge: Callable[[Collected, Collected], Collected] | None = None,
) -> Sweep[Collected]:
    """One pass over the rows.

    Parameters
    ----------
    chunks : iterable of tuples
        Some rows (slice), each block's columns of them, (n_rows, n_columns), and the sums as each root sees them,
        (n_views, n_rows, n_values).
    view_of_hub : array of shape (n_hubs,)
        Which view each hub's root has.
    respond : callable
        Sums (n_views, n_rows, n_values) to responsibilities of the same shape and scores (n_views, n_rows).
    collect : callable, optional
        Block number, its columns of some rows, and its root's responsibilities (n_rows, n_values) to statistics.
    merge : callable, optional
        Statistics of two sets of rows to those of both.
    """
    counts, scores, disagreement = np.zeros(1), np.zeros(1), 0.0
    collected: list[Collected] = []
    worst = np.empty(0), np.empty(0, dtype=np.intp)
    first = view_of_hub[0]
    for rows, blocks, sums in chunks:
        responsibilities, row_scores = respond(sums)
        counts = counts + responsibilities.sum(axis=1)
        scores = scores + row_scores.sum(axis=1)
        if len(sums) > 1:
            spread = responsibilities.max(axis=0) - responsibilities.min(axis=0)
            disagreement = max(disagreement, float(spread.max()))
        # A row that is missing everywhere is explained neither well nor badly.
        seen = np.where(sums[first].any(axis=1), row_scores[first], np.inf)
        worst = lowest(np.concatenate([worst[0], seen]), np.concatenate([worst[1], np.arange(rows.start, rows.stop)]))
        if collect is not None:
            new = [
                collect(number, block, responsibilities[view])
                for number, (block, view) in enumerate(zip(blocks, view_of_hub, strict=True))
            ]
            collected = list(map(merge, collected, new)) if collected and merge is not None else new
    return Sweep(counts, scores, disagreement, tuple(collected), worst)


def lowest(scores: Array, rows: NDArray[np.intp]) -> tuple[Array, NDArray[np.intp]]:
    """The rows of the lowest finite scores, lowest first; of scores that are equal to rounding only the first row's.

    Equal rows have equal scores, but for rounding, which depends on a row's place in a vector of the processor.
    """
    is_finite = np.isfinite(scores)
    scores, rows = scores[is_finite], rows[is_finite]
    if len(scores) > 8 * N_WORST:
        few = np.argpartition(scores, 8 * N_WORST)[: 8 * N_WORST]
        scores, rows = scores[few], rows[few]
    order = np.argsort(scores)
    scores, rows = scores[order], rows[order]
    starts = np.flatnonzero(np.diff(scores, prepend=-np.inf) > EQUAL * np.abs(scores))
    firsts: NDArray[np.intp] = np.minimum.reduceat(rows, starts) if len(starts) else rows
    return scores[starts][:N_WORST], firsts[:N_WORST]
