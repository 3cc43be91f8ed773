"""What `model.json` of a model file holds, in the present version of the format and in earlier ones."""

from __future__ import annotations

from dataclasses import fields
from numbers import Integral, Real
from typing import Annotated, Any, Literal

import msgspec

from vpem.core.blocks.covariances import STRUCTURES
from vpem.core.network.consensus import Consensus
from vpem.core.network.star import Star
from vpem.core.network.summation import Summation

Name = str | int

FORMAT, VERSION = "vpem-model", 2

SUMMATIONS: dict[str, type[Any]] = {"star": Star, "consensus": Consensus}
"""Summations that a file can name: frozen dataclasses whose fields are plain values or summations again."""


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


class Summing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the network added: a name in `SUMMATIONS`, and the arguments of its class."""

    kind: str
    arguments: dict[str, bool | Annotated[int, msgspec.Meta(lt=2**62)] | float | str | Summing | None] = {}


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constructor arguments that are plain values."""

    hops: Count
    shrinkage: float | str | None
    tol: float
    reg_covar: float
    batch_size: Count | None
    max_iter: Count
    n_init: Count
    init_params: str
    verbose: Count
    warm_start: bool
    random_state: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] | None


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `model.json` holds."""

    format: str
    version: int
    written_by: str
    n_components: Count
    n_features: Count
    covariance_type: str
    feature_names: list[str] | None
    parties: list[Party]
    links: list[tuple[Count, Count]] | None
    """Between parties, by number; None: a star."""
    hubs: list[HubOf]
    parameters: Parameters
    summation: Summing
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
        if heading.version == 1:
            return _from_version_1(msgspec.json.decode(text, type=dict[str, Any]))
        return msgspec.json.decode(text, type=Description)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelFileError(f"expected a model in {path}, got a model.json that is wrong: {error}") from None


class _SummingOfVersion1(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Consensus without a name; no rounds on a star."""

    rounds: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    weights: str = "metropolis"
    alpha: float | None = None


def _from_version_1(about: dict[str, Any]) -> Description:
    old = msgspec.convert(about.get("summation"), _SummingOfVersion1)
    summation = Summing("star") if old.rounds is None else Summing("consensus", msgspec.structs.asdict(old))
    found: Description = msgspec.convert({**about, "version": VERSION, "summation": {"kind": ""}}, Description)
    parameters = found.parameters
    # It was ignored where covariances are diagonal, and is now refused there.
    if found.covariance_type in STRUCTURES and not STRUCTURES[found.covariance_type].is_matrix:
        parameters = msgspec.structs.replace(parameters, shrinkage=None)
    return msgspec.structs.replace(found, summation=summation, parameters=parameters)


def describe_summation(summation: Summation) -> Summing:
    """What a file says of a summation.

    Raises
    ------
    TypeError
        If a file could not bring it back: it, or a summation among its arguments, is none of `SUMMATIONS`.
    """
    tags = {known: tag for tag, known in SUMMATIONS.items()}
    tag = tags.get(type(summation))
    if tag is None:
        raise TypeError(
            f"expected a summation that a model file can name ({', '.join(known.__name__ for known in tags)}), got "
            f"{summation!r} of type {type(summation).__name__}; fit with one of these to save the model"
        )
    return Summing(tag, {part.name: _plain(getattr(summation, part.name)) for part in fields(type(summation))})  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    """An argument as JSON has it."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    return describe_summation(value)


def make_summation(about: Summing) -> Summation:
    """The summation that a file tells of.

    Raises
    ------
    ValueError, TypeError
        If there is none of that name, or none with these arguments.
    """
    if about.kind not in SUMMATIONS:
        raise ValueError(
            f"expected a summation that this version knows ({', '.join(map(repr, SUMMATIONS))}), got {about.kind!r}; "
            "update vpem, if a newer version wrote the file"
        )
    arguments = {
        name: make_summation(value) if isinstance(value, Summing) else value
        for name, value in about.arguments.items()
    }
    made: Summation = SUMMATIONS[about.kind](**arguments)
    return made
