"""Commands that impute missing values and compare models."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

import vpem
from vpem.cli.app import (
    Decimal,
    Encoding,
    Gaps,
    Header,
    Id,
    Separator,
    Tables,
    app,
    err,
    out,
    plain,
    plainly,
    say,
)
from vpem.cli.gathering import columns_of, make_form
from vpem.cli.model_summary import count
from vpem.files import check_outputs, why_no_file
from vpem.reading import TABLES, Form, TableError, free_name, write
from vpem.reading.workbooks import divide_path
from vpem.words import as_bytes

if TYPE_CHECKING:
    from vpem import VerticalMixture
    from vpem.meaning import Comparison

COLOURS = {
    "red": "[bold red]red[/bold red]",
    "amber": "[yellow]amber[/yellow]",
    "green": "[green]green[/green]",
    None: "not judged",
}


@app.command()
@plainly
def impute(
    model: Annotated[Path, typer.Argument(help="A model that vpem fit wrote.")],
    tables: Tables,
    id_column: Id = None,
    header: Header = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    gaps: Gaps = [],  # noqa: B006
    deviations: Annotated[
        bool, typer.Option("--deviations", help="Add columns with the standard deviations of imputed values.")
    ] = False,
    output: Annotated[Path, typer.Option("--out", "-o", help="CSV or Parquet.")] = Path("imputed.csv"),
) -> None:
    """Fill the gaps of tables with the values that a model expects, given the rest of the row.

    All columns of a party without a table are filled in.

    Example: `vpem impute model.vpem people.csv --id person --deviations -o imputed.csv`
    """
    from vpem.model.evaluation import impute as fill
    from vpem.model.evaluation import in_words
    from vpem.models import load_fitted

    check_outputs([output], [model, *tables], endings=TABLES)
    form = make_form(header, separator, decimal, encoding, gaps)
    fitted = load_fitted(model)
    names = fitted.column_names
    values, ids, absent = columns_of(fitted, tables, id_column, form)
    if absent:
        err.print(plain(f"note: nothing of {', '.join(absent)} in the tables; all their values are filled in"))
    filled, spread = fill(fitted, fitted.code(values))
    columns: dict[str, Any] = {free_name(name, names): texts for name, texts in (ids or {}).items()}
    columns |= in_words(fitted, filled)
    if deviations:
        taken = list(columns)
        columns |= {free_name(f"{name}_deviation", taken): spread[:, place] for place, name in enumerate(names)}
    write(output, columns)
    n_gaps = int(np.isnan(values).sum())
    say(f"{count(n_gaps, 'gap')} of {values.size:,} values filled in, {count(len(values), 'row')}: {output}")


@app.command()
@plainly
def compare(
    paths: Annotated[list[Path], typer.Argument(help="Models that vpem fit wrote, then tables with their columns.")],
    id_column: Id = None,
    header: Header = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    gaps: Gaps = [],  # noqa: B006
    report: Annotated[Path | None, typer.Option(help="File for the comparison, a page of HTML.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page; the models' names if not given.")] = None,
) -> None:
    """Compare models side by side; with tables, on the same rows.

    Without tables, the log-likelihood per row is that of each model's own fit. With tables, it is that of their
    rows, with BIC and AIC (smaller is better) and the agreement of the labels (adjusted Rand index, 1: the same).

    Example: `vpem compare star.vpem ring.vpem people.csv --report compare.html`
    """
    from vpem.meaning import compare_models
    from vpem.verdict import in_program

    form = make_form(header, separator, decimal, encoding, gaps)
    check_outputs([report], paths)
    files, tables = _divide(paths)
    stems = [path.stem for path in files]
    names = stems if len(set(stems)) == len(stems) else list(map(str, files))
    models = dict(zip(names, (vpem.load(path) for path in files), strict=True))
    found = compare_models(models, _same_rows(models, tables, id_column, form) if tables else None)
    found = replace(found, findings=[[*map(in_program, own)] for own in found.findings])
    _print_facts(found)
    _print_agreement(found)
    if found.refusal:
        err.print(f"[yellow]note:[/yellow] {plain(found.refusal)}", highlight=False)
    if not found.same_columns:
        err.print("[yellow]note:[/yellow] the models have different columns: their log-likelihoods do not compare")
    if report is not None:
        from vpem.report import write_comparison

        write_comparison(found, report, title=title or ", ".join(found.names))
        say(f"report: {report}")


def _divide(paths: list[Path]) -> tuple[list[Path], list[Path]]:
    """Split paths into models and tables."""
    for path in paths:
        if not divide_path(path)[0].is_file():
            raise TableError(f"{path}: expected a model or a table, {why_no_file(path)}")
    is_model = [path.suffix == ".vpem" or _holds_model(path) for path in paths]
    models = [path for path, model in zip(paths, is_model, strict=True) if model]
    if len(set(models)) < 2:
        raise TableError(f"expected two different models or more, got {', '.join(map(str, models)) or 'none'}")
    return list(dict.fromkeys(models)), [path for path, model in zip(paths, is_model, strict=True) if not model]


def _holds_model(path: Path) -> bool:
    """True if a file is an archive that holds a model; workbooks are archives too."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return "model.json" in archive.namelist()


