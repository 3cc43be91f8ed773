"""The file that all parties of a study share: what is fitted, who takes part, how they are linked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpem.core.blocks.covariances import STRUCTURES
from vpem.core.blocks.families import GAUSSIAN
from vpem.core.network.default import WAYS, named_summation
from vpem.core.network.parties import SERVER
from vpem.core.network.star import Star
from vpem.core.network.tree import Tree
from vpem.core.settings import ACCELERATIONS, STARTS, Agreement
from vpem.privacy.ids import RULES
from vpem.privacy.masks import ACCEPTABLE, TWO_PARTIES, Masked
from vpem.privacy.parcels import Agents
from vpem.reading.problems import unknown
from vpem.studies import fields
from vpem.studies.fields import Fields
from vpem.studies.linking import drawn_links, listed_links, named_links

if TYPE_CHECKING:
    from vpem.core.network.summation import Summation
    from vpem.estimators import VerticalMixture

FORMAT = 1
MASKED = "masked"
"""The sum of a study that says nothing else."""
AUTO = "auto"
FAMILIES = (GAUSSIAN, AUTO)
"""All columns are Gaussian; or each party decides on its own, by itself."""
MATCHES = ("same", "inner", "outer")
SAME_AS_EVER = ("families", GAUSSIAN)
"""What studies had before they could choose: their digests stay the same."""
DIGITS = 8
"""Of a digest of one field."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is fitted, as the options of `vpem fit` have it."""

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
    """Of its key, as `vpem keys show` says it; None: any key that the authority has certified for this name."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What all parties have agreed on; made by `read_study`.

    Agents are numbered as the parties in the file; the server of a star is the last.
    """

    name: str
    model: Options
    parties: tuple[Member, ...]
    server: Member | None
    shape: str
    """One of `LINKS`, or "list"."""
    links: tuple[tuple[int, int], ...]
    """Between agents, the smaller number first."""
    salt: str
    """Of the rows' digests, in hexadecimal digits."""
    seed: int = 0
    patience: float = 3600.0
    """Seconds after which the others no longer wait for one that is away."""
    lease: float = 10.0
    """Seconds of silence after which a link has ended."""
    sum: str = MASKED
    """One of `WAYS`, or masked, as a study is that says nothing else."""
    rounds: int | str | None = None
    """Of consensus."""
    accept: tuple[str, ...] = ()
    """What the parties accept to be seen under masks; see `vpem.privacy.masks.ACCEPTABLE`."""
    match: str = "same"
    """One of `MATCHES`: all have the same ids; or rows that all, or some, have are found first."""
    spelling: str = "text"
    """Rule for ids that are matched; see `vpem.privacy.ids.RULES`."""
    matcher: str | None = None
    """The agent that gets the tokens; None: a star's server, else the first party."""
    path: Path | None = None

    def __post_init__(self) -> None:
        problem = _must_accept(self.sum, len(self.parties), self.accept)
        if problem is not None:
            raise fields.StudyFileError(f"{self.path or self.name}: {problem}")

    @property
    def is_masked(self) -> bool:
        """Whether sums are masked."""
        return self.sum == MASKED

    @property
    def matching(self) -> Agents:
        """Who matches rows, and how."""
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
        """Of all agents, by number."""
        return tuple(member.name for member in self.members)

    def number(self, name: str) -> int:
        """An agent's number; StudyFileError for a name that is not in the study."""
        text = unknown(name, self.names, f"{self.path or self.name}: the party")
        if text is not None:
            raise fields.StudyFileError(text)
        return self.names.index(name)

    def neighbours(self, number: int) -> tuple[int, ...]:
        """Agents that one has links to."""
        return tuple(sorted(sum(link) - number for link in self.links if number in link))

    @property
    def summation(self) -> Summation:
        """How the network adds."""
        if self.is_masked:
            return Masked(Tree() if self.server is None else Star(), self.accept)
        return named_summation(self.sum, self.rounds, is_star=self.server is not None)  # type: ignore[arg-type]

    @property
    def has_families(self) -> bool:
        """Whether columns may be of other families than Gaussian."""
        return self.model.families == AUTO

    def estimator(self) -> VerticalMixture:
        """The estimator that would fit the same mixture to a joined table, but for parties and graph."""
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
        """What the agents compare, made as the estimator makes it for its own.

        Parameters
        ----------
        party, families :
            An agent's name and its own columns' families, if the study has some: they are not compared.
        """
        from vpem.estimators.checks import shared_seed

        model = self.estimator().check_arguments()
        settings, seed = model._settings(), shared_seed(self.seed)
        if families:
            settings = replace(settings, density=model._mixed(((party, *families),)))
        return model._agreement(settings, self.summation, seed, [], n_init=self.model.starts)

    @cached_property
    def _whole_digests(self) -> dict[str, str]:
        """Of each field that must be the same at all parties, by its name in the file; addresses need not be."""
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
        """Of each of these fields, as short as parties need to say in which one they differ."""
        return {name: whole[:DIGITS] for name, whole in self._whole_digests.items()}

    @cached_property
    def digest(self) -> str:
        """Of all of it."""
        return _digest(sorted(self._whole_digests.items()))

    def at(self, addresses: dict[str, str]) -> Study:
        """The same study with other addresses of some members."""
        moved = [replace(one, address=addresses.get(one.name, one.address)) for one in self.members]
        return replace(
            self, parties=tuple(moved[: len(self.parties)]), server=None if self.server is None else moved[-1]
        )


