"""A party's results: its block, the weights, its rows' components and a verdict, in memory and in its folder.

They contain no columns or parameters of another party, unless the study pools columns (`hops`). Then the root of a
hub has the hub's block, and the other members of the hub have no block.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from vpem.core.agent.machine import Agent
from vpem.core.agent.message import EPOCH_BITS
from vpem.core.blocks.overall import column_moments
from vpem.core.network.consensus import NEGLIGIBLE_ERROR
from vpem.core.network.parties import Network, make_network
from vpem.core.network.traffic import Traffic
from vpem.core.rows import Table, sampled_rows, without_rows
from vpem.estimators import VerticalMixture, from_fitted, judging
from vpem.estimators.column_scales import make_fitted
from vpem.estimators.odd_columns import check_columns
from vpem.estimators.second_look import MOST_ROWS, Sample, check_totals, some_rows
from vpem.files import replacing
from vpem.meaning import make_certainty
from vpem.model.fitted import Fitted
from vpem.model.judgement import Judgement
from vpem.model_format import HubOf, PartOf
from vpem.models import fixed, save
from vpem.overlap import RowSummary
from vpem.reading import free_name, write
from vpem.simulation.model import Mixture, MixtureFit, make_problem
from vpem.studies.folder import FolderError
from vpem.studies.party_columns import Local
from vpem.studies.shared import Study
from vpem.verdict import Finding, colour, in_study
from vpem.words import OWN_UNITS, SCALED

Array = NDArray[np.float64]

MODEL, ROWS, REPORT, VERDICT = "model.vpem", "rows.csv", "report.html", "verdict.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyFit:
    """One party's results of a finished study."""

    study: str
    party: str
    model: VerticalMixture | None
    """Mixture of the party's own columns, with the common weights; None if a root has its columns."""
    labels: NDArray[np.intp] | None
    """Shape (n_rows,): most probable component of each row given all parties' columns, in the order of the party's
    own table. -1 for rows that the fit left out because too few parties have them for a masked sum."""
    responsibilities: Array | None
    """Shape (n_rows, n_components): in the same order. NaN for rows that the fit left out."""
    ids: dict[str, list[str]]
    """Id column to the ids of the rows, in the same order."""
    verdict: list[Finding]
    n_iter: int
    converged: bool
    lower_bound: float
    """Log-likelihood per used row, of all columns, or of the scaled columns if the study scales them."""
    folder: Path
    rows: RowSummary
    """Number of rows of each party, of common rows and of used rows, and the gaps of the party's own columns."""
    is_scaled: bool = False
    """True if `lower_bound` is that of columns which each party has divided by their standard deviations. No party
    knows the others' deviations. The model that `vpem assemble` makes has the likelihood of the unscaled columns."""

    @property
    def colour(self) -> str:
        """Colour of the verdict: "green", "amber" or "red"."""
        return colour(self.verdict)


Writers = dict[str, Callable[[Path], object]]
"""Functions that write a file to a path, by the file's name."""


def make_results(
    study: Study, agent: Agent, local: Local, folder: Path, sent: int, received: int
) -> tuple[PartyFit, Writers]:
    """Return a finished agent's results, and what writes them to its folder."""
    from vpem.report.page import write_page

    found = agent.model
    assert found is not None, "it is done"
    network, rows = agent.roles.network, local.rows
    model: VerticalMixture | None = None
    verdict: list[Finding] = []
    own_rows = count_own_rows(study, agent, local)
    if found.block is not None:
        names = _own_names(agent, network, local)
        model = from_fitted(_own_fit(study, agent, local, names, own_rows, (sent, received)))
        verdict = [*map(in_study, model.verdict_)]
    joint, holders = found.responsibilities, agent.holders
    used = np.ones(len(rows), dtype=np.bool_) if holders is None else holders.used
    if joint is not None:
        joint = np.where(used[:, None], joint, np.nan)
    fit = PartyFit(
        study=study.name,
        party=agent.name,
        model=model,
        labels=None if joint is None else rows.as_in_table(np.where(used, joint.argmax(axis=1), -1)),
        responsibilities=None if joint is None else rows.as_in_table(joint),
        ids=rows.keys,
        verdict=verdict,
        n_iter=len(found.history),
        converged=found.converged,
        lower_bound=found.history[-1] if found.history else float("-inf"),
        folder=folder,
        rows=own_rows,
        is_scaled=local.units.scale is not None,
    )
    writers: Writers = {
        ROWS: lambda path: write_rows(path, fit.ids, fit.responsibilities),
        VERDICT: lambda path: write_verdict(path, fit),
    }
    if model is not None:
        writers[MODEL] = partial(save, model, part=_part(study, agent, local, model))
        if joint is not None:
            title = f"{study.name}: columns of {agent.name}"
            others = [str(one) for one in network.parties if str(one) != agent.name]
            # With a common sum all roots have the same responsibilities; otherwise a party knows only its own.
            seen = replace(model.fitted_, disagreement=0.0 if model.fitted_.summation.is_common else np.nan)
            pooled, certainty = agent.state.pooled, make_certainty(joint[used])
            table = seen.code(local.as_in_table()[used]) if pooled is None else pooled[used]
            about: Any = {"title": title, "wording": in_study, "others": others, "certainty": certainty}
            writers[REPORT] = lambda path: write_page(seen, table, path, **about)
    return fit, writers


