"""Commands that fit a model to tables and score new rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import vpem
from vpem.cli.app import (
    COVARIANCES,
    INTERRUPTED,
    NOT_TRUSTED,
    Accelerate,
    BatchSize,
    Covariance,
    Dates,
    Decimal,
    Encoding,
    Family,
    Gaps,
    Graph,
    Header,
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
    Separator,
    Shrinkage,
    Standardize,
    Starts,
    Strict,
    Tables,
    Title,
    Tol,
    Way,
    app,
    err,
    of_model,
    of_results,
    plain,
    plainly,
    say,
)
from vpem.cli.cluster_text import describe_certainty, describe_labels, describe_unusual
from vpem.cli.gathering import (
    check_choices,
    columns_of,
    gather,
    make_form,
    number_of_rounds,
    said_dates,
    said_families,
)
from vpem.cli.join_command import Insecure, OwnFamily, OwnFile, Server, Without, predict_together
from vpem.cli.labels import read_classes
from vpem.cli.model_summary import describe
from vpem.cli.progress_bar import FitBar
from vpem.core.settings import STARTS
from vpem.files import check_outputs
from vpem.reading import TABLES, TableError, free_name, write
from vpem.reading.date_parts import part_families
from vpem.study import check_graph, read_families, read_graph
from vpem.summations import WAYS, named_summation

STARTS_THAT_SERVE = 5
"""Default number of starts: the best of five finds five clear clusters 20 of 20 times; see
`docs/reference/program.md`."""

if TYPE_CHECKING:
    from vpem import VerticalMixture
    from vpem.core.network.summation import Summation
    from vpem.reading import Rows
    from vpem.reading.category_parsing import Codes


def fit_model(model: VerticalMixture, source: Any, *, quiet: bool = False) -> bool:
    """Fit a table or a `Source` with a progress bar; return True if Ctrl-C ended the fit early."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vpem.FitWarning)  # the verdict gives more detail
        with FitBar(err, model.max_iter, model.n_init, quiet=quiet) as bar:
            model.set_params(callback=bar).fit(source)
            model.set_params(callback=None)
    return bar.interrupted


def table_of(model: VerticalMixture, rows: Rows, present: Any = slice(None)) -> Any:
    """Return rows as the model's input: an array or, if it has families, a table with the words of the codes."""
    if isinstance(model, vpem.VerticalGaussianMixture):
        return rows.values[present]
    from vpem.tables import CodedTable

    return CodedTable(rows.values[present], rows.names, rows.words)


