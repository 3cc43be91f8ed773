"""Data that all parties of a study share: the options of the fit, the members and their links."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpem.core.blocks.density import Density
from vpem.core.blocks.families import GAUSSIAN
from vpem.core.blocks.mixed import Mixed
from vpem.core.network.parties import SERVER
from vpem.core.settings import Agreement
from vpem.privacy.masks import TWO_PARTIES
from vpem.privacy.parcels import Agents
from vpem.reading.problems import unknown
from vpem.studies import fields
from vpem.summations import named_summation

if TYPE_CHECKING:
    from vpem.core.network.summation import Summation
    from vpem.estimators import VerticalMixture

MASKED = "masked"
"""Default sum of a study."""
AUTO = "auto"
FAMILIES = (GAUSSIAN, AUTO)
"""Either all columns are Gaussian, or each party decides on the families of its own columns."""
MATCHES = ("same", "inner", "outer")
SAME_AS_EVER = ("families", GAUSSIAN)
"""Field and value left out of digests, so that studies from before this field existed keep their digests."""
DIGITS = 8
"""Hexadecimal digits of the digest of one field."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the fit, named as those of `vpem fit`."""

    components: int
    covariance: str = "full"
    tol: float = 1e-3
    max_iter: int = 100
    starts: int = 5
    init: str = "kmeans"
    accelerate: str | None = None
    reg_covar: float = 1e-6
    shrinkage: float | str | None = "auto"
    standardize: bool = True
    hops: int = 0
    families: str = GAUSSIAN
    """One of `FAMILIES`."""