def _same_rows(
    models: dict[str, VerticalMixture], tables: list[Path], id_column: str | None, form: Form
) -> list[Any]:
    """Return each model's columns for the rows shared by all models, in the same order."""
    from vpem.reading import look_at_all

    sources, parts = look_at_all(tables, form), []
    told: set[str] = set()
    for model in models.values():
        wanted = set(model.fitted_.column_names)
        own = [
            source.path
            for source in sources
            if len(tables) == 1 or any({name, f"{source.party}.{name}"} & wanted for name in source.names)
        ]
        values, ids, _ = columns_of(model.fitted_, own or tables, id_column, form, told)
        parts.append((values, None if ids is None else list(zip(*ids.values(), strict=True))))
    if any(ids is None for _, ids in parts):
        return [values for values, _ in parts]
    places = [{one: number for number, one in enumerate(ids or ())} for _, ids in parts]
    shared = [one for one in places[0] if all(one in place for place in places)]
    return [values[[place[one] for one in shared]] for (values, _), place in zip(parts, places, strict=True)]


def _print_facts(found: Comparison) -> None:
    on_rows = found.agreement is not None and not found.refusal
    heads = ["model", "verdict", "K", *([] if found.same_columns else ["columns"]), "iterations", "log-lik."]
    table = Table(*heads, *(["BIC", "AIC"] if on_rows else []), "sent", box=None)
    # Compare rounded values, so that models that differ by rounding errors are all marked as best.
    best = {name: f"{min(one[name] for one in found.facts):,.1f}" for name in ("bic", "aic")} if on_rows else {}
    for name, one in zip(found.names, found.facts, strict=True):
        iterations = f"{one['iterations']}" + ("" if one["converged"] else " (not converged)")
        likelihood = one["log_likelihood" if on_rows else "fit_log_likelihood"]
        criteria = [text + (" *" if text == best[key] else "  ") for key in best for text in [f"{one[key]:,.1f}"]]
        sizes = [str(one["components"]), *([] if found.same_columns else [str(one["columns"])])]
        fit = iterations, f"{likelihood:.4f}"
        table.add_row(plain(name), COLOURS[one["verdict"]], *sizes, *fit, *criteria, as_bytes(one["bytes"]))
    out.print(table, highlight=False)


def _print_agreement(found: Comparison) -> None:
    if found.agreement is None:
        say("add a table with the models' columns for BIC and the agreement of labels")
        return
    say(f"\nagreement of the labels of {count(found.n_rows, 'row')} (adjusted Rand index)")
    table = Table("", *map(plain, found.names), box=None)
    for name, row in zip(found.names, found.agreement, strict=True):
        table.add_row(plain(name), *(f"{value:.3f}" for value in row))
    out.print(table, highlight=False)
