"""State of the script between two exchanges: plain values, never changed in place.

Going back to a checkpoint means taking up an older state. Arrays have an entry for each block that is held, or for
each view, that is, each of the different results that a sum has at the roots that are held. An agent holds one block,
or none, and has one view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Block
from vpem.core.blocks.sweep import Disagreement
from vpem.core.decisions.acceleration import Cycle
from vpem.core.decisions.passes import BatchPass
from vpem.core.decisions.repair import Case, RepairQueue
from vpem.core.network.checkpoint_delta import Carried
from vpem.core.network.sums import Series

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

NOTHING: Array = np.empty(0)

KEEP, FORGET, ROLL_BACK = "keep", "forget", "roll back"
"""Treatment of the memories of sums; see `Progress.carry`."""


@dataclass(frozen=True, eq=False)
class Clustering:
    """K-means on the way to a start. Only roots have centres; only the root of the first hub draws."""

    picked: Integers
    """Rows that k-means++ has chosen so far."""
    candidates: Integers
    """Rows of which it will choose the next."""
    n_draws: int = 0
    generator: NDArray[np.uint64] | None = None
    """Generator of the draws; see `pack_generator`."""
    choice: int = 0
    """The row that the root of the first hub has chosen, and will broadcast."""
    closest: Array | None = None
    """(n_rows,): squared distance of each row to the nearest chosen one, as the root of the first hub sees it."""
    centres: tuple[Array, ...] = ()
    """Each held block's part, (n_components, n_columns)."""
    limits: Array = field(default_factory=lambda: NOTHING)
    """(n_blocks,): squared movement that counts as none."""
    n_iter: int = 0
    lowest: Array = field(default_factory=lambda: NOTHING)
    """(n_blocks,): the lowest inertia so far, as each root sees it."""
    since_lowest: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """(n_blocks,): iterations since then."""
    would_stop: bool = True
    """True if all held roots would end; an agent without centres never objects."""
    settled: bool = False
    """True if none of their centres has moved in the last iteration."""
    counts: Array | None = None
    """(n_components,): rows of each component, as the root of the first hub sees it."""
    inertia: Array | None = None
    """(n_views,): of the final centres, where clusters are all that was asked for."""
    blocks: tuple[Block, ...] = ()
    """The start that the final labels give, while the weights are on their way."""
    collapsed: tuple[tuple[int, ...], ...] = ()
    """Components that the labels do not determine, in each held block."""


@dataclass(frozen=True, eq=False)
class Parameters:
    """Parameters of the held roots."""

    weights: Array | None = None
    """(n_views or 1, n_components); None without a root."""
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, eq=False)
class Run:
    """EM from one start. Only roots have parameters."""

    findings: Array
    """(n_components,): findings of the held roots about broken components, sent with the next sum."""
    weights: Array | None = None
    """(n_views or 1, n_components)"""
    blocks: tuple[Block, ...] = ()
    iteration: int = 0
    """Iterations that are finished."""
    history: tuple[Array, ...] = ()
    """Log-likelihood (with batches: free energy) per row of each; (n_views,)."""
    bound_before: Array | None = None
    """(n_views,): the last bound of the fit that this run continues."""
    queue: RepairQueue = field(default_factory=RepairQueue)
    start_cases: tuple[Case, ...] = ()
    repaired: bool = False
    """True if a component was restarted, or all rolled back, after the last iteration."""
    agreed: tuple[float, ...] = ()
    """Lower bounds of the last iterations, of the root that sees the smallest."""
    converged: bool = False
    final: bool = False
    """True in the last pass, which gives the responsibilities of the final parameters."""
    visits: BatchPass = field(default_factory=lambda: BatchPass(()))
    """State of this pass over the batches."""
    collapsed: tuple[tuple[int, ...], ...] = ()
    """Components that kept their parameters in this pass, in each held block."""
    cycle: Cycle = field(default_factory=Cycle)
    """Cycle of accelerated EM."""
    earlier: tuple[Parameters, ...] = ()
    """Before the last iterations, where all may roll back; see `vpem.core.decisions.retreating`."""
    n_retreats: int = 0
    responsibilities: Array | None = None
    """(n_rows, n_components): of the final parameters, as far as they have been found."""
    totals: Array | None = None
    """(n_sampled, n_components): sums of a sample of the rows in the last E-step, as `sampled_rows` says; None if
    they are masked."""
    disagreement: Disagreement | None = None
    """Disagreement of the held roots in the last E-step; None if fresh sums would show it, or it is not known."""

    @property
    def batch(self) -> int:
        """The batch that is visited next: the first one, if a pass is over."""
        return 0 if self.visits.is_over else self.visits.number


