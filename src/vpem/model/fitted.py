"""A fitted mixture as one value, in which every kind of fit ends.

Estimators give its parts scikit-learn's names. Model files, studies, reports, figures and the program take the value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.decisions.repair import Repair
from vpem.core.network.parties import NamedHub, Network
from vpem.core.network.summation import Summation
from vpem.core.network.traffic import Traffic
from vpem.core.rows import Table
from vpem.meaning.information import Information, block_information, column_information
from vpem.meaning.profiles import Profile, make_profile
from vpem.model.category_codes import Coding
from vpem.model.judgement import Judgement
from vpem.overlap import RowSummary
from vpem.simulation.certificate import Certificate
from vpem.simulation.model import Mixture
from vpem.simulation.streams import Stream

if TYPE_CHECKING:
    from vpem.model_format import PartOf

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """A fitted mixture and its fit, in the units of the table."""

    mixture: Mixture
    network: Network
    summation: Summation
    seed: int
    """Seed that all parties share."""
    lower_bounds: tuple[Array, ...]
    """Log-likelihood per row before each M-step, in each root's view; (n_views,) each."""
    converged: bool
    traffic: Traffic
    judgement: Judgement = field(default_factory=Judgement)
    repairs: tuple[Repair, ...] = ()
    certificate: Certificate | None = None
    disagreement: float | None = None
    """Largest difference between two roots' responsibilities, if known."""
    scale: Array | None = None
    """(n_features,): scales that divided the columns for the fit."""
    families: tuple[str, ...] | None = None
    """Family of each column; None if the estimator has one density for all columns."""
    coding: Coding = field(default_factory=Coding)
    names: tuple[str, ...] | None = None
    """Names of the columns, if the table had names."""
    on: tuple[str, ...] | None = None
    """Id columns, if tables of several parties were joined."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kind of the fit's table, under "", or of each party's table; empty if unknown."""
    read_as: Mapping[str, str] = field(default_factory=dict)
    """Column to the way in which it was read from a file, such as "%"."""
    gaps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Column to its words for gaps."""
    rows: RowSummary | None = None
    n_steps: int | None = None
    """Number of steps, for a stream."""
    stream: Stream | None = None
    """State with which `partial_fit` continues."""
    is_stream_lost: bool = False
    """True if the fit was a stream whose state is not in the file."""
    part: PartOf | None = None
    """The study and the whole model of which this is one party's part."""
    estimator: str = "VerticalMixture"
    """Name of the estimator's class."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the estimator's constructor."""

    @property
    def weights(self) -> Array:
        """Weights of the components; (n_components,)."""
        found: Array = self.mixture.weights.mean(axis=0)
        return found

    @property
    def hub_weights(self) -> Array:
        """Weights of the components in the view of each root; (n_hubs, n_components)."""
        return np.broadcast_to(self.mixture.weights, (len(self.hubs), self.n_components)).copy()

    @property
    def n_components(self) -> int:
        """Number of components."""
        return int(self.mixture.weights.shape[1])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return sum(map(len, self.network.columns))

    @property
    def n_iter(self) -> int:
        """Number of iterations, or of steps of a stream."""
        return len(self.lower_bounds) if self.n_steps is None else self.n_steps

    @property
    def mean_bounds(self) -> list[float]:
        """Mean of the roots' lower bounds in each iteration."""
        return [float(bounds.mean()) for bounds in self.lower_bounds]

    @property
    def lower_bound(self) -> float:
        """Mean of the roots' last lower bounds; minus infinity without an iteration."""
        return float(self.lower_bounds[-1].mean()) if self.lower_bounds else -math.inf

    @property
    def log_likelihood(self) -> float | None:
        """Exact log-likelihood per row of the fit's rows, if known."""
        return None if self.certificate is None else self.certificate.log_likelihood

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of the block structure."""
        return self.n_components - 1 + sum(map(self.mixture.density.n_block_parameters, self.mixture.blocks))

    @cached_property
    def hubs(self) -> list[NamedHub]:
        """Hubs by the names of their parties."""
        return self.network.named_hubs()

    @cached_property
    def partition(self) -> dict[Hashable, list[int]]:
        """Party to its column numbers."""
        return self.network.named_columns()

    # Columns

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, or their numbers as texts."""
        return [str(name) for name in (range(self.n_features) if self.names is None else self.names)]

    @property
    def named_parties(self) -> dict[str, list[str]]:
        """Party to the names of its columns."""
        names = self.column_names
        return {str(party): [names[column] for column in held] for party, held in self.partition.items()}

    @property
    def own_columns(self) -> dict[str, dict[str, int]]:
        """Party to its columns: name in the party's own table, without the prefix of a join, to column number."""
        parties = self.named_parties
        count = Counter(name.removeprefix(f"{party}.") for party, own in parties.items() for name in own)
        number_of = {name: number for number, name in enumerate(self.column_names)}
        return {
            party: {
                name if count[bare := name.removeprefix(f"{party}.")] == 1 else bare: number_of[name] for name in own
            }
            for party, own in parties.items()
        }

    @property
    def party_of_column(self) -> list[str]:
        """Party of each column."""
        party_of = {column: str(party) for party, held in self.partition.items() for column in held}
        return [party_of[column] for column in range(len(party_of))]

    @property
    def word_names(self) -> frozenset[str]:
        """Names of the columns that have words in the fit."""
        names = self.column_names
        return frozenset(names[column] for column in self.coding.labels if column not in self.coding.numbers)

    @property
    def measures(self) -> dict[str, str]:
        """Column name to the measure of its log-densities; see `Density.measure`."""
        names, density = self.column_names, self.mixture.density
        return {
            names[column]: density.measure(block, place)
            for columns, block in zip(self.network.block_columns, self.mixture.blocks, strict=True)
            for place, column in enumerate(columns)
        }

    def code(self, values: Array) -> Table:
        """Return an array of numbers, and of the fit's codes for words, as codes of the fit; (n_rows, n_features)."""
        if values.ndim != 2 or values.shape[1] != self.n_features:
            raise ValueError(f"expected {self.n_features} columns, as in the fit, got an array of {values.shape}")
        return self.coding.code(values, {}, self.names)

    # Meaning

    @property
    def parts(self) -> tuple[Array, Any, Sequence[Any], list[list[int]]]:
        """The weights, the density, the blocks and their columns, as the functions of `vpem.meaning` take them."""
        columns = [own.tolist() for own in self.network.block_columns]
        return self.weights, self.mixture.density, self.mixture.blocks, columns

    @cached_property
    def profile(self) -> Profile:
        """Profile of the components."""
        return make_profile(*self.parts, self.coding.numbers)

    @cached_property
    def column_information(self) -> list[Information]:
        """Information of each column by itself, in the order of the table."""
        weights, density, blocks, columns = self.parts
        found: dict[int, Information] = {}
        for block, own in zip(blocks, columns, strict=True):
            found |= zip(own, column_information(weights, density, block), strict=True)
        return [found[column] for column in range(len(found))]

    @cached_property
    def party_information(self) -> list[Information]:
        """Information of each party's columns together, in the order of `partition`."""
        weights, density, blocks, columns = self.parts
        place = {c: (number, at) for number, own in enumerate(columns) for at, c in enumerate(own)}
        found = []
        for held in self.partition.values():
            if len(held) == 1:
                found.append(self.column_information[held[0]])
                continue
            block = blocks[place[held[0]][0]]
            found.append(block_information(weights, density, block, [place[c][1] for c in held]))
        return found
