"""Input and result of a simulated fit."""

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
from vpem.core.blocks.sweep import Disagreement
from vpem.core.blocks.tiles import Layout, Packed, columns_first
from vpem.core.decisions.repair import Repair
from vpem.core.network.parties import Network
from vpem.core.network.steps import Task, one_by_one
from vpem.core.network.summation import Summation
from vpem.core.network.sums import Shape
from vpem.core.network.traffic import Traffic
from vpem.core.rows import Holders, Rows, Table, row_chunks, rows_held
from vpem.simulation.channel import Channel
from vpem.simulation.threads import do_tasks, ordered_map

Array = NDArray[np.float64]

FEW = 10_000
"""Largest number of values in a sum that is computed in one thread: for fewer values, threads do not pay off."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, network, summation, and the moments that each block computes by itself."""

    X: Table
    """(n_samples, n_features)"""
    network: Network
    summation: Summation
    overall: Overall
    lock: Lock = field(default_factory=Lock, repr=False)
    """Held while a thread reads a table on disk: only one may read at a time."""
    layouts: dict[tuple[Density, int, tuple[int, ...]], Layout] = field(default_factory=dict, repr=False)
    """Cached layouts, by density, number of components and the blocks' widths; see `pack`."""

    @cached_property
    def n_threads(self) -> int:
        """Number of threads that numba would use: the cores of this process, or NUMBA_NUM_THREADS."""
        import numba

        return int(numba.get_num_threads())

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        """Thread pool of the fit, which ends with it."""
        return ThreadPoolExecutor(self.n_threads)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Column numbers block by block."""
        return np.concatenate(self.network.block_columns)

    @cached_property
    def block_of_column(self) -> NDArray[np.int64]:
        """(n_features,): block of each column, in the order of `order`."""
        return np.repeat(np.arange(len(self.network.hubs)), [len(held) for held in self.network.block_columns])

    def channel(self) -> Channel:
        """Make the channel between the blocks, with zero traffic."""
        return Channel(self.summation, self.network, self._do)

    def _do(self, tasks: Sequence[Task], shape: Shape) -> None:
        """Run the agents' tasks of a sum, in threads if the sum is large."""
        if self.n_threads == 1 or shape.n_values <= FEW:
            one_by_one(tasks, shape)
        else:
            do_tasks(self.threads, self.n_threads, tasks)

    def pack(self, density: Density, blocks: Sequence[Block], n_components: int, hub: int | None = None) -> Packed:
        """Pack the blocks of all roots, or of one hub, for a pass over the rows; the layout is cached."""
        held = self.network.block_columns if hub is None else self.network.block_columns[hub : hub + 1]
        key = density, n_components, tuple(map(len, held))
        if key not in self.layouts:
            self.layouts[key] = density.layout(key[2], n_components)
        return density.pack(blocks, self.layouts[key])

    def read(self, rows: slice) -> Rows:
        """Read some rows; a view if possible."""
        if isinstance(self.X, np.ndarray) or getattr(self.X, "is_in_memory", False):
            return self.X[rows]
        with self.lock:
            return self.X[rows]

    @cached_property
    def by_columns(self) -> Array:
        """All rows in the layout of the kernels, for sums that need whole terms; (n_features, n_samples)."""
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
        """Positions of each hub's columns in `order`."""
        return np.split(
            np.arange(len(self.order)), np.cumsum([len(held) for held in self.network.block_columns])[:-1]
        )

    def columns_first(self, rows: Rows) -> Array:
        """Convert rows to the layout of the kernels; (n_features, n_rows)."""
        return columns_first(rows, self.order)


def make_problem(X: Table, network: Network, summation: Summation, density: Density | None = None) -> Problem:
    """Make a problem: compute the moments of the columns in one pass; with a density, for EM."""
    return Problem(X, network, summation, describe(X, network, density))


def find_holders(table: Table, network: Network, summation: Summation) -> Holders | None:
    """Count the blocks that have each row, without messages; None if the summation uses all rows."""
    least = summation.least_holders(network)
    if least < 2:
        return None
    return Holders(np.sum([rows_held(table, columns) for columns in network.block_columns], axis=0), least)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Parameters of all roots."""

    density: Density
    """Density of which the blocks are parameters."""
    weights: Array
    """(n_views, n_components): each root's own estimate, or a single one if all are equal."""
    blocks: tuple[Block, ...]
    """Block of each hub, at its root."""


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """Result of a fit, or of one of its runs."""

    mixture: Mixture
    lower_bounds: tuple[Array, ...]
    """Log-likelihood per row before each M-step, in each root's view; (n_views,) each."""
    converged: bool
    repairs: tuple[Repair, ...]
    traffic: Traffic
    start_bounds: tuple[float, ...] = ()
    """Final bound of each start, by which starts are compared; empty if unknown."""
    start_ends: tuple[Mixture, ...] = ()
    """Final parameters of each start; empty if unknown."""
    disagreement: Disagreement | None = None
    """Disagreement of the roots in the last E-step; None if it is unknown, or if a new sum would give the same."""

    @property
    def n_iter(self) -> int:
        """Number of iterations; each is an E-step and an M-step."""
        return len(self.lower_bounds)
