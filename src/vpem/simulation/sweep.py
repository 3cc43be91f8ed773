"""One pass over the rows of a simulated network: contributions, their sum, responsibilities, statistics.

Nothing of size agents x rows x components is held: a tile of rows goes all the way before the next one is read.
Threads share out chunks of tiles. Each chunk has sums of its own, and these are added in the order of the rows, so
that the result is the same, bit for bit, however many threads there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core import kernels
from vpem.core.packed import Densities, Distances, Layout, Tally, sort_blocks
from vpem.core.rows import row_chunks
from vpem.core.summation import Adder
from vpem.core.sweep import N_WORST, Sweep, lowest
from vpem.simulation.model import Problem
from vpem.simulation.threads import ordered_map

Array = NDArray[np.float64]

TILE_VALUES = 2**17
"""Values of one array in a tile: a MiB, which fits a cache near the core and outweighs the interpreter."""


NARROW = 16
"""Columns up to which a row is too short for vectors along it; tiles have vectors along their columns."""


@dataclass(eq=False)
class Sums:
    """What a pass adds up."""

    counts: Array
    """(n_views, n_components)"""
    scores: Array
    """(n_views,)"""
    entropies: Array
    """(n_views,)"""
    tally: Tally | None
    disagreement: float = 0.0
    worst: tuple[Array, NDArray[np.intp]] = field(default_factory=lambda: (np.empty(0), np.empty(0, dtype=np.intp)))

    def rank(self, scores: Array, rows: slice) -> None:
        """Remember the worst of some rows."""
        if len(self.worst[0]) < N_WORST or scores.min() < self.worst[0][-1]:
            numbers = np.arange(rows.start, rows.stop)
            self.worst = lowest(np.concatenate([self.worst[0], scores]), np.concatenate([self.worst[1], numbers]))

    def add(self, other: Sums) -> None:
        """Take in what later rows gave."""
        self.counts += other.counts
        self.scores += other.scores
        self.entropies += other.entropies
        self.disagreement = max(self.disagreement, other.disagreement)
        if self.tally is not None and other.tally is not None:
            self.tally.add(other.tally)
        pairs = zip(self.worst, other.worst, strict=True)
        scores, rows = (np.concatenate(pair) for pair in pairs)
        self.worst = lowest(scores, rows)


def sweep(
    problem: Problem,
    adder: Adder,
    contributions: Densities | Distances,
    layout: Layout,
    *,
    log_weights: Array | None,
    shifts: Array | None = None,
    fill: Densities | None = None,
    within: slice | None = None,
    compare: bool = False,
) -> tuple[Sweep[Any], Tally | None]:
    """One pass over some rows.

    Parameters
    ----------
    problem : Problem
    adder : Adder
    contributions : Densities or Distances
    layout : Layout
        Of what is collected.
    log_weights : array of shape (n_views, n_components), optional
        Of EM; None for k-means, where a row belongs to the nearest centre.
    shifts : array of shape (n_components, n_columns), optional
        Around which statistics are collected; None: collect nothing.
    fill : Densities, optional
        How gaps are filled in.
    within : slice, optional
        Only these rows.
    compare : bool, default=False
        Find the largest disagreement between roots.

    Returns
    -------
    result : Sweep
        Without collected statistics.
    tally : Tally or None
        From which they follow.
    """
    within = slice(0, len(problem.X)) if within is None else within
    total = _sweep(problem, adder, contributions, layout, log_weights, shifts, fill, within, compare)
    if total.tally is not None and fill is not None and total.tally.is_far():
        # The same rows again, around what was found: nothing cancels any more.
        means = total.tally.means()
        total = _sweep(problem, adder, contributions, layout, log_weights, means, fill, within, compare)
    result: Sweep[Any] = Sweep(total.counts, total.scores, total.disagreement, (), total.worst, total.entropies)
    return result, total.tally


def _sweep(
    problem: Problem,
    adder: Adder,
    contributions: Densities | Distances,
    layout: Layout,
    log_weights: Array | None,
    shifts: Array | None,
    fill: Densities | None,
    within: slice,
    compare: bool,
) -> Sums:
    n_components, n_views = layout.n_components, adder.n_views
    n_targets = 1 if adder.is_exact else len(problem.network.hubs)
    widest = max(problem.X.shape[1], n_components * n_targets, n_components * n_views)
    gaps = layout.in_any_column(problem.overall.has_gaps[problem.order])
    first = int(adder.view_of_hub[0])

    def begin() -> Sums:
        return Sums(
            np.zeros((n_views, n_components)),
            np.zeros(n_views),
            np.zeros(n_views),
            None if shifts is None else Tally(layout, shifts, fill),
        )

    def by_tiles(rows: slice) -> Sums:
        own, chunk = begin(), problem.read(rows)
        n_tile = max(64, TILE_VALUES // widest // 64 * 64)
        block_of = problem.block_of_column
        targets = np.zeros_like(block_of) if adder.is_exact else block_of
        views = np.asarray(adder.view_of_hub, dtype=np.int64)[block_of]
        kinds, ranks = None, np.empty(len(chunk))
        for start in range(0, len(chunk), n_tile):
            XT = problem.columns_first(chunk[start : start + n_tile])
            out = np.zeros((n_targets, n_components, XT.shape[1]))
            if kinds is None or gaps.any():
                kinds = sort_blocks(layout, XT, gaps)
            if isinstance(contributions, Distances):
                contributions.add(XT, targets, out)
            else:
                contributions.add(XT, kinds, targets, out)
            here = slice(rows.start + start, rows.start + start + XT.shape[1])
            sums = out if adder.is_exact else adder.add(out, here)
            there = sums[first].any(axis=0) if gaps.any() else None
            scores = np.empty((n_views, XT.shape[1]))
            if log_weights is None:
                kernels.respond_nearest(sums, scores, own.counts)
            else:
                kernels.respond(sums, log_weights, scores, own.counts, own.entropies)
                # A row that is missing everywhere is explained neither well nor badly.
                seen = scores[first] if there is None else np.where(there, scores[first], np.inf)
                ranks[start : start + XT.shape[1]] = seen
            own.scores += scores.sum(axis=1)
            if compare and n_views > 1:
                own.disagreement = max(own.disagreement, float((sums.max(axis=0) - sums.min(axis=0)).max()))
            if own.tally is not None:
                own.tally.collect(XT, kinds, sums, views)
        if log_weights is not None:
            own.rank(ranks, rows)
        return own

    def by_rows(rows: slice) -> Sums:
        own, chunk = begin(), np.ascontiguousarray(problem.read(rows))
        center = np.empty((n_components, 0)) if shifts is None else problem.as_in_table(shifts)
        sums = np.zeros((3, *center.shape))
        scores = np.empty((1, len(chunk)))
        if isinstance(contributions, Distances):
            distances = np.zeros((1, n_components, len(chunk)))
            kernels.add_row_distances(chunk, problem.as_in_table(contributions.centres), distances[0])
            kernels.respond_nearest(distances, scores, own.counts)
            if shifts is not None:
                kernels.collect_rows(chunk, center, distances[0], *sums)
        else:
            assert log_weights is not None, "EM's"
            packed = contributions.means, contributions.scales, contributions.column_normalizers
            parameters = *map(problem.as_in_table, packed), log_weights[0]
            kernels.pass_columns(chunk, *parameters, center, *sums, own.counts[0], scores[0], own.entropies)
            own.rank(scores[0], rows)
        if own.tally is not None:
            own.tally.counts, own.tally.firsts, own.tally.seconds = sums[:, :, problem.order]
        own.scores += scores[np.isfinite(scores)].sum()
        return own

    is_plain = adder.is_exact and layout.by_column.all() and not gaps.any() and layout.n_columns > NARROW
    work = by_rows if is_plain else by_tiles
    total: Sums | None = None
    chunks = row_chunks(within.start, within.stop, widest)
    with ordered_map(problem.threads, problem.n_threads, work, chunks) as parts:
        for part in parts:
            if total is None:
                total = part
            else:
                total.add(part)
    assert total is not None, "a table has rows"
    return total


def network_sums(
    problem: Problem, adder: Adder, contributions: Distances, n_values: int
) -> Iterator[tuple[slice, Array]]:
    """Sums of all rows, some at a time, in order; (n_views, n_values, n_rows)."""
    n_targets = 1 if adder.is_exact else len(problem.network.hubs)
    targets = problem.block_of_column

    def work(rows: slice) -> tuple[slice, Array]:
        chunk = problem.read(rows)
        out = np.zeros((n_targets, n_values, len(chunk)))
        if adder.is_exact:
            centres = problem.as_in_table(contributions.centres)
            kernels.add_row_distances(np.ascontiguousarray(chunk), centres, out[0])
            return rows, out
        contributions.add(problem.columns_first(chunk), targets, out)
        return rows, adder.add(out, rows)

    chunks = row_chunks(0, len(problem.X), 4 * max(problem.X.shape[1], n_values * n_targets))
    with ordered_map(problem.threads, problem.n_threads, work, chunks) as parts:
        yield from parts
