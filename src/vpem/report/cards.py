"""The cards of the page: what each shows, as plain values; one function for each, in the order of the page.

The cards that tell of the clusters are in `clusters`, those of features in `features`. On the side of the page, a
card is a section of `page.html` and one function of the script, which `page.js` calls in the same order.
"""

from __future__ import annotations

import platform
from collections.abc import Hashable, Sequence
from importlib import metadata
from typing import Any

import networkx as nx
import numpy as np

from vpem.meaning import verdict_of
from vpem.report.places import place_agents
from vpem.report.values import say, short
from vpem.verdict import Wording

MOST_TEXT = 1000
"""Characters of a finding's sentence at most."""


OF_ONE_PROCESS = ("callback", "engine", "graph", "n_jobs", "partition", "verbose", "warm_start")
"""Parameters of an estimator that say nothing about one party's part of a study."""


def all_agents(model: Any) -> list[Hashable]:
    """The parties and, after them, the server of a star; in the page an agent is its place in this list."""
    return [*model.partition_, *(node for node in model.graph_ if node not in model.partition_)]


def verdict_card(model: Any, wording: Wording) -> dict[str, Any]:
    """The model's `verdict_`: its colour and its findings; no colour for a model that was not judged."""
    colour, findings = verdict_of(model)
    return {"verdict": {"colour": colour, "findings": plain_findings([*map(wording, findings)])}}


def plain_findings(findings: Sequence[Any]) -> list[dict[str, str]]:
    """Findings as a page has them."""
    names = ("severity", "sentence", "remedy")
    return [{name: str(getattr(finding, name))[:MOST_TEXT] for name in names} for finding in findings]


def facts_card(model: Any, n_rows: int, title: str) -> dict[str, Any]:
    """What the fit is, in short; traffic and columns are those of other cards."""
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
    """The other parties, if the model is one party's part: the page then leaves out what it cannot know."""
    return list(getattr(model, "others", ()))


def weights_card(model: Any) -> dict[str, Any]:
    """How large the components are."""
    return {"weights": short(model.weights_)}


def agreement_card(model: Any) -> dict[str, Any]:
    """How far the roots' own estimates are apart."""
    return {"hub_weights": short(model.hub_weights_), "disagreement": short(model.disagreement_)}


def trajectory_card(model: Any) -> dict[str, Any]:
    """How the fit went."""
    certificate = getattr(model, "certificate_", None)
    return {
        "lower_bounds": short(model.lower_bounds_),
        "batches": model.get_params().get("batch_size") is not None,
        "gain": None if certificate is None else short(certificate.gain),
    }


def repairs_card(model: Any) -> dict[str, Any]:
    """Components that collapsed or starved."""
    return {
        "repairs": [
            [repair.iteration, repair.component, str(repair.party), repair.reason, repair.restarted]
            for repair in model.repairs_
        ]
    }


def network_card(model: Any, agents: Sequence[Hashable]) -> dict[str, Any]:
    """Agents by number, their places, links and hubs."""
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
    """What was sent, in all and by each agent."""
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
    """The estimator's parameters in words, and versions."""
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