def _place(member: Member) -> str:
    return "network.server" if member.name == SERVER else f"parties.{member.name}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_study(path: str | os.PathLike[str], text: str | None = None) -> Study:
    """Read and check the shared file of a study.

    Parameters
    ----------
    path : path
    text : str, optional
        What the file says, if it has come another way; the path is then where it would be.

    Raises
    ------
    StudyFileError
        With all that is wrong, line by line.
    """
    found = Fields(path, "the shared file of a study", text)
    version = found.take("vpem", fields.whole(1))
    if version is not None and version > FORMAT:
        found.add(("vpem",), f"expected format {FORMAT}, got {version}; update vpem to read this file")
    asked = _options(found)
    names, parties = _parties(found)
    shape, links, server = _network(found, names)
    way = found.take(("network", "sum"), fields.one_of((*WAYS, MASKED)), Study.sum)
    accept = found.take(("privacy", "accept"), _accepted, ())
    if (problem := _must_accept(way, len(names), accept or ())) is not None:
        found.add(("privacy", "accept"), problem)
    rows = {
        "match": found.take(("rows", "match"), fields.one_of(MATCHES), "same"),
        "spelling": found.take(("rows", "spelling"), fields.one_of(tuple(RULES)), "text"),
        "matcher": found.take(("rows", "matcher"), fields.one_of((*names, SERVER)), None),
    }
    if rows["matcher"] == SERVER and shape != "star":
        found.add(("rows", "matcher"), 'expected a party as the matcher without links = "star"')
    rounds = found.take(("network", "rounds"), _rounds, None)
    if way != "consensus" and found.has("network", "rounds"):
        found.add(("network", "rounds"), f'expected rounds with sum = "consensus" only, got sum = "{way}"')
    if way == "consensus" and shape == "star":
        found.add(("network", "sum"), 'expected sum = "exact" or "differences" on a star, got "consensus"')
    about = {
        "name": found.take("name", fields.name),
        "seed": found.take("seed", fields.whole(0, 2**32 - 1), 0),
        "patience": found.take("patience", fields.duration, 3600.0),
        "lease": found.take("lease", fields.duration, 10.0),
        "salt": found.take(("rows", "salt"), fields.hexadecimal),
    }
    if shape == "star" and asked is not None and asked.hops:
        found.add(("model", "hops"), "expected hops = 0 on a star, whose server would hold every column")
    found.end()
    assert asked is not None, "no problems"
    own = {"shape": shape, "links": links, "sum": way, "rounds": rounds, "accept": accept, **rows}
    study = Study(**about, **own, model=asked, parties=parties, server=server, path=Path(path))
    try:
        study.agreement()
    except ValueError as error:  # values that do not fit each other
        found.add(("model",), str(error))
        found.end()
    return study


def _must_accept(way: str | None, n_parties: int, accept: tuple[str, ...]) -> str | None:
    """What a study of two parties lacks, if it lacks something."""
    if way != MASKED or n_parties != 2 or TWO_PARTIES in accept:
        return None
    return (
        "expected a study of two parties to say that of two parties each sees the other's terms: "
        f'accept = "{TWO_PARTIES}", or a plain sum = "differences"; found neither'
    )


