"""Assemble one model from the parts that the parties choose to hand over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vpem.core.decisions.repair import Repair
from vpem.core.network.hubs import Hub, Position
from vpem.core.network.parties import Network
from vpem.core.network.traffic import make_traffic
from vpem.estimators import VerticalMixture
from vpem.estimators.coding import Coding
from vpem.estimators.units import Units
from vpem.model_format import ModelFileError, PartOf
from vpem.models import load
from vpem.simulation.model import Mixture, MixtureFit


def assemble(paths: Sequence[str | os.PathLike[str]]) -> VerticalMixture:
    """Return the whole model of a study, assembled from the parts of all its parties.

    It is the model that the estimator would fit to the joined table. Its certificate and its traffic are missing,
    as they cannot be found without the rows.

    Raises
    ------
    ModelFileError
        If a file is not a part, if parts belong to different fits, or if parts are missing.
    """
    models = [load(path) for path in paths]
    parts = [_part_of(model, path) for model, path in zip(models, paths, strict=True)]
    first = parts[0]
    for part, path in zip(parts, paths, strict=True):
        if part.run != first.run:
            raise ModelFileError(
                f"expected parts of one fit, got {paths[0]} of study {first.study!r} and {path} of "
                f"study {part.study!r}, which differ in their study, rows or parties"
            )
    by_block = {part.block: (model, part) for model, part in zip(models, parts, strict=True)}
    if len(by_block) < len(parts):
        raise ModelFileError(f"expected one part of each party, got one of {first.party!r} or another twice")
    roots = [first.parties[hub.root] for hub in first.hubs]
    missing = [root for number, root in enumerate(roots) if number not in by_block]
    if missing:
        raise ModelFileError(f"expected the parts of {', '.join(roots)}, got none of {', '.join(missing)}")
    return _put_together([by_block[number] for number in range(len(roots))])


def _part_of(model: VerticalMixture, path: Any) -> PartOf:
    part: PartOf | None = getattr(model, "part_", None)
    if part is None:
        raise ModelFileError(f"expected one party's part of a model in {path}, got a whole model")
    return part


def _network(part: PartOf) -> Network:
    """Return the network of the whole model: parties, columns, links and hubs."""
    import networkx as nx

    ends = np.cumsum(part.n_columns)
    columns = [np.arange(end - count, end, dtype=np.intp) for end, count in zip(ends, part.n_columns, strict=True)]
    graph = None
    if part.links is not None:
        graph = nx.Graph()
        graph.add_nodes_from(range(len(part.parties)))
        graph.add_edges_from(part.links)
    hubs = tuple(Hub(Position(hub.root), tuple(map(Position, hub.members))) for hub in part.hubs)
    return Network(tuple(part.parties), tuple(columns), graph, hubs)


def _join_families(
    model: VerticalMixture, parts: Sequence[VerticalMixture], network: Network, result: MixtureFit
) -> MixtureFit:
    """Set the families and categories of the whole model from its parts, which hold one party each."""
    texts: dict[int, str] = {}
    labels: dict[int, Sequence[str]] = {}
    numbers: dict[int, Any] = {}
    for part, columns in zip(parts, network.block_columns, strict=True):
        place = dict(enumerate(columns.tolist()))
        texts |= {place[own]: text for own, text in enumerate(part._texts)}
        labels |= {place[own]: names for own, names in part._coding.labels.items()}
        numbers |= {place[own]: values for own, values in part._coding.numbers.items()}
    families = tuple((party, *(texts[column] for column in held)) for party, held in network.named_columns().items())
    model.set_params(families=texts)
    model._texts, model._coding = tuple(texts[column] for column in sorted(texts)), Coding(labels, numbers)
    return replace(result, mixture=replace(result.mixture, density=model._mixed(families)))


def _put_together(found: Sequence[tuple[VerticalMixture, PartOf]]) -> VerticalMixture:
    """Return the whole model from its blocks, in their order."""
    (model, first), network = found[0], _network(found[0][1])
    weights = np.concatenate([one._mixture.weights for one, _ in found])
    bounds = np.array([one.lower_bounds_ for one, _ in found])
    if model._summation.is_common:
        weights, bounds = weights[:1], bounds[:1]
    shift = -sum(part.log_scales for _, part in found) / first.n_rows
    traffic = make_traffic(network.agents)
    result = MixtureFit(
        Mixture(model._mixture.density, weights, tuple(one._mixture.blocks[0] for one, _ in found)),
        tuple(bounds.T + shift),
        model.converged_,
        (),
        traffic,
    )
    if model._has_families:
        result = _join_families(model, [one for one, _ in found], network, result)
    graph = "star" if network.is_star else network.named_graph()
    model.set_params(partition=network.named_columns(), graph=graph)
    settings, seed, summation = model._settings(), model._seed, model._summation
    scales = [one.scale_ for one, _ in found if hasattr(one, "scale_")]
    model._keep(network, summation, settings, seed, Units(), result, traffic)  # removes the first part's scale_
    order = np.concatenate(network.block_columns)
    names: Any = np.empty(len(order), dtype=object)
    pairs = [(part.party, name) for _, part in found for name in part.names]
    are_different = len({name for _, name in pairs}) == len(pairs)
    names[order] = [name if are_different else f"{party}.{name}" for party, name in pairs]
    model.feature_names_in_, model.n_features_in_ = names, len(order)
    if len(scales) == len(found):
        model.scale_ = np.empty(len(order))
        model.scale_[order] = np.concatenate(scales)
    model.repairs_ = [Repair(f.iteration, f.component, f.party, f.reason, f.restarted) for f in first.repairs]
    model.verdict_ = list(dict.fromkeys(finding for one, _ in found for finding in one.verdict_))
    del model.part_
    return model
