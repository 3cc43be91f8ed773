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

from vpem.meaning import verdict_of
from vpem.report.bins import SMALLEST_COUNT
from vpem.report.places import place_agents
from vpem.report.values import say, short
from vpem.verdict import Wording

MOST_TEXT = 1000
"""Maximum number of characters of each text of a finding."""


OF_ONE_PROCESS = ("callback", "engine", "graph", "n_jobs", "partition", "verbose", "warm_start")
"""Parameters of an estimator that do not apply to one party's part of a study."""


def all_agents(model: Any) -> list[Hashable]:
    """Return the parties, then the server of a star; the page refers to an agent by its index in this list."""
    return [*model.partition_, *(node for node in model.graph_ if node not in model.partition_)]


def verdict_card(model: Any, wording: Wording) -> dict[str, Any]:
    """Return the colour and the findings of the model's verdict; the colour is None if there is no verdict."""
    colour, findings = verdict_of(model)
    return {"verdict": {"colour": colour, "findings": plain_findings([*map(wording, findings)])}}


def plain_findings(findings: Sequence[Any]) -> list[dict[str, str]]:
    """Convert findings to plain values."""
    names = ("severity", "sentence", "remedy")
    return [{name: str(getattr(finding, name))[:MOST_TEXT] for name in names} for finding in findings]


def facts_card(model: Any, n_rows: int, title: str) -> dict[str, Any]:
    """Return the main facts of the fit; traffic and columns have cards of their own."""
    return {
        "title": str(title),
        "others": _others(model),
        "rows": n_rows,
        "tol": short(model.get_params().get("tol")),
        "iterations": int(model.n_iter_),
        "converged": bool(model.converged_),
        "log_likelihood": short(getattr(model, "log_likelihood_", None)),
    }


def _others(model: Any) -> list[str]:
    """Return the other parties if the model is one party's part; the page then omits facts that it cannot know."""
    return list(getattr(model, "others", ()))


def weights_card(model: Any) -> dict[str, Any]:
    """Return the weights of the components."""
    return {"weights": short(model.weights_)}


def agreement_card(model: Any) -> dict[str, Any]:
    """Return the roots' own weights and their disagreement."""
    return {"hub_weights": short(model.hub_weights_), "disagreement": short(model.disagreement_)}


def rows_card(model: Any) -> dict[str, Any]:
    """Return rows of each party, in common and used, and gaps of each column; counts from 1 to 4 are None."""
    rows = getattr(model, "rows_", None)
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


def trajectory_card(model: Any) -> dict[str, Any]:
    """Return the log-likelihood of each iteration and the gain of one more exact step."""
    certificate = getattr(model, "certificate_", None)
    return {
        "lower_bounds": short(model.lower_bounds_),
        "scaled": bool(_others(model)) and hasattr(model, "scale_"),
        "batches": model.get_params().get("batch_size") is not None,
        "gain": None if certificate is None else short(certificate.gain),
    }


def repairs_card(model: Any) -> dict[str, Any]:
    """Return the components that collapsed or starved."""
    return {
        "repairs": [
            [repair.iteration, repair.component, str(repair.party), repair.reason, repair.restarted]
            for repair in model.repairs_
        ]
    }


def network_card(model: Any, agents: Sequence[Hashable]) -> dict[str, Any]:
    """Return agents with their places, links and hubs; agents are given by index."""
    number_of = {agent: number for number, agent in enumerate(agents)}
    hub_of = {member: number for number, hub in enumerate(model.hubs_) for member in hub.members}
    places = place_agents(model.graph_, agents, model.get_params().get("graph"))
    return {
        "agents": [
            {
                "name": str(agent),
                "place": short(place),
                "hub": hub_of.get(agent),
                "columns": len(model.partition_.get(agent, ())),
            }
            for agent, place in zip(agents, places, strict=True)
        ],
        "links": [[number_of[one], number_of[other]] for one, other in model.graph_.edges],
        "hubs": [
            {
                "root": number_of[hub.root],
                "members": [number_of[member] for member in hub.members],
                "columns": len(hub.columns),
            }
            for hub in model.hubs_
        ],
    }


def traffic_card(model: Any, agents: Sequence[Hashable]) -> dict[str, Any]:
    """Return the traffic in total and of each agent."""
    traffic = model.traffic_
    return {
        "traffic": {
            "messages": traffic.messages,
            "bytes": traffic.bytes,
            "rounds": traffic.rounds,
            "agents": [list(traffic.per_agent[agent]) for agent in agents],
        }
    }


def settings_card(model: Any) -> dict[str, Any]:
    """Return the estimator's parameters as text, and the versions of packages."""
    left_out = OF_ONE_PROCESS if _others(model) else ()
    return {
        "settings": [[name, say(value)] for name, value in model.get_params().items() if name not in left_out],
        "versions": {
            "vpem": metadata.version("vpem"),
            "numpy": np.__version__,
            "networkx": nx.__version__,
            "Python": platform.python_version(),
        },
    }
