"""Sums in one process, by the summation's matrix if it has one, otherwise message by message; and their traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.buffer_pool import NO_POOL, BufferPool
from vpem.core.network.memo import Memo
from vpem.core.network.parties import Network
from vpem.core.network.steps import Plan, Run, Steps, one_by_one
from vpem.core.network.summation import Summation, begin_sum, greet, lasting
from vpem.core.network.sums import NO_MEMORY, SINGLE, Array, Memory, Place, Series, Shape, Term
from vpem.core.network.traffic import Traffic, find_sendings, make_traffic

NEGLIGIBLE = 1e-14
"""Size of a mode, per hub, below which it changes a sum by less than the rounding of its terms."""


@dataclass(frozen=True, eq=False)
class LinearAdder:
    """Sum without memory: every root's result is a fixed linear combination of the terms."""

    matrix: Array
    """Shape (n_views, n_hubs)."""
    view_of_hub: NDArray[np.intp]
    """Shape (n_hubs,): number of the result that each hub's root gets."""
    is_exact: bool = False
    """True if all roots get one result, the exact sum."""
    modes: tuple[Array, Array] | None = None
    """Factors of the matrix, (n_views, n_modes) and (n_modes, n_hubs): the exact sum and the deviations from it."""
    path: str = ""
    """Description of the way in which the sum is computed."""

    @property
    def n_views(self) -> int:
        """Number of different results."""
        return len(self.matrix)

    def add(self, terms: Array) -> Array:
        """Return the results of all roots, (n_views, ...), from terms (n_hubs, ...)."""
        flat = terms.reshape(len(terms), -1)
        if self.modes is None:
            found = self.matrix @ flat
        else:
            left, right = self.modes
            found = left @ (right @ flat)
        return found.reshape(self.n_views, *terms.shape[1:])

    def for_each_root(self) -> LinearAdder:
        """Return the same sum with a view for every root, for roots that differ in something else."""
        every = np.arange(len(self.view_of_hub))
        return (
            self if self.n_views == len(every) else LinearAdder(self.matrix[self.view_of_hub], every, path=self.path)
        )

    def seen_by(self, view: int) -> LinearAdder:
        """Return the adder of one view: one row of the matrix."""
        return LinearAdder(self.matrix[[view]], np.zeros_like(self.view_of_hub), self.is_exact)


def exact_adder(n_hubs: int, path: str = "the exact sum") -> LinearAdder:
    """Return the adder of the exact sum, the same for every root."""
    return LinearAdder(np.ones((1, n_hubs)), np.zeros(n_hubs, dtype=np.intp), is_exact=True, path=path)


def linear_adder(matrix: Array) -> LinearAdder:
    """Return the cheapest adder for a summation's matrix.

    The matrix is the exact sum plus a few modes that averaging has not yet removed. Often all of them are smaller
    than rounding, or so few remain that they are cheaper than the matrix.
    """
    n_roots, n_hubs = matrix.shape
    left, sizes, right = np.linalg.svd(matrix - 1.0, full_matrices=False)
    n_modes = int((sizes > NEGLIGIBLE * n_hubs).sum())
    if n_modes == 0:
        if n_roots == 1:
            return exact_adder(n_hubs)
        return exact_adder(n_hubs, "the exact sum, from which the rounds differ by less than rounding")
    views = np.zeros(n_hubs, dtype=np.intp) if n_roots == 1 else np.arange(n_roots)
    if 3 * n_modes < n_roots:
        ones = np.ones((n_roots, 1)), np.ones((1, n_hubs))
        modes = np.hstack([ones[0], left[:, :n_modes] * sizes[:n_modes]]), np.vstack([ones[1], right[:n_modes]])
        path = f"the exact sum and {n_modes} of {n_roots - 1} modes, as the others are below rounding"
        return LinearAdder(matrix, views, modes=modes, path=path)
    return LinearAdder(matrix, views, path=f"a matrix of {n_roots} roots by {n_hubs} hubs")


Terms = Sequence[NDArray[Any]] | Array | Callable[[int], Term]
"""Terms of the hubs, (n_values,) each, or a function that computes them on demand."""


def term_of(terms: Terms, hub: int) -> NDArray[Any]:
    """Term of a hub."""
    found: NDArray[Any] = terms(hub).whole() if callable(terms) else terms[hub]
    return found


