"""Whole sums in one process: by a matrix where a summation has one, else message by message; and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.costs import find_sendings
from vpem.core.network.parties import Network
from vpem.core.network.steps import Plan, Run, Steps, one_by_one
from vpem.core.network.summation import (
    NO_MEMORY,
    Array,
    Memory,
    Place,
    Shape,
    Summation,
    Term,
    begin_sum,
    greet,
    lasting,
)
from vpem.core.network.traffic import Traffic, make_traffic

NEGLIGIBLE = 1e-14
"""Size of a mode, per hub, that would change a sum by less than the rounding of its terms."""


@dataclass(frozen=True, eq=False)
class LinearAdder:
    """A sum without memory: every root's result is a fixed combination of the terms."""

    matrix: Array
    """(n_views, n_hubs)"""
    view_of_hub: NDArray[np.intp]
    """(n_hubs,): which result each hub's root gets."""
    is_exact: bool = False
    """Whether there is one result, and it is the sum."""
    modes: tuple[Array, Array] | None = None
    """(n_views, n_modes) and (n_modes, n_hubs), whose product the matrix is: the sum, and what it has beside it."""
    path: str = ""
    """How the sum is computed, for people."""

    @property
    def n_views(self) -> int:
        """Number of different results."""
        return len(self.matrix)

    def add(self, terms: Array) -> Array:
        """Every root's result, (n_views, ...), of terms (n_hubs, ...)."""
        flat = terms.reshape(len(terms), -1)
        if self.modes is None:
            found = self.matrix @ flat
        else:
            left, right = self.modes
            found = left @ (right @ flat)
        return found.reshape(self.n_views, *terms.shape[1:])

    def for_each_root(self) -> LinearAdder:
        """The same sum with a view for every root, where roots differ in something else."""
        every = np.arange(len(self.view_of_hub))
        return (
            self if self.n_views == len(every) else LinearAdder(self.matrix[self.view_of_hub], every, path=self.path)
        )

    def seen_by(self, view: int) -> LinearAdder:
        """One row of the matrix."""
        return LinearAdder(self.matrix[[view]], np.zeros_like(self.view_of_hub), self.is_exact)


def exact_adder(n_hubs: int, path: str = "the exact sum") -> LinearAdder:
    """The exact sum, the same for every root."""
    return LinearAdder(np.ones((1, n_hubs)), np.zeros(n_hubs, dtype=np.intp), is_exact=True, path=path)


def linear_adder(matrix: Array) -> LinearAdder:
    """The shortest way to apply a summation's matrix.

    What the matrix has beside the exact sum are a few modes, which averaging has not yet made to vanish: often none
    that rounding would leave, or so few that they are cheaper than the matrix.
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
"""Of each hub, (n_values,); or how it is made, when it is needed."""


def term_of(terms: Terms, hub: int) -> NDArray[Any]:
    """A hub's."""
    found: NDArray[Any] = terms(hub).whole() if callable(terms) else terms[hub]
    return found


class MessageAdder:
    """Sums as agents make them, message by message; remembers what each agent carries from sum to sum."""

    path = "the agents' messages"
    is_exact = False

    def __init__(self, summation: Summation, network: Network, run: Run = one_by_one):
        self.summation, self.network, self.run = summation, network, run
        self.greetings = [greet(summation) for _ in network.positions]
        self.carries: dict[str, list[Memory]] = {}
        self.n_sums = 0
        self._plans: dict[tuple[tuple[int, ...], bool], Plan] = {}
        n_hubs = len(network.hubs)
        self.view_of_hub = np.zeros(n_hubs, dtype=np.intp) if summation.is_common else np.arange(n_hubs)

    @property
    def n_views(self) -> int:
        """Number of different results."""
        return int(self.view_of_hub[-1]) + 1

    def for_each_root(self) -> MessageAdder:
        """The same sums, as each root has them."""
        self.view_of_hub = np.arange(len(self.network.hubs))
        return self

    def retreat(self) -> None:
        """What agents carry has misled them."""
        for series, carries in self.carries.items():
            self.carries[series] = [lasting(self.summation, self.summation.retreat(carry)) for carry in carries]

    def add(self, terms: Terms, shape: Shape, series: str = "", n_decisions: int = 0) -> tuple[Array, Traffic]:
        """Every root's result, (n_views, n_values), of the hubs' terms; and what was sent."""
        network, summation = self.network, self.summation
        greetings = {position: self.greetings[position][0] for position in network.positions}
        secrets = [secret for _, secret in self.greetings]
        places = [
            Place(network, position, shape, series, 0, self.n_sums, greetings, secrets[position], self.n_sums)
            for position in network.positions
        ]
        self.n_sums += 1
        # What is carried goes with its agent, and need not be kept once that has moved it.
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
        """The actions of a sum in which each agent is in this stage; the same for many sums."""
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
    """Traffic of one sum, on which a decision may ride, if messages have a fixed length."""
    payload = summation.payload(network, shape)
    if not payload.is_fixed:
        raise ValueError(f"the messages of {summation!r} have no fixed length: count them as they are sent")
    value_bytes = payload.n_values * np.dtype(payload.dtype).itemsize
    sendings = find_sendings(summation, network, values=True, decision=n_decisions > 0)
    return sendings.traffic(value_bytes, n_decisions)


def flood_traffic(summation: Summation, network: Network, n_decisions: int) -> Traffic:
    """Traffic of a decision that has no sum to ride on."""
    return find_sendings(summation, network, values=False, decision=n_decisions > 0).traffic(0, n_decisions)
