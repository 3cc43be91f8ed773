"""Assemble one model from the parts that the parties choose to hand over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from vpem.core.blocks.mixed import Mixed
from vpem.core.decisions.repair import Repair
from vpem.core.network.hubs import Hub, Position
from vpem.core.network.parties import Network
from vpem.core.network.traffic import make_traffic
from vpem.estimators import VerticalMixture, from_fitted
from vpem.model.category_codes import Coding
from vpem.model.fitted import Fitted
from vpem.model.judgement import Judgement
from vpem.model_format import ModelFileError, PartOf
from vpem.models import load_fitted
from vpem.simulation.model import Mixture


def assemble(paths: Sequence[str | os.PathLike[str]]) -> VerticalMixture:
    """Return the whole model of a study, assembled from the parts of all its parties.

    It is the model that the estimator would fit to the joined table. Its certificate and its traffic are missing,
    as they cannot be found without the rows.

    Raises
    ------
    ModelFileError
        If a file is not a part, if parts belong to different fits, or if parts are missing.
    """
    fits = [load_fitted(path) for path in paths]
    parts = [_part_of(fitted, path) for fitted, path in zip(fits, paths, strict=True)]
    first = parts[0]
    for part, path in zip(parts, paths, strict=True):
        if part.run != first.run:
            raise ModelFileError(
                f"expected parts of one fit, got {paths[0]} of study {first.study!r} and {path} of "
                f"study {part.study!r}, which differ in their study, rows or parties"
            )
    by_block = {part.block: (fitted, part) for fitted, part in zip(fits, parts, strict=True)}
    if len(by_block) < len(parts):
        raise ModelFileError(f"expected one part of each party, got one of {first.party!r} or another twice")
    roots = [first.parties[hub.root] for hub in first.hubs]
    missing = [root for number, root in enumerate(roots) if number not in by_block]
    if missing:
        raise ModelFileError(f"expected the parts of {', '.join(roots)}, got none of {', '.join(missing)}")
    return from_fitted(_put_together([by_block[number] for number in range(len(roots))]))


def _part_of(fitted: Fitted, path: Any) -> PartOf:
    if fitted.part is None:
        raise ModelFileError(f"expected one party's part of a model in {path}, got a whole model")
    return fitted.part


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


def _join_families(parts: Sequence[Fitted], network: Network) -> tuple[tuple[str, ...], Coding]:
    """Return the families and categories of the whole model from its parts, which hold one party each."""
    texts: dict[int, str] = {}
    labels: dict[int, Sequence[str]] = {}
    numbers: dict[int, Any] = {}
    for part, columns in zip(parts, network.block_columns, strict=True):
        place = dict(enumerate(columns.tolist()))
        texts |= {place[own]: text for own, text in enumerate(part.families or ())}
        labels |= {place[own]: names for own, names in part.coding.labels.items()}
        numbers |= {place[own]: values for own, values in part.coding.numbers.items()}
    return tuple(texts[column] for column in sorted(texts)), Coding(labels, numbers)


def _put_together(found: Sequence[tuple[Fitted, PartOf]]) -> Fitted:
    """Return the whole fit from its blocks, in their order."""
    (whole, first), network = found[0], _network(found[0][1])
    fits = [one for one, _ in found]
    weights = np.concatenate([one.mixture.weights for one in fits])
    bounds = np.array([one.mean_bounds for one in fits])
    if whole.summation.is_common:
        weights, bounds = weights[:1], bounds[:1]
    shift = -sum(part.log_scales for _, part in found) / first.n_rows
    density, families, coding = whole.mixture.density, whole.families, whole.coding
    parameters: dict[str, Any] = {
        **whole.parameters,
        "partition": network.named_columns(),
        "graph": "star" if network.is_star else network.named_graph(),
    }
    if isinstance(density, Mixed) and families is not None:
        families, coding = _join_families(fits, network)
        held = network.named_columns().items()
        density = replace(density, families=tuple((party, *(families[c] for c in own)) for party, own in held))
        parameters["families"] = dict(enumerate(families))
    order = np.concatenate(network.block_columns)
    names: Any = np.empty(len(order), dtype=object)
    pairs = [(part.party, name) for _, part in found for name in part.names]
    are_different = len({name for _, name in pairs}) == len(pairs)
    names[order] = [name if are_different else f"{party}.{name}" for party, name in pairs]
    scale, scales = None, [one.scale for one in fits if one.scale is not None]
    if len(scales) == len(found):
        scale = np.empty(len(order))
        scale[order] = np.concatenate(scales)
    return replace(
        whole,
        mixture=Mixture(density, weights, tuple(one.mixture.blocks[0] for one in fits)),
        network=network,
        lower_bounds=tuple(bounds.T + shift),
        traffic=make_traffic(network.agents),
        judgement=Judgement(findings=list(dict.fromkeys(own for one in fits for own in one.judgement.findings))),
        repairs=tuple(Repair(*msgspec.structs.astuple(one)) for one in first.repairs),
        scale=scale,
        families=families,
        coding=coding,
        names=tuple(names),
        part=None,
        parameters=parameters,
    )
