"""Print a short summary of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
    from vpem import Finding, VerticalMixture
    from vpem.verdict import Wording


def describe(model: VerticalMixture) -> None:
    """Print the result of a fit, its traffic, and the data it reveals."""
    from vpem.verdict import colour

    traffic, hubs = model.traffic_, model.hubs_
    certificate = getattr(model, "certificate_", None)
    end = "converged" if model.converged_ else "ended"
    lines = {
        "model": f"{count(len(model.weights_), 'component')}, {count(model.means_.shape[1], 'column')}, "
        f"{count(len(model.partition_), 'party', 'parties')}, {count(len(hubs), 'block')}",
        **_families(model),
        **_rows(model),
        "likelihood": _likelihood(model),
        "fit": f"{end} after {count(model.n_iter_, 'iteration')}",
        "weights": ", ".join(f"{weight:.1%}" for weight in model.weights_),
        "sent": f"{as_bytes(traffic.bytes)} in {count(traffic.messages, 'message')} and "
        f"{count(traffic.rounds, 'round')}, if this were a real network",
    }
    if not traffic.messages:  # an assembled model: its traffic is in the parties' logs
        del lines["sent"]
    part = getattr(model, "part_", None)
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
    if model.repairs_:
        lines["repairs"] = f"{len(model.repairs_)} (vpem show lists them)"
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in lines.items():
        table.add_row(f"[bold]{name}[/bold]", plain(text))
    if certificate is not None:
        table.add_row("[bold]verdict[/bold]", HEADINGS[colour(model.verdict_)])
    out.print(table, highlight=False)
    show_findings(model.verdict_)


def _families(model: VerticalMixture) -> dict[str, str]:
    """Return a line with the columns of each family; {} for a model without families."""
    from vpem.core.blocks.families import GAUSSIAN
    from vpem.core.blocks.structure import parse_families

    if not model._has_families:
        return {}
    held: dict[str, list[str]] = {}
    for name, family in zip(model._column_names(), parse_families(model._texts).families, strict=True):
        held.setdefault(GAUSSIAN if family is None else family.label, []).append(name)
    return {"families": "; ".join(f"{label}: {as_names(names)}" for label, names in held.items())}


def _rows(model: VerticalMixture) -> dict[str, str]:
    """Return lines about rows and gaps; {} for models without these counts."""
    rows = getattr(model, "rows_", None)
    return {} if rows is None else {"rows": rows.describe(), "gaps": rows.describe_gaps()}


def _likelihood(model: VerticalMixture) -> str:
    """Describe the log-likelihood: the exact value first, then the roots' views."""
    views = model._last_lower_bounds
    seen = [model.lower_bound_] if views is None else [float(views.min()), float(views.max())]
    low, high = f"{min(seen):.4f}", f"{max(seen):.4f}"
    view = f"the roots' own views: {low}" + (f" to {high}" if high != low else "")
    exact = getattr(model, "log_likelihood_", None)
    if is_of_scaled(model):
        return f"{view}, per row, of {SCALED}"
    return f"{view}, per row" if exact is None else f"{exact:.4f} per row, exact; {view}"


def is_of_scaled(model: VerticalMixture) -> bool:
    """True if a model's likelihood is that of scaled columns, because a party knows only its own scales."""
    return hasattr(model, "part_") and hasattr(model, "scale_")


def show_findings(findings: Sequence[Finding], wording: Wording | None = None) -> None:
    """Print each finding with its remedy; by default in the program's wording."""
    from vpem.verdict import in_program

    for one in map(wording or in_program, findings):
        remedy = f" Try: {one.remedy}." if one.remedy else ""
        out.print(f"  {MARKS[one.severity]}: {plain(one.sentence + remedy)}", highlight=False, soft_wrap=True)