def write_all(folder: Path, writers: Writers) -> None:
    """Write all files that can be written, each in full or not at all; then raise FolderError if one cannot."""
    problems = []
    for name, write_file in writers.items():
        try:
            write_file(folder / name)
        except OSError as error:
            problems.append(f"{name} ({error.strerror or error})")
    if problems:
        raise FolderError(
            f"{folder}: expected to write the results of a finished study, got no {', '.join(problems)}; make room "
            "or give permission, then run the same command again"
        )


def write_rows(
    path: Path, ids: dict[str, list[str]], joint: Array | None, log_densities: Array | None = None
) -> None:
    """Write ids, components and probabilities, empty for rows without them. Write no file if `joint` is None."""
    if joint is None:
        return
    is_empty = np.isnan(joint).any(axis=1)

    def cells(values: NDArray[Any]) -> Any:
        return np.ma.masked_array(values, mask=is_empty)

    found: dict[str, Any] = {"component": cells(joint.argmax(axis=1))}
    if log_densities is not None:
        found["log_density"] = cells(log_densities)
    found |= {f"probability_{number}": cells(joint[:, number]) for number in range(joint.shape[1])}
    write(path, {**{free_name(name, found): texts for name, texts in ids.items()}, **found})


def write_verdict(path: Path, fit: PartyFit) -> None:
    """Write the verdict as JSON."""
    content = {
        "study": fit.study,
        "party": fit.party,
        "verdict": fit.colour,
        "findings": [finding._asdict() for finding in fit.verdict],
        "iterations": fit.n_iter,
        "converged": fit.converged,
        "lower_bound": fit.lower_bound,
        "lower_bound_of": SCALED if fit.is_scaled else OWN_UNITS,
        "rows": asdict(fit.rows),
    }
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _own_names(agent: Agent, network: Network, local: Local) -> list[str]:
    """Return the column names of the party's block. Pooled columns of other parties have numbers."""
    position, names = agent.roles.position_of[agent.number], list[str]()
    for member in network.hub(position).members:
        party = str(network.parties[member])
        others = [f"{party}.{place}" for place in range(len(network.columns[member]))]
        names += local.rows.names if member == position else others
    return names


def _own_fit(
    study: Study, agent: Agent, local: Local, names: list[str], rows: RowSummary, n_bytes: tuple[int, int]
) -> Fitted:
    """Return the party's block as a fit of its own columns, with the facts that the party knows about it."""
    own = make_network({agent.name: list(range(len(names)))}, "star" if study.server is not None else "path")
    found, agreement = agent.model, agent.identity.agreement
    assert found is not None, "it is done"
    assert found.block is not None, "at a root"
    assert found.weights is not None, "at a root"
    counted = np.zeros((len(own.agents), 4), dtype=np.int64)
    counted[0, [1, 3]] = n_bytes
    traffic = Traffic(own.agents, counted, agent.state.round & ((1 << EPOCH_BITS) - 1))
    mine = tuple(repair for repair in agent.repairs if repair.party == agent.name)
    result = MixtureFit(
        Mixture(agreement.settings.density, found.weights[None].copy(), (found.block,)),
        tuple(np.array([bound]) for bound in found.history),
        found.converged,
        mine,
        traffic,
        agent.state.progress.bounds,
    )
    pooled, holders, joint = agent.state.pooled, agent.holders, found.responsibilities
    table: Table = local.X if pooled is None else pooled
    if holders is not None:
        table, joint = without_rows(table, holders), None if joint is None else joint[holders.used]
    problem = make_problem(table, own, agreement.summation, agreement.settings.density)
    facts = judging.gather_facts(problem, agreement.settings, result, None, holders=holders)
    factor, needed = judging.sum_facts(agreement.summation, agent.roles.network)
    counts = () if joint is None else tuple(joint.sum(axis=0).tolist())
    known: Any = {"converged": found.converged, "effective_rows": counts, "start_agreement": _compare_starts(agent)}
    values = local.as_in_table() if pooled is None else pooled
    known |= check_columns(
        values[some_rows(len(values))], values[:MOST_ROWS], [np.arange(len(names))], local.families
    )
    is_exact = factor is not None and factor <= NEGLIGIBLE_ERROR
    if is_exact and found.totals is not None:  # with masked sums there are none
        X = np.array(table[sampled_rows(slice(0, len(table)), len(table))], dtype=np.float64)
        sample = Sample(X, len(table), own, result.mixture, (), values[:0])
        known |= check_totals(sample, found.totals, is_lossy=agreement.summation.is_lossy)
    facts = replace(facts, error_factor=factor, rounds_needed=needed, rows=rows, **known)
    estimator = study.estimator()
    graph = "star" if own.is_star else "path"
    parameters = {**estimator.get_params(), "partition": own.named_columns(), "graph": graph}
    if local.families:
        parameters["families"] = dict(enumerate(local.families))
    return make_fitted(
        result,
        own,
        agreement.summation,
        agreement.seed,
        replace(local.units, shift=0.0),  # the shift sums over all parties' columns, which this party does not know
        judgement=Judgement(facts, names),
        families=local.families or None,
        coding=local.coding,
        names=tuple(names),
        rows=rows,
        estimator=type(estimator).__name__,
        parameters=parameters,
    )


