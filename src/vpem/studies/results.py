"""What a party has in the end: its block, the weights, its rows' components, a verdict; in memory and in its folder.

Nothing of another party's columns or parameters is in it, unless the study pools columns (`hops`): then the root of a
hub has the hub's block, and the others of the hub have none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.machine import Agent
from vpem.core.agent.message import EPOCH_BITS
from vpem.core.blocks.overall import column_moments
from vpem.core.decisions.repair import Repair
from vpem.core.network.parties import Network, make_network
from vpem.core.network.traffic import Traffic
from vpem.estimators import VerticalMixture, judging
from vpem.estimators.checks import shared_seed
from vpem.files import replacing
from vpem.model_format import Fixed, HubOf, PartOf
from vpem.models import save
from vpem.reading import free_name, write
from vpem.simulation.em import MixtureFit
from vpem.simulation.model import Mixture, make_problem
from vpem.studies.columns import Local
from vpem.studies.shared import Study
from vpem.tables import CodedTable
from vpem.verdict import Finding, colour, in_study

Array = NDArray[np.float64]

MODEL, ROWS, REPORT, VERDICT = "model.vpem", "rows.csv", "report.html", "verdict.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyFit:
    """A party's view of a study that has come to an end."""

    study: str
    party: str
    model: VerticalMixture | None
    """Mixture of the party's own columns, with the weights of all; None if a root has its columns."""
    labels: NDArray[np.intp] | None
    """(n_rows,): most probable component of each row, by all parties' columns; in the order of its own table."""
    responsibilities: Array | None
    """(n_rows, n_components): likewise."""
    ids: dict[str, list[str]]
    """By id column, in the same order."""
    verdict: list[Finding]
    n_iter: int
    converged: bool
    lower_bound: float
    """Log-likelihood per row of all columns; of scaled ones, if the study scales them."""
    folder: Path

    @property
    def colour(self) -> str:
        """Of the verdict: "green", "amber" or "red"."""
        return colour(self.verdict)


def finish(study: Study, agent: Agent, local: Local, folder: Path, sent: int, received: int) -> PartyFit:
    """Make a finished agent's results, and write them to its folder, each whole or not at all."""
    from vpem.report import write_report

    found = agent.model
    assert found is not None, "it is done"
    network, rows = agent.roles.network, local.rows
    model: VerticalMixture | None = None
    verdict: list[Finding] = []
    if found.block is not None:
        names = _own_names(agent, network, local)
        model = _own_model(study, agent, local, len(names), (sent, received))
        model.feature_names_in_, model.n_features_in_ = np.array(names, dtype=object), len(names)
        model._judge(model._facts)  # with the columns' names
        verdict = [*map(in_study, model.verdict_)]
    joint = found.responsibilities
    fit = PartyFit(
        study=study.name,
        party=agent.name,
        model=model,
        labels=None if joint is None else rows.as_in_table(joint.argmax(axis=1)),
        responsibilities=None if joint is None else rows.as_in_table(joint),
        ids=rows.keys,
        verdict=verdict,
        n_iter=len(found.history),
        converged=found.converged,
        lower_bound=found.history[-1] if found.history else float("-inf"),
        folder=folder,
    )
    if model is not None:
        save(model, folder / MODEL, part=_part(study, agent, local, model))
        if joint is not None:
            title = f"{study.name}: columns of {agent.name}"
            others = [str(one) for one in network.parties if str(one) != agent.name]
            write_report(
                _seen(model, joint, others), _table(agent, local), folder / REPORT, title=title, wording=in_study
            )
    write_rows(folder / ROWS, fit.ids, fit.responsibilities)
    write_verdict(folder / VERDICT, fit)
    return fit


def write_rows(
    path: Path, ids: dict[str, list[str]], joint: Array | None, log_densities: Array | None = None
) -> None:
    """Ids, components and their probabilities; nothing if the party does not know them."""
    if joint is None:
        return
    found: dict[str, Any] = {"component": joint.argmax(axis=1)}
    if log_densities is not None:
        found["log_density"] = log_densities
    found |= {f"probability_{number}": joint[:, number] for number in range(joint.shape[1])}
    write(path, {**{free_name(name, found): texts for name, texts in ids.items()}, **found})


def write_verdict(path: Path, fit: PartyFit) -> None:
    """The verdict as JSON."""
    content = {
        "study": fit.study,
        "party": fit.party,
        "verdict": fit.colour,
        "findings": [finding._asdict() for finding in fit.verdict],
        "iterations": fit.n_iter,
        "converged": fit.converged,
        "lower_bound": fit.lower_bound,
    }
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _own_names(agent: Agent, network: Network, local: Local) -> list[str]:
    """Of the columns of the party's block; those of others that were pooled have numbers."""
    position, names = agent.roles.position_of[agent.number], list[str]()
    for member in network.hub(position).members:
        party = str(network.parties[member])
        others = [f"{party}.{place}" for place in range(len(network.columns[member]))]
        names += local.rows.names if member == position else others
    return names


