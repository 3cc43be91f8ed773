"""One pass over the rows of a simulated network: contributions, their sum, responsibilities, statistics.

Nothing of size agents x rows x components is held: a tile of rows goes all the way before the next one is read.
Threads share out chunks of tiles. Each chunk has sums of its own, and these are added in the order of the rows, so
that the result is the same, bit for bit, however many threads there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.features import parts_of_kmeans
from vpem.core.blocks.sweep import Pass, Sums, copy_of
from vpem.core.blocks.tiles import Tile
from vpem.core.network.summation import Shape, Term
from vpem.core.rows import Rows, row_chunks
from vpem.simulation.channel import Channel
from vpem.simulation.model import Problem
from vpem.simulation.threads import ordered_map

Array = NDArray[np.float64]

NARROW = 16
"""Columns up to which a row is too short for vectors along it; tiles have vectors along their columns."""


class Sum(NamedTuple):
    """What agents would say of a sum, and what rides on it."""

    series: str = ""
    n_decisions: int = 0
    scalars: Array | None = None
    """(n_hubs, n_scalars): what blocks add beside their rows."""


def sweep(
    problem: Problem,
    channel: Channel,
    halves: Pass,
    alone: Callable[[int], Pass],
    about: Sum = Sum(),  # noqa: B008 (it cannot be changed)
    *,
    within: slice | None = None,
    compare: bool = False,
) -> tuple[Sums, Array]:
    """One pass over some rows.

    Parameters
    ----------
    problem : Problem
    channel : Channel
        What happens between the halves.
    halves : Pass
    alone : callable
        The first half for one of the hubs, over the table `Problem.by_columns`: for sums that take terms whole.
    about : Sum, optional
    within : slice, optional
        Only these rows.
    compare : bool, default=False
        Find the largest disagreement between roots.

    Returns
    -------
    sums : Sums
    scalars : array of shape (n_views, n_scalars)
    """
    within = slice(0, len(problem.X)) if within is None else within
    first, adder = int(channel.view_of_hub[0]), channel.linear
    whole, scalars = _add(problem, channel, halves.n_components, alone, about, within)
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
                    sums = copy_of(whole[:, :, here], sums)
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

    return halves.run_with(run), scalars


def _add(
    problem: Problem, channel: Channel, n_components: int, alone: Callable[[int], Pass], about: Sum, within: slice
) -> tuple[Array, Array]:
    """The sums of rows that cannot be added tile by tile, (n_views, n_components, n_rows); and of the scalars."""
    n_hubs, adder = len(problem.network.hubs), channel.linear
    scalars = np.empty((n_hubs, 0)) if about.scalars is None else about.scalars
    shape = Shape(within.stop - within.start, n_components, scalars.shape[1])
    if adder is not None:
        channel.count(shape, about.n_decisions)
        return np.empty((0, 0, 0)), adder.add(scalars)
    table = problem.by_columns.T

    def term(hub: int) -> Term:
        return alone(hub).term(table, within, scalars[hub])

    sums = channel.add(term, shape, about.series, about.n_decisions)
    whole, scalars = np.split(sums, [shape.n_rows * shape.width], axis=1)
    return whole.reshape(channel.n_views, shape.width, shape.n_rows), scalars


def distances_seen_first(problem: Problem, channel: Channel, centres: Array) -> Iterator[tuple[slice, Array]]:
    """Squared distances of all rows to some centres, as the root of the first hub sees them.

    Parameters
    ----------
    problem : Problem
    channel : Channel
    centres : array of shape (n_centres, n_features)
        Columns in the order of the blocks.

    Yields
    ------
    rows : slice
        Some of all rows, in order; all at once if the sum takes them whole, which sends it.
    distances : array of shape (n_rows, n_centres)
    """
    contributions, adder = parts_of_kmeans(centres, problem.overall.by_features)[0], channel.linear
    shape, first = Shape(len(problem.X), len(centres)), int(channel.view_of_hub[0])
    n_targets = 1 if channel.is_exact else len(problem.network.hubs)

    def work(rows: slice) -> tuple[slice, Array]:
        chunk = problem.read(rows)
        out = np.zeros((n_targets, shape.width, len(chunk)))
        if channel.is_exact:
            contributions.add_rows(chunk, problem.order, out[0])
        else:
            contributions.add(Tile(problem.columns_first(chunk), rows), problem.block_of_column, out)
            out = out if adder is None else adder.seen_by(first).add(out)
        return rows, out

    chunks = row_chunks(0, shape.n_rows, 4 * max(problem.X.shape[1], shape.width * n_targets))
    with ordered_map(problem.threads, problem.n_threads, work, chunks) as parts:
        if adder is not None:
            for rows, terms in parts:
                yield rows, -2.0 * terms[0].T
            return
        whole = np.concatenate([terms for _, terms in parts], axis=2)
    sums = channel.add(whole.reshape(n_targets, -1), shape)[first].reshape(shape.width, shape.n_rows)
    yield slice(0, shape.n_rows), -2.0 * sums.T
