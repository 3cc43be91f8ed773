"""Fitted models in files: an open, versioned format, without pickle.

A model is one zip archive. Its member `model.json` describes the model: parties, columns, links, hubs, settings and
the outcome of the fit. Each array is a member in numpy's format, so the archive is an `.npz` file with an additional
member, and `numpy.load` can read the arrays.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import vpem
from vpem.core.blocks.density import Density
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.mixed import Mixed
from vpem.core.blocks.structure import takes_words
from vpem.core.decisions.repair import Repair
from vpem.core.network.hubs import Hub, Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.network.traffic import Traffic
from vpem.core.settings import STARTS
from vpem.estimators import VerticalMixture, from_fitted
from vpem.estimators.checks import check_choice, make_settings
from vpem.estimators.gaussian_mixture import make_gaussian
from vpem.files import replacing, why_no_file
from vpem.model.category_codes import Coding
from vpem.model.fitted import Fitted
from vpem.model.judgement import Judgement
from vpem.model_format import (
    FORMAT,
    VERSION,
    Categories,
    Description,
    Fixed,
    Found,
    HubOf,
    ModelFileError,
    Name,
    Parameters,
    PartOf,
    Party,
    RowsOf,
    decode,
    describe_density,
    describe_summation,
    make_density,
    make_summation,
)
from vpem.overlap import RowSummary
from vpem.simulation.certificate import Certificate
from vpem.simulation.model import Mixture
from vpem.verdict import Finding

Array = NDArray[np.float64]

LARGEST_ARRAYS = 2**31
"""Largest total size of the arrays that are read, in bytes."""
LARGEST_TEXT = 64 * 2**20
"""Largest size of `model.json` that is read, in bytes."""

NOT_JUDGED = Finding("not_judged", "note", "This file does not say how good the fit is.", "fit the model again")
"""Verdict of models whose file has none."""


def save(model: VerticalMixture, path: str | os.PathLike[str], *, part: PartOf | None = None) -> None:
    """Write a fitted model to a file, completely or not at all.

    The file holds the model, names and words of its columns, the id columns of a dict of tables, the outcome of the
    fit, and the constructor's arguments except initial values, callbacks and random states other than whole numbers.
    It holds no row of the data and no stream of `partial_fit`.

    Parameters
    ----------
    model : VerticalGaussianMixture or VerticalMixture
    path : path
    part : PartOf, optional
        The study and the whole model of which this model is one party's part; given by `vpem.studies`.

    Raises
    ------
    TypeError
        If a file cannot store a party's name, or the summation or density of the fit.
    """
    check_is_fitted(model, "weights_")
    fitted = model.fitted_
    network, mixture, certificate = fitted.network, fitted.mixture, fitted.certificate
    parties: list[Any] = [name.item() if isinstance(name, np.generic) else name for name in network.parties]
    for name in parties:
        if not isinstance(name, Name) or isinstance(name, bool):
            raise TypeError(f"expected party names that are texts or whole numbers, got {name!r}; rename it")
    gain, findings = None if certificate is None else certificate.gain, fitted.judgement.findings
    description = Description(
        format=FORMAT,
        version=VERSION,
        written_by=f"vpem {vpem.__version__}",
        n_components=fitted.n_components,
        n_features=fitted.n_features,
        estimator=fitted.estimator,  # type: ignore[arg-type]  # one of two
        density=describe_density(mixture.density),
        feature_names=None if fitted.names is None else list(fitted.names),
        parties=[Party(n, c.tolist()) for n, c in zip(parties, network.columns, strict=True)],
        links=None if network.is_star else [(int(one), int(other)) for one, other in network.links.edges],
        hubs=[HubOf(int(hub.root), [int(member) for member in hub.members]) for hub in network.hubs],
        parameters=_plain_parameters(fitted),
        summation=describe_summation(fitted.summation),
        seed=fitted.seed,
        n_views=len(mixture.weights),
        lower_bounds=fitted.mean_bounds,
        converged=bool(fitted.converged),
        disagreement=None if certificate is None else float(certificate.disagreement),
        gain="infinity" if gain is not None and math.isinf(gain) else gain,
        repairs=[fixed(repair) for repair in fitted.repairs],
        rounds=fitted.traffic.rounds,
        is_stream=fitted.stream is not None or fitted.is_stream_lost,
        findings=None if NOT_JUDGED in findings else [Found(*finding) for finding in findings],
        on=msgspec.UNSET if fitted.on is None else list(fitted.on),
        read_as=dict(fitted.read_as) or msgspec.UNSET,
        gaps={name: list(words) for name, words in fitted.gaps.items()} or msgspec.UNSET,
        rows=msgspec.UNSET if fitted.rows is None else msgspec.convert(msgspec.to_builtins(fitted.rows), RowsOf),
        **_plain_certificate(certificate),
        **_plain_families(fitted),
    )
    arrays = {"weights": mixture.weights, "traffic": fitted.traffic.table}
    if fitted.scale is not None:
        arrays["scale"] = fitted.scale
    for number, block in enumerate(mixture.blocks):
        arrays |= {f"{name}_{number}": block.arrays[name] for name in mixture.density.shapes(1, 1)}
    _write(Path(path), {"model.json": description, **({} if part is None else {"part.json": part})}, arrays)


def _plain_families(fitted: Fitted) -> dict[str, Any]:
    """Return the categories of the columns; empty without families."""
    if fitted.families is None:
        return {}
    coding = fitted.coding
    return {
        "categories": [
            Categories(column, list(own), coding.numbers[column].tolist() if column in coding.numbers else None)
            for column, own in sorted(coding.labels.items())
        ]
    }


def _families(about: Description, network: Network, density: Density, path: Any) -> dict[str, Any]:
    """Return families and categories, by fields of `Fitted`; raise ModelFileError if they contradict each other."""
    if not isinstance(about.categories, list):
        return {}
    assert isinstance(density, Mixed), "of families"
    texts: dict[int, str] = {}
    for party, held in network.named_columns().items():
        texts |= dict(zip(held, density.families_of([party]), strict=True))
    for own in about.categories:
        size = len(own.labels)
        kind, _, argument = texts.get(own.column, "").partition(":")
        known = takes_words(kind) and argument == str(size) == str(len(set(own.labels)))
        known = known and (
            own.numbers is None or (len(own.numbers) == size and bool((np.diff(own.numbers) > 0).all()))
        )
        _check(known, path, f"the categories of column {own.column}")
    _check(
        {own.column for own in about.categories} == {c for c, text in texts.items() if takes_words(text)},
        path,
        "categories of some columns are missing",
    )
    numbers = {own.column: np.array(own.numbers) for own in about.categories if own.numbers is not None}
    coding = Coding({own.column: own.labels for own in about.categories}, numbers)
    return {"families": tuple(texts[column] for column in range(about.n_features)), "coding": coding}


def _plain_certificate(certificate: Certificate | None) -> dict[str, Any]:
    """Return the fields of the certificate that version 4 of the format added."""
    if certificate is None:
        return {}
    names = ("log_likelihood", "mean_disagreement", "split")
    return {**{name: getattr(certificate, name) for name in names}, "effective_rows": [*certificate.effective_rows]}


def _plain_parameters(fitted: Fitted) -> Parameters:
    found = {name: fitted.parameters[name] for name in Parameters.__struct_fields__}
    if not isinstance(found["random_state"], int | np.integer):
        found["random_state"] = None
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}
    changed = {"warm_start": bool(found["warm_start"]), "standardize": fitted.scale is not None}
    return Parameters(**{**plain, **changed})


def fixed(repair: Repair) -> Fixed:
    """Return a repair as files hold it."""
    values: dict[str, Any] = repair._asdict()
    party = values["party"]
    return Fixed(**{**values, "party": party.item() if isinstance(party, np.generic) else party})


def _write(path: Path, texts: dict[str, msgspec.Struct], arrays: dict[str, NDArray[Any]]) -> None:
    with replacing(path) as unfinished, zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, about in texts.items():
            archive.writestr(name, msgspec.json.format(msgspec.json.encode(about), indent=1))
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.ascontiguousarray(array), allow_pickle=False)
            archive.writestr(f"{name}.npy", content.getvalue())


def load(path: str | os.PathLike[str]) -> VerticalMixture:
    """Read a model that `save` wrote, without executing code from the file.

    Returns
    -------
    VerticalGaussianMixture or VerticalMixture
        The class of the saved model.

    Raises
    ------
    ModelFileError
        If the file is not a model, is damaged or inconsistent, or was written by a newer version.
    """
    return from_fitted(load_fitted(path))


def load_fitted(path: str | os.PathLike[str]) -> Fitted:
    """Read a fit as a value; errors as in `load`."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: expected the file of a model, {why_no_file(path)}")
    try:
        with zipfile.ZipFile(path) as archive:
            about = decode(_read(archive, "model.json", LARGEST_TEXT, path), path)
            network = _network(about, path)
            part = None
            if "part.json" in archive.namelist():
                part = msgspec.json.decode(_read(archive, "part.json", LARGEST_TEXT, path), type=PartOf)
            fitted = _assemble(archive, about, network, part, path)
            _check(bool(np.isfinite(fitted.profile.means).all()), path, "its means are not finite")
            return fitted
    except ModelFileError:
        raise
    except PermissionError:
        raise PermissionError(f"expected to read a model in {path}, got no permission to") from None
    except Exception as error:  # a damaged archive can raise many kinds of error
        raise ModelFileError(
            f"expected a model in {path}, got a file that cannot be read ({error}); is it one that vpem wrote, and "
            "complete?"
        ) from None