def _options(found: Fields) -> Options | None:
    before = len(found.problems)
    takes: dict[str, Any] = {
        "components": fields.whole(1),
        "covariance": fields.one_of(tuple(STRUCTURES)),
        "tol": fields.number,
        "max_iter": fields.whole(0),
        "starts": fields.whole(1),
        "init": fields.one_of(STARTS),
        "accelerate": fields.one_of(ACCELERATIONS),
        "reg_covar": fields.number,
        "shrinkage": _shrinkage,
        "standardize": fields.boolean,
        "hops": fields.whole(0),
        "families": fields.one_of(FAMILIES),
    }
    found.table("model")
    values = {
        name: found.take(("model", name), check)
        for name, check in takes.items()
        if name == "components" or found.has("model", name)
    }
    if len(found.problems) > before:
        return None
    # Columns that travel to a root have its units, and spherical ones the same: neither can be scaled.
    values.setdefault("standardize", values.get("covariance") != "spherical" and not values.get("hops"))
    if values["standardize"] and values.get("hops"):
        found.add(
            ("model", "standardize"), "expected standardize = false with hops: a root cannot scale others' columns"
        )
    if values.get("families") == AUTO and values.get("hops"):
        found.add(
            ("model", "hops"),
            'expected hops = 0 with families = "auto": a party\'s families and categories stay with it, and a root '
            "could not read the columns of others",
        )
    return Options(**values)


def _shrinkage(value: Any) -> float | str | None:
    if value in ("auto", "oas", "none"):
        return None if value == "none" else str(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError('expected "auto", "oas", "none" or a number from 0 to 1')
    return float(value)


def _accepted(value: Any) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
    if not found or not set(found) <= set(ACCEPTABLE):
        raise ValueError(f"expected one or some of {', '.join(map(repr, ACCEPTABLE))}")
    return found


def _rounds(value: Any) -> int | str:
    if value == "auto":
        return "auto"
    try:
        return fields.whole(1)(value)
    except ValueError:
        raise ValueError('expected a whole number, 1 or more, or "auto"') from None


def _parties(found: Fields) -> tuple[list[str], tuple[Member, ...]]:
    """Names, and the parties in the order of the file."""
    names = found.table("parties")
    if len(names) < 2:
        found.add(("parties",), f"expected two parties or more, as [parties.north], got {len(names)}")
    parties = []
    for name in names:
        if not fields.NAME.fullmatch(name):
            found.add(("parties", name), f"expected 1 to 64 letters, digits, - and _ as a party's name, got {name!r}")
        if name == SERVER:
            found.add(("parties", name), f"expected another name than {SERVER!r}, which a star's server has")
        found.table(("parties", name))
        parties.append(_member(found, name, ("parties", name)))
    _check_once(found, parties)
    return names, tuple(parties)


def _member(found: Fields, name: str, place: tuple[str, str]) -> Member:
    return Member(
        name,
        found.take((*place, "address"), fields.address),
        found.take((*place, "certificate"), fields.name, name),
        found.take((*place, "fingerprint"), fields.fingerprint, None),
    )


def _check_once(found: Fields, parties: list[Member]) -> None:
    for what in ("address", "certificate"):
        seen: dict[str, str] = {}
        for one in parties:
            value = getattr(one, what)
            if value is not None and value in seen:
                text = f"expected a different {what} for each party, got {value!r} for {seen[value]} and {one.name}"
                found.add(("parties", one.name, what), text)
            seen[value] = one.name


def _network(found: Fields, names: list[str]) -> tuple[str, tuple[tuple[int, int], ...], Member | None]:
    """The shape's name, the links, and a star's server."""
    links = found.take(("network", "links"), named_links)
    n_parties = len(names)
    if links == "star":
        found.table(("network", "server"))
        server = _member(found, SERVER, ("network", "server"))
        return "star", tuple((number, n_parties) for number in range(n_parties)), server
    if found.has("network", "server"):
        found.table(("network", "server"))
        for name in ("address", "certificate", "fingerprint"):
            found.has("network", "server", name)
        found.add(("network", "server"), 'expected a server with links = "star" only')
    if isinstance(links, list):
        return "list", listed_links(found, links, names), None
    return str(links), drawn_links(str(links), n_parties), None
