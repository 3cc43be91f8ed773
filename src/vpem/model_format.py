"""Contents of `model.json` in a model file."""

from __future__ import annotations

from dataclasses import fields
from numbers import Integral, Real
from typing import Annotated, Any, Literal

import msgspec

from vpem.core.blocks.density import Density
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.mixed import Mixed
from vpem.core.network.failures import Failures
from vpem.core.network.summation import Summation
from vpem.summations import load_all

Name = str | int

FORMAT, VERSION, OLDEST = "vpem-model", 4, 4
"""Name and version of the format, and the oldest version that is read."""

SUMMATIONS = load_all()
"""Summations that a file can name: frozen dataclasses whose fields are plain values, summations again, or `PARTS`."""

DENSITIES: dict[str, type[Any]] = {"gaussian": Gaussian, "mixed": Mixed}
"""Densities that a file can name, under the same conditions as `SUMMATIONS`."""

PARTS: dict[str, type[Any]] = {"failures": Failures}
"""Further classes that a field of a summation or density may hold."""


class ModelFileError(ValueError):
    """Raised for a file that is not a model, or that this version cannot read."""


Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Party(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name and column numbers of one party."""

    name: Name
    columns: list[Count]


class HubOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Root and members of a hub, as party numbers."""

    root: Count
    members: list[Count]


class Fixed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A component that collapsed or starved, as `Repair`."""

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
    """Categories behind the codes 0, 1, ... of one column."""

    column: Count
    labels: list[str]
    numbers: list[float] | None = None
    """The categories as numbers, if the column holds numbers."""


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
    """True if columns were scaled; the file then holds their scales."""


class NearOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Number of ids that nearly match, and the difference in their spelling."""

    party: str
    other: str
    count: Count
    difference: str


class RowsOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Row counts of a fit; the fields are those of `vpem.overlap.RowSummary`."""

    n_rows: Count
    held: dict[str, Count]
    n_common: Count | None
    n_used: Count
    gaps: dict[str, Count] = {}
    matched: dict[str, Count] = {}
    n_empty: Count = 0
    is_joined: bool = False
    is_private: bool = False
    near: list[NearOf] = []
    gap_words: dict[str, dict[str, Count]] = {}


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of `model.json`."""

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
    """Links between parties, as party numbers; None: a star."""
    hubs: list[HubOf]
    parameters: Parameters
    summation: Named
    seed: Count
    n_views: Count
    lower_bounds: list[float]
    converged: bool
    disagreement: float | None
    gain: float | Literal["infinity"] | None
    """Gain of the certificate; "infinity" if the step collapses a component."""
    repairs: list[Fixed]
    rounds: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    """Number of rounds in the traffic."""
    is_stream: bool
    """True if the model was fitted by `partial_fit`. A model from a file cannot continue the stream."""
    log_likelihood: float | None = None
    """Log-likelihood of the certificate. The next three fields belong to the certificate too."""
    mean_disagreement: float = 0.0
    split: float = 0.0
    effective_rows: list[float] = []
    findings: list[Found] | None = None
    """Findings of the verdict; None: the fit was not judged."""
    categories: list[Categories] | msgspec.UnsetType = msgspec.UNSET
    """Categories of each categorical column; unset without families."""
    on: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Id columns of the joined tables; unset if the model was fitted to one table."""
    read_as: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Column name to the way in which it was read, for files with percentages, money or dates; otherwise unset."""
    gaps: dict[str, list[str]] | msgspec.UnsetType = msgspec.UNSET
    """Column to the words for gaps that the user named, `*` for all other columns; otherwise unset."""
    rows: RowsOf | msgspec.UnsetType = msgspec.UNSET
    """Row counts of the fit; unset in files of earlier versions and for streams."""


class PartOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Contents of `part.json`: the study and the whole model that one party's file belongs to."""

    format: Literal["vpem-part"] = "vpem-part"
    version: int = 1
    study: str
    run: str
    """Identifier of the fit, equal in all its parts."""
    party: str
    parties: list[str]
    """Parties of the study, in order, without those that were given up."""
    n_columns: list[Count]
    """Number of columns of each party."""
    links: list[tuple[Count, Count]] | None
    """Links between parties, as positions in `parties`; None: a star."""
    hubs: list[HubOf]
    block: Count
    """Number of the hub that this block belongs to."""
    names: list[str]
    """Names of the party's own columns."""
    n_rows: Count
    """Number of rows that the fit used."""
    log_scales: float
    """Sum, over the block's values in these rows, of the logarithm of the scale that divided each value."""
    repairs: list[Fixed]


class Heading(msgspec.Struct, frozen=True):
    """Fields that every version of the format has."""

    format: str
    version: int


def decode(text: bytes, path: Any) -> Description:
    """Return the description from the text of `model.json`.

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
        if heading.version < OLDEST:
            raise ModelFileError(
                f"expected a model of format version {OLDEST} or later in {path}, got version {heading.version}; "
                "fit the model again"
            )
        return msgspec.json.decode(text, type=Description)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelFileError(f"expected a model in {path}, got a model.json that is wrong: {error}") from None


def describe_summation(summation: Summation) -> Named:
    """Return the entry of a summation in a model file.

    Raises
    ------
    TypeError
        If the summation, or one among its arguments, is not in `SUMMATIONS`, so that a file cannot restore it.
    """
    return _describe(summation, SUMMATIONS, "summation")


def describe_density(density: Density) -> Named:
    """Return the entry of a density in a model file; raise TypeError if the density is not in `DENSITIES`."""
    return _describe(density, DENSITIES, "density")


def make_summation(about: Named) -> Summation:
    """Make the summation that a model file describes.

    Raises
    ------
    ValueError, TypeError
        If the name is unknown, or if the class does not accept the arguments.
    """
    made: Summation = _make(about, SUMMATIONS, "summation")
    return made


def make_density(about: Named) -> Density:
    """Make the density that a model file describes; errors as in `make_summation`."""
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
    """Convert an argument to a value that JSON can hold."""
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