def _read(archive: zipfile.ZipFile, name: str, most: int, path: Any) -> bytes:
    """Read a member of the archive; raise ModelFileError above `most` bytes or for an unusual compression."""
    try:
        about = archive.getinfo(name)
        usual = about.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        _check(usual and about.file_size <= most, path, f"{name} is compressed in another way, or too large")
        with archive.open(name) as member:
            content = member.read(most + 1)
    except KeyError:
        raise ModelFileError(f"expected {name} in {path}, got an archive without it; is it a model?") from None
    _check(len(content) <= most, path, f"{name} is larger than {most:,} bytes")
    return content


def _check(holds: bool, path: Any, what: str) -> None:
    if not holds:
        raise ModelFileError(f"expected a model in {path}, got one that contradicts itself: {what}")


def _network(about: Description, path: Any) -> Network:
    """Return the network of parties, links and hubs, after validating all its numbers."""
    import networkx as nx

    n = len(about.parties)
    _check(about.n_components >= 1 and about.n_features >= 1 and n >= 1, path, "it is empty")
    _check(len({party.name for party in about.parties}) == n, path, "two parties have the same name")
    held = sorted(column for party in about.parties for column in party.columns)
    _check(held == list(range(about.n_features)), path, "its columns are not each held by one party")
    _check(all(party.columns for party in about.parties), path, "a party has no columns")
    members = sorted(member for hub in about.hubs for member in hub.members)
    _check(members == list(range(n)), path, "its parties are not each in one hub")
    _check(all(hub.root in hub.members for hub in about.hubs), path, "a root is not in its hub")
    known = {party.name for party in about.parties}
    sound = all(fixed.component < about.n_components and fixed.party in known for fixed in about.repairs)
    _check(sound, path, "a repair of nothing")
    names = about.feature_names
    _check(names is None or len(set(names)) == len(names) == about.n_features, path, "its columns' names")
    graph = None
    if about.links is None:
        _check(len(about.hubs) == n, path, "a star has no hubs of several parties")
    else:
        _check(all(one < n and other < n and one != other for one, other in about.links), path, "a link to no party")
        graph = nx.Graph()
        graph.add_nodes_from(range(n))
        graph.add_edges_from(about.links)
        _check(nx.is_connected(graph), path, "its network is not connected")
    return Network(
        tuple(party.name for party in about.parties),
        tuple(np.array(party.columns, dtype=np.intp) for party in about.parties),
        graph,
        tuple(Hub(Position(hub.root), tuple(map(Position, hub.members))) for hub in about.hubs),
    )


