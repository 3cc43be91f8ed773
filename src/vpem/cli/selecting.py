"""Choosing the number of components."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

import vpem
from vpem.cli.app import (
    COVARIANCES,
    INTERRUPTED,
    PICTURES,
    Covariance,
    Decimal,
    Encoding,
    Family,
    Header,
    Id,
    Ignore,
    MaxIter,
    Parties,
    RegCovar,
    Seed,
    Separator,
    Shrinkage,
    Standardize,
    Starts,
    Tables,
    Tol,
    app,
    check_can_draw,
    err,
    out,
    plain,
    plainly,
    say,
)
from vpem.cli.fitting import STARTS_THAT_SERVE, all_families, codes_of, fit_model, table_of, unfitted
from vpem.cli.gathering import check_choices, gather
from vpem.cli.summary import count, show_findings
from vpem.files import check_outputs
from vpem.reading import TABLES, Form, TableError, write

if TYPE_CHECKING:
    from vpem import CollapsedComponentError, VerticalMixture
    from vpem.reading import Rows

WORTH_POOLING = 0.02
"""Nats per row that are worth a word."""
MOST_PAIRS = 3
"""Of parties, of which it is said."""

NAMES = {"bic": "BIC", "icl": "ICL", "aic": "AIC"}
"""Criteria of which the smallest is the best."""


@app.command()
@plainly
def select(
    tables: Tables,
    components: Annotated[str, typer.Option("--components", "-k", help="From and to, as 1..10.")] = "1..10",
    parties: Parties = None,
    id_column: Id = None,
    ignore: Ignore = [],  # noqa: B006 (typer's way to say: none)
    family: Family = [],  # noqa: B006
    header: Header = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    covariance: Covariance = "full",
    starts: Starts = STARTS_THAT_SERVE,
    tol: Tol = 1e-3,
    max_iter: MaxIter = 100,
    reg_covar: RegCovar = 1e-6,
    shrinkage: Shrinkage = "auto",
    standardize: Standardize = None,
    seed: Seed = 0,
    folds: Annotated[int, typer.Option(min=0, help="Also the likelihood of held-out rows, in so many folds.")] = 0,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="CSV or Parquet with all numbers.")] = None,
    picture: Annotated[Path | None, typer.Option("--plot", help="Picture, .png or .svg.")] = None,
) -> None:
    """Compare numbers of components by BIC, ICL and AIC; the smaller, the better.

    ICL counts components that overlap as worse: it asks for clusters, BIC for a density. With --folds, each part of
    the rows is held out once, and the others are fitted: its log-likelihood per row, the larger the better. All
    parties draw the same folds from the seed. A number of components whose fit collapses gets a row that says so.

    Example: `vpem select people.csv --parties parties.toml --components 1..8 --folds 5 --plot select.png`
    """
    if folds == 1:
        raise TableError("expected --folds of 2 or more, or 0 for none, got 1")
    sizes = _range(components)
    form = Form(header=header, separator=separator, decimal=decimal, encoding=encoding)
    check_choices(covariance=(covariance, COVARIANCES))
    check_outputs([output], tables, endings=TABLES)
    check_outputs([picture], tables, endings=PICTURES)
    check_can_draw(picture)
    families = all_families(family, parties)
    model = unfitted(covariance, shrinkage, standardize, starts, seed, families)
    model.set_params(tol=tol, max_iter=max_iter, reg_covar=reg_covar).check_arguments()
    rows, partition = gather(tables, id_column, parties, ignore, form, codes=codes_of(families))
    found = _compare_sizes(model.set_params(partition=partition), rows, sizes, folds)
    if output is not None:
        write(output, {name: [one[name] for one in found] for name in found[0]})
    if picture is not None:
        from vpem.figures import plot_selection, save_figure

        save_figure(plot_selection(found), picture)
        say(f"picture: {picture}")


def _compare_sizes(model: VerticalMixture, rows: Rows, sizes: list[int], folds: int) -> list[dict[str, Any]]:
    """Fit with each number of components, and print how they compare; a row of numbers for each."""
    from sklearn.base import clone

    present = table_of(model, rows, ~np.isnan(rows.values).all(axis=1))
    found: list[dict[str, Any]] = []
    collapsed: dict[int, CollapsedComponentError] = {}
    interrupted, best = False, model
    for size in sizes:
        own = clone(model).set_params(n_components=size)
        try:
            interrupted = fit_model(own, rows, quiet=size != sizes[0])
            if interrupted:
                err.print(f"ended at {size} components; what follows is of smaller ones")
                break
            found.append(_numbers(own, model, rows, present, folds))
            if found[-1]["bic"] == min(one["bic"] for one in found if not one["collapsed"]):
                best = own
        except vpem.CollapsedComponentError as error:  # other numbers of components may do
            collapsed[size] = error
            known = dict.fromkeys([*NAMES, "log_likelihood", *(["held_out"] if folds else [])])
            found.append({"components": size, **known, "collapsed": True})
    if interrupted and len(found) == len(collapsed):
        raise typer.Exit(INTERRUPTED)
    _compare(found, collapsed)
    _tell_pooling(best, present)
    return found


def _tell_pooling(best: VerticalMixture, present: Any) -> None:
    """What parties would gain by pooling columns, where that is worth a word."""
    gains = best._pooling_gains(present) if hasattr(best, "weights_") else {}
    roots = [str(hub.root) for hub in best.hubs_] if gains else []
    for one, other in sorted(gains, key=lambda pair: -gains[pair])[:MOST_PAIRS]:
        if gains[one, other] >= WORTH_POOLING:
            gain = f"{gains[one, other]:.2f} nats per row, at least"
            say(plain(f"pooling {roots[one]} and {roots[other]} (--hops): {gain}, by the contributions alone"))


def _numbers(fitted: VerticalMixture, model: VerticalMixture, rows: Rows, present: Any, folds: int) -> dict[str, Any]:
    """What is said of one number of components."""
    if not fitted._has_families:
        del fitted.feature_names_in_
    criteria = {name: getattr(fitted, name)(present) for name in NAMES}
    found = {"components": len(fitted.weights_), **criteria, "log_likelihood": fitted.score(present)}
    if folds:
        found["held_out"] = _held_out(fitted, model, rows, folds)
    return {**found, "collapsed": False}


def _held_out(fitted: VerticalMixture, model: VerticalMixture, rows: Rows, n_folds: int) -> float:
    """Log-likelihood per row of rows that the fit has not seen, each held out once.

    Families and categories are those of the whole columns, found at their party, which keeps them: no other party
    learns more than from one fit. So a category that a part of the rows lacks is still one, with the probability that
    smoothing gives it.
    """
    from sklearn.base import clone

    from vpem.core.decisions.initial import shared_folds
    from vpem.estimators.families import Families

    present = np.flatnonzero(~np.isnan(rows.values).all(axis=1))
    if len(present) < 2 * n_folds:
        raise TableError(f"expected at least {2 * n_folds} rows for {n_folds} folds, got {len(present)}")
    numbers = shared_folds(int(model.random_state), len(present), n_folds)
    own = clone(model).set_params(n_components=len(fitted.weights_))
    known = Families(fitted._texts, fitted._coding) if own._has_families else None
    total = 0.0
    for fold in range(n_folds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vpem.FitWarning)
            kept = clone(own)
            kept._known = known
            kept.fit(table_of(own, rows, present[numbers != fold]))
        held = present[numbers == fold]
        total += kept.score(table_of(own, rows, held)) * len(held)
    return total / len(present)


def _compare(found: list[dict[str, Any]], collapsed: dict[int, CollapsedComponentError]) -> None:
    """Print all numbers, and which number of components is best."""
    from vpem.verdict import best_at_edge

    reason = next((f"with {count(size, 'component')}, {error}" for size, error in collapsed.items()), "")
    fitted = [one for one in found if not one["collapsed"]]
    if not fitted:
        raise TableError(f"expected a fit for at least one number of components, got none: {reason}")
    best = {name: min(fitted, key=lambda one: one[name])["components"] for name in NAMES}
    has_folds = "held_out" in found[0]
    if has_folds:
        best["held_out"] = max(fitted, key=lambda one: one["held_out"])["components"]
    table = Table("components", *NAMES.values(), "log-lik./row", *(["held out"] if has_folds else []), box=None)
    for one in found:
        size = one["components"]
        if one["collapsed"]:
            table.add_row(str(size), "collapsed")
            continue
        marks = {name: " *" if best[name] == size else "  " for name in best}
        held = [f"{one['held_out']:.4f}{marks['held_out']}"] if has_folds else []
        criteria = [f"{one[name]:,.1f}{marks[name]}" for name in NAMES]
        table.add_row(str(size), *criteria, f"{one['log_likelihood']:.4f}", *held)
    out.print(table, highlight=False)
    if reason:
        err.print(f"[yellow]note:[/yellow] {plain(reason)}", highlight=False)
    more = f"; by held-out rows: {best['held_out']}" if has_folds else ""
    say(f"best by BIC: {count(best['bic'], 'component')}; by ICL: {best['icl']}; by AIC: {best['aic']}{more}")
    sizes = [one["components"] for one in fitted]
    show_findings(best_at_edge(sizes, best["bic"]))
    if has_folds and best["held_out"] != best["bic"]:
        show_findings(best_at_edge(sizes, best["held_out"], "held-out rows"))


def _range(text: str) -> list[int]:
    first, _, last = text.partition("..")
    try:
        sizes = list(range(int(first), int(last or first) + 1))
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise TableError(f"expected --components as 1..10 or as one number, got {text!r}")
    return sizes
