"""The script as a table of phases.

Each phase is one exchange with the network: `offer` describes the contribution to it, `absorb` turns the outcome into
the next state, and `next` lists the phases that may follow. The drawing in docs/architecture.md is made from this
table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from vpem.core.script.context import Context, Offer, Outcome
from vpem.core.script.em_phases import (
    absorb_iterate,
    absorb_jump,
    absorb_new_columns,
    absorb_prediction,
    absorb_repair,
    offer_iterate,
    offer_jump,
    offer_new_columns,
    offer_prediction,
    offer_repair,
)
from vpem.core.script.row_count_phases import absorb_holders, absorb_new_holders, offer_holders
from vpem.core.script.start_phases import (
    absorb_cluster,
    absorb_columns,
    absorb_draw,
    absorb_first_row,
    absorb_labels,
    absorb_try,
    absorb_weights,
    begin_start,
    offer_cluster,
    offer_columns,
    offer_draw,
    offer_first_row,
    offer_labels,
    offer_try,
    offer_weights,
)
from vpem.core.script.state import Progress


class Phase(NamedTuple):
    """One exchange with the network."""

    meaning: str
    exchange: str
    """Content of the messages: "columns", "sum" (perhaps with a decision), "decision" or "labels"."""
    offer: Callable[[Context, Progress], Offer]
    absorb: Callable[[Context, Progress, Outcome], Progress]
    next: tuple[str, ...]


STARTING = ("first row", "cluster", "labels", "iterate")
"""First phases of a start, by `init_params`."""

BY_SUMMATION = ("sum", "labels")
"""Exchanges whose values a summation combines."""

MEETING = "meet"
"""The phase before all others, after every loss too; see `vpem.core.agent.meeting`."""

DONE = "done"
"""The fit is finished; new rows may come."""

PHASES = {
    "pool": Phase("leaves' columns to their roots", "columns", offer_columns, absorb_columns, ("holders", *STARTING)),
    "holders": Phase("how many blocks have each row", "sum", offer_holders, absorb_holders, STARTING),
    "first row": Phase("distances to a random row", "sum", offer_first_row, absorb_first_row, ("draw",)),
    "draw": Phase("a chosen row, the next candidates", "decision", offer_draw, absorb_draw, ("try", "cluster")),
    "try": Phase("distances to the candidates", "sum", offer_try, absorb_try, ("draw",)),
    "cluster": Phase(
        "distances to the centres", "sum", offer_cluster, absorb_cluster, ("cluster", "weights", "iterate")
    ),
    "weights": Phase("the first weights", "decision", offer_weights, absorb_weights, ("iterate",)),
    "labels": Phase("local labels up, common labels down", "labels", offer_labels, absorb_labels, ("iterate",)),
    "iterate": Phase(
        "log-densities: E-step, M-step",
        "sum",
        offer_iterate,
        absorb_iterate,
        ("iterate", "repair", "jump", *STARTING, DONE),
    ),
    "jump": Phase("how far parameters have moved", "sum", offer_jump, absorb_jump, ("iterate",)),
    "repair": Phase("rows for broken components", "decision", offer_repair, absorb_repair, ("iterate",)),
    "new columns": Phase(
        "leaves' columns of new rows", "columns", offer_new_columns, absorb_new_columns, ("new holders", "predict")
    ),
    "new holders": Phase("how many blocks have new rows", "sum", offer_holders, absorb_new_holders, ("predict",)),
    "predict": Phase("log-densities of new rows", "sum", offer_prediction, absorb_prediction, (DONE,)),
}

AFTER_MEETING = ("pool", "holders", *STARTING)
"""First phases after the first meeting."""

AFTER_LOSS = ("draw", "cluster", "weights", "iterate", "jump", "repair", DONE)
"""Phases at which agents have checkpoints: exchanges of the fit that carry decisions, and its end."""

AFTER_DONE = ("new columns", "new holders", "predict")
"""Phases of a prediction."""


def settle(context: Context, progress: Progress) -> Progress:
    """Advance to a phase with an exchange; the steps between need no network."""
    if progress.phase == "begin":
        if context.network.depth > 0:
            return replace(progress, phase="pool")
        progress = replace(progress, phase="start")
    if progress.phase == "start" and progress.holders is None and context.least_holders > 1:
        return replace(progress, phase="holders")
    return begin_start(context, progress) if progress.phase == "start" else progress


def draw_life() -> str:
    """The table as a Mermaid state diagram."""
    names = {name: name.replace(" ", "_") for name in (MEETING, *PHASES, DONE)}
    lines = ["stateDiagram-v2", f"    [*] --> {MEETING}"]
    lines += [f"    {MEETING} --> {names[name]}" for name in AFTER_MEETING]
    lines += [f"    {MEETING} --> {names[name]}: after a loss" for name in AFTER_LOSS]
    for name, phase in PHASES.items():
        lines.append(f"    {names[name]}: {name} ({phase.exchange})")
        lines += [f"    {names[name]} --> {names[other]}" for other in dict.fromkeys(phase.next)]
    lines += [f"    {DONE} --> {names[name]}: new rows" for name in AFTER_DONE]
    return "\n".join(lines)
