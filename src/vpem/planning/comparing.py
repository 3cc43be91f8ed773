"""All choices of a network side by side, and beside sending the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.consensus import Consensus
from vpem.core.network.default import default_summation
from vpem.core.network.graph import contraction, metropolis_weights
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.planning.estimates import Estimate, Line, choices, estimate, short_name
from vpem.planning.exchanges import Study
from vpem.planning.tables import TableSize, table_size
from vpem.verdict import before_the_run

ITERATIONS = (20, 100)
"""Of EM, if nothing else is known; estimators take 100 at most by default."""
KMEANS_ITERATIONS = (5, 60)
"""Of the k-means before it: 6 to 55 on three real tables, see `docs/howto/scale-and-cost.md`."""


class Spectrum(NamedTuple):
    """How fast neighbours average, with Metropolis weights."""

    second: float
    """Second largest eigenvalue, lambda_2."""
    smallest: float
    contraction: float
    """What a round leaves of an error: the larger size of the two."""
    rounds: int
    """For an error factor of 1e-6, and at least the diameter: those of `Consensus()`."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a fit will take, choice by choice."""

    network: Network
    study: Study
    line: Line
    spectrum: Spectrum | None
    """None on a star, which does not average."""
    table: TableSize
    estimates: tuple[Estimate, ...]
    default: str
    """Name of the choice that a fit takes if it is not told."""

    @property
    def sound(self) -> tuple[Estimate, ...]:
        """Choices whose sums are near enough, by the rule of the verdict on a fit; all if none is."""
        near = [one for one in self.estimates if not before_the_run(one.error_factor, None)]
        return tuple(near) or self.estimates

    @property
    def cheapest(self) -> Estimate:
        """The sound choice that sends the fewest bytes with usual lengths, if EM takes long."""
        return min(self.sound, key=lambda one: one.usual_bytes.high)

    @property
    def quickest(self) -> Estimate:
        """The sound choice that takes the shortest time, likewise."""
        return min(self.sound, key=lambda one: one.seconds.high)


def plan(
    network: Network,
    study: Study,
    *,
    iterations: tuple[int, int] = ITERATIONS,
    kmeans_iterations: tuple[int, int] = KMEANS_ITERATIONS,
    line: Line = Line(),  # noqa: B008 (it cannot be changed)
    summations: Sequence[Summation] | None = None,
    rows: NDArray[np.float64] | None = None,
) -> Plan:
    """Estimate what a fit takes, for each way to add on a network.

    Parameters
    ----------
    network : Network
        Made by `make_network`, from each party's columns and the graph.
    study : Study
    iterations : (int, int), default=(20, 100)
        Of EM in each start, from and to.
    kmeans_iterations : (int, int), default=(5, 60)
        Of k-means in each start, if there is one.
    line : Line, optional
        Bandwidth and latency of every agent.
    summations : sequence of Summation, optional
        What to compare; by default all that are possible.
    rows : array, optional
        Rows of the table, of which some are compressed to see how small it becomes.

    Examples
    --------
    >>> from vpem.planning import make_network
    >>> network = make_network({"bank": [0, 1], "shop": [2]}, "star")
    >>> found = plan(network, Study(n_rows=1000, n_components=3, init_params="random"), iterations=(30, 30))
    >>> [(one.name, int(one.bytes.high)) for one in found.estimates]
    [('Star()', 2990388), ('Differences(Star())', 1693844)]
    >>> found.cheapest.name, found.default, found.table.bytes
    ('Differences(Star())', 'Star()', 24000)
    """
    wanted = [one for one in choices(network) if study.allows(one)] if summations is None else list(summations)
    for summation in wanted:
        summation.check(network)
        if not study.allows(summation):
            raise ValueError(
                f"expected accelerate with sums that are the same for all parties, got {summation!r}; try Tree() or "
                "Differences(Tree()), or accelerate=None"
            )
    found = [
        estimate(one, network, study, iterations=iterations, kmeans_iterations=kmeans_iterations, line=line)
        for one in wanted
    ]
    return Plan(
        network=network,
        study=study,
        line=line,
        spectrum=None if network.is_star else find_spectrum(network),
        table=table_size(study.n_rows, sum(map(len, network.columns)), rows),
        estimates=tuple(found),
        default=short_name(default_summation(network)),
    )


def find_spectrum(network: Network) -> Spectrum:
    """Eigenvalues of a graph's Metropolis weights that say how fast it averages."""
    W = metropolis_weights(network.links)
    eigenvalues = np.linalg.eigvalsh(W)
    second = float(eigenvalues[-2]) if len(eigenvalues) > 1 else 0.0
    smallest = float(eigenvalues[0]) if len(eigenvalues) > 1 else 0.0
    return Spectrum(second, smallest, contraction(W), Consensus().n_rounds(network))
