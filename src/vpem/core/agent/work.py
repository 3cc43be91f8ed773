"""What one agent works with between its exchanges with the network: its part, and the columns of its block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.meeting import Roles
from vpem.core.agent.progress import Array, Integers
from vpem.core.blocks.arrays import Block, Statistics
from vpem.core.blocks.batches import batch_slices
from vpem.core.blocks.density import Density
from vpem.core.blocks.overall import Overall, describe
from vpem.core.blocks.sweep import ONE_VIEW, Pass, Sums, copy_of, em_pass, kmeans_pass
from vpem.core.blocks.tiles import Layout
from vpem.core.decisions.initial import START, shared_generator
from vpem.core.decisions.labels import Labels
from vpem.core.decisions.local import draw_seed
from vpem.core.decisions.starts import Given
from vpem.core.network.hubs import Hub, HubNumber, Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Shape, Summation, Term
from vpem.core.rows import Table, row_chunks, without_rows
from vpem.core.settings import Agreement, Settings


class Offer(NamedTuple):
    """What an agent brings to an exchange."""

    shape: Shape = Shape(0, 0)
    """Of the sum, the same for all agents."""
    values: NDArray[Any] | Term | None = None
    """A root's term."""
    decision: Array | None = None
    columns: Array | None = None
    """A party's own, to be pooled."""
    series: str = ""
    """Of the sum; see `vpem.core.network.summation.Place`."""


class Outcome(NamedTuple):
    """What an exchange has brought."""

    values: Array
    """The sum, as this agent sees it; empty if there was none."""
    decision: Array
    """Empty if there was none."""


class StudyError(Exception):
    """The study cannot go on, and every agent knows by itself."""


@dataclass(eq=False)
class Work:
    """What an agent works with, beside its progress."""

    roles: Roles
    position: Position
    own: Table | None
    """A party's own columns."""
    pooled: Array | None
    """Its hub's, if it is the root of several."""
    given: Given
    holders: Integers | None = None
    """(n_rows,): how many blocks have each row, if that was counted."""
    keys: Integers | None = None
    """(n_rows,): by which the party knows rows that come again; 0 for rows without one."""

    @property
    def settings(self) -> Settings:
        """How the mixture is fitted."""
        return self.roles.agreement.settings

    @property
    def density(self) -> Density:
        """How columns are distributed within a component."""
        return self.settings.density

    @cached_property
    def is_root(self) -> bool:
        """Whether it has a block."""
        return self.roles.network.is_root(self.position)

    @property
    def hub(self) -> HubNumber:
        """Number of its hub."""
        hub = self.roles.network.hub_of[self.position]
        assert hub is not None, "a server has no hub"
        return hub

    @cached_property
    def is_first_root(self) -> bool:
        """Whether it chooses for all."""
        return self.is_root and self.hub == 0

    @cached_property
    def table(self) -> Table:
        """The columns of its block."""
        table = self.own if self.pooled is None else self.pooled
        assert table is not None, "a root has columns"
        return table if self.holders is None else without_rows(table, self.holders, self.least_holders)

    @property
    def least_holders(self) -> int:
        """How many blocks must have a row for it to be added."""
        return self.summation.least_holders(self.roles.network)

    @property
    def predicting(self) -> str:
        """The phase in which new rows begin to be added."""
        return "new holders" if self.least_holders > 1 else "predict"

    @property
    def summation(self) -> Summation:
        """How the network adds."""
        return self.roles.agreement.summation

    @property
    def is_lossy(self) -> bool:
        """Whether sums lag behind."""
        return self.summation.is_lossy

    @cached_property
    def batches(self) -> list[slice]:
        """All rows, in batches if agreed."""
        return batch_slices(self.roles.n_rows, self.roles.agreement.batch_size or self.roles.n_rows)

    @cached_property
    def lone(self) -> Network:
        """A network of this root's hub alone: its own block is all that it can describe."""
        network = self.roles.network
        members = network.hub(self.position).members
        ends = np.cumsum([len(network.columns[member]) for member in members])
        held = np.split(np.arange(self.table.shape[1], dtype=np.intp), ends[:-1])
        hub = Hub(Position(members.index(self.position)), tuple(map(Position, range(len(members)))))
        return Network(tuple(network.parties[member] for member in members), tuple(held), None, (hub,))

    @cached_property
    def overall(self) -> Overall:
        """Moments of its block."""
        return describe(self.table, self.lone, self.density)

    def rows(self, numbers: Integers) -> Array:
        """Its part of some rows; a gap becomes the column's mean."""
        return self.overall.rows(self.table, numbers.astype(np.intp), self.lone)[0]

    def centres(self, numbers: Integers) -> Array:
        """The same as centres of k-means."""
        return self.overall.centres(self.table, numbers.astype(np.intp), self.lone)[0]

    @cached_property
    def columns(self) -> NDArray[np.intp]:
        """Numbers of its block's columns."""
        return np.arange(self.table.shape[1], dtype=np.intp)

    @cached_property
    def layout(self) -> Layout:
        """Of its block alone."""
        return self.density.layout([len(self.columns)], self.settings.n_components)

    def em_pass(self, block: Block, weights: Array, *, new_rows: bool = False) -> Pass:
        """E-step of its block; of new rows nothing is collected."""
        overall = None if new_rows else self.overall
        packed = self.density.pack([block], self.layout)
        return em_pass(packed, self.columns, overall, np.log(weights)[None], ONE_VIEW)

    def kmeans_pass(self, centres: Array, fill: Block | None = None) -> Pass:
        """Distances to centres, (n_centres, n_columns), and what their rows give; with `fill`, as EM needs it."""
        packed = None if fill is None else self.density.pack([fill], self.layout)
        zeros = np.zeros(len(self.columns), dtype=np.int64)
        return kmeans_pass(centres, self.columns, zeros, self.overall, ONE_VIEW, fill=packed)

    def collect(self, halves: Pass, rows: slice, sums: Array) -> Sums:
        """What some rows give, from the network's sums of them, (n_components, n_rows)."""

        def run(halves: Pass) -> Sums:
            total, here = halves.begin(), None
            for chunk in row_chunks(rows.start, rows.stop, halves.values_per_row):
                for tile in halves.tiles(self.table[chunk], chunk.start):
                    own = sums[None, :, tile.rows.start - rows.start : tile.rows.stop - rows.start]
                    here = copy_of(own, here)
                    halves.collect(tile, here, total)
                total.rank()
            return total

        return halves.run_with(run)

    def m_step(self, statistics: Statistics, previous: Block) -> tuple[Block, list[int]]:
        """New parameters of the block, and what could not have any."""
        return self.density.m_step(statistics, previous, self.overall.columns[0])


def label_exchange(agreement: Agreement, start: int) -> Labels:
    """The exchange of labels from which one of the starts begins."""
    seed = draw_seed(shared_generator(agreement.seed, START, start))
    return Labels(agreement.settings.n_components, seed)


def row_numbers(decision: Array, n_rows: int) -> Integers:
    """Numbers of rows that one agent chose for all; StudyError if they are none."""
    if not ((decision >= 0) & (decision < n_rows) & (decision % 1 == 0)).all():
        raise StudyError(
            f"expected numbers of rows from 0 to {n_rows - 1} from the first root, got {decision.tolist()}"
        )
    return decision.astype(np.int64)