def _compare_starts(agent: Agent) -> tuple[float, ...]:
    """Return the adjusted Rand index of each start's labels with those of the best one, in a sample of the rows."""
    progress, holders = agent.state.progress, agent.holders
    if progress.best is None or not progress.end_labels:
        return ()
    best = progress.end_labels[progress.bounds.index(progress.best.agreed)]
    used = np.ones(len(best), dtype=np.bool_)
    if holders is not None:
        used = holders.used[sampled_rows(slice(0, len(holders.used)), len(holders.used))]
    return tuple(float(adjusted_rand_score(best[used], labels[used])) for labels in progress.end_labels)


def _part(study: Study, agent: Agent, local: Local, model: VerticalMixture) -> PartOf:
    """Return the data that `vpem assemble` needs to combine the parties' parts."""
    network = agent.roles.network
    number = network.hub_of[agent.roles.position_of[agent.number]]
    assert number is not None, "a party"
    scale, log_scales, values, holders = local.units.scale, 0.0, local.rows.values, agent.holders
    if holders is not None:
        values = values[holders.used]
    if scale is not None:
        log_scales = float(column_moments(values)[0] @ np.log(scale))
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
        n_rows=len(values),
        log_scales=log_scales,
        repairs=[fixed(repair) for repair in agent.repairs],
    )


def count_own_rows(study: Study, agent: Agent, local: Local) -> RowSummary:
    """Count rows and the gaps of the party's own columns.

    Parties send each other their numbers of rows, but no ids. Where rows are matched with "outer", the number of
    common rows is known only between two parties, or if the holders of each row are counted, as under masks.
    """
    network, rows, holders = agent.roles.network, local.rows, agent.state.progress.holders
    parties, n_rows = list(map(str, network.parties)), len(local.rows)
    held = {party: int(rows.counts.get(party, n_rows)) for party in parties}
    n_common: int | None = n_rows
    matched: dict[str, int] = {}
    is_own = rows.order >= 0
    if study.match == "outer":
        n_common = sum(held.values()) - n_rows if len(parties) == 2 else None
        if holders is not None:
            n_common = int((holders == len(network.hubs)).sum())
            matched = {agent.name: int((holders[is_own] > 1).sum())}
    least = max(1, agent.identity.agreement.summation.least_holders(network))
    gaps = np.isnan(rows.values[is_own]).sum(axis=0).tolist()
    return RowSummary(
        n_rows=n_rows,
        held=held,
        n_common=n_common,
        n_used=n_rows if holders is None else int((holders >= least).sum()),
        gaps={name: count for name, count in zip(rows.names, gaps, strict=True) if count},
        matched=matched,
        is_joined=True,
        is_private=True,
        gap_words=rows.gap_words,
    )


def describe_own(rows: RowSummary, party: str) -> str:
    """Describe how many of a party's rows other parties have too; empty if that is not known."""
    n_own = rows.held[party]
    n_matched = rows.matched.get(party, rows.n_common)
    if n_matched is None:
        return ""
    return f"{n_matched:,} of the {n_own:,} rows of {party} are matched ({n_matched / max(n_own, 1):.0%})"
