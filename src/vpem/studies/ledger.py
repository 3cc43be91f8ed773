"""What a study reveals: an explanation before anything is sent, and a ledger of what was sent.

A party's ledger has one line of JSON per run: what it sent, to which neighbour and in which form.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vpem.core.agent.machine import Agent
from vpem.core.agent.message import Frame, Message
from vpem.core.decisions.initial import HUB_TIES, shared_generator
from vpem.core.network.parties import Network, make_network
from vpem.privacy.exposure import forms
from vpem.privacy.exposure_text import Rows, Section, explain
from vpem.studies.shared import Study
from vpem.studies.telling import Journal, Note
from vpem.transports.session import AnySession

LEDGER = "ledger.jsonl"
PLAIN = {
    "meet": "records of agents, plain",
    "columns": "columns, plain",
    "terms": "terms for a hub, plain",
    "flood": "decisions, plain",
    "stop": "the reason of an end, plain",
    "labels": "labels of rows, plain",
}


class Ledger:
    """Counter of the messages of one run.

    Parameters
    ----------
    names : sequence of str
        Names of all agents, by number.
    """

    def __init__(self, names: Sequence[str]):
        self.names = names
        self._lines: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._forms: tuple[object, dict[tuple[int, int], str]] = (None, {})

    def note(self, agent: Any, message: Message | Frame) -> None:
        """Count a message of an agent, or a frame of a matching, that is about to be sent."""
        if isinstance(message, Frame):
            self.count(message.receiver, "match", "hellos, and sealed tokens", len(message.content))
            return
        form = PLAIN.get(message.kind) or self._form(agent, message)
        self.count(message.receiver, message.kind, form, message.n_bytes, len(message.decision))

    def count(self, receiver: int, kind: str, form: str, n_bytes: int, n_decisions: int = 0) -> None:
        """Count content that is about to be sent."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        empty = {"messages": 0, "bytes": 0, "decisions, plain": 0, "first": now}
        line = self._lines.setdefault((self.names[receiver], kind, form), empty)
        line["messages"] += 1
        line["bytes"] += n_bytes
        line["decisions, plain"] += n_decisions
        line["last"] = now

    def _form(self, agent: Agent, message: Message) -> str:
        """Return the form of a sum on its link, from the schedule that the agent follows."""
        if agent.state.meeting:
            return "sum"
        roles = agent.roles
        if self._forms[0] is not roles:
            self._forms = roles, dict(forms(agent.identity.agreement.summation, roles.network))  # type: ignore[arg-type]
        ends = roles.position_of[message.sender], roles.position_of[message.receiver]
        return self._forms[1].get(ends, "sum")

    def write(self, folder: Path, purpose: str) -> list[str]:
        """Append a line to the party's ledger, in full or not at all. Return a message for each failure."""
        lines = [{"to": to, "kind": kind, "form": form, **line} for (to, kind, form), line in self._lines.items()]
        if not lines:
            return []
        entry = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "purpose": purpose, "sent": lines}
        path = folder / LEDGER
        n_bytes = path.stat().st_size if path.exists() else 0
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            with suppress(OSError):
                os.truncate(path, n_bytes)
            return [f"{path}: what this run has sent could not be written down: {error.strerror}"]
        return []


@contextmanager
def noting(session: AnySession, study: Study, folder: Path, purpose: str, journal: Journal) -> Iterator[None]:
    """Count what a session sends, and write it to the party's ledger at the end."""
    ledger = Ledger(study.names)
    session.note = ledger.note
    try:
        yield
    finally:
        for problem in ledger.write(folder, purpose):
            journal.tell(Note(problem))


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