@dataclass(frozen=True, eq=False)
class Model:
    """The result of a run."""

    agreed: float
    """The bound by which runs are compared."""
    weights: Array | None
    """(n_views or 1, n_components)"""
    blocks: tuple[Block, ...]
    responsibilities: Array | None
    history: tuple[Array, ...]
    converged: bool
    start: int
    """Number of its start."""
    repairs: tuple[tuple[int, int, str, str, bool], ...]
    """The fields of `vpem.core.decisions.repair.Repair`."""
    disagreement: Disagreement | None = None
    """As of `Run`."""
    totals: Array | None = None
    """As of `Run`."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """New rows."""

    n_rows: int
    columns: Array | None
    """(n_rows, n_columns): the party's own."""
    pooled: Array | None = None
    """(n_rows, n_block_columns): at the root of a hub."""
    responsibilities: Array | None = None
    """(n_rows, n_components), at agents that may see them; NaN for rows of too few holders."""
    log_densities: Array | None = None
    """(n_rows,)"""
    holders: Integers | None = None
    """(n_rows,): how many blocks have each row, where that is counted."""
    keys: Integers | None = None
    """(n_rows,): keys by which the party recognizes rows that are added again."""


@dataclass(frozen=True, eq=False)
class Progress:
    """State of the script."""

    n_predictions: int = 0
    """Tables of new rows that are done."""

    phase: str = "begin"
    """The next phase; one of `vpem.core.script.phases.PHASES`."""
    start: int = 0
    """Number of the start."""
    clustering: Clustering | None = None
    run: Run | None = None
    best: Model | None = None
    bounds: tuple[float, ...] = ()
    """The bound in which each start ended, if it did not fail."""
    end_labels: tuple[Integers, ...] = ()
    """(n_sampled,) for each of these bounds: components of a sample of the rows, as `sampled_rows` says; empty at
    agents without responsibilities."""
    ended: Model | None = None
    """The result of the last run, where the driver reports every run."""
    collapse: str = ""
    """Why the last start that failed did so."""
    interrupted: bool = False
    """True if the user wants the fit to end with the present iteration."""
    prediction: Prediction | None = None
    """The last one, or the one at work."""
    n_sums: int = 0
    """Number of sums of the fit so far."""
    carry: str = KEEP
    """Instruction to the driver for the memories of sums: `KEEP`, `FORGET` or `ROLL_BACK`."""
    memories: Mapping[Series, Carried] = field(default_factory=dict)
    """Memories of an agent's summation, by series of this start's sums."""
    holders: Integers | None = None
    """(n_rows,): how many blocks have each row, where that is counted."""
    heard: str = ""
    """Digest of all sums and decisions so far, where sums are masked."""
    seen: Mapping[str, Integers] = field(default_factory=dict)
    """Keys of rows that were added, and with which parties; see `vpem.core.script.row_count_phases`."""


def pack_generator(generator: np.random.Generator) -> NDArray[np.uint64]:
    """State of a PCG64 generator as plain numbers; (6,)."""
    state: Any = generator.bit_generator.state
    words = [word for number in state["state"].values() for word in divmod(number, 2**64)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def unpack_generator(packed: NDArray[np.uint64]) -> np.random.Generator:
    """Inverse of `pack_generator`."""
    generator = np.random.default_rng(0)
    words = [int(word) for word in packed]
    state: Any = generator.bit_generator.state
    state["state"] = {"state": words[0] * 2**64 + words[1], "inc": words[2] * 2**64 + words[3]}
    state["has_uint32"], state["uinteger"] = words[4], words[5]
    generator.bit_generator.state = state
    return generator
