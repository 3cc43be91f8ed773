"""What `model.json` of a model file holds, in the present version of the format and in earlier ones."""

from __future__ import annotations

from dataclasses import fields
from numbers import Integral, Real
from typing import Annotated, Any, Literal

import msgspec

from vpem.core.blocks.covariances import STRUCTURES
from vpem.core.blocks.density import Density
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.mixed import Mixed
from vpem.core.network.consensus import Consensus
from vpem.core.network.differences import Differences
from vpem.core.network.failures import Failures
from vpem.core.network.running import RunningSums
from vpem.core.network.star import Star
from vpem.core.network.summation import Summation
from vpem.core.network.tree import Tree
from vpem.privacy.masks import Masked

Name = str | int

FORMAT, VERSION = "vpem-model", 4

SUMMATIONS: dict[str, type[Any]] = {
    "star": Star,
    "consensus": Consensus,
    "tree": Tree,
    "differences": Differences,
    "masked": Masked,
    "running": RunningSums,
}
"""Summations that a file can name: frozen dataclasses whose fields are plain values, summations again, or `PARTS`."""

DENSITIES: dict[str, type[Any]] = {"gaussian": Gaussian, "mixed": Mixed}
"""Densities that a file can name: likewise."""

PARTS: dict[str, type[Any]] = {"failures": Failures}
"""What their fields may hold beside each other."""


