"""One pass over the rows of a simulated network: contributions, their sum, responsibilities, statistics.

No array of size agents x rows x components is allocated: a tile of rows is processed completely before the next one
is read. Threads process chunks of tiles. Each chunk has its own sums, which are added in the order of the rows, so
that the result is bitwise independent of the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.density import Density
from vpem.core.blocks.kmeans_features import parts_of_kmeans
from vpem.core.blocks.sweep import ONE_VIEW, Pass, Sums, copy_of, em_pass, kmeans_pass
from vpem.core.blocks.tiles import Tile
from vpem.core.network.sums import SINGLE, Series, Shape, Term
from vpem.core.rows import Rows, row_chunks
from vpem.core.script.context import Distances, LogDensities
from vpem.simulation.channel import Channel
from vpem.simulation.model import Mixture, Problem
from vpem.simulation.threads import ordered_map

Array = NDArray[np.float64]

NARROW = 16
"""Largest number of columns for which a row is too short to vectorize along it; tiles vectorize along columns."""


class Sum(NamedTuple):
    """Series of a sum, and the numbers that travel with it."""

    series: Series = SINGLE
    n_decisions: int = 0
    scalars: Array | None = None
    """(n_hubs, n_scalars): numbers that blocks add in addition to their rows."""


class Halves(NamedTuple):
    """Functions that make a pass of all blocks, and the first half of a pass of one block."""

    together: Callable[[bool], Pass]
    """Make the pass of all blocks; called with True if it collects statistics."""
    alone: Callable[[int], Pass]
    """Make the first half of a hub's pass, over the table `Problem.by_columns`, for sums that need whole terms."""
    n_components: int


def em_halves(problem: Problem, channel: Channel, density: Density, terms: LogDensities | Mixture) -> Halves:
    """Make the passes of an E-step."""
    weights = terms.weights[:1] if channel.n_views == 1 else terms.weights
    log_weights = np.log(np.broadcast_to(weights, (channel.n_views, weights.shape[1])))
    n_components = weights.shape[1]

    def alone(hub: int) -> Pass:
        packed = problem.pack(density, terms.blocks[hub : hub + 1], n_components, hub)
        found = em_pass(packed, problem.columns_of[hub], None, log_weights[:1], ONE_VIEW)
        return replace(found, has_gaps=problem.overall.has_gaps[problem.order])

    def together(statistics: bool) -> Pass:
        return em_pass(
            problem.pack(density, terms.blocks, n_components),
            problem.order,
            problem.overall,
            log_weights,
            channel.view_of_hub,
            separate=not channel.is_exact,
            statistics=statistics,
            # Agents know only their own gaps: they interpret a sum of zeros as a row that no party has.
            may_lack_rows=channel.linear is None or bool(problem.overall.has_gaps.any()),
        )

    return Halves(together, alone, n_components)


def kmeans_halves(problem: Problem, channel: Channel, density: Density, terms: Distances) -> Halves:
    """Make the passes of k-means, which assign every row to the nearest centre in its root's view."""
    centres = terms.centres

    def alone(hub: int) -> Pass:
        columns = problem.columns_of[hub]
        zeros = np.zeros(len(columns), dtype=np.int64)
        found = kmeans_pass(centres[hub], columns, zeros, problem.overall, ONE_VIEW, hub=hub)
        return replace(found, has_gaps=problem.overall.has_gaps[problem.order])

    def together(_: bool) -> Pass:
        fill = problem.pack(density, terms.fill, len(centres[0])) if terms.fill else None
        return kmeans_pass(
            np.concatenate(centres, axis=1),
            problem.order,
            problem.block_of_column,
            problem.overall,
            channel.view_of_hub,
            fill=fill,
            n_views=channel.n_views,
            separate=not channel.is_exact,
        )

    return Halves(together, alone, len(centres[0]))


