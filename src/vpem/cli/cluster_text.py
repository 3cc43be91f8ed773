"""Print descriptions of the clusters in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from vpem.cli.app import out, plain, say
from vpem.cli.labels import Classes
from vpem.words import as_count

if TYPE_CHECKING:
    from vpem.meaning import Certainty, Profile
    from vpem.model.fitted import Fitted
    from vpem.reading import Rows

Labels = Mapping[int, Sequence[str]]
"""Column to the names of its categories."""

MOST_CLASSES = 20
"""Maximum number of classes in a table; the largest ones are shown."""
DEFAULT_TOP = 12
"""Default number of columns that `vpem show` prints."""
TOP_COLUMNS = 5
"""Default number of columns for each component if the terminal is too narrow for a table."""


def describe_clusters(fitted: Fitted, top: int) -> None:
    """Print profiles of the components for the most informative columns.

    The profiles are a table with a column for each component, or in a narrow terminal a list for each component.
    """
    from vpem.meaning import entropy

    found, nats = fitted.profile, [one.nats for one in fitted.column_information]
    names, labels = fitted.column_names, fitted.coding.labels
    order = sorted(range(len(names)), key=lambda column: -nats[column])[:top]
    say("")
    rows = [
        [names[c], f"{nats[c]:.2f}", found.text(None, c, labels)]
        + [_cell(found, k, c, labels) for k in range(len(found.shares))]
        for c in order
    ]
    heads = ["column", "nats", "everyone", *(f"{k}: {share:.1%}" for k, share in enumerate(found.shares))]
    widths = [max(map(len, texts)) + 2 for texts in zip(heads, *rows, strict=True)]
    if sum(widths) <= out.width:
        table = Table(*heads, box=None)
        for row in rows:
            table.add_row(*map(plain, row))
        out.print(table, highlight=False)
    else:
        _list_components(found, names, top, labels)
        best = ", ".join(f"{names[c]} {nats[c]:.2f}" for c in order)
        say(f"most informative columns (nats): {best}")
    left = len(names) - len(order)
    if left:
        say(f"and {as_count(left, 'more column', 'more columns')}; --top {len(names)} shows all")
    say("mean ± deviation (distance from everyone, in everyone's deviations)")
    if found.categories:
        say("of categories: the one whose share is farthest above everyone's, and its share")
    say(f"nats: information of a column about the component; at most {entropy(found.shares):.2f}")
    say("")


def _list_components(found: Profile, names: list[str], top: int, labels: Labels) -> None:
    """Print for each component the columns in which it is farthest from everyone."""
    number = top if top > DEFAULT_TOP else min(top, TOP_COLUMNS)
    for k, share in enumerate(found.shares):
        far = np.argsort(-np.abs(found.distances[k]), kind="stable")[:number]
        say(f"component {k}, {share:.1%} of the rows")
        table = Table(show_header=False, box=None, pad_edge=False)
        for c in far:
            table.add_row("  " + plain(names[c]), plain(_cell(found, k, c, labels)))
        out.print(table, highlight=False)


def _cell(found: Profile, k: int, column: Any, labels: Labels) -> str:
    return f"{found.text(k, int(column), labels)} ({found.distances[k, column]:+.1f})"


def describe_labels(fitted: Fitted, rows: Rows, classes: Classes | None) -> None:
    """Print known classes, if any, against the components of the fit, for rows with a class and a value."""
    from vpem.metrics import compare_labels
    from vpem.model.evaluation import evaluate_all

    if classes is None:
        return
    known = classes_of(rows, classes)
    is_there = ~np.isnan(rows.values).all(axis=1) & np.array([one is not None for one in known])
    if not is_there.any():
        say("label: no row with a class has any value")
        return
    responsibilities = evaluate_all(fitted, fitted.code(rows.values[is_there]))[0]
    given = [str(one) for one, used in zip(known, is_there, strict=True) if used]
    n_components = responsibilities.shape[1]
    found = compare_labels(given, responsibilities.argmax(axis=1), n_components)
    table = Table("class", box=None)
    for head in ("rows", *map(str, range(n_components))):
        table.add_column(head, justify="right")
    sizes = found.confusion.sum(axis=1)
    largest = sorted(np.argsort(-sizes, kind="stable")[:MOST_CLASSES])
    for place in largest:
        numbers = [f"{number:,}" if number else "." for number in found.confusion[place]]
        table.add_row(plain(str(found.classes[place])), f"{sizes[place]:,}", *numbers)
    say("")
    out.print(table, highlight=False)
    if len(found.classes) > len(largest):
        say(f"and {as_count(len(found.classes) - len(largest), 'smaller class', 'smaller classes')}")
    say(
        f"classes and components: adjusted Rand index {found.adjusted_rand:.3f}, normalized mutual information "
        f"{found.mutual_information:.3f}, accuracy {found.accuracy:.1%} ({as_count(len(given), 'row')})"
    )


def classes_of(rows: Rows, classes: Classes) -> list[str | None]:
    """Return the class of each row, or None if it is unknown."""
    if not isinstance(classes, dict):
        return classes
    return [classes.get(one) for one in zip(*(rows.keys or {}).values(), strict=True)]


def describe_certainty(fitted: Fitted, found: Certainty) -> None:
    """Print the certainty of the labels and the components confused most, always together with the verdict."""
    from vpem.meaning import judged

    line = (
        f"labels: under the model, {found.sure_share:.1%} of the rows have a component with a probability above 95%"
    )
    pairs = [f"{share:.0%} of the rows of {i} with {j}" for i, j, share in found.confused_pairs(3)]
    say(f"{line}; expected to be confused: {', '.join(pairs)}" if pairs else line)
    colour, _ = judged(fitted.judgement.findings)
    verdict = "was not judged" if colour is None else f"has the verdict {colour}"
    more = "" if colour in (None, "green") else "; vpem show has the reasons"
    say(f"these probabilities hold as far as the model does, whose fit {verdict}{more}")


def describe_unusual(found: dict[str, Any], names: list[str], ids: dict[str, list[str]] | None) -> None:
    """Print the rows that fit worst, by id, or without ids by number, counted from 1."""
    table = Table("row", "as bad or worse", "log-density", "component", "column", "its distance", box=None)
    for place, row in enumerate(found["row"]):
        name = f"{row + 1:,}" if ids is None else " ".join(texts[row] for texts in ids.values())
        told = f"1 in {1 / found['tail_probability'][place]:,.0f}", f"{found['log_density'][place]:.2f}"
        column, distance = names[int(found["column"][place])], f"{found['distance'][place]:+.1f} deviations"
        table.add_row(*map(plain, (name, *told, str(found["component"][place]), column, distance)))
    say("rows that fit worst (keep this to those who may see the rows)")
    out.print(table, highlight=False)
