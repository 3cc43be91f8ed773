"""One pass over the rows, in two halves, with the network's sum between them.

`Pass.contribute` computes the contributions of a tile's blocks to the sum. `Pass.collect` computes responsibilities
from the sums, and statistics from the tile and the responsibilities. In the simulation, one pass holds all blocks and
adds up their contributions between the halves, tile by tile. An agent holds its own block and exchanges messages with
the network between the halves. EM and k-means use the same pass with different contributions and responsibilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks import kernels
from vpem.core.blocks.arrays import Array, Statistics
from vpem.core.blocks.kmeans_features import FeatureTally, parts_of_kmeans
from vpem.core.blocks.overall import Overall
from vpem.core.blocks.tiles import Collector, ColumnTally, Contributions, Numbers, Packed, Tile, columns_first
from vpem.core.blocks.weights import lowest
from vpem.core.network.sums import Shape, Term
from vpem.core.rows import Rows, Table

TILE_VALUES = 2**17
"""Values of one array in a tile: 1 MiB fits a cache near the core, and hides the overhead of the interpreter."""

TERM_VALUES = 2**18
"""Values of one array in a tile of a term: threads compute terms, and wait for the interpreter between tiles."""

NONE = np.empty(0)
"""Empty array of scalars."""

ONE_VIEW: Numbers = np.zeros(1, dtype=np.int64)
"""`view_of_block` of a single block."""

EQUAL_SHARES = 1e-6
"""Difference of responsibilities below which a different label is attributed to rounding."""


class Disagreement(NamedTuple):
    """Differences between the views' responsibilities for the same rows; zeros if there is one view."""

    largest: float = 0.0
    """Largest difference over all rows and components."""
    total: float = 0.0
    """Sum over rows of the largest difference."""
    n_split: int = 0
    """Number of rows whose most probable component differs between views."""

    def __add__(self, other: Disagreement) -> Disagreement:  # type: ignore[override]
        """Disagreement over the rows of both."""
        total, n_split = self.total + other.total, self.n_split + other.n_split
        return Disagreement(max(self.largest, other.largest), total, n_split)


def compare_views(shares: Array) -> Disagreement:
    """Compare responsibilities, (n_views, n_components, n_rows)."""
    differences = (shares.max(axis=0) - shares.min(axis=0)).max(axis=0)
    labels = shares.argmax(axis=1)
    # If two components are equally probable up to rounding, argmax may return either.
    is_split = (labels != labels[0]).any(axis=0) & (differences > EQUAL_SHARES)
    return Disagreement(float(differences.max(initial=0.0)), float(differences.sum()), int(is_split.sum()))


