"""Commands that work on tables."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

import vpem
from vpem.cli.app import (
    INTERRUPTED,
    NOT_TRUSTED,
    PICTURES,
    BatchSize,
    Covariance,
    Graph,
    Hops,
    Id,
    Ignore,
    Init,
    Label,
    MaxIter,
    Parties,
    RegCovar,
    Rounds,
    Seed,
    Shrinkage,
    Standardize,
    Starts,
    Strict,
    Tables,
    Tol,
    app,
    check_can_draw,
    err,
    free_name,
    out,
    plain,
    plainly,
    say,
)
from vpem.cli.clusters import describe_certainty, describe_labels, describe_unusual
from vpem.cli.labels import read_classes
from vpem.cli.progress import FitBar
from vpem.cli.summary import count, describe, show_findings
from vpem.files import check_outputs
from vpem.meaning import make_certainty
from vpem.reading import TABLES, Rows, TableError, check_known, column_names, read, read_joined, write
from vpem.study import read_graph, read_parties
from vpem.verdict import FitWarning, best_at_edge, colour

STARTS_THAT_SERVE = 5
"""Starts of which the best finds five clear clusters 20 of 20 times; see `docs/reference/program.md`."""

if TYPE_CHECKING:
    from vpem import CollapsedComponentError, VerticalGaussianMixture, VerticalMixture


def gather(tables: list[Path], id_column: str | None, parties: Path | None, ignore: list[str]) -> tuple[Rows, Any]:
    """Rows of one table or of several, and which columns are whose."""
    partition: Any = None
    if len(tables) > 1:
        rows = _gather_joined(tables, id_column, parties, ignore)
        partition = rows.parties
    else:
        columns = None
        if parties is not None:
            partition = read_parties(parties)
            columns = [name for own in partition.values() for name in own]
        elif ignore:
            columns = _all_but(tables[0], id_column, ignore)
        rows = read(tables[0], id_column=id_column, columns=columns)
    if partition is None:
        partition = {name: [name] for name in rows.names}
    numbers = {name: number for number, name in enumerate(rows.names)}
    return rows, {party: [numbers[name] for name in own] for party, own in partition.items() if own}


def _gather_joined(tables: list[Path], id_column: str | None, parties: Path | None, ignore: list[str]) -> Rows:
    if id_column is None:
        raise TableError("expected --id with several tables, got none; which column names the rows?")
    if parties is not None:
        raise TableError("expected no --parties with several tables: each file is a party of its own")
    known = [name for path in tables for column in column_names(path) for name in (column, f"{path.stem}.{column}")]
    for name in ignore:
        check_known(name, known, "--ignore: column")
    return read_joined(tables, id_column, lambda party, name: name not in ignore and f"{party}.{name}" not in ignore)


def _all_but(path: Path, id_column: str | None, ignore: list[str]) -> list[str]:
    known = column_names(path)
    for name in ignore:
        check_known(name, known, f"{path}: column")
    return [name for name in known if name not in (*ignore, id_column)]


def fit_model(model: VerticalGaussianMixture, rows: Rows, *, quiet: bool = False) -> bool:
    """Fit with a bar; whether Ctrl-C ended it early."""
    present = ~np.isnan(rows.values).all(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the verdict tells more
        with FitBar(err, model.max_iter, model.n_init, quiet=quiet) as bar:
            model.set_params(callback=bar).fit(rows.values[present])
            model.set_params(callback=None)
    model.feature_names_in_ = np.array(rows.names, dtype=object)
    model._judge(model._facts)  # with the columns' names
    return bar.interrupted


@app.command()
@plainly
def fit(
    tables: Tables,
    components: Annotated[int, typer.Option("--components", "-k", help="Number of components.")],
    parties: Parties = None,
    id_column: Id = None,
    ignore: Ignore = [],  # noqa: B006 (typer's way to say: none)
    graph: Graph = "star",
    hops: Hops = 0,
    rounds: Rounds = None,
    covariance: Covariance = "full",
    batch_size: BatchSize = None,
    init: Init = "kmeans",
    starts: Starts = STARTS_THAT_SERVE,
    tol: Tol = 1e-3,
    max_iter: MaxIter = 500,
    reg_covar: RegCovar = 1e-6,
    shrinkage: Shrinkage = "auto",
    standardize: Standardize = None,
    seed: Seed = 0,
    label: Label = None,
    output: Annotated[Path, typer.Option("--out", "-o", help="File for the model.")] = Path("model.vpem"),
    report: Annotated[Path | None, typer.Option(help="File for a report, a page of HTML.")] = None,
    strict: Strict = False,
) -> None:
    """Fit a mixture to one table, or to several parties' tables joined by an id.

    For example:

    - `vpem fit people.csv --parties parties.toml -k 3 --out model.vpem --report report.html`
    - `vpem fit bank.csv shop.parquet --id customer -k 4 --graph ring --rounds 50`
    - `vpem fit sensors.parquet -k 2 --graph links.txt --hops 1` (every column is a party)

    Gaps and rows that a party lacks are fine. Ctrl-C ends the fit and saves the best model so far.
    """
    amount = _shrinkage(shrinkage)
    check_outputs([output, report], [*tables, *([parties] if parties else [])])
    classes = None if label is None else read_classes(tables, id_column, parties, label)
    rows, partition = gather(tables, id_column, parties, [*ignore, *([] if label is None else [label])])
    model = vpem.VerticalGaussianMixture(
        components,
        partition=partition,
        graph=read_graph(graph, list(partition)),
        hops=hops,
        summation=None if graph == "star" else vpem.Consensus(rounds),
        covariance_type=covariance,
        batch_size=batch_size,
        init_params=init,
        n_init=starts,
        tol=tol,
        max_iter=max_iter,
        reg_covar=reg_covar,
        shrinkage=amount,
        standardize=covariance != "spherical" if standardize is None else standardize,
        random_state=seed,
    )
    _say_beforehand(model, rows)
    interrupted = fit_model(model, rows)
    vpem.save(model, output)
    describe(model)
    if classes is not None:
        describe_labels(model, rows, classes)
    say(f"model: {output}")
    if report is not None:
        from vpem.report import write_report

        write_report(model, rows.values, report, title=f"{', '.join(path.name for path in tables)}, K={components}")
        say(f"report: {report}")
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if strict and colour(model.verdict_) == "red":
        raise typer.Exit(NOT_TRUSTED)


def _say_beforehand(model: VerticalGaussianMixture, rows: Rows) -> None:
    """What is known of the sums before anything is fitted."""
    for finding in model.about_the_sum(rows.values.shape[1]):
        err.print(f"[yellow]note:[/yellow] {plain(finding.sentence)} Try: {plain(finding.remedy)}.", highlight=False)


@app.command()
@plainly
def predict(
    model: Annotated[Path, typer.Argument(help="A model that vpem fit wrote.")],
    tables: Tables,
    id_column: Id = None,
    unusual: Annotated[int, typer.Option(min=0, help="Also name so many rows that fit worst.")] = 0,
    output: Annotated[Path, typer.Option("--out", "-o", help="CSV or Parquet.")] = Path("scores.csv"),
) -> None:
    """Give every row its component, how sure that is, and its log-density.

    Example: `vpem predict model.vpem people.csv --id person -o scores.csv`
    """
    check_outputs([output], [model, *tables], endings=TABLES)
    fitted = vpem.load(model)
    names = fitted._column_names()
    values, ids, absent = columns_of(fitted, tables, id_column)
    if absent:
        err.print(plain(f"note: nothing of {', '.join(absent)} in the tables; all their values count as missing"))
    sure = fitted.predict_proba(values)
    found: dict[str, Any] = {"component": sure.argmax(axis=1), "log_density": fitted.score_samples(values)}
    found |= {f"probability_{number}": sure[:, number] for number in range(sure.shape[1])}
    write(output, {**({} if ids is None else {free_name(str(id_column), found): ids}), **found})
    is_there = ~np.isnan(values).all(axis=1)
    if is_there.any():
        describe_certainty(make_certainty(sure[is_there]))
    if unusual:
        describe_unusual(fitted._unusual_rows(values, unusual), names, ids)
    say(f"{len(values):,} rows: {output}")


def columns_of(
    fitted: VerticalMixture, tables: list[Path], id_column: str | None
) -> tuple[Any, list[str] | None, list[str]]:
    """The model's columns in its order, as far as the tables have them; the ids; parties that are not there."""
    wanted = [str(name) for name in getattr(fitted, "feature_names_in_", [])]
    if hasattr(fitted, "feature_names_in_"):
        del fitted.feature_names_in_
    if len(tables) > 1:
        if id_column is None:
            raise TableError("expected --id with several tables, got none; which column names the rows?")
        rows = read_joined(tables, id_column, lambda party, name: name in wanted or f"{party}.{name}" in wanted)
    else:
        own = [name for name in column_names(tables[0]) if name != id_column]
        known = [name for name in own if name in wanted or f"{tables[0].stem}.{name}" in wanted]
        if wanted and not known:
            check_known(wanted[0], own, f"{tables[0]}: the model's column")
        rows = read(tables[0], id_column=id_column, columns=known if wanted else None)
    if not wanted:
        return rows.values, rows.ids, []
    place: dict[str, int] = {}
    for party, own in (rows.parties or {tables[0].stem: rows.names}).items():
        for name in own:
            place.setdefault(name if name in wanted else f"{party}.{name}", rows.names.index(name))
    values, absent = np.full((len(rows.values), len(wanted)), np.nan), []
    for owner, held in fitted.partition_.items():
        there = [column for column in held if wanted[column] in place]
        if not there:
            absent.append(str(owner))
        for column in held if there else []:
            check_known(wanted[column], list(place), f"the model's column (of {owner})")
            values[:, column] = rows.values[:, place[wanted[column]]]
    return values, rows.ids, absent


