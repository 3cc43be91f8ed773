"""Comparison of all summations on a network with each other, and with sending the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.around import default_summation
from vpem.core.network.consensus import Consensus
from vpem.core.network.graph import contraction, metropolis_weights
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.planning.estimates import Estimate, Line, choices, estimate, short_name
from vpem.planning.planner import Study
from vpem.planning.table_size import TableSize, table_size
from vpem.verdict import before_the_run

ITERATIONS = (20, 100)
"""Default range of the iterations of EM; estimators take at most 100 by default."""
KMEANS_ITERATIONS = (5, 60)
"""Default range of the iterations of k-means: 6 to 55 on three real tables, see `docs/howto/scale-and-cost.md`."""


class Spectrum(NamedTuple):
    """Eigenvalues of the Metropolis weights, which determine the rate of averaging."""

    second: float
    """Second largest eigenvalue, lambda_2."""
    smallest: float
    contraction: float
    """Factor by which a round shrinks an error: the larger absolute value of the two."""
    rounds: int
    """Number of rounds of `Consensus()`, for an error factor of 1e-6, and at least the diameter."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Estimated costs of a fit, for each summation."""

    network: Network
    study: Study
    line: Line
    spectrum: Spectrum | None
    """Spectrum of the graph; None on a star, which does not average."""
    table: TableSize
    estimates: tuple[Estimate, ...]
    default: str
    """Name of the default summation of a fit on this network."""

    @property
    def sound(self) -> tuple[Estimate, ...]:
        """Estimates whose sums are accurate enough, by the rule of the verdict on a fit; all if none is."""
        near = [one for one in self.estimates if not before_the_run(one.error_factor, None)]
        return tuple(near) or self.estimates

    @property
    def cheapest(self) -> Estimate:
        """Sound estimate with the fewest bytes, for usual lengths and the most iterations."""
        return min(self.sound, key=lambda one: one.usual_bytes.high)

    @property
    def quickest(self) -> Estimate:
        """Sound estimate with the shortest duration, for usual lengths and the most iterations."""
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
    """Estimate the cost of a fit for each summation on a network.

    Parameters
    ----------
    network : Network
        Result of `make_network`, from each party's columns and the graph.
    study : Study
    iterations : (int, int), default=(20, 100)
        Fewest and most iterations of EM in each start.
    kmeans_iterations : (int, int), default=(5, 60)
        Fewest and most iterations of k-means in each start that uses it.
    line : Line, optional
        Bandwidth and latency of every agent.
    summations : sequence of Summation, optional
        Summations to compare; by default all that are possible.
    rows : array, optional
        Rows of the table, some of which are compressed to estimate its gzipped size.

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
    """Compute the eigenvalues of a graph's Metropolis weights that determine the rate of averaging."""
    W = metropolis_weights(network.links)
    eigenvalues = np.linalg.eigvalsh(W)
    second = float(eigenvalues[-2]) if len(eigenvalues) > 1 else 0.0
    smallest = float(eigenvalues[0]) if len(eigenvalues) > 1 else 0.0
    return Spectrum(second, smallest, contraction(W), Consensus().n_rounds(network))
