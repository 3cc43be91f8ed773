"""Explain, before anything is sent, what a study will reveal to each of its agents."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from vpem.core.decisions.initial import HUB_TIES, shared_generator
from vpem.core.network.parties import Network, make_network
from vpem.privacy.explaining import Rows, Section, explain
from vpem.studies.shared import Study


def study_network(study: Study) -> Network:
    """Return the network of a study as its agents derive it.

    The columns are not known yet, so each party has one.
    """
    import networkx as nx

    columns: dict[Hashable, list[int]] = {one.name: [place] for place, one in enumerate(study.parties)}
    graph: Any = "star"
    if study.server is None:
        graph = nx.relabel_nodes(nx.Graph(list(study.links)), dict(enumerate(columns)))
    return make_network(columns, graph, study.model.hops, shared_generator(study.agreement().seed, HUB_TIES))


def explain_study(study: Study) -> list[Section]:
    """Return sections of text for a data protection officer."""
    rows = Rows("digests")
    if study.match != "same":
        rows = Rows("tokens", study.match, study.spelling, study.names[study.matching.matcher])
    return explain(study.agreement(), study_network(study), study.names, rows)
