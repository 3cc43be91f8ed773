"""Inputs of the script's phases: the study, the blocks that a driver holds, and its exchanges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block, Statistics
from vpem.core.blocks.batches import batch_slices
from vpem.core.blocks.density import Density
from vpem.core.blocks.overall import Overall
from vpem.core.blocks.sweep import ONE_VIEW, Disagreement, Sums
from vpem.core.blocks.tiles import Numbers
from vpem.core.buffer_pool import NO_POOL, BufferPool
from vpem.core.decisions.initial import KMEANS_MAX_ITER, KMEANS_TOL, START, shared_generator
from vpem.core.decisions.label_exchange import Labels
from vpem.core.decisions.local_clusters import Run, draw_seed
from vpem.core.decisions.starts import Given
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.network.sums import SINGLE, Series, Shape
from vpem.core.rows import Table
from vpem.core.script.state import Array, Integers, Parameters, Progress
from vpem.core.settings import Agreement, Settings

NO_BLOCKS = "no block is held here"


class StudyError(Exception):
    """The study cannot continue; every agent finds this out by itself."""


class LogDensities(NamedTuple):
    """Terms of an E-step: log-densities of some rows under each held block."""

    blocks: tuple[Block, ...]
    weights: Array
    """(n_views or 1, n_components): for the responsibilities; not part of the terms."""
    rows: slice
    scalars: Array
    """(n_blocks, n_scalars): numbers that each block adds in addition to its rows."""
    adds_weights: bool = False
    """True if the first root adds its log-weights, so that the sum determines the responsibilities."""


class Distances(NamedTuple):
    """Terms of k-means: squared distances of all rows to centres."""

    centres: tuple[Array, ...]
    """Each held block's part, (n_centres, n_columns)."""
    fill: tuple[Block, ...] = ()
    """Blocks by which gaps are filled in; with them statistics of blocks are collected, otherwise column means."""


Terms = LogDensities | Distances | Sequence[NDArray[Any]]
"""Terms of a sum: a description, from which a driver makes them when needed, or each held block's values."""


class Offer(NamedTuple):
    """Contribution to an exchange."""

    shape: Shape = Shape(0, 0)
    """Shape of the sum, the same for all agents."""
    terms: Terms | None = None
    """None without a block."""
    decision: Array | None = None
    """Numbers of which the network finds the smallest of all agents, element by element."""
    columns: Array | None = None
    """A party's own, to be pooled."""
    series: Series = SINGLE


class Outcome(Protocol):
    """Result of an exchange; a driver computes only the parts that a phase reads."""

    @property
    def decision(self) -> Array:
        """The decision; empty without one."""

    @property
    def values(self) -> Array:
        """The whole sum, (n_views, n_values); (1, 0) for agents that do not get it."""

    @property
    def scalars(self) -> Array:
        """Sums of the numbers that blocks added in addition to their rows; (n_views, n_scalars)."""

    def collect(self, terms: LogDensities | Distances) -> Sums:
        """Statistics of each held block, weighted by the responsibilities that follow from the sums."""

    def compare(self, terms: LogDensities) -> Disagreement | None:
        """Disagreement of the held roots; None if fresh sums would show the same."""

    def distances(self) -> Iterator[tuple[slice, Array]]:
        """Squared distances, (n_rows, n_centres), as the root of the first hub sees them, some rows at a time."""

    def distances_to(self, centre: int) -> Array:
        """Squared distances to one centre; (n_rows,)."""


