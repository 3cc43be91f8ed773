"""Content of the page's cards as plain values: one function for each card, in the order of the page.

The cards about clusters are in `clusters`, those about features in `features`. In the page itself, a card is a
section of `page.html` and one function of the script, which `page.js` calls in the same order.
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


def verdict_card(fitted: Fitted, wording: Wording) -> dict[str, Any]:
    """Return the colour and the findings of the verdict; the colour is None if there is no verdict."""
    colour, findings = judged(fitted.judgement.findings)
    return {"verdict": {"colour": colour, "findings": plain_findings([*map(wording, findings)])}}


def plain_findings(findings: Sequence[Any]) -> list[dict[str, str]]:
    """Convert findings to plain values."""
    names = ("severity", "sentence", "remedy")
    return [{name: str(getattr(finding, name))[:MOST_TEXT] for name in names} for finding in findings]


def facts_card(fitted: Fitted, n_rows: int, title: str, others: Sequence[str]) -> dict[str, Any]:
    """Return the main facts of the fit; traffic and columns have cards of their own."""
    return {
        "title": str(title),
        "others": list(others),
        "rows": n_rows,
        "tol": short(fitted.parameters.get("tol")),
        "iterations": fitted.n_iter,
        "converged": bool(fitted.converged),
        "log_likelihood": short(fitted.log_likelihood),
    }


def weights_card(fitted: Fitted) -> dict[str, Any]:
    """Return the weights of the components."""
    return {"weights": short(fitted.weights)}


def agreement_card(fitted: Fitted) -> dict[str, Any]:
    """Return the roots' own weights and their disagreement."""
    weights = fitted.mixture.weights
    views = np.broadcast_to(weights, (len(fitted.hubs), weights.shape[1]))
    return {"hub_weights": short(views), "disagreement": short(fitted.disagreement)}


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


def trajectory_card(fitted: Fitted, others: Sequence[str]) -> dict[str, Any]:
    """Return the log-likelihood of each iteration and the gain of one more exact step."""
    certificate = fitted.certificate
    return {
        "lower_bounds": short(fitted.mean_bounds),
        "scaled": bool(others) and fitted.scale is not None,
        "batches": fitted.parameters.get("batch_size") is not None,
        "gain": None if certificate is None else short(certificate.gain),
    }


def repairs_card(fitted: Fitted) -> dict[str, Any]:
    """Return the components that collapsed or starved."""
    return {
        "repairs": [
            [repair.iteration, repair.component, str(repair.party), repair.reason, repair.restarted]
            for repair in fitted.repairs
        ]
    }


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


def traffic_card(fitted: Fitted, agents: Sequence[Hashable]) -> dict[str, Any]:
    """Return the traffic in total and of each agent."""
    traffic = fitted.traffic
    return {
        "traffic": {
            "messages": traffic.messages,
            "bytes": traffic.bytes,
            "rounds": traffic.rounds,
            "agents": [list(traffic.per_agent[agent]) for agent in agents],
        }
    }


def settings_card(fitted: Fitted, others: Sequence[str]) -> dict[str, Any]:
    """Return the estimator's parameters as text, and the versions of packages."""
    left_out = OF_ONE_PROCESS if others else ()
    return {
        "settings": [[name, say(value)] for name, value in fitted.parameters.items() if name not in left_out],
        "versions": {
            "vpem": metadata.version("vpem"),
            "numpy": np.__version__,
            "networkx": nx.__version__,
            "Python": platform.python_version(),
        },
    }
