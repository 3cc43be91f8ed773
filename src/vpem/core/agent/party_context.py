"""Context of one agent: its role in the network, the columns of its block, and the sums that it receives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.meeting import Roles
from vpem.core.blocks.overall import Overall, describe
from vpem.core.blocks.sweep import ONE_VIEW, Disagreement, Pass, Sums, copy_of, em_pass, kmeans_pass
from vpem.core.blocks.tiles import Layout
from vpem.core.buffer_pool import BufferPool
from vpem.core.decisions.starts import Given
from vpem.core.network.hubs import Hub, Position
from vpem.core.network.parties import Network
from vpem.core.network.sums import Shape, Term
from vpem.core.rows import Holders, Table, row_chunks, without_rows
from vpem.core.script.context import Context, Distances, LogDensities, Offer
from vpem.core.script.state import Array, Integers, Progress


@dataclass(eq=False, kw_only=True)
class PartyContext(Context):
    """Context of an agent, which has one block at the root of a hub and none elsewhere."""

    roles: Roles
    position: Position
    own: Table | None
    """Columns of the party itself; None for a server."""
    pooled: Array | None
    """Columns of its hub, if it is the root of a hub of several parties."""
    is_prediction: bool = False
    """True for new rows, from which no statistics are collected."""

    @property
    def is_root(self) -> bool:
        """True if the agent has a block."""
        return bool(self.hubs)

    @cached_property
    def table(self) -> Table:
        """Columns of the agent's block, without the rows that too few blocks have."""
        table = self.own if self.pooled is None else self.pooled
        assert table is not None, "a root has columns"
        return table if self.holders is None else without_rows(table, Holders(self.holders, self.least_holders))

    @cached_property
    def local(self) -> Network:
        """Network of this root's hub alone, because a root can describe only its own block."""
        network = self.network
        members = network.hub(self.position).members
        ends = np.cumsum([len(network.columns[member]) for member in members])
        held = np.split(np.arange(self.table.shape[1], dtype=np.intp), ends[:-1])
        hub = Hub(Position(members.index(self.position)), tuple(map(Position, range(len(members)))))
        return Network(tuple(network.parties[member] for member in members), tuple(held), None, (hub,))

    @cached_property
    def overall(self) -> Overall:
        """Moments of the block."""
        return describe(self.table, self.local, self.density)

    def blurs(self, progress: Progress) -> Iterable[float]:
        """Bounds on the rounding of the last sums of each series."""
        return (self.summation.blur(carried.recall(self.summation)) for carried in progress.memories.values())

    def own_columns(self) -> Array | None:
        """Return the columns that this party sends to the root of its hub."""
        return None if self.own is None else np.asarray(self.own[:], dtype=np.float64)

    @cached_property
    def columns(self) -> NDArray[np.intp]:
        """Numbers of the block's columns."""
        return np.arange(self.table.shape[1], dtype=np.intp)

    @cached_property
    def layout(self) -> Layout:
        """Layout of the block."""
        return self.density.layout([len(self.columns)], self.settings.n_components)

    def halves(self, terms: LogDensities | Distances) -> Pass:
        """Return the pass over the block's rows that computes these terms and collects statistics from their sums."""
        if isinstance(terms, LogDensities):
            overall = None if self.is_prediction else self.overall
            packed = self.density.pack(terms.blocks, self.layout)
            return em_pass(packed, self.columns, overall, np.log(terms.weights), ONE_VIEW)
        fill = self.density.pack(terms.fill, self.layout) if terms.fill else None
        zeros = np.zeros(len(self.columns), dtype=np.int64)
        return kmeans_pass(terms.centres[0], self.columns, zeros, self.overall, ONE_VIEW, fill=fill)

    def term(self, offer: Offer) -> NDArray[Any] | Term | None:
        """Return the block's term of the sum, lazily where possible."""
        terms = offer.terms
        if terms is None:
            return None
        if isinstance(terms, Distances):
            return -2.0 * self.halves(terms).term(self.table, slice(0, offer.shape.n_rows)).whole(self.pool)
        if not isinstance(terms, LogDensities):
            return terms[0]
        term = self.halves(terms).term(self.table, terms.rows, terms.scalars[0])
        if not terms.adds_weights:
            return term
        values = term.whole(self.pool)
        if self.is_first_root:
            n_components = self.settings.n_components
            values = (values.reshape(n_components, -1) + np.log(terms.weights[0])[:, None]).ravel()
        return values


def party_context(
    roles: Roles,
    position: Position,
    given: Given,
    own: Table | None,
    pooled: Array | None,
    holders: Integers | None,
    keys: Integers | None,
    *,
    pool: BufferPool,
    is_prediction: bool,
) -> PartyContext:
    """Return the context of the agent at a position."""
    network = roles.network
    hubs: tuple[int, ...] = ()
    if network.is_root(position):
        hub = network.hub_of[position]
        assert hub is not None, "a root has a hub"
        hubs = (int(hub),)
    return PartyContext(
        network=network,
        agreement=roles.agreement,
        n_rows=roles.n_rows,
        hubs=hubs,
        pool=pool,
        given=(given,) if hubs else (),
        gone=roles.gone,
        holders=holders,
        keys=keys,
        roles=roles,
        position=position,
        own=own,
        pooled=pooled,
        is_prediction=is_prediction,
    )


@dataclass(frozen=True, eq=False)
class PartyOutcome:
    """Result of an exchange at one agent; see `vpem.core.script.context.Outcome`."""

    context: PartyContext
    shape: Shape
    total: Array
    """Shape (n_values,): the sum; empty if the exchange had none, or the agent does not receive it."""
    decision: Array

    @property
    def values(self) -> Array:
        """Shape (1, n_values): the whole sum."""
        return self.total[None]

    @property
    def scalars(self) -> Array:
        """Shape (1, n_scalars): sums of the numbers that belong to no row."""
        return self.values[:, self.shape.n_rows * self.shape.width :]

    @property
    def _sums(self) -> Array:
        """Shape (width, n_rows): the sums of rows."""
        n_rows, width = self.shape.n_rows, self.shape.width
        return self.total[: n_rows * width].reshape(width, n_rows)

    def collect(self, terms: LogDensities | Distances) -> Sums:
        """Return the statistics of the block, weighted by the responsibilities that follow from the sums."""
        is_em = isinstance(terms, LogDensities)
        rows = terms.rows if isinstance(terms, LogDensities) else slice(0, self.shape.n_rows)
        sums = self._sums if is_em else -0.5 * self._sums

        def run(halves: Pass) -> Sums:
            total, here = halves.begin(), None
            for chunk in row_chunks(rows.start, rows.stop, halves.values_per_row):
                for tile in halves.tiles(self.context.table[chunk], chunk.start):
                    own = sums[None, :, tile.rows.start - rows.start : tile.rows.stop - rows.start]
                    here = copy_of(own, here)
                    halves.collect(tile, here, total)
                total.rank()
            return total

        return self.context.halves(terms).run_with(run)

    def compare(self, _: LogDensities) -> Disagreement | None:
        """Return None, because an agent has the sums of one root only."""
        return None

    def distances(self) -> Iterator[tuple[slice, Array]]:
        """Yield the squared distances, (n_rows, n_centres), of all rows at once."""
        yield slice(0, self.shape.n_rows), self._sums.T

    def distances_to(self, centre: int) -> Array:
        """Return the squared distances to one centre, (n_rows,)."""
        found: Array = self._sums[centre].copy()
        return found
