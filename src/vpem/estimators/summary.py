"""HTML summary of a fitted model, for notebooks."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from vpem.meaning import as_bytes, as_count, short_number
from vpem.model.fitted import Fitted
from vpem.verdict import colour

MOST_COMPONENTS = 12
TOP_COLUMNS = 3

STYLE = "border-collapse:collapse;margin:.4em 0"
CELL = "text-align:left;vertical-align:top;padding:.15em .8em .15em 0;border:0;background:none"


def model_html(fitted: Fitted, name: str) -> str:
    """Return an HTML summary of a fitted mixture: outcome of the fit, and distinctive columns of each component.

    The summary contains no data rows and no scripts. It uses the colours of the notebook.
    """
    found, nats = fitted.profile, [one.nats for one in fitted.column_information]
    names = [escape(column) for column in fitted.column_names]
    rows, verdict = fitted.rows, fitted.judgement.findings if fitted.certificate is not None else None
    value = fitted.lower_bound if fitted.log_likelihood is None else fitted.log_likelihood
    bound = f", log-likelihood {value:.4f} per row" if math.isfinite(value) else ""
    end = "converged" if fitted.converged else "<b>did not converge</b>"
    lines = {
        "model": f"{as_count(len(found.shares), 'component')}, {as_count(len(names), 'column')}, "
        f"{as_count(len(fitted.partition), 'party', 'parties')}",
        **({} if rows is None else {"rows": escape(rows.describe()), "gaps": escape(rows.describe_gaps())}),
        "fit": f"{end} after {as_count(fitted.n_iter, 'iteration')}{bound}",
        "traffic": f"{as_bytes(fitted.traffic.bytes)} in {as_count(fitted.traffic.messages, 'message')}, if "
        "this were a real network",
    }
    if verdict is not None:
        told = [f"{one.severity}: {one.sentence}" + f" Try: {one.remedy}." * bool(one.remedy) for one in verdict]
        lines["verdict"] = f"<b>{colour(verdict)}</b>" + "".join(f"<div>{escape(text)}</div>" for text in told)
    if len(found.shares) > 1:
        best = sorted(range(len(names)), key=lambda column: -nats[column])[:5]
        lines["most informative"] = ", ".join(f"{names[c]} ({nats[c]:.2f} nats)" for c in best)
    title = f"<b>{escape(name)}</b>"
    head = "".join(
        f'<tr><th style="{CELL}">{line}</th><td style="{CELL}">{text}</td></tr>' for line, text in lines.items()
    )
    labels = fitted.coding.labels
    body = "".join(_component(k, found, names, labels) for k in range(min(len(found.shares), MOST_COMPONENTS)))
    left = len(found.shares) - MOST_COMPONENTS
    if left > 0:
        body += (
            f'<tr><td style="{CELL}" colspan="3">and {as_count(left, "more component", "more components")}</td></tr>'
        )
    titles = "".join(f'<th style="{CELL}">{text}</th>' for text in ("component", "share", "farthest from everyone"))
    tables = f'<table style="{STYLE}">{head}</table><table style="{STYLE}"><tr>{titles}</tr>{body}</table>'
    return f'<div class="vpem-model">{title}{tables}</div>'


def _component(k: int, found: Any, names: list[str], labels: Any) -> str:
    distances = found.distances[k]
    far = sorted(range(len(names)), key=lambda column: -abs(distances[column]))[:TOP_COLUMNS]
    shown = [short_number(found.means[k, c]) if c not in found.categories else found.text(k, c, labels) for c in far]
    texts = [f"{names[c]} {escape(text)} ({distances[c]:+.1f})" for c, text in zip(far, shown, strict=True)]
    cells = (str(k), f"{found.shares[k]:.1%}", "; ".join(texts) if len(found.shares) > 1 else "everyone")
    return "<tr>" + "".join(f'<td style="{CELL}">{text}</td>' for text in cells) + "</tr>"
