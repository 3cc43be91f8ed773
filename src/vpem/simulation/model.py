"""What a simulated run works on: the problem, the settings, and all roots' parameters."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block
from vpem.core.blocks.density import Density
from vpem.core.blocks.overall import Overall, describe
from vpem.core.blocks.tiles import Layout, Packed, columns_first
from vpem.core.network.parties import Network
from vpem.core.network.steps import Task, one_by_one
from vpem.core.network.summation import Shape, Summation
from vpem.core.rows import Rows, Table, row_chunks
from vpem.simulation.channel import Channel
from vpem.simulation.threads import do_tasks, ordered_map

Array = NDArray[np.float64]

FEW = 10_000
"""Numbers in a sum for which other threads are not worth their while."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, the parties that hold their columns, how these add, and what each knows by itself."""

    X: Table
    """(n_samples, n_features)"""
    network: Network
    summation: Summation
    overall: Overall
    lock: Lock = field(default_factory=Lock, repr=False)
    """One thread reads a table on disk at a time."""
    layouts: dict[tuple[Density, int, tuple[int, ...]], Layout] = field(default_factory=dict, repr=False)
    """By density, number of components and the blocks' widths; see `pack`."""

    @cached_property
    def n_threads(self) -> int:
        """As many as numba would use: the cores of this process, or NUMBA_NUM_THREADS."""
        import numba

        return int(numba.get_num_threads())

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """Threads of the fit; they end with it."""
        return ThreadPoolExecutor(self.n_threads)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Column numbers block by block."""
        return np.concatenate(self.network.block_columns)

    @cached_property
    def block_of_column(self) -> NDArray[np.int64]:
        """(n_features,): of the columns in this order."""
        return np.repeat(np.arange(len(self.network.hubs)), [len(held) for held in self.network.block_columns])

    def channel(self) -> Channel:
        """The network between the blocks, before anything was sent."""
        return Channel(self.summation, self.network, self._do)

    def _do(self, tasks: Sequence[Task], shape: Shape) -> None:
        """What agents do in a sum, in threads where it is much."""
        if self.n_threads == 1 or shape.n_values <= FEW:
            one_by_one(tasks, shape)
        else:
            do_tasks(self.threads, self.n_threads, tasks)

    def pack(self, density: Density, blocks: Sequence[Block], n_components: int, hub: int | None = None) -> Packed:
        """All roots' blocks as a pass over the rows needs them, or one's; where each one is stays the same."""
        held = self.network.block_columns if hub is None else self.network.block_columns[hub : hub + 1]
        key = density, n_components, tuple(map(len, held))
        if key not in self.layouts:
            self.layouts[key] = density.layout(key[2], n_components)
        return density.pack(blocks, self.layouts[key])

    def read(self, rows: slice) -> Rows:
        """Some rows; a view where that is possible."""
        if isinstance(self.X, np.ndarray) or getattr(self.X, "is_in_memory", False):
            return self.X[rows]
        with self.lock:
            return self.X[rows]

    @cached_property
    def by_columns(self) -> Array:
        """All rows in the order of the kernels, for sums that take terms whole; (n_features, n_samples)."""
        found = np.empty((len(self.order), len(self.X)))

        def work(rows: slice) -> None:
            found[:, rows] = self.columns_first(self.read(rows))

        chunks = list(row_chunks(0, len(self.X), len(self.order)))
        with ordered_map(self.threads, self.n_threads, work, chunks) as parts:
            for _ in parts:
                pass
        return found

    @cached_property
    def columns_of(self) -> list[NDArray[np.intp]]:
        """Where each hub's columns are in this order."""
        return np.split(
            np.arange(len(self.order)), np.cumsum([len(held) for held in self.network.block_columns])[:-1]
        )

    def columns_first(self, rows: Rows) -> Array:
        """Some rows in the order of the kernels; (n_features, n_rows)."""
        return columns_first(rows, self.order)


def make_problem(X: Table, network: Network, summation: Summation, density: Density | None = None) -> Problem:
    """Look at the columns once; with a density, for EM."""
    return Problem(X, network, summation, describe(X, network, density))


@dataclass(frozen=True, eq=False)
class Mixture:
    """All roots' parameters."""

    density: Density
    """What the blocks are parameters of."""
    weights: Array
    """(n_views, n_components): each root's own estimate, or one if all are the same."""
    blocks: tuple[Block, ...]
    """Each hub's block, at its root."""