@dataclass(frozen=True)
class Member:
    """A party, or the server of a star."""

    name: str
    address: str
    """Host and port at which it can be reached."""
    certificate: str
    """Common name of its certificate."""
    fingerprint: str | None = None
    """Fingerprint of its key (see `vpem keys show`); None: any key that the authority certified for this name."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that all parties have agreed on; made by `read_study`.

    Agents are numbered in the order of the parties in the file. The server of a star has the last number.
    """

    name: str
    model: Options
    parties: tuple[Member, ...]
    server: Member | None
    shape: str
    """One of `LINKS`, or "list"."""
    links: tuple[tuple[int, int], ...]
    """Pairs of agents, the smaller number first."""
    salt: str
    """Salt of the rows' digests, in hexadecimal digits."""
    seed: int = 0
    patience: float = 3600.0
    """Seconds for which the others wait for an absent agent."""
    lease: float = 10.0
    """Seconds of silence after which a link counts as lost."""
    sum: str = MASKED
    """One of `vpem.summations.WAYS`."""
    rounds: int | str | None = None
    """Rounds of consensus."""
    accept: tuple[str, ...] = ()
    """Disclosures under masks that the parties accept; see `vpem.privacy.masks.ACCEPTABLE`."""
    match: str = "same"
    """One of `MATCHES`: all parties have the same ids; or the intersection or union of their rows is found first."""
    spelling: str = "text"
    """Rule for ids that are matched; see `vpem.privacy.ids.RULES`."""
    matcher: str | None = None
    """Agent that receives the tokens; None: a star's server, else the first party."""
    path: Path | None = None

    def __post_init__(self) -> None:
        problem = must_accept(self.sum, len(self.parties), self.accept)
        if problem is not None:
            raise fields.StudyFileError(f"{self.path or self.name}: {problem}")

    @property
    def is_masked(self) -> bool:
        """True if sums are masked."""
        return self.sum == MASKED

    @property
    def matching(self) -> Agents:
        """Agents of the matching and its rule."""
        matcher = self.matcher or (SERVER if self.server is not None else self.parties[0].name)
        owners = tuple(range(len(self.parties)))
        about = f"{self.spelling} {self.digest}"
        return Agents(self.names, self.links, owners, self.number(matcher), self.match, about)

    @property
    def members(self) -> tuple[Member, ...]:
        """All agents, by number."""
        return self.parties if self.server is None else (*self.parties, self.server)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all agents, by number."""
        return tuple(member.name for member in self.members)

    def number(self, name: str) -> int:
        """Return an agent's number; raise StudyFileError for a name that is not in the study."""
        text = unknown(name, self.names, f"{self.path or self.name}: the party")
        if text is not None:
            raise fields.StudyFileError(text)
        return self.names.index(name)

    def neighbours(self, number: int) -> tuple[int, ...]:
        """Return the agents to which an agent has links."""
        return tuple(sorted(sum(link) - number for link in self.links if number in link))

    @property
    def summation(self) -> Summation:
        """Summation of the network."""
        found: Any = named_summation(self.sum, self.rounds, is_star=self.server is not None)  # type: ignore[arg-type]
        summation: Summation = replace(found, accept=self.accept) if self.is_masked else found
        return summation

    @property
    def has_families(self) -> bool:
        """True if columns may have families other than Gaussian."""
        return self.model.families == AUTO

    def estimator(self) -> VerticalMixture:
        """Return the estimator that would fit the same mixture to a joined table, except for parties and graph."""
        from vpem.estimators import VerticalGaussianMixture, VerticalMixture

        asked = self.model
        make = VerticalMixture if self.has_families else VerticalGaussianMixture
        return make(
            asked.components,
            covariance_type=asked.covariance,
            tol=asked.tol,
            max_iter=asked.max_iter,
            n_init=asked.starts,
            init_params=asked.init,
            accelerate=asked.accelerate,
            reg_covar=asked.reg_covar,
            shrinkage=asked.shrinkage,
            standardize=asked.standardize,
            hops=asked.hops,
            summation=self.summation,
            random_state=self.seed,
        )

    def agreement(self, party: str = "", families: Sequence[str] = ()) -> Agreement:
        """Return the agreement that the agents compare, built in the same way as the estimator's.

        Parameters
        ----------
        party, families :
            An agent's name and the families of its own columns, if the study has families. They are not compared.
        """
        from vpem.estimators.checks import make_agreement, make_settings, shared_seed
        from vpem.estimators.gaussian_mixture import make_gaussian

        asked = self.model
        columns: dict[str, Any] = {
            "covariance_type": asked.covariance,
            "reg_covar": asked.reg_covar,
            "shrinkage": asked.shrinkage,
        }
        density: Density
        if self.has_families:
            density = Mixed(families=((party, *families),) if families else (), **columns)
        else:
            density = make_gaussian(**columns, standardize=asked.standardize)
        settings = make_settings(density, asked.components, asked.tol, asked.max_iter, asked.accelerate)
        start: dict[str, Any] = {"hops": asked.hops, "init_params": asked.init, "n_init": asked.starts}
        return make_agreement(settings, self.summation, shared_seed(self.seed), **start)

    @cached_property
    def _whole_digests(self) -> dict[str, str]:
        """Digests of the fields that all parties must share, by their names in the file; addresses may differ."""
        values: dict[str, Any] = {
            "name": self.name,
            "seed": self.seed,
            "patience": self.patience,
            "lease": self.lease,
            **{f"model.{name}": value for name, value in asdict(self.model).items() if (name, value) != SAME_AS_EVER},
            "network.links": self.links,
            "network.sum": self.sum,
            "network.rounds": self.rounds,
            "rows.salt": self.salt,
            "rows.match": self.match,
            "rows.spelling": self.spelling,
            "rows.matcher": self.matcher,
            "privacy.accept": sorted(self.accept),
            "parties": self.names,
            **{f"{_place(one)}.certificate": one.certificate for one in self.members},
            **{f"{_place(one)}.fingerprint": one.fingerprint for one in self.members if one.fingerprint is not None},
        }
        return {name: _digest(value) for name, value in values.items()}

    @property
    def digests(self) -> dict[str, str]:
        """Short digests of these fields, which suffice for parties to find the field in which they differ."""
        return {name: whole[:DIGITS] for name, whole in self._whole_digests.items()}

    @cached_property
    def digest(self) -> str:
        """Digest of all these fields."""
        return _digest(sorted(self._whole_digests.items()))

    def at(self, addresses: dict[str, str]) -> Study:
        """Return this study with other addresses for some members."""
        moved = [replace(one, address=addresses.get(one.name, one.address)) for one in self.members]
        return replace(
            self, parties=tuple(moved[: len(self.parties)]), server=None if self.server is None else moved[-1]
        )


def _place(member: Member) -> str:
    return "network.server" if member.name == SERVER else f"parties.{member.name}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def must_accept(way: str | None, n_parties: int, accept: tuple[str, ...]) -> str | None:
    """Return a message if a masked study of two parties does not accept `TWO_PARTIES`; else None."""
    if way != MASKED or n_parties != 2 or TWO_PARTIES in accept:
        return None
    return (
        "expected a study of two parties to say that of two parties each sees the other's terms: "
        f'accept = "{TWO_PARTIES}", or a plain sum = "differences"; found neither'
    )