@dataclass(eq=False)
class Sums:
    """Sums over the rows of a pass."""

    counts: Array
    """(n_views, n_components): sums of each view's responsibilities."""
    scores: Array
    """(n_views,): sums over rows of log-likelihoods; in k-means, of squared distances."""
    entropies: Array
    """(n_views,): entropies of the responsibilities."""
    collected: Collector | None
    """Collector of every block's statistics, weighted by its own view's responsibilities."""
    disagreement: Disagreement = field(default_factory=Disagreement)
    """Disagreement between the views, if they are compared."""
    worst: tuple[Array, NDArray[np.intp]] = field(default_factory=lambda: (np.empty(0), np.empty(0, dtype=np.intp)))
    """Lowest scores of single rows in the first view, in ascending order, and the numbers of those rows."""

    def statistics(self) -> tuple[Statistics, ...]:
        """Statistics of each block; empty if nothing was collected."""
        return () if self.collected is None else self.collected.statistics()

    def means(self) -> Array:
        """Weighted means of all columns in k-means, in the order of the pass; (n_components, n_columns)."""
        assert isinstance(self.collected, ColumnTally | FeatureTally), "k-means collects columns"
        return self.collected.means()

    seen: list[tuple[Array, slice]] = field(default_factory=list)
    """Scores of rows that are not ranked yet: ranking many tiles at once is cheaper."""

    def rank(self) -> Sums:
        """Update `worst` with the rows in `seen`, and return self."""
        if self.seen:
            scores = np.concatenate([self.worst[0], *(own for own, _ in self.seen)])
            numbers = (np.arange(rows.start, rows.stop) for _, rows in self.seen)
            self.worst, self.seen = lowest(scores, np.concatenate([self.worst[1], *numbers])), []
        return self

    def add(self, other: Sums) -> None:
        """Add the sums of later rows."""
        self.counts += other.counts
        self.scores += other.scores
        self.entropies += other.entropies
        self.disagreement += other.disagreement
        if self.collected is not None and other.collected is not None:
            self.collected.add(other.collected)
        scores, rows = (np.concatenate(pair) for pair in zip(self.worst, other.worst, strict=True))
        self.worst = lowest(scores, rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pass:
    """Parameters and settings of a pass over rows; made by `em_pass` and `kmeans_pass`."""

    contributions: Contributions
    n_components: int
    order: NDArray[np.intp]
    """Columns of the table, block by block."""
    block_of_column: Numbers
    """(n_columns,): block of each column, in this order."""
    has_gaps: NDArray[np.bool_] | None
    """(n_columns,): True for columns of the table that may have gaps; None: check each tile."""
    log_weights: Array | None = None
    """(n_views, n_components): log-weights in EM; None in k-means, which assigns each row to its nearest centre."""
    packed: Packed | None = None
    """Packed blocks, which analyse the gaps of each tile; None if no statistics of blocks are collected."""
    collector: Callable[[], Collector] | None = None
    """Factory of empty collectors; None: collect nothing."""
    view_of_block: Numbers
    """(n_blocks,): the result of the sum (view) that each block uses."""
    n_views: int = 1
    may_lack_rows: bool = True
    """True if the table may contain rows that no party has."""
    separate: bool = False
    """True to keep each block's contributions separate; False to add them up."""

    @cached_property
    def targets(self) -> Numbers:
        """Index in the output to which each column's contributions are added; (n_columns,)."""
        return self.block_of_column if self.separate else np.zeros(len(self.order), dtype=np.int64)

    @cached_property
    def views(self) -> Numbers:
        """View of each column's block; (n_columns,)."""
        return np.asarray(self.view_of_block, dtype=np.int64)[self.block_of_column]

    @property
    def values_per_row(self) -> int:
        """Values per row of the largest array."""
        n_targets = len(self.view_of_block) if self.separate else 1
        return max(len(self.order), self.n_components * max(n_targets, self.n_views))

    def in_order(self) -> Pass:
        """Return this pass for the second half over a table whose columns are in the order of the blocks."""
        has_gaps = None if self.has_gaps is None else self.has_gaps[self.order]
        return replace(self, order=np.arange(len(self.order)), has_gaps=has_gaps, separate=False)

    def begin(self) -> Sums:
        """Return empty sums."""
        zeros = np.zeros((self.n_views, self.n_components)), np.zeros(self.n_views), np.zeros(self.n_views)
        return Sums(*zeros, None if self.collector is None else self.collector())

    def rows_of(self, n_values: int) -> int:
        """Number of rows of a tile whose largest array has `n_values` values; a multiple of 64, at least 64."""
        return max(64, n_values // self.values_per_row // 64 * 64)

    def tiles(self, chunk: Rows, start: int, n_values: int = TILE_VALUES) -> Iterator[Tile]:
        """Yield tiles of rows of the table, (n_rows, n_columns); `start` is the number of the first row."""
        size = self.rows_of(n_values)
        for first in range(0, len(chunk), size):
            XT = columns_first(chunk[first : first + size], self.order)
            noted = None
            if self.packed is not None:
                has_gaps = (
                    np.asarray(np.isnan(XT).any(axis=1)) if self.has_gaps is None else self.has_gaps[self.order]
                )
                noted = self.packed.look(XT, has_gaps)
            yield Tile(XT, slice(start + first, start + first + XT.shape[1]), noted)

    @cached_property
    def takes_rows(self) -> bool:
        """True if `take_rows` is supported; it also requires an exact sum and rows without gaps."""
        return self.contributions.takes_rows and (self.collector is None or self.collector().takes_rows)

    def take_rows(self, chunk: Rows, rows: slice) -> Sums:
        """Do both halves at once for rows of the table, (n_rows, n_columns), in the order of its columns."""
        own, scores = self.begin(), np.empty((1, len(chunk)))
        sums = scores, own.counts, own.entropies, own.collected
        self.contributions.pass_rows(np.ascontiguousarray(chunk), self.order, self.log_weights, *sums)
        if self.log_weights is not None:
            own.seen.append((scores[0], rows))
        own.scores += scores.sum()
        return own.rank()

    def contribute(self, tile: Tile, room: Array | None = None) -> Array:
        """First half: the blocks' contributions to the network's sum; (n_blocks or 1, n_components, n_rows).

        The array `room` of the last tile is reused if it has the right shape: allocating memory takes longer.
        """
        n_targets = len(self.view_of_block) if self.separate else 1
        out = like_last(room, (n_targets, self.n_components, tile.XT.shape[1]))
        out[...] = 0.0
        self.contributions.add(tile, self.targets, out)
        return out

    def term(self, table: Table, rows: slice, scalars: Array = NONE) -> Term:
        """Return one block's term of a sum over a slice of a table's rows, with scalars to be summed as well."""

        def parts() -> Iterator[tuple[slice, Array]]:
            found, size = None, self.rows_of(TERM_VALUES)
            for first in range(rows.start, rows.stop, size):
                chunk = table[first : min(first + size, rows.stop)]
                for tile in self.tiles(chunk, first - rows.start, TERM_VALUES):
                    found = self.contribute(tile, found)
                    yield tile.rows, found[0]

        return Term(Shape(rows.stop - rows.start, self.n_components, len(scalars)), parts, scalars)

    def collect(self, tile: Tile, sums: Array, into: Sums, *, first: int = 0, compare: bool = False) -> None:
        """Second half: replace the sums by responsibilities, and collect statistics.

        Parameters
        ----------
        tile : Tile
        sums : array of shape (n_views, n_components, n_rows)
        into : Sums
        first : int, default=0
            The view in which rows with low scores are looked for.
        compare : bool, default=False
            Measure the disagreement between views.
        """
        scores = np.empty((self.n_views, tile.XT.shape[1]))
        if self.log_weights is None:
            kernels.respond_nearest(sums, scores, into.counts)
        else:
            # A row that every party lacks has no likelihood, so that it must not rank among the worst.
            is_missing = ~(sums[first] != 0).any(axis=0) if self.may_lack_rows else False
            kernels.respond(sums, self.log_weights, scores, into.counts, into.entropies, self.may_lack_rows)
            into.seen.append((np.where(is_missing, np.inf, scores[first]), tile.rows))
        into.scores += scores.sum(axis=1)
        if compare and self.n_views > 1:
            into.disagreement += compare_views(sums)
        if into.collected is not None:
            into.collected.collect(tile, sums, self.views)

    def run_with(self, run: Callable[[Pass], Sums]) -> Sums:
        """Run the second half over all rows, and repeat it if the collected sums have lost precision."""
        found = run(self)
        again = None if found.collected is None else found.collected.again()
        return found if again is None else run(replace(self, collector=again))


def em_pass(
    packed: Packed,
    order: NDArray[np.intp],
    overall: Overall | None,
    log_weights: Array,
    view_of_block: Numbers,
    *,
    separate: bool = False,
    statistics: bool = True,
    may_lack_rows: bool = True,
) -> Pass:
    """Return the pass of an E-step with these parameters.

    `overall` describes the same rows. It is None for other rows, of which no statistics are collected.
    """
    collector = None
    if statistics and overall is not None:
        collector = packed.collector(overall.means[order], overall.variances[order])
    return Pass(
        contributions=packed,
        n_components=packed.layout.n_components,
        order=order,
        block_of_column=np.repeat(np.arange(len(packed.layout.widths)), packed.layout.widths),
        has_gaps=None if overall is None else overall.has_gaps,
        log_weights=log_weights,
        packed=packed,
        collector=collector,
        view_of_block=view_of_block,
        n_views=len(log_weights),
        may_lack_rows=may_lack_rows,
        separate=separate,
    )


def kmeans_pass(
    centres: Array,
    order: NDArray[np.intp],
    block_of_column: Numbers,
    overall: Overall,
    view_of_block: Numbers,
    *,
    fill: Packed | None = None,
    n_views: int = 1,
    separate: bool = False,
    hub: int | None = None,
) -> Pass:
    """Return the pass that assigns every row to its nearest centre, by sums of -1/2 squared distances.

    Centres are (n_centres, n_columns), or (n_centres, n_features) if `overall` compares rows by features. `hub` is
    the hub that holds the columns, or None if they are the columns of all hubs.

    With `fill`, the pass collects statistics of the blocks, as for EM, and fills in gaps by the parameters of `fill`.
    Otherwise it collects each column by itself.
    """
    features = overall.by_features if hub is None else overall.features_of(hub)
    contributions, collector = parts_of_kmeans(centres, features)
    if fill is not None:
        middle = centres if features is None else None
        collector = fill.collector(overall.means[order], overall.variances[order], middle)
    return Pass(
        contributions=contributions,
        n_components=len(centres),
        order=order,
        block_of_column=block_of_column,
        has_gaps=overall.has_gaps,
        packed=fill,
        collector=collector,
        view_of_block=view_of_block,
        n_views=n_views,
        separate=separate,
    )


def like_last(room: Array | None, shape: tuple[int, ...]) -> Array:
    """Return the array of the last tile if it has this shape, otherwise a new one."""
    return room if room is not None and room.shape == shape else np.empty(shape)


def copy_of(part: Array, room: Array | None) -> Array:
    """Copy a tile's sums, which are changed in place; reuse the array of the last tile if it has the right shape."""
    found = like_last(room, part.shape)
    found[...] = part
    return found
