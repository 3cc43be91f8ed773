"""Print a short summary of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from vpem.cli.app import out, plain
from vpem.words import SCALED, as_bytes, as_names
from vpem.words import as_count as count

__all__ = ["count", "describe", "show_findings"]

MARKS = {"red": "[bold red]red[/bold red]", "amber": "[yellow]amber[/yellow]", "note": "note"}
HEADINGS = {
    "red": "[bold red]red: this fit is not to be trusted as it is[/bold red]",
    "amber": "[yellow]amber: look at the findings before you rely on it[/yellow]",
    "green": "[green]green: nothing was found wrong[/green]",
}

if TYPE_CHECKING:
    from vpem import Finding
    from vpem.model.fitted import Fitted
    from vpem.verdict import Wording


def describe(fitted: Fitted) -> None:
    """Print the result of a fit, its traffic, and the data it reveals."""
    from vpem.verdict import colour

    traffic, hubs, certificate, part = fitted.traffic, fitted.hubs, fitted.certificate, fitted.part
    end = "converged" if fitted.converged else "ended"
    lines = {
        "model": f"{count(fitted.n_components, 'component')}, {count(fitted.n_features, 'column')}, "
        f"{count(len(fitted.partition), 'party', 'parties')}, {count(len(hubs), 'block')}",
        **_families(fitted),
        **({} if fitted.rows is None else {"rows": fitted.rows.describe(), "gaps": fitted.rows.describe_gaps()}),
        "likelihood": _likelihood(fitted),
        "fit": f"{end} after {count(fitted.n_iter, 'iteration')}",
        "weights": ", ".join(f"{weight:.1%}" for weight in fitted.weights),
        "sent": f"{as_bytes(traffic.bytes)} in {count(traffic.messages, 'message')} and "
        f"{count(traffic.rounds, 'round')}, if this were a real network",
    }
    if not traffic.messages:  # an assembled model: its traffic is in the parties' logs
        del lines["sent"]
    if part is not None:
        lines["part"] = (
            f"{part.party}'s of study {part.study}, with {as_names(part.parties)}; vpem assemble joins parts"
        )
        own = traffic.per_agent[part.party]
        lines["sent"] = f"{as_bytes(own.bytes_sent)} in the last run, and {as_bytes(own.bytes_received)} received"
    if certificate is not None:
        lines["certificate"] = (
            f"one more exact step would add {certificate.gain:.1e} per row; "
            f"{certificate.split:.1%} of the rows have another label at another root"
        )
    pooled = sum(len(hub.members) - 1 for hub in hubs)
    pooling = f"{count(pooled, 'party', 'parties')} must send all columns to a root; "
    sent = pooling if pooled else "no column is sent; "
    lines["revealed"] = sent + "contributions to the sums still tell a lot (vpem docs privacy)"
    if fitted.repairs:
        lines["repairs"] = f"{len(fitted.repairs)} (vpem show lists them)"
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in lines.items():
        table.add_row(f"[bold]{name}[/bold]", plain(text))
    if all(finding.code != "not_judged" for finding in fitted.judgement.findings):
        table.add_row("[bold]verdict[/bold]", HEADINGS[colour(fitted.judgement.findings)])
    out.print(table, highlight=False)
    show_findings(fitted.judgement.findings)


def _families(fitted: Fitted) -> dict[str, str]:
    """Return a line with the columns of each family; {} for a model without families."""
    from vpem.core.blocks.families import GAUSSIAN
    from vpem.core.blocks.structure import parse_families

    if fitted.families is None:
        return {}
    held: dict[str, list[str]] = {}
    for name, family in zip(fitted.column_names, parse_families(fitted.families).families, strict=True):
        held.setdefault(GAUSSIAN if family is None else family.label, []).append(name)
    return {"families": "; ".join(f"{label}: {as_names(names)}" for label, names in held.items())}


def _likelihood(fitted: Fitted) -> str:
    """Describe the log-likelihood: the exact value first, then the roots' views."""
    views = fitted.lower_bounds[-1] if fitted.lower_bounds else np.array([-np.inf])
    low, high = f"{views.min():.4f}", f"{views.max():.4f}"
    view = f"the roots' own views: {low}" + (f" to {high}" if high != low else "")
    exact = fitted.log_likelihood
    if is_of_scaled(fitted):
        return f"{view}, per row, of {SCALED}"
    return f"{view}, per row" if exact is None else f"{exact:.4f} per row, exact; {view}"


def is_of_scaled(fitted: Fitted) -> bool:
    """True if a model's likelihood is that of scaled columns, because a party knows only its own scales."""
    return fitted.part is not None and fitted.scale is not None


def show_findings(findings: Sequence[Finding], wording: Wording | None = None) -> None:
    """Print each finding with its remedy; by default in the program's wording."""
    from vpem.verdict import in_program

    for one in map(wording or in_program, findings):
        remedy = f" Try: {one.remedy}." if one.remedy else ""
        out.print(f"  {MARKS[one.severity]}: {plain(one.sentence + remedy)}", highlight=False, soft_wrap=True)