class RowSum:
    """Sum over rows: computed at once if it needs whole terms, otherwise tile by tile when it is collected.

    Parameters
    ----------
    problem : Problem
    channel : Channel
    halves : Halves
    about : Sum, optional
    within : slice, optional
        Rows to use; by default all.
    """

    def __init__(
        self,
        problem: Problem,
        channel: Channel,
        halves: Halves,
        about: Sum = Sum(),  # noqa: B008 (it cannot be changed)
        within: slice | None = None,
    ):
        self.problem, self.channel = problem, channel
        self.within = slice(0, len(problem.X)) if within is None else within
        scalars = np.empty((len(problem.network.hubs), 0)) if about.scalars is None else about.scalars
        shape = Shape(self.within.stop - self.within.start, halves.n_components, scalars.shape[1])
        self.whole = np.empty((0, 0, 0))
        """(n_views, n_components, n_rows) if the sum needs whole terms; otherwise empty."""
        if channel.linear is not None:
            channel.count(shape, about.n_decisions)
            self.scalars = channel.linear.add(scalars)
            return
        table = problem.by_columns.T

        def term(hub: int) -> Term:
            return halves.alone(hub).term(table, self.within, scalars[hub])

        sums = channel.add(term, shape, about.series, about.n_decisions)
        whole, self.scalars = np.split(sums, [shape.n_rows * shape.width], axis=1)
        self.whole = whole.reshape(channel.n_views, shape.width, shape.n_rows)

    def collect(self, halves: Pass, *, compare: bool = False) -> Sums:
        """Collect the sums over the rows; with `compare`, also the disagreement of the roots."""
        problem, channel, within, adder = self.problem, self.channel, self.within, self.channel.linear
        first = int(channel.view_of_hub[0])
        is_plain = channel.is_exact and len(problem.order) > NARROW and not problem.overall.has_gaps.any()
        if adder is None:
            halves = halves.in_order()
        chunks = list(row_chunks(within.start, within.stop, halves.values_per_row))

        def read(rows: slice) -> Rows:
            return problem.by_columns[:, rows].T if adder is None else problem.read(rows)

        def run(halves: Pass) -> Sums:
            def by_tiles(rows: slice) -> Sums:
                own, sums = halves.begin(), None
                for tile in halves.tiles(read(rows), rows.start):
                    if adder is None:
                        here = slice(tile.rows.start - within.start, tile.rows.stop - within.start)
                        sums = copy_of(self.whole[:, :, here], sums)
                    elif adder.is_exact:
                        sums = halves.contribute(tile, sums)
                    else:
                        sums = adder.add(halves.contribute(tile))
                    halves.collect(tile, sums, own, first=first, compare=compare)
                return own.rank()

            def by_rows(rows: slice) -> Sums:
                return halves.take_rows(problem.read(rows), rows)

            work = by_rows if is_plain and halves.takes_rows else by_tiles
            with ordered_map(problem.threads, problem.n_threads, work, chunks) as parts:
                total = next(parts)
                for part in parts:
                    total.add(part)
            return total

        return halves.run_with(run)


def e_step(
    problem: Problem,
    channel: Channel,
    mixture: Mixture,
    about: Sum = Sum(),  # noqa: B008 (it cannot be changed)
    *,
    statistics: bool = True,
    compare: bool = False,
) -> Sums:
    """Make one pass over all rows with fixed parameters; scores are the roots' log-likelihoods."""
    halves = em_halves(problem, channel, mixture.density, mixture)
    return RowSum(problem, channel, halves, about).collect(halves.together(statistics), compare=compare)


def distances_seen_first(problem: Problem, channel: Channel, centres: Array) -> Iterator[tuple[slice, Array]]:
    """Squared distances of all rows to some centres that the root of the first hub gets, if the sum is a matrix.

    Parameters
    ----------
    problem : Problem
    channel : Channel
    centres : array of shape (n_centres, n_features)
        Columns in the order of the blocks.

    Yields
    ------
    rows : slice
        Chunk of the rows, in order.
    distances : array of shape (n_rows, n_centres)
    """
    contributions, adder = parts_of_kmeans(centres, problem.overall.by_features)[0], channel.linear
    assert adder is not None, "the sum is a matrix"
    n_targets = 1 if channel.is_exact else len(problem.network.hubs)

    def work(rows: slice) -> tuple[slice, Array]:
        chunk = problem.read(rows)
        out = np.zeros((n_targets, len(centres), len(chunk)))
        if channel.is_exact:
            contributions.add_rows(chunk, problem.order, out[0])
        else:
            contributions.add(Tile(problem.columns_first(chunk), rows), problem.block_of_column, out)
            out = adder.seen_by(int(channel.view_of_hub[0])).add(out)
        return rows, -2.0 * out[0].T

    chunks = row_chunks(0, len(problem.X), 4 * max(problem.X.shape[1], len(centres) * n_targets))
    with ordered_map(problem.threads, problem.n_threads, work, chunks) as parts:
        yield from parts
