"""One pass over the rows of a simulated network: contributions, their sum, responsibilities, statistics.

Nothing of size agents x rows x components is held: a tile of rows goes all the way before the next one is read.
Threads share out chunks of tiles. Each chunk has sums of its own, and these are added in the order of the rows, so
that the result is the same, bit for bit, however many threads there are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.sweep import Pass, Sums
from vpem.core.blocks.tiles import Distances, Tile
from vpem.core.network.summation import Adder
from vpem.core.rows import row_chunks
from vpem.simulation.model import Problem
from vpem.simulation.threads import ordered_map

Array = NDArray[np.float64]

NARROW = 16
"""Columns up to which a row is too short for vectors along it; tiles have vectors along their columns."""


def sweep(
    problem: Problem, adder: Adder, halves: Pass, *, within: slice | None = None, compare: bool = False
) -> Sums:
    """One pass over some rows.

    Parameters
    ----------
    problem : Problem
    adder : Adder
        What happens between the halves.
    halves : Pass
    within : slice, optional
        Only these rows.
    compare : bool, default=False
        Find the largest disagreement between roots.
    """
    within = slice(0, len(problem.X)) if within is None else within
    first = int(adder.view_of_hub[0])
    is_plain = adder.is_exact and len(problem.order) > NARROW and not problem.overall.has_gaps.any()
    chunks = list(row_chunks(within.start, within.stop, halves.values_per_row))

    def run(halves: Pass) -> Sums:
        def by_tiles(rows: slice) -> Sums:
            own = halves.begin()
            for tile in halves.tiles(problem.read(rows), rows.start):
                terms = halves.contribute(tile)
                sums = terms if adder.is_exact else adder.add(terms, tile.rows)
                halves.collect(tile, sums, own, first=first, compare=compare)
            return own.rank()

        def by_rows(rows: slice) -> Sums:
            return halves.take_rows(problem.read(rows), rows)

        work = by_rows if is_plain and halves.takes_rows else by_tiles
        total: Sums | None = None
        with ordered_map(problem.threads, problem.n_threads, work, chunks) as parts:
            for part in parts:
                if total is None:
                    total = part
                else:
                    total.add(part)
        assert total is not None, "a table has rows"
        return total

    return halves.run_with(run)


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
            contributions.add_rows(chunk, problem.order, out[0])
            return rows, out
        contributions.add(Tile(problem.columns_first(chunk), rows), targets, out)
        return rows, adder.add(out, rows)

    chunks = row_chunks(0, len(problem.X), 4 * max(problem.X.shape[1], n_values * n_targets))
    with ordered_map(problem.threads, problem.n_threads, work, chunks) as parts:
        yield from parts
