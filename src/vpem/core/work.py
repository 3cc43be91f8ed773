"""What one agent works with between its exchanges with the network: its part, and the columns of its block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vpem.core.batches import batch_slices
from vpem.core.hubs import Hub
from vpem.core.meeting import Roles
from vpem.core.mixture import Block, Statistics, careful_m_step
from vpem.core.network import Network
from vpem.core.overall import Overall, describe
from vpem.core.progress import Array, Integers
from vpem.core.rows import Rows, Table, row_chunks
from vpem.core.settings import Settings

ONE_VIEW = np.zeros(1, dtype=np.intp)
"""An agent sees one result of a sum: its own; see `vpem.core.sweep.sweep`."""


class Given(NamedTuple):
    """A start that a root was given, or parts of it; for its own block."""

    weights: Array | None = None
    means: Array | None = None
    covariances: Array | None = None

    @property
    def is_complete(self) -> bool:
        """Whether no start has to be found."""
        return self.weights is not None and self.means is not None and self.covariances is not None


class Offer(NamedTuple):
    """What an agent brings to an exchange."""

    n_values: int = 0
    """Length of the sum, the same for all agents."""
    values: Array | None = None
    """A root's term."""
    decision: Array | None = None
    columns: Array | None = None
    """A party's own, to be pooled."""


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
    position: int
    own: Table | None
    """A party's own columns."""
    pooled: Array | None
    """Its hub's, if it is the root of several."""
    given: Given

    @property
    def settings(self) -> Settings:
        """How the mixture is fitted."""
        return self.roles.agreement.settings

    @cached_property
    def is_root(self) -> bool:
        """Whether it has a block."""
        return self.roles.is_root(self.position)

    @property
    def hub(self) -> int:
        """Number of its hub."""
        hub = self.roles.hub_of[self.position]
        assert hub is not None, "a server has no hub"
        return hub

    @cached_property
    def is_first_root(self) -> bool:
        """Whether it chooses for all."""
        return self.is_root and self.hub == 0

    @property
    def table(self) -> Table:
        """The columns of its block."""
        table = self.own if self.pooled is None else self.pooled
        assert table is not None, "a root has columns"
        return table

    @cached_property
    def batches(self) -> list[slice]:
        """All rows, in batches if agreed."""
        return batch_slices(self.roles.n_rows, self.roles.agreement.batch_size or self.roles.n_rows)

    @cached_property
    def lone(self) -> Network:
        """A network of nobody but this root: its own block is all that it can describe."""
        name = self.roles.network.parties[self.position]
        return Network((name,), (np.arange(self.table.shape[1], dtype=np.intp),), None, (Hub(0, (0,)),))

    @cached_property
    def overall(self) -> Overall:
        """Moments of its block."""
        return describe(self.table, self.lone, self.settings.rule)

    def rows(self, numbers: Integers) -> Array:
        """Its part of some rows; a gap becomes the column's mean."""
        return self.overall.rows(self.table, numbers.astype(np.intp), self.lone)[0]

    def contribute(self, rows: slice, n_values: int, function: Callable[[Rows], Array]) -> Array:
        """Its term of a sum over some rows, some of them at a time; (n_rows * n_values,)."""
        found = np.empty((rows.stop - rows.start, n_values))
        for chunk in row_chunks(rows.start, rows.stop, n_values * self.table.shape[1]):
            found[chunk.start - rows.start : chunk.stop - rows.start] = function(self.table[chunk])
        return found.ravel()

    def chunks(self, rows: slice, sums: Array) -> Iterator[tuple[slice, list[Rows], Array]]:
        """Some rows and their sums, (n_rows, n_values), as `sweep` likes them."""
        for chunk in row_chunks(rows.start, rows.stop, sums.shape[1] * self.table.shape[1]):
            yield chunk, [self.table[chunk]], sums[None, chunk.start - rows.start : chunk.stop - rows.start]

    def m_step(self, statistics: Statistics, previous: Block) -> tuple[Block, list[int]]:
        """New parameters of the block, and what could not have any."""
        return careful_m_step(statistics, self.settings.rule, previous, self.overall.smallest_variances[0])


def row_numbers(decision: Array, n_rows: int) -> Integers:
    """Numbers of rows that one agent chose for all; StudyError if they are none."""
    if not ((decision >= 0) & (decision < n_rows) & (decision % 1 == 0)).all():
        raise StudyError(
            f"expected numbers of rows from 0 to {n_rows - 1} from the first root, got {decision.tolist()}"
        )
    return decision.astype(np.int64)