@app.command()
@plainly
def select(
    tables: Tables,
    components: Annotated[str, typer.Option("--components", "-k", help="From and to, as 1..10.")] = "1..10",
    parties: Parties = None,
    id_column: Id = None,
    ignore: Ignore = [],  # noqa: B006 (typer's way to say: none)
    covariance: Covariance = "full",
    starts: Starts = STARTS_THAT_SERVE,
    tol: Tol = 1e-3,
    max_iter: MaxIter = 500,
    reg_covar: RegCovar = 1e-6,
    shrinkage: Shrinkage = "auto",
    standardize: Standardize = None,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="CSV or Parquet with all numbers.")] = None,
    picture: Annotated[Path | None, typer.Option("--plot", help="Picture, .png or .svg.")] = None,
) -> None:
    """Compare numbers of components by BIC and AIC; the smaller, the better.

    A number of components whose fit collapses gets a row that says so.

    Example: `vpem select people.csv --parties parties.toml --components 1..8 --plot select.png`
    """
    sizes, amount = _range(components), _shrinkage(shrinkage)
    check_outputs([output], tables, endings=TABLES)
    check_outputs([picture], tables, endings=PICTURES)
    check_can_draw(picture)
    rows, partition = gather(tables, id_column, parties, ignore)
    present = rows.values[~np.isnan(rows.values).all(axis=1)]
    found: list[dict[str, Any]] = []
    collapsed: dict[int, CollapsedComponentError] = {}
    interrupted = False
    for size in sizes:
        model = vpem.VerticalGaussianMixture(
            size,
            partition=partition,
            covariance_type=covariance,
            n_init=starts,
            tol=tol,
            max_iter=max_iter,
            reg_covar=reg_covar,
            shrinkage=amount,
            standardize=covariance != "spherical" if standardize is None else standardize,
            random_state=seed,
        )
        try:
            interrupted = fit_model(model, rows, quiet=size != sizes[0])
        except vpem.CollapsedComponentError as error:  # other numbers of components may do
            collapsed[size] = error
            found.append({"components": size, "bic": None, "aic": None, "log_likelihood": None, "collapsed": True})
            continue
        if interrupted:
            err.print(f"ended at {size} components; what follows is of smaller ones")
            break
        del model.feature_names_in_
        found.append(
            {
                "components": size,
                "bic": model.bic(present),
                "aic": model.aic(present),
                "log_likelihood": model.score(present),
                "collapsed": False,
            }
        )
    if interrupted and len(found) == len(collapsed):
        raise typer.Exit(INTERRUPTED)
    _compare(found, collapsed)
    if output is not None:
        write(output, {name: [one[name] for one in found] for name in found[0]})
    if picture is not None:
        from vpem.figures import plot_selection, save_figure

        save_figure(plot_selection(found), picture)
        say(f"picture: {picture}")


