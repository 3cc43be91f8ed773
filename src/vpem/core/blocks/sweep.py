"""One pass over the rows, in two halves, with the network's sum between them.

`Pass.contribute` turns a tile of rows into what its blocks add to the sum; `Pass.collect` turns the tile and the sums
into responsibilities, and these into statistics. The simulation has all blocks in one pass and adds between the
halves, tile by tile; an agent has its own block, and an exchange with the network between the halves. EM and k-means
are the same pass with other contributions and responsibilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks import kernels
from vpem.core.blocks.arrays import Statistics
from vpem.core.blocks.features import FeatureTally, parts_of_kmeans
from vpem.core.blocks.overall import Overall
from vpem.core.blocks.tiles import (
    Collector,
    ColumnTally,
    Contributions,
    Numbers,
    Packed,
    Tile,
    columns_first,
)
from vpem.core.network.summation import Shape, Term
from vpem.core.rows import Rows, Table

Array = NDArray[np.float64]

TILE_VALUES = 2**17
"""Values of one array in a tile: a MiB, which fits a cache near the core and outweighs the interpreter."""

TERM_VALUES = 2**18
"""The same where terms are made in several threads, which wait for the interpreter between tiles."""

N_WORST = 16
"""How many badly explained rows a pass remembers."""

EQUAL = 1e-9
"""Relative difference of scores below which rows count as equal."""

NONE = np.empty(0)
"""No scalars."""

ONE_VIEW: Numbers = np.zeros(1, dtype=np.int64)
"""Which result of a sum one block alone goes by."""

EQUAL_SHARES = 1e-6
"""Difference of responsibilities below which another label is a matter of rounding."""


@dataclass(eq=False)
class Sums:
    """What a pass adds up."""

    counts: Array
    """(n_views, n_components): sums of each view's responsibilities."""
    scores: Array
    """(n_views,): sums over rows of log-likelihoods; in k-means, of squared distances."""
    entropies: Array
    """(n_views,): of the responsibilities."""
    collected: Collector | None
    """What every block collects, by its own view's responsibilities."""
    disagreement: float = 0.0
    """Largest difference between two views' responsibilities."""
    differences: float = 0.0
    """Sum over rows of the largest difference between two views' responsibilities."""
    n_split: int = 0
    """Rows whose most probable component is not the same in all views."""
    worst: tuple[Array, NDArray[np.intp]] = field(default_factory=lambda: (np.empty(0), np.empty(0, dtype=np.intp)))
    """Lowest scores of single rows, in the first view, in ascending order; and those rows."""

    def statistics(self) -> tuple[Statistics, ...]:
        """Each block's; none if nothing was collected."""
        return () if self.collected is None else self.collected.statistics()

    def means(self) -> Array:
        """Weighted means of all columns in k-means, in the order of the pass; (n_components, n_columns)."""
        assert isinstance(self.collected, ColumnTally | FeatureTally), "k-means collects columns"
        return self.collected.means()

    seen: list[tuple[Array, slice]] = field(default_factory=list)
    """Scores of rows that are not ranked yet: many tiles at once are cheaper."""

    def rank(self) -> Sums:
        """Remember the worst of the rows that were seen."""
        if self.seen:
            scores = np.concatenate([self.worst[0], *(own for own, _ in self.seen)])
            numbers = (np.arange(rows.start, rows.stop) for _, rows in self.seen)
            self.worst, self.seen = lowest(scores, np.concatenate([self.worst[1], *numbers])), []
        return self

    def add(self, other: Sums) -> None:
        """Take in what later rows gave."""
        self.counts += other.counts
        self.scores += other.scores
        self.entropies += other.entropies
        self.disagreement = max(self.disagreement, other.disagreement)
        self.differences += other.differences
        self.n_split += other.n_split
        if self.collected is not None and other.collected is not None:
            self.collected.add(other.collected)
        scores, rows = (np.concatenate(pair) for pair in zip(self.worst, other.worst, strict=True))
        self.worst = lowest(scores, rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pass:
    """What a pass over rows works with; made by `em_pass` and `kmeans_pass`."""

    contributions: Contributions
    n_components: int
    order: NDArray[np.intp]
    """Columns of the table, block by block."""
    block_of_column: Numbers
    """(n_columns,): of the columns in this order."""
    has_gaps: NDArray[np.bool_] | None
    """(n_columns,): which columns of the table may have gaps; None: look at each tile."""
    log_weights: Array | None = None
    """(n_views, n_components): of EM; None in k-means, where a row belongs to the nearest centre."""
    packed: Packed | None = None
    """The blocks, where statistics of blocks are collected; they look at each tile."""
    collector: Callable[[], Collector] | None = None
    """How to make an empty collector; None: collect nothing."""
    view_of_block: Numbers
    """(n_blocks,): which result of the sum each block goes by."""
    n_views: int = 1
    may_lack_rows: bool = True
    """Whether there may be rows that no party has."""
    separate: bool = False
    """Whether each block's contributions are wanted by themselves; otherwise their sum."""

    @cached_property
    def targets(self) -> Numbers:
        """(n_columns,): where each column's contributions are added."""
        return self.block_of_column if self.separate else np.zeros(len(self.order), dtype=np.int64)

    @cached_property
    def views(self) -> Numbers:
        """(n_columns,): by which result of the sum it goes."""
        return np.asarray(self.view_of_block, dtype=np.int64)[self.block_of_column]

    @property
    def values_per_row(self) -> int:
        """Numbers of the largest array."""
        n_targets = len(self.view_of_block) if self.separate else 1
        return max(len(self.order), self.n_components * max(n_targets, self.n_views))

    def in_order(self) -> Pass:
        """The second half of a table whose columns are in the order of the blocks."""
        has_gaps = None if self.has_gaps is None else self.has_gaps[self.order]
        return replace(self, order=np.arange(len(self.order)), has_gaps=has_gaps, separate=False)

    def begin(self) -> Sums:
        """Sums of no rows."""
        zeros = np.zeros((self.n_views, self.n_components)), np.zeros(self.n_views), np.zeros(self.n_views)
        return Sums(*zeros, None if self.collector is None else self.collector())

    def rows_of(self, n_values: int) -> int:
        """Rows of a tile whose largest array has so many values."""
        return max(64, n_values // self.values_per_row // 64 * 64)

    def tiles(self, chunk: Rows, start: int, n_values: int = TILE_VALUES) -> Iterator[Tile]:
        """Tiles of some rows of the table, (n_rows, n_columns), of which the first has the number `start`."""
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
        """Whether `take_rows` works, if the sum is exact and nothing is missing."""
        return self.contributions.takes_rows and (self.collector is None or self.collector().takes_rows)

    def take_rows(self, chunk: Rows, rows: slice) -> Sums:
        """Both halves at once, for rows of the table (n_rows, n_columns) as they lie in memory."""
        own, scores = self.begin(), np.empty((1, len(chunk)))
        sums = scores, own.counts, own.entropies, own.collected
        self.contributions.pass_rows(np.ascontiguousarray(chunk), self.order, self.log_weights, *sums)
        if self.log_weights is not None:
            own.seen.append((scores[0], rows))
        own.scores += scores.sum()
        return own.rank()

    def contribute(self, tile: Tile, room: Array | None = None) -> Array:
        """First half: what the blocks add to the network's sum; (n_blocks or 1, n_components, n_rows).

        It is in the array of the last tile, if that is given and has the same shape: fresh memory takes longer.
        """
        n_targets = len(self.view_of_block) if self.separate else 1
        out = like_last(room, (n_targets, self.n_components, tile.XT.shape[1]))
        out[...] = 0.0
        self.contributions.add(tile, self.targets, out)
        return out

    def term(self, table: Table, rows: slice, scalars: Array = NONE) -> Term:
        """What one block adds to a sum over some rows of a table, with some scalars."""

        def parts() -> Iterator[tuple[slice, Array]]:
            found, size = None, self.rows_of(TERM_VALUES)
            for first in range(rows.start, rows.stop, size):
                chunk = table[first : min(first + size, rows.stop)]
                for tile in self.tiles(chunk, first - rows.start, TERM_VALUES):
                    found = self.contribute(tile, found)
                    yield tile.rows, found[0]

        return Term(Shape(rows.stop - rows.start, self.n_components, len(scalars)), parts, scalars)

    def collect(self, tile: Tile, sums: Array, into: Sums, *, first: int = 0, compare: bool = False) -> None:
        """Second half: responsibilities, in place of the sums, and what they give.

        Parameters
        ----------
        tile : Tile
        sums : array of shape (n_views, n_components, n_rows)
        into : Sums
        first : int, default=0
            The view in which badly explained rows are looked for.
        compare : bool, default=False
            Find how far views disagree.
        """
        scores = np.empty((self.n_views, tile.XT.shape[1]))
        if self.log_weights is None:
            kernels.respond_nearest(sums, scores, into.counts)
        else:
            # A row that is missing everywhere is explained neither well nor badly.
            is_missing = ~(sums[first] != 0).any(axis=0) if self.may_lack_rows else False
            kernels.respond(sums, self.log_weights, scores, into.counts, into.entropies, self.may_lack_rows)
            into.seen.append((np.where(is_missing, np.inf, scores[first]), tile.rows))
        into.scores += scores.sum(axis=1)
        if compare and self.n_views > 1:
            differences = (sums.max(axis=0) - sums.min(axis=0)).max(axis=0)
            labels = sums.argmax(axis=1)
            into.disagreement = max(into.disagreement, float(differences.max()))
            into.differences += float(differences.sum())
            # Of components that are equally probable to rounding, either may come first.
            into.n_split += int(((labels != labels[0]).any(axis=0) & (differences > EQUAL_SHARES)).sum())
        if into.collected is not None:
            into.collected.collect(tile, sums, self.views)

    def run_with(self, run: Callable[[Pass], Sums]) -> Sums:
        """Run the second half over all rows; once more if what was collected has lost digits."""
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
    """E-step with these parameters; `overall` of the same rows, or None for other rows, which are not collected."""
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
    """Every row to the nearest of the centres, (n_centres, n_columns), by sums of -1/2 squared distances.

    Where `overall` compares rows by features, centres are (n_centres, n_features); `hub` is the one whose columns
    these are, if they are not those of all.

    With `fill`, for which gaps are filled in, blocks are collected as EM needs them; otherwise each column by itself.
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
    """The array of the last tile, if there was one and it has this shape; otherwise a new one."""
    return room if room is not None and room.shape == shape else np.empty(shape)


def copy_of(part: Array, room: Array | None) -> Array:
    """A copy of a tile's sums, which are changed in place; in the array of the last tile, if that fits."""
    found = like_last(room, part.shape)
    found[...] = part
    return found


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