def _array(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: Any, path: Any) -> NDArray[Any]:
    """Read an array of the given shape and type; the header is checked before the values are read."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    content = io.BytesIO(_read(archive, f"{name}.npy", n_bytes + 4096, path))
    try:
        version = np.lib.format.read_magic(content)
        _check(version in ((1, 0), (2, 0)), path, f"{name} has numpy's format {version}")
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        found, _, kind = reader(content)
        _check(found == shape and kind == dtype, path, f"{name} has shape {found} and type {kind}, not {shape}")
        content.seek(0)
        array = np.lib.format.read_array(content, allow_pickle=False)
    except ModelFileError:
        raise
    except Exception as error:  # numpy does not document which errors it raises
        raise ModelFileError(f"expected an array {name} in {path}, got one that cannot be read ({error})") from None
    _check(bool(np.isfinite(array).all()), path, f"{name} is not finite")
    return np.asarray(array)


def _assemble(
    archive: zipfile.ZipFile, about: Description, network: Network, part: PartOf | None, path: Any
) -> Fitted:
    """Return the fit of an archive."""
    k = about.n_components
    _check(about.n_views in (1, len(about.hubs)), path, "its roots are not those of its weights")
    parameters, summation, density = _parameters(about, network, path, is_part=part is not None)
    shapes = [density.block_shapes(k, len(hub.columns), hub.members) for hub in network.named_hubs()]
    n_bytes = 8 * sum(math.prod(shape) for own in shapes for shape in own.values())
    _check(n_bytes <= LARGEST_ARRAYS, path, f"its arrays would take {n_bytes:,} bytes")
    # Checked before unpacking: a small file must not make us allocate arrays larger than its members.
    declared = sum(member.file_size for member in archive.infolist())
    _check(declared >= n_bytes, path, "it is too small for its parameters")
    weights = _array(archive, "weights", (about.n_views, k), np.float64, path)
    _check(bool((weights > 0).all() and np.allclose(weights.sum(axis=1), 1)), path, "its weights do not add up to 1")
    blocks = []
    for number, own in enumerate(shapes):
        arrays = {name: _array(archive, f"{name}_{number}", shape, np.float64, path) for name, shape in own.items()}
        try:
            blocks.append(density.make(arrays))
        except ValueError as error:
            raise ModelFileError(f"expected a model in {path}, got one whose parameters are wrong: {error}") from None
    table = _array(archive, "traffic", (len(network.agents), 4), np.int64, path)
    _check(bool((table >= 0).all()), path, "less than nothing was sent")
    scale = None
    if about.parameters.standardize:
        scale = _array(archive, "scale", (about.n_features,), np.float64, path)
        _check(bool((scale > 0).all()), path, "a scale is not positive")
    names, on = about.feature_names, None
    if names is not None and isinstance(about.on, list):  # the parties are those of the tables, also in a later fit
        parameters["partition"], on = None, tuple(about.on)
    certificate = None
    if about.gain is not None and about.disagreement is not None:
        gain = math.inf if isinstance(about.gain, str) else about.gain
        more = about.mean_disagreement, about.split, about.log_likelihood, tuple(about.effective_rows)
        certificate = Certificate(gain, about.disagreement, *more)
    found = about.findings
    findings = [NOT_JUDGED] if found is None else [Finding(*msgspec.structs.astuple(one)) for one in found]
    gaps = about.gaps if names is not None and isinstance(about.gaps, dict) else {}
    return Fitted(
        mixture=Mixture(density, weights, tuple(blocks)),
        network=network,
        summation=summation,
        seed=about.seed,
        lower_bounds=tuple(np.array([bound]) for bound in about.lower_bounds),
        converged=about.converged,
        traffic=Traffic(network.agents, table, about.rounds),
        judgement=Judgement(findings=findings),
        repairs=tuple(Repair(*msgspec.structs.astuple(one)) for one in about.repairs),
        certificate=certificate,
        disagreement=None if certificate is None else certificate.disagreement,
        scale=scale,
        names=None if names is None else tuple(names),
        on=on,
        read_as=about.read_as if names is not None and isinstance(about.read_as, dict) else {},
        gaps={name: tuple(words) for name, words in gaps.items()},
        rows=msgspec.convert(msgspec.to_builtins(about.rows), RowSummary) if isinstance(about.rows, RowsOf) else None,
        is_stream_lost=about.is_stream,
        part=part,
        estimator=about.estimator,
        parameters=parameters,
        **_families(about, network, density, path),
    )


def _parameters(
    about: Description, network: Network, path: Any, *, is_part: bool
) -> tuple[dict[str, Any], Summation, Density]:
    """Return the arguments of the estimator, its summation and the density of the fit."""
    found: dict[str, Any] = {"n_components": about.n_components, **msgspec.structs.asdict(about.parameters)}
    has_families, is_gaussian = isinstance(about.categories, list), about.estimator == "VerticalGaussianMixture"
    own = ["covariance_type", "reg_covar", "shrinkage"]
    try:
        summation, density = make_summation(about.summation), make_density(about.density)
        found["partition"] = network.named_columns()
        found["graph"] = "star" if network.is_star else network.named_graph()
        found["summation"] = summation
        if is_gaussian:
            if not isinstance(density, Gaussian):
                raise TypeError(f"expected a Gaussian density for {about.estimator}, got {density!r}")
            found |= {name: getattr(density, name) for name in own}
            make_gaussian(*(found[name] for name in own), standardize=found["standardize"])
        elif has_families and isinstance(density, Mixed):
            found |= {name: getattr(density, name) for name in [*own, "smoothing"]}
            found["families"] = {
                column: text
                for party, held in network.named_columns().items()
                for column, text in zip(held, density.families_of([party]), strict=True)
            }
        else:
            found["density"] = density
            if not has_families:
                del found["standardize"]
        # These raise for values that no fit accepts.
        make_settings(density, *(found[name] for name in ("n_components", "tol", "max_iter", "accelerate")))
        check_choice("init_params", found["init_params"], STARTS)
        if not is_part:  # a part knows only its own party of the network
            summation.check(network)
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"expected a model in {path}, got arguments that are wrong: {error}") from None
    return found, summation, density