@app.command()
@plainly
def fit(
    tables: Tables,
    components: Annotated[str, of_model("--components", "-k", metavar="K", help="Number of components.")],
    parties: Parties = None,
    id_column: Id = None,
    ignore: Ignore = [],  # noqa: B006 (typer's way to say: none)
    family: Family = [],  # noqa: B006
    dates: Dates = [],  # noqa: B006
    header: Header = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    gaps: Gaps = [],  # noqa: B006
    graph: Graph = "star",
    hops: Hops = 0,
    way: Way = None,
    rounds: Rounds = None,
    covariance: Covariance = "full",
    batch_size: BatchSize = None,
    init: Init = "kmeans",
    starts: Starts = STARTS_THAT_SERVE,
    tol: Tol = 1e-3,
    max_iter: MaxIter = 100,
    accelerate: Accelerate = None,
    reg_covar: RegCovar = 1e-6,
    shrinkage: Shrinkage = "auto",
    standardize: Standardize = None,
    seed: Seed = 0,
    label: Label = None,
    output: Annotated[Path, of_results("--out", "-o", metavar="FILE", help="File for the model.")] = Path(
        "model.vpem"
    ),
    report: Annotated[Path | None, of_results(metavar="FILE", help="File for a report, a page of HTML.")] = None,
    title: Title = None,
    strict: Strict = False,
) -> None:
    """Fit a mixture to one table, or to several parties' tables joined by an id, as in these examples.

    - `vpem fit people.csv --parties parties.toml -k 3 --out model.vpem --report report.html`
    - `vpem fit bank.csv shop.parquet --id customer -k 4 --graph ring --sum differences`
    - `vpem fit stations/*.csv.gz --id year,month,day,hour --ignore wind,name -k 4 --report air.html`
    - `vpem fit sensors.parquet -k 2 --graph links.txt --hops 1` (every column is a party)
    - `vpem fit bank.csv shop.csv --id customer -k 4 --family auto --family spent=zeros` (words, counts, amounts)

    Gaps and rows that a party lacks are fine. Ctrl-C ends the fit and saves the best model so far.
    """
    from vpem.estimators.joined import Source

    days = said_dates(dates)
    form = make_form(header, separator, decimal, encoding, gaps, days)
    check_choices(covariance=(covariance, COVARIANCES), init=(init, STARTS))
    check_outputs([output, report], [*tables, *([parties] if parties else [])])
    families = all_families(family, parties, days)
    model = unfitted(covariance, shrinkage, standardize, starts, seed, families)
    model.set_params(
        n_components=_number(components, tables), tol=tol, max_iter=max_iter, reg_covar=reg_covar, init_params=init
    )
    model.set_params(hops=hops, batch_size=batch_size, accelerate=accelerate)
    model.set_params(summation=_summation(graph, way, rounds)).check_arguments()
    classes = None if label is None else read_classes(tables, id_column, parties, label, form)
    unused = [*ignore, *([] if label is None else [label])]
    rows, partition = gather(
        tables, id_column, parties, unused, form, lambda names: read_graph(graph, names), codes=codes_of(families)
    )
    model.set_params(partition=partition, graph=read_graph(graph, list(partition)))
    _say_beforehand(model, rows)
    on = None if rows.parties is None else tuple(rows.keys or ())  # lets the model accept such tables in Python
    table = table_of(model, rows, ~np.isnan(rows.values).all(axis=1))
    interrupted = fit_model(model, Source(table=table, on=on, rows=rows, gaps=form.gaps or {}))
    vpem.save(model, output)
    describe(model.fitted_)
    describe_labels(model.fitted_, rows, classes)
    say(f"model: {output}")
    _report(model, rows, report, title or _title(tables, components))
    _end(model, interrupted=interrupted, strict=strict)


def _end(model: VerticalMixture, *, interrupted: bool, strict: bool) -> None:
    """Exit with the code for an interrupt or, with `strict`, a red verdict."""
    from vpem.verdict import colour

    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if strict and colour(model.verdict_) == "red":
        raise typer.Exit(NOT_TRUSTED)


def unfitted(
    covariance: str, shrinkage: str, standardize: bool | None, starts: int, seed: int, families: str | dict[str, str]
) -> VerticalMixture:
    """Create a model with the options that `fit` and `select` share."""
    arguments: dict[str, Any] = {
        "covariance_type": covariance,
        "shrinkage": _shrinkage(shrinkage),
        "standardize": covariance != "spherical" if standardize is None else standardize,
        "n_init": starts,
        "random_state": seed,
    }
    if not families:
        return vpem.VerticalGaussianMixture(**arguments)
    return vpem.VerticalMixture(families=families, **arguments)


def all_families(given: list[str], parties: Path | None, dates: Mapping[str, str]) -> str | dict[str, str]:
    """Return the families from --family and the parties file: column to family, "auto", or {} if all are Gaussian.

    If there are families, columns of dates get the families of their numbers.
    """
    known = {} if parties is None else read_families(parties)
    if not given and not known:
        return {}
    return {**part_families(dates), **known, **said_families(given)} or "auto"


def codes_of(families: str | dict[str, str]) -> Codes:
    """Return the columns whose words are encoded."""
    from vpem.estimators.family_choice import said_categories
    from vpem.reading.category_parsing import Said

    return bool(families) and Said(said_categories(families))


def _say_beforehand(model: VerticalMixture, rows: Rows) -> None:
    """Print the findings about the summation that are known before the fit."""
    from vpem.verdict import in_program

    for finding in map(in_program, model.about_the_sum(rows.values.shape[1])):
        err.print(f"[yellow]note:[/yellow] {plain(finding.sentence)} Try: {plain(finding.remedy)}.", highlight=False)