def _table(agent: Agent, local: Local) -> Any:
    """The block's rows in their own units: the party's own, or what it has pooled."""
    if agent.state.pooled is not None:
        return agent.state.pooled
    values = local.as_in_table()
    return CodedTable(values, local.rows.names, local.labels) if local.families else values


def _own_model(study: Study, agent: Agent, local: Local, n_columns: int, n_bytes: tuple[int, int]) -> VerticalMixture:
    """The party's block as a mixture of its own columns, with the facts that the party knows of it."""
    own = make_network({agent.name: list(range(n_columns))}, "star" if study.server is not None else "path")
    found, agreement = agent.model, agent.identity.agreement
    assert found is not None, "it is done"
    assert found.block is not None, "at a root"
    assert found.weights is not None, "at a root"
    table = np.zeros((len(own.agents), 4), dtype=np.int64)
    table[0, [1, 3]] = n_bytes
    traffic = Traffic(own.agents, table, agent.state.round & ((1 << EPOCH_BITS) - 1))
    mine = tuple(repair for repair in agent.repairs if repair.party == agent.name)
    result = MixtureFit(
        Mixture(agreement.settings.density, found.weights[None].copy(), (found.block,)),
        tuple(np.array([bound]) for bound in found.history),
        found.converged,
        mine,
        traffic,
        agent.state.progress.bounds,
    )
    model = study.estimator()
    model.set_params(partition=own.named_columns(), graph="star" if own.is_star else "path")
    if local.families:
        model.set_params(families=dict(enumerate(local.families)))
        model._texts, model._coding = local.families, local.coding
    model._keep(
        own,
        agreement.summation,
        agreement.settings,
        shared_seed(study.seed),
        replace(local.units, shift=0.0),  # of the sum over all parties' columns, which this party does not know
        result,
        traffic,
    )
    model.repairs_ = list(mine)
    model._stream, model._stream_is_lost = None, False
    pooled = agent.state.pooled
    problem = make_problem(
        local.X if pooled is None else pooled, own, agreement.summation, agreement.settings.density
    )
    facts = judging.gather_facts(problem, agreement.settings, result, None)
    factor, needed = judging.sum_facts(agreement.summation, agent.roles.network)
    counts = () if found.responsibilities is None else tuple(found.responsibilities.sum(axis=0).tolist())
    known: Any = {"converged": found.converged, "effective_rows": counts}
    model._facts = replace(facts, error_factor=factor, rounds_needed=needed, **known)
    return model


def _part(study: Study, agent: Agent, local: Local, model: VerticalMixture) -> PartOf:
    """What must be known to put parts together."""
    network = agent.roles.network
    number = network.hub_of[agent.roles.position_of[agent.number]]
    assert number is not None, "a party"
    scale, log_scales = local.units.scale, 0.0
    if scale is not None:
        log_scales = float(column_moments(local.rows.values)[0] @ np.log(scale))
    members = ",".join(map(str, network.parties))
    digest = hashlib.sha256(f"{study.digest} {local.rows.digest} {members}".encode()).hexdigest()
    return PartOf(
        study=study.name,
        run=digest[:16],
        party=agent.name,
        parties=list(map(str, network.parties)),
        n_columns=list(map(len, network.columns)),
        links=None if network.is_star else [(int(one), int(other)) for one, other in network.links.edges],
        hubs=[HubOf(int(hub.root), list(map(int, hub.members))) for hub in network.hubs],
        block=int(number),
        names=list(map(str, model.feature_names_in_)),
        n_rows=len(local.rows),
        log_scales=log_scales,
        repairs=[_fixed(repair) for repair in agent.repairs],
    )


def _fixed(repair: Repair) -> Fixed:
    return Fixed(**{**repair._asdict(), "party": str(repair.party)})


def _seen(model: VerticalMixture, joint: Array, others: list[str]) -> VerticalMixture:
    """A party's model whose rows have the components that all parties' columns give them; with the others' names."""

    def evaluate(X: Any) -> Iterator[tuple[Array, Array, NDArray[np.bool_]]]:
        yield joint, np.zeros(len(X)), np.ones(len(X), dtype=np.bool_)

    seen = copy(model)
    # With a common sum all roots see the same; otherwise a party does not know what the others see.
    between = 0.0 if model._summation.is_common else np.nan
    seen.__dict__.update(_evaluate=evaluate, others=others, disagreement_=between)
    return seen