@dataclass(eq=False, kw_only=True)
class Context:
    """The study, and the blocks that are held here: all in a simulation, one or none at an agent, none in a plan."""

    network: Network
    """The network of all agents."""
    agreement: Agreement
    n_rows: int
    hubs: tuple[int, ...] = ()
    """Numbers of the hubs whose blocks are held."""
    pool: BufferPool = NO_POOL
    """Buffers for large arrays."""
    given: tuple[Given, ...] = ()
    """Parameters that users gave for the start of each held block; empty without any."""
    resumed: Parameters | None = None
    """Parameters of an earlier fit, from which this one begins."""
    bound_before: Array | None = None
    """Its last bound."""
    gone: tuple[int, ...] = ()
    """Agents of the first meeting that are no longer there."""
    holders: Integers | None = None
    """(n_rows,): how many blocks have each row, if that was counted."""
    keys: Integers | None = None
    """(n_rows,): keys by which the party recognizes rows that are added again; 0 for rows without a key."""
    kmeans_max_iter: int = KMEANS_MAX_ITER
    kmeans_tol: float = KMEANS_TOL
    is_clustering_only: bool = False
    """True for k-means alone, without EM after it."""
    keeps_responsibilities: bool = True
    """True if the final responsibilities are part of the result."""
    remembers_rows: bool = True
    """True if the rows that were added are remembered; see `vpem.core.script.row_count_phases`."""
    reports_runs: bool = False
    """True if the state keeps the result of every run, not only of the best."""

    # The held blocks; drivers that hold some override these

    @property
    def table(self) -> Table:
        """The columns of all held blocks."""
        raise LookupError(NO_BLOCKS)

    @property
    def local(self) -> Network:
        """A network of the held hubs alone, whose columns are those of `table`."""
        raise LookupError(NO_BLOCKS)

    @property
    def overall(self) -> Overall:
        """Moments of the held blocks."""
        raise LookupError(NO_BLOCKS)

    @property
    def view_of_block(self) -> Numbers:
        """(n_blocks,): number of the view that each held root has of a sum."""
        return ONE_VIEW

    @property
    def n_views(self) -> int:
        """Number of different results of a sum at the held roots."""
        return 1

    @property
    def map(self) -> Run:
        """Function that maps another over the held blocks, in sequence or in threads."""
        return map

    def blurs(self, progress: Progress) -> Iterable[float]:  # noqa: ARG002 (nothing is added without a driver)
        """Bounds on the rounding of the last sums of each series; see `Summation.blur`."""
        return ()

    def own_columns(self) -> Array | None:
        """The columns that this party sends to the root of its hub."""
        return None

    # Consequences of the study

    @property
    def settings(self) -> Settings:
        """Settings of the mixture."""
        return self.agreement.settings

    @property
    def density(self) -> Density:
        """Density of the columns within a component."""
        return self.settings.density

    @property
    def summation(self) -> Summation:
        """The summation by which the network adds."""
        return self.agreement.summation

    @property
    def is_lossy(self) -> bool:
        """True if sums lag behind their terms."""
        return self.summation.is_lossy

    @property
    def is_first_root(self) -> bool:
        """True if the block of the first root, which chooses for all, is held."""
        return 0 in self.hubs

    @property
    def least_holders(self) -> int:
        """Number of blocks that must have a row for it to be added."""
        return self.summation.least_holders(self.network)

    @property
    def all_see_the_same(self) -> bool:
        """True if all roots get the same sums."""
        return self.summation.is_common or len(self.network.hubs) == 1

    @cached_property
    def batches(self) -> list[slice]:
        """All rows, in batches if agreed."""
        return batch_slices(self.n_rows, self.agreement.batch_size or self.n_rows)

    def rows(self, numbers: Integers) -> list[Array]:
        """Each held block's part of some rows; a gap becomes the column's mean."""
        return self.overall.rows(self.table, numbers.astype(np.intp), self.local)

    def centres(self, numbers: Integers) -> tuple[Array, ...]:
        """Each held block's part of some rows, as centres of k-means."""
        return tuple(self.overall.centres(self.table, numbers.astype(np.intp), self.local))

    def m_steps(
        self, statistics: Sequence[Statistics], previous: Sequence[Block]
    ) -> tuple[tuple[Block, ...], tuple[tuple[int, ...], ...]]:
        """New parameters of the held blocks, and the components of each that keep their previous ones."""
        blocks, collapsed = self.density.m_steps(statistics, previous, self.overall.columns)
        return tuple(blocks), tuple(map(tuple, collapsed))


def label_exchange(agreement: Agreement, start: int) -> Labels:
    """The exchange of labels from which one of the starts begins."""
    seed = draw_seed(shared_generator(agreement.seed, START, start))
    return Labels(agreement.settings.n_components, seed)


def row_numbers(decision: Array, n_rows: int) -> Integers:
    """Validate the numbers of rows that one agent chose for all."""
    if not ((decision >= 0) & (decision < n_rows) & (decision % 1 == 0)).all():
        raise StudyError(
            f"expected numbers of rows from 0 to {n_rows - 1} from the first root, got {decision.tolist()}"
        )
    return decision.astype(np.int64)
