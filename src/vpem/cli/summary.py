"""A model in a few lines."""

from __future__ import annotations

from rich.table import Table

from vpem import VerticalMixture
from vpem.cli.app import out, plain
from vpem.meaning import as_bytes
from vpem.meaning import as_count as count

__all__ = ["count", "describe"]


def describe(model: VerticalMixture) -> None:
    """What a fit came to, what it would have sent, who sees what."""
    traffic, hubs = model.traffic_, model.hubs_
    certificate = getattr(model, "certificate_", None)
    end = "converged" if model.converged_ else "ended"
    lines = {
        "model": f"{count(len(model.weights_), 'component')}, {count(model.means_.shape[1], 'column')}, "
        f"{count(len(model.partition_), 'party', 'parties')}, {count(len(hubs), 'block')}",
        "fit": f"{end} after {count(model.n_iter_, 'iteration')}, log-likelihood {model.lower_bound_:.4f} per row",
        "weights": ", ".join(f"{weight:.1%}" for weight in model.weights_),
        "sent": f"{as_bytes(traffic.bytes)} in {count(traffic.messages, 'message')} and "
        f"{count(traffic.rounds, 'round')}, if this were a real network",
    }
    if certificate is not None:
        lines["certificate"] = (
            f"one more exact step would add {certificate.gain:.1e} per row; "
            f"roots differ by {certificate.disagreement:.1e}"
        )
    pooled = sum(len(hub.members) - 1 for hub in hubs)
    pooling = f"{count(pooled, 'party', 'parties')} must send all columns to a root; "
    sent = pooling if pooled else "no column is sent; "
    lines["revealed"] = sent + "contributions to the sums still tell a lot (docs/privacy.md)"
    if model.repairs_:
        lines["repairs"] = f"{len(model.repairs_)} (vpem show lists them)"
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in lines.items():
        table.add_row(f"[bold]{name}[/bold]", plain(text))
    out.print(table, highlight=False)