def _compare(found: list[dict[str, Any]], collapsed: dict[int, CollapsedComponentError]) -> None:
    """Print all numbers, and which number of components is best."""
    reason = next((f"with {count(size, 'component')}, {error}" for size, error in collapsed.items()), "")
    fitted = [one for one in found if not one["collapsed"]]
    if not fitted:
        raise TableError(f"expected a fit for at least one number of components, got none: {reason}")
    best = {name: min(fitted, key=lambda one: one[name])["components"] for name in ("bic", "aic")}
    table = Table("components", "BIC", "AIC", "log-lik./row", box=None)
    for one in found:
        size = one["components"]
        if one["collapsed"]:
            table.add_row(str(size), "collapsed")
            continue
        marks = [f"{one[name]:,.1f}" + (" *" if best[name] == size else "  ") for name in ("bic", "aic")]
        table.add_row(str(size), *marks, f"{one['log_likelihood']:.4f}")
    out.print(table, highlight=False)
    if reason:
        err.print(f"[yellow]note:[/yellow] {plain(reason)}", highlight=False)
    say(f"best by BIC: {count(best['bic'], 'component')}; by AIC: {best['aic']}")
    show_findings(best_at_edge([one["components"] for one in fitted], best["bic"]))


def _range(text: str) -> list[int]:
    first, _, last = text.partition("..")
    try:
        sizes = list(range(int(first), int(last or first) + 1))
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise TableError(f"expected --components as 1..10 or as one number, got {text!r}")
    return sizes


def _shrinkage(text: str) -> float | str | None:
    if text in ("auto", "oas", "none"):
        return None if text == "none" else text
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount <= 1:
        raise TableError(f"expected --shrinkage to be auto, oas, none or a number from 0 to 1, got {text!r}")
    return amount