class ModelFileError(ValueError):
    """A file that is no model, or not one that this version can read."""


Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Party(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name and column numbers."""

    name: Name
    columns: list[Count]


class HubOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A hub, by the numbers of its parties."""

    root: Count
    members: list[Count]


class Fixed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A component that could not go on."""

    iteration: Count
    component: Count
    party: Name
    reason: Literal["collapsed", "starved"]
    restarted: bool


Number = Annotated[int, msgspec.Meta(lt=2**62)]
Plain = bool | Number | float | str | None


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name in `SUMMATIONS` or `DENSITIES`, and the arguments of its class."""

    kind: str
    arguments: dict[str, Plain | Named | tuple[Plain | tuple[Plain, ...], ...]] = {}


class Categories(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the codes 0, 1, ... of one column stand for."""

    column: Count
    labels: list[str]
    numbers: list[float] | None = None
    """The same as numbers, where the table has numbers."""


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finding of the verdict."""

    code: str
    severity: Literal["red", "amber", "note"]
    sentence: str
    remedy: str


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constructor arguments that are plain values."""

    hops: Count
    tol: float
    batch_size: Count | None
    max_iter: Count
    n_init: Count
    init_params: str
    verbose: Count
    warm_start: bool
    random_state: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] | None
    accelerate: str | None = None
    standardize: bool = False
    """Whether columns were scaled; then the file has their scales."""


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `model.json` holds."""

    format: str
    version: int
    written_by: str
    n_components: Count
    n_features: Count
    estimator: Literal["VerticalGaussianMixture", "VerticalMixture"]
    density: Named
    feature_names: list[str] | None
    parties: list[Party]
    links: list[tuple[Count, Count]] | None
    """Between parties, by number; None: a star."""
    hubs: list[HubOf]
    parameters: Parameters
    summation: Named
    seed: Count
    n_views: Count
    lower_bounds: list[float]
    converged: bool
    disagreement: float | None
    gain: float | Literal["infinity"] | None
    """Of the certificate; "infinity" where the step collapses a component."""
    repairs: list[Fixed]
    rounds: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    """Of the traffic."""
    is_stream: bool
    """Whether it was fitted by `partial_fit`, with which a model from a file cannot go on."""
    log_likelihood: float | None = None
    """Of the certificate, as those below; in versions 1 to 3 they were not written."""
    mean_disagreement: float = 0.0
    split: float = 0.0
    effective_rows: list[float] = []
    findings: list[Found] | None = None
    """None: the fit was not judged."""
    categories: list[Categories] | msgspec.UnsetType = msgspec.UNSET
    """Of a model with families."""
    on: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Of a model of tables that were joined: the columns that name the rows."""


class PartOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `part.json` holds: of which whole the file is one party's part."""

    format: Literal["vpem-part"] = "vpem-part"
    version: int = 1
    study: str
    run: str
    """The same in all parts of one fit."""
    party: str
    parties: list[str]
    """All of the study, in their order; those that were given up are not among them."""
    n_columns: list[Count]
    """Of each party."""
    links: list[tuple[Count, Count]] | None
    """Between parties, by their place in the list; None: a star."""
    hubs: list[HubOf]
    block: Count
    """Which hub's block this is."""
    names: list[str]
    """Of the party's own columns."""
    n_rows: Count
    log_scales: float
    """Sum of the logarithms of what the block's values were divided by."""
    repairs: list[Fixed]


class Heading(msgspec.Struct, frozen=True):
    """As much as any version has."""

    format: str
    version: int


def decode(text: bytes, path: Any) -> Description:
    """Description from the text of `model.json`, of this version or an earlier one.

    Raises
    ------
    ModelFileError
    """
    try:
        heading = msgspec.json.decode(text, type=Heading)
        if heading.format != FORMAT or heading.version < 1:
            raise ModelFileError(
                f"expected a model in {path}, got format {heading.format!r}, version {heading.version}"
            )
        if heading.version > VERSION:
            raise ModelFileError(
                f"expected a model of format version {VERSION} or older in {path}, got version {heading.version}; "
                "update vpem to read it"
            )
        if heading.version == VERSION:
            return msgspec.json.decode(text, type=Description)
        about = msgspec.json.decode(text, type=dict[str, Any])
        if heading.version == 1:
            about = _from_version_1(about)
        if heading.version <= 2:
            about = _from_version_2(about)
        return _from_version_3(about)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelFileError(f"expected a model in {path}, got a model.json that is wrong: {error}") from None


class _SummingOfVersion1(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Consensus without a name; no rounds on a star."""

    rounds: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    weights: str = "metropolis"
    alpha: float | None = None


class _SettingsOfVersion1(msgspec.Struct, frozen=True):
    """What became a density, and a summation by name."""

    covariance_type: str
    parameters: dict[str, Any]


def _from_version_1(about: dict[str, Any]) -> dict[str, Any]:
    """The description that version 2 would have."""
    old = msgspec.convert(about.get("summation"), _SummingOfVersion1)
    summation = (
        {"kind": "star"} if old.rounds is None else {"kind": "consensus", "arguments": msgspec.to_builtins(old)}
    )
    found = msgspec.convert(about, _SettingsOfVersion1)
    parameters = found.parameters
    # It was ignored where covariances are diagonal, and is now refused there.
    if found.covariance_type in STRUCTURES and not STRUCTURES[found.covariance_type].is_matrix:
        parameters = {**parameters, "shrinkage": None}
    return {**about, "summation": summation, "parameters": parameters}


def _from_version_2(about: dict[str, Any]) -> dict[str, Any]:
    """The description that version 3 would have: all densities were Gaussian, with the estimator's settings."""
    old = msgspec.convert(about, _SettingsOfVersion1)
    moved = {name: old.parameters.get(name) for name in ("reg_covar", "shrinkage")}
    changed = {
        "estimator": "VerticalGaussianMixture",
        "density": {"kind": "gaussian", "arguments": {"covariance_type": old.covariance_type, **moved}},
        "parameters": {name: value for name, value in old.parameters.items() if name not in moved},
    }
    kept = {name: value for name, value in about.items() if name != "covariance_type"}
    return {**kept, **changed}


def _from_version_3(about: dict[str, Any]) -> Description:
    """Without a verdict, and with less in the certificate."""
    return msgspec.convert({**about, "version": VERSION}, Description)


def describe_summation(summation: Summation) -> Named:
    """What a file says of a summation.

    Raises
    ------
    TypeError
        If a file could not bring it back: it, or a summation among its arguments, is none of `SUMMATIONS`.
    """
    return _describe(summation, SUMMATIONS, "summation")


def describe_density(density: Density) -> Named:
    """What a file says of a density; TypeError as above."""
    return _describe(density, DENSITIES, "density")


def make_summation(about: Named) -> Summation:
    """The summation that a file tells of.

    Raises
    ------
    ValueError, TypeError
        If there is none of that name, or none with these arguments.
    """
    made: Summation = _make(about, SUMMATIONS, "summation")
    return made


def make_density(about: Named) -> Density:
    """The density that a file tells of; errors as above."""
    made: Density = _make(about, DENSITIES, "density")
    return made


def _describe(value: Any, known: dict[str, type[Any]], what: str) -> Named:
    tags = {kind: tag for tag, kind in known.items()}
    tag = tags.get(type(value))
    if tag is None:
        raise TypeError(
            f"expected a {what} that a model file can name ({', '.join(kind.__name__ for kind in tags)}), got "
            f"{value!r} of type {type(value).__name__}; fit with one of these to save the model"
        )
    return Named(tag, {part.name: _plain(getattr(value, part.name), known, what) for part in fields(type(value))})


def _plain(value: Any, known: dict[str, type[Any]], what: str) -> Any:
    """An argument as JSON has it."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, tuple):
        return tuple(_plain(part, known, what) for part in value)
    return _describe(value, {**known, **PARTS}, what)


def _make(about: Named, known: dict[str, type[Any]], what: str) -> Any:
    if about.kind not in known:
        raise ValueError(
            f"expected a {what} that this version knows ({', '.join(map(repr, known))}), got {about.kind!r}; "
            "update vpem, if a newer version wrote the file"
        )
    arguments = {
        name: _make(value, {**known, **PARTS}, what) if isinstance(value, Named) else value
        for name, value in about.arguments.items()
    }
    return known[about.kind](**arguments)