class MessageAdder:
    """Sums that follow the agents' messages, and keep each agent's carry from sum to sum."""

    path = "the agents' messages"
    is_exact = False

    def __init__(self, summation: Summation, network: Network, run: Run = one_by_one, pool: BufferPool = NO_POOL):
        self.summation, self.network, self.run, self.pool, self.memo = summation, network, run, pool, Memo()
        self.greetings = [greet(summation) for _ in network.positions]
        self.carries: dict[Series, list[Memory]] = {}
        self.n_sums = 0
        self._plans: dict[tuple[tuple[int, ...], bool], Plan] = {}
        n_hubs = len(network.hubs)
        self.view_of_hub = np.zeros(n_hubs, dtype=np.intp) if summation.is_common else np.arange(n_hubs)

    @property
    def n_views(self) -> int:
        """Number of different results."""
        return int(self.view_of_hub[-1]) + 1

    def for_each_root(self) -> MessageAdder:
        """Return the same sums with a view for every root."""
        self.view_of_hub = np.arange(len(self.network.hubs))
        return self

    def retreat(self) -> None:
        """Replace each agent's carry after a rollback to earlier parameters."""
        for series, carries in self.carries.items():
            self.carries[series] = [lasting(self.summation, self.summation.retreat(carry)) for carry in carries]

    def add(self, terms: Terms, shape: Shape, series: Series = SINGLE, n_decisions: int = 0) -> tuple[Array, Traffic]:
        """Return the results of all roots, (n_views, n_values), from the hubs' terms, and the traffic."""
        network, summation = self.network, self.summation
        greetings = {position: self.greetings[position][0] for position in network.positions}
        secrets = [secret for _, secret in self.greetings]
        places = [
            Place(
                network,
                position,
                shape,
                series,
                number=self.n_sums,
                greetings=greetings,
                secret=secrets[position],
                count=self.n_sums,
                pool=self.pool,
                memo=self.memo,
            )
            for position in network.positions
        ]
        self.n_sums += 1
        # Each agent takes its carry out of the dictionary, so that its memory can be freed once it is updated.
        carries = dict(enumerate(self.carries.pop(series, []) or [NO_MEMORY] * len(places)))
        plan = self._plan([summation.stage(shape, series, carry) for carry in carries.values()], n_decisions > 0)
        numbers = {hub.root: number for number, hub in enumerate(network.hubs)}

        def begin(place: Place) -> Memory:
            number, carry = numbers.get(place.position), carries.pop(place.position)
            term = None if number is None else terms(number) if callable(terms) else terms[number]
            return begin_sum(summation, place, carry, term)

        steps = Steps(plan, summation, places, begin)
        self.run(steps.tasks(), shape)
        ends = [summation.end(place, steps.states[place.position]) for place in places]
        if series:
            self.carries[series] = [lasting(summation, carry) for _, carry in ends]
        roots = [hub.root for hub in network.hubs[: self.n_views]]
        traffic = make_traffic(network.agents, steps.sendings(n_decisions), plan.n_steps)
        sums = ends[roots[0]][0][None] if len(roots) == 1 else np.array([ends[root][0] for root in roots])
        return sums, traffic

    def _plan(self, stages: Sequence[int], decision: bool) -> Plan:
        """Plan of a sum with these stages of the agents; cached, as many sums share it."""
        key = tuple(stages), decision
        if key not in self._plans:
            schedule, network = self.summation.schedule_in, self.network
            self._plans[key] = Plan(
                [
                    schedule(stage, network, position, values=True, decision=decision)
                    for position, stage in zip(network.positions, stages, strict=True)
                ]
            )
        return self._plans[key]


def sum_traffic(summation: Summation, network: Network, shape: Shape, n_decisions: int = 0) -> Traffic:
    """Traffic of one sum, with or without a decision, if messages have a fixed length."""
    payload = summation.payload(network, shape)
    if not payload.is_fixed:
        raise ValueError(f"the messages of {summation!r} have no fixed length: count them as they are sent")
    value_bytes = payload.n_values * np.dtype(payload.dtype).itemsize
    sendings = find_sendings(summation, network, values=True, decision=n_decisions > 0)
    return sendings.traffic(value_bytes, n_decisions)


def flood_traffic(summation: Summation, network: Network, n_decisions: int) -> Traffic:
    """Traffic of a decision without a sum."""
    return find_sendings(summation, network, values=False, decision=n_decisions > 0).traffic(0, n_decisions)