def _report(model: VerticalMixture, rows: Rows, path: Path | None, title: str) -> None:
    if path is None:
        return
    from vpem.report.page import write_page
    from vpem.verdict import in_program

    fitted = model.fitted_
    write_page(fitted, fitted.code(rows.values), path, title=title, wording=in_program)
    say(f"report: {path}")


@app.command()
@plainly
def predict(
    model: Annotated[Path, typer.Argument(help="A model that vpem fit wrote; or a study, with --party.")],
    tables: Annotated[list[Path] | None, typer.Argument(help="New rows, as for vpem fit.")] = None,
    id_column: Id = None,
    header: Header = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    gaps: Gaps = [],  # noqa: B006
    unusual: Annotated[int, of_results(metavar="N", min=0, help="Also list the N rows that fit worst.")] = 0,
    output: Annotated[Path, of_results("--out", "-o", metavar="FILE", help="CSV or Parquet.")] = Path("scores.csv"),
    party: OwnFile = None,
    server: Server = False,
    n_rows: Annotated[
        int | None, typer.Option("--rows", metavar="N", help="For the server of a star: number of new rows.")
    ] = None,
    insecure: Insecure = False,
    family: OwnFamily = [],  # noqa: B006 (typer's way to say: none)
    without: Without = [],  # noqa: B006
) -> None:
    """Give every row its component, each component's probability, and its log-density, as in these examples.

    - `vpem predict model.vpem people.csv --id person -o scores.csv`
    - `vpem predict study.toml --party clinic.toml new.csv` (run by every party, with its columns of the same rows)
    """
    from vpem.meaning import make_certainty
    from vpem.model.evaluation import evaluate_all, unusual_rows
    from vpem.models import load_fitted

    tables = tables or []
    if model.suffix == ".toml":
        check_outputs([output], [model, *tables], endings=TABLES)
        who: Any = {"server": server, "n_rows": n_rows, "insecure": insecure, "without": without, "family": family}
        predict_together(model, tables, party, output, **who)
        return
    if not tables:
        raise TableError("expected at least one table of new rows, got none")
    check_outputs([output], [model, *tables], endings=TABLES)
    form = make_form(header, separator, decimal, encoding, gaps)
    fitted = load_fitted(model)
    values, ids, absent = columns_of(fitted, tables, id_column, form)
    if absent:
        err.print(plain(f"note: nothing of {', '.join(absent)} in the tables; all their values count as missing"))
    codes = fitted.code(values)
    probabilities, log_densities, is_there = evaluate_all(fitted, codes)
    found: dict[str, Any] = {"component": probabilities.argmax(axis=1), "log_density": log_densities}
    found |= {f"probability_{number}": own for number, own in enumerate(probabilities.T)}
    write(output, {**{free_name(name, found): texts for name, texts in (ids or {}).items()}, **found})
    if is_there.any():
        describe_certainty(fitted, make_certainty(probabilities[is_there]))
    if unusual:
        describe_unusual(unusual_rows(fitted, codes, unusual), fitted.column_names, ids)
    say(f"{len(values):,} rows: {output}")


def _number(components: str, tables: list[Path]) -> int:
    """Parse a single number of components."""
    if components.strip().isdecimal() and int(components) > 0:
        return int(components)
    several = f"; to compare several, vpem select {tables[0]} -k {components}" if set(components) & set(",.") else ""
    raise TableError(f"expected --components to be a whole number, 1 or more, got {components!r}{several}")


def _title(tables: list[Path], components: str) -> str:
    names = [path.name for path in tables]
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more tables"]
    return f"{', '.join(shown)}, K={components}"


def _summation(graph: str, way: str | None, rounds: str | None) -> Summation:
    """Create the summation from the options."""
    check_graph(graph)
    if way is None:
        way = "exact" if rounds is None else "consensus"
    check_choices(sum=(way, list(WAYS)))
    if way != "consensus" and rounds is not None:
        raise TableError(f"expected --rounds with --sum consensus only, got --sum {way}")
    return named_summation(way, number_of_rounds(rounds), is_star=graph == "star")


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
