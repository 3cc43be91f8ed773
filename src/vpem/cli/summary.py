"""A model in a few lines."""

from __future__ import annotations

from rich.table import Table

from vpem import VerticalGaussianMixture
from vpem.cli.app import out, plain


def describe(model: VerticalGaussianMixture) -> None:
    """What a fit came to, what it would have sent, who sees what."""
    traffic, hubs = model.traffic_, model.hubs_
    certificate = getattr(model, "certificate_", None)
    end = "converged" if model.converged_ else "ended"
    lines = {
        "model": f"{len(model.weights_)} components, {model.means_.shape[1]} columns, "
        f"{len(model.partition_)} parties, {len(hubs)} blocks",
        "fit": f"{end} after {model.n_iter_} iterations, log-likelihood {model.lower_bound_:.4f} per row",
        "weights": ", ".join(f"{weight:.1%}" for weight in model.weights_),
        "sent": f"{_bytes(traffic.bytes)} in {traffic.messages:,} messages and {traffic.rounds:,} rounds, "
        "if this were a real network",
    }
    if certificate is not None:
        lines["certificate"] = (
            f"one more exact step would add {certificate.gain:.1e} per row; "
            f"roots differ by {certificate.disagreement:.1e}"
        )
    pooled = sum(len(hub.members) - 1 for hub in hubs)
    sent = f"{pooled} parties send their columns to a root; " if pooled else "no column is sent; "
    lines["revealed"] = sent + "contributions to the sums still tell a lot (docs/privacy.md)"
    if model.repairs_:
        lines["repairs"] = f"{len(model.repairs_)} (vpem show lists them)"
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in lines.items():
        table.add_row(f"[bold]{name}[/bold]", plain(text))
    out.print(table, highlight=False)


def _bytes(number: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"
