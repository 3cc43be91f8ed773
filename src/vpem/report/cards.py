"""Content of the page's cards as plain values.

The cards about clusters are in `clusters`, those about features in `features`. In the page itself, a card is a
section of `page.html` and one function of the script, which `page.js` calls in the order of the page.
"""

from __future__ import annotations

import platform
from collections.abc import Hashable, Sequence
from importlib import metadata
from typing import Any

import networkx as nx
import numpy as np

from vpem.meaning import judged
from vpem.model.fitted import Fitted
from vpem.overlap import RowSummary
from vpem.report.bins import SMALLEST_COUNT
from vpem.report.places import place_agents
from vpem.report.values import say, short
from vpem.verdict import Wording

MOST_TEXT = 1000
"""Maximum number of characters of each text of a finding."""


OF_ONE_PROCESS = ("callback", "engine", "graph", "n_jobs", "partition", "verbose", "warm_start")
"""Parameters of an estimator that do not apply to one party's part of a study."""


def all_agents(fitted: Fitted) -> list[Hashable]:
    """Return the parties, then the server of a star; the page refers to an agent by its index in this list."""
    return [*fitted.partition, *(node for node in fitted.network.named_graph() if node not in fitted.partition)]


def plain_findings(findings: Sequence[Any]) -> list[dict[str, str]]:
    """Convert findings to plain values."""
    names = ("severity", "sentence", "remedy")
    return [{name: str(getattr(finding, name))[:MOST_TEXT] for name in names} for finding in findings]


def fit_cards(
    fitted: Fitted, n_rows: int, title: str, others: Sequence[str], agents: Sequence[Hashable], wording: Wording
) -> dict[str, Any]:
    """Return verdict, main facts, agreement, log-likelihoods, repairs, traffic and settings of the fit.

    The colour of the verdict is None if there is none.
    """
    colour, findings = judged(fitted.judgement.findings)
    certificate, traffic, asked = fitted.certificate, fitted.traffic, fitted.parameters
    left_out = OF_ONE_PROCESS if others else ()
    return {
        "verdict": {"colour": colour, "findings": plain_findings([*map(wording, findings)])},
        "title": str(title),
        "others": list(others),
        "rows": n_rows,
        "tol": short(asked.get("tol")),
        "iterations": fitted.n_iter,
        "converged": bool(fitted.converged),
        "log_likelihood": short(fitted.log_likelihood),
        "weights": short(fitted.weights),
        "hub_weights": short(fitted.hub_weights),
        "disagreement": short(fitted.disagreement),
        "lower_bounds": short(fitted.mean_bounds),
        "scaled": bool(others) and fitted.scale is not None,
        "batches": asked.get("batch_size") is not None,
        "gain": None if certificate is None else short(certificate.gain),
        "repairs": [
            [repair.iteration, repair.component, str(repair.party), repair.reason, repair.restarted]
            for repair in fitted.repairs
        ],
        "traffic": {
            "messages": traffic.messages,
            "bytes": traffic.bytes,
            "rounds": traffic.rounds,
            "agents": [list(traffic.per_agent[agent]) for agent in agents],
        },
        "settings": [[name, say(value)] for name, value in asked.items() if name not in left_out],
        "versions": {
            "vpem": metadata.version("vpem"),
            "numpy": np.__version__,
            "networkx": nx.__version__,
            "Python": platform.python_version(),
        },
    }


def rows_card(rows: RowSummary | None) -> dict[str, Any]:
    """Return rows of each party, in common and used, and gaps of each column; counts from 1 to 4 are None."""
    if rows is None:
        return {"row_counts": None}

    def told(count: int) -> int | None:
        return None if 0 < count < SMALLEST_COUNT else count

    found = {
        "total": rows.n_rows,
        "joined": rows.is_joined,
        "used": told(rows.n_used),
        "empty": told(rows.n_empty),
        "parties": [
            [party, told(count), *([told(rows.matched[party])] if party in rows.matched else [])]
            for party, count in rows.held.items()
        ],
        "gaps": [
            [name, told(count), ", ".join(rows.gap_words.get(name, {}))] for name, count in rows.gaps.items() if count
        ],
    }
    if rows.n_common is not None:
        found["common"] = told(rows.n_common)
    return {"row_counts": found}


def network_card(fitted: Fitted, agents: Sequence[Hashable]) -> dict[str, Any]:
    """Return agents with their places, links and hubs; agents are given by index."""
    number_of = {agent: number for number, agent in enumerate(agents)}
    hub_of = {member: number for number, hub in enumerate(fitted.hubs) for member in hub.members}
    graph = fitted.network.named_graph()
    places = place_agents(graph, agents, fitted.parameters.get("graph"))
    return {
        "agents": [
            {
                "name": str(agent),
                "place": short(place),
                "hub": hub_of.get(agent),
                "columns": len(fitted.partition.get(agent, ())),
            }
            for agent, place in zip(agents, places, strict=True)
        ],
        "links": [[number_of[one], number_of[other]] for one, other in graph.edges],
        "hubs": [
            {
                "root": number_of[hub.root],
                "members": [number_of[member] for member in hub.members],
                "columns": len(hub.columns),
            }
            for hub in fitted.hubs
        ],
    }
