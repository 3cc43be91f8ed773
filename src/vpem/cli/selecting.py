"""Command that selects the number of components."""

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
    Dates,
    Decimal,
    Encoding,
    Family,
    Gaps,
    Header,
    Id,
    Ignore,
    Label,
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
    of_model,
    of_results,
    out,
    plain,
    plainly,
    say,
)
from vpem.cli.cluster_text import classes_of
from vpem.cli.fit_command import STARTS_THAT_SERVE, all_families, codes_of, fit_model, table_of, unfitted
from vpem.cli.gathering import check_choices, gather, make_form, said_dates
from vpem.cli.labels import Classes, read_classes
from vpem.cli.model_summary import count, show_findings
from vpem.files import check_outputs
from vpem.reading import TABLES, TableError, write

if TYPE_CHECKING:
    from vpem import CollapsedComponentError, VerticalMixture
    from vpem.model.fitted import Fitted
    from vpem.reading import Rows

WORTH_POOLING = 0.02
"""Smallest gain by pooling that is reported, in nats per row."""
MOST_PAIRS = 3
"""Maximum number of pairs of parties that are reported."""

NAMES = {"bic": "BIC", "icl": "ICL", "aic": "AIC"}
"""Criteria for which the smallest value is best."""


FOLDS = 5
"""Default number of folds, each of which is held out once."""


@app.command()
@plainly
def select(
    tables: Tables,
    components: Annotated[str, of_model("--components", "-k", metavar="K", help="As 1..10, or as 2,3,5.")] = "1..10",
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
    covariance: Covariance = "full",
    starts: Starts = STARTS_THAT_SERVE,
    tol: Tol = 1e-3,
    max_iter: MaxIter = 100,
    reg_covar: RegCovar = 1e-6,
    shrinkage: Shrinkage = "auto",
    standardize: Standardize = None,
    seed: Seed = 0,
    label: Label = None,
    folds: Annotated[
        int | None,
        of_model(
            metavar="N", min=0, help="Parts of the rows that are held out in turn; 0: none.", show_default=str(FOLDS)
        ),
    ] = None,
    output: Annotated[
        Path | None, of_results("--out", "-o", metavar="FILE", help="CSV or Parquet with all numbers.")
    ] = None,
    picture: Annotated[Path | None, of_results("--plot", metavar="FILE", help="Picture, .png or .svg.")] = None,
) -> None:
    """Choose the number of components by the likelihood of held-out rows; also show BIC, ICL and AIC.

    Each part of the rows is held out once, and the others are fitted; a larger log-likelihood per held-out row is
    better. The smallest number that is not clearly worse than the best one is chosen. BIC counts every covariance as
    a free parameter, so it prefers too few components where --shrinkage ties covariances together. ICL penalizes
    components that overlap. If a fit collapses, its row of the table shows this.

    Example: `vpem select people.csv --parties parties.toml --components 1..8 --plot select.png`
    """
    if folds == 1:
        raise TableError("expected --folds of 2 or more, or 0 for none, got 1")
    sizes = _sizes(components)
    days = said_dates(dates)
    form = make_form(header, separator, decimal, encoding, gaps, days)
    check_choices(covariance=(covariance, COVARIANCES))
    check_outputs([output], tables, endings=TABLES)
    check_outputs([picture], tables, endings=PICTURES)
    check_can_draw(picture)
    families = all_families(family, parties, days)
    model = unfitted(covariance, shrinkage, standardize, starts, seed, families)
    model.set_params(tol=tol, max_iter=max_iter, reg_covar=reg_covar).check_arguments()
    classes = None if label is None else read_classes(tables, id_column, parties, label, form)
    unused = [*ignore, *([] if label is None else [label])]
    rows, partition = gather(tables, id_column, parties, unused, form, codes=codes_of(families))
    search = _Search(model.set_params(partition=partition), rows, _n_folds(folds, rows), classes)
    found = search.compare(sizes)
    if output is not None:
        write(output, {name: [one[name] for one in found] for name in found[0]})
    if picture is not None:
        from vpem.figures import plot_selection, save_figure

        save_figure(plot_selection(found), picture)
        say(f"picture: {picture}")


class _Search:
    """Fits of a model with several numbers of components.

    Parameters
    ----------
    model : VerticalMixture
        Not fitted.
    rows : Rows
    n_folds : int
        0 to hold out no rows.
    classes : Classes or None
        Known classes of the rows.
    """

    def __init__(self, model: VerticalMixture, rows: Rows, n_folds: int, classes: Classes | None):
        self.model, self.rows, self.n_folds, self.classes = model, rows, n_folds, classes
        self.is_present = ~np.isnan(rows.values).all(axis=1)
        self.table = table_of(model, rows, self.is_present)
        self.found: list[dict[str, Any]] = []
        self.held_out: dict[int, Any] = {}
        """Number of components to the log-density of each row under the fit without it, shape (n_rows,)."""
        self.collapsed: dict[int, CollapsedComponentError] = {}

    def compare(self, sizes: list[int]) -> list[dict[str, Any]]:
        """Fit with each number of components, print a comparison, and return the results of each."""
        from sklearn.base import clone

        best: Fitted | None = None
        interrupted = False
        for size in sizes:
            own = clone(self.model).set_params(n_components=size)
            try:
                interrupted = fit_model(own, self.table, quiet=size != sizes[0])
                if interrupted:
                    err.print(f"ended at {size} components; what follows is of smaller ones")
                    break
                self.found.append(self._numbers(own.fitted_))
                if found_best(self.found) == size:
                    best = own.fitted_
            except vpem.CollapsedComponentError as error:  # fits with other numbers of components may succeed
                self.collapsed[size] = error
                self.found.append({"components": size, **dict.fromkeys(self._names()), "collapsed": True})
        if interrupted and len(self.found) == len(self.collapsed):
            raise typer.Exit(INTERRUPTED)
        self._tell()
        if best is not None:
            _tell_pooling(best, best.code(self.rows.values[self.is_present]))
        return self.found

    def _names(self) -> list[str]:
        held, rand = ["held_out"] * bool(self.n_folds), ["adjusted_rand"] * (self.classes is not None)
        return [*NAMES, "log_likelihood", *held, *rand]

    def _numbers(self, fitted: Fitted) -> dict[str, Any]:
        """Return the criteria of one fit."""
        from vpem.model.evaluation import measure_fit

        measured = measure_fit(fitted, fitted.code(self.rows.values[self.is_present]), with_icl=True)
        criteria, size = {name: getattr(measured, name) for name in NAMES}, fitted.n_components
        found = {"components": size, **criteria, "log_likelihood": measured.score}
        if self.n_folds:
            self.held_out[size] = self._hold_out(fitted)
            found["held_out"] = float(self.held_out[size].mean())
        if self.classes is not None:
            found["adjusted_rand"] = self._agreement(fitted, self.classes)
        return {**found, "collapsed": False}

    def _agreement(self, fitted: Fitted, classes: Classes) -> float | None:
        """Return the adjusted Rand index of the labels and the known classes; None if no row has a class."""
        from sklearn.metrics import adjusted_rand_score

        from vpem.model.evaluation import evaluate_all

        known = np.array(classes_of(self.rows, classes), dtype=object)[self.is_present]
        has_class = np.array([one is not None for one in known], dtype=bool)
        if not has_class.any():
            return None
        labels = evaluate_all(fitted, fitted.code(self.rows.values[self.is_present]))[0].argmax(axis=1)
        return float(adjusted_rand_score(known[has_class].astype(str), labels[has_class]))

    def _hold_out(self, fitted: Fitted) -> Any:
        """Log-density of each row under a fit to the other folds, shape (n_rows,).

        Each party takes families and categories from its whole columns and keeps them, so that no other party learns
        more than from one fit. A category that does not occur in the fitted folds keeps the probability that
        smoothing gives it.
        """
        from sklearn.base import clone

        from vpem.core.decisions.initial import shared_folds
        from vpem.estimators.family_choice import Families
        from vpem.estimators.joined import Source

        present = np.flatnonzero(self.is_present)
        numbers = shared_folds(int(self.model.random_state), len(present), self.n_folds)
        own = clone(self.model).set_params(n_components=fitted.n_components)
        known = None if fitted.families is None else Families(fitted.families, fitted.coding)
        found = np.empty(len(present))
        for fold in range(self.n_folds):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", vpem.FitWarning)
                kept = clone(own)
                kept.fit(Source(table=table_of(own, self.rows, present[numbers != fold]), families=known))
            found[numbers == fold] = kept.score_samples(table_of(own, self.rows, present[numbers == fold]))
        return found

    def _tell(self) -> None:
        """Print all criteria and the best numbers of components."""
        from vpem.verdict import best_at_edge

        reason = next((f"with {count(size, 'component')}, {error}" for size, error in self.collapsed.items()), "")
        fitted = [one for one in self.found if not one["collapsed"]]
        if not fitted:
            raise TableError(f"expected a fit for at least one number of components, got none: {reason}")
        best = {name: min(fitted, key=lambda one: one[name])["components"] for name in NAMES}
        if self.n_folds:
            best["held_out"] = smallest_good(self.held_out)
        self._print_table(best)
        if reason:
            err.print(f"[yellow]note:[/yellow] {plain(reason)}", highlight=False)
        others = f"by BIC: {best['bic']}; by ICL: {best['icl']}; by AIC: {best['aic']}"
        if self.n_folds:
            say(f"best by held-out rows: {count(best['held_out'], 'component')}; {others}")
        else:
            say(f"best {others}")
        chosen, name = (best["held_out"], "held-out rows") if self.n_folds else (best["bic"], "BIC")
        show_findings(best_at_edge([one["components"] for one in fitted], chosen, name))

    def _print_table(self, best: dict[str, int]) -> None:
        heads = {"held_out": "held out", **NAMES, "log_likelihood": "log-lik./row", "adjusted_rand": "adj. Rand"}
        digits = {"held_out": ".4f", "log_likelihood": ".4f", "adjusted_rand": ".3f"}
        columns: dict[str, list[str]] = {}
        for name in [name for name in heads if name in self._names()]:
            columns[heads[name]] = []
            for one in self.found:
                mark = "" if name not in best else " *" if best[name] == one["components"] else "  "
                cell = "" if one[name] is None else f"{one[name]:{digits.get(name, ',.1f')}}{mark}"
                columns[heads[name]].append(cell)
        for number, one in enumerate(self.found):
            if one["collapsed"]:
                next(iter(columns.values()))[number] = "collapsed"
        columns = {"components": [str(one["components"]) for one in self.found], **columns}
        shown = _that_fit(columns)
        table = Table(*shown, box=None)
        for row in zip(*shown.values(), strict=True):
            table.add_row(*row)
        out.print(table, highlight=False)
        if len(shown) < len(columns):
            say("a wider terminal shows more columns; --out writes all numbers")


def _that_fit(columns: dict[str, list[str]]) -> dict[str, list[str]]:
    """Drop the least important columns until the others fit the terminal."""
    shown = dict(columns)
    for name in ("AIC", "log-lik./row", "ICL"):
        if sum(max(map(len, [head, *cells])) + 2 for head, cells in shown.items()) > out.width:
            shown.pop(name, None)
    return shown


def smallest_good(held_out: dict[int, Any]) -> int:
    """Return the smallest number of components that is within one standard error of the best on held-out rows."""
    best = max(held_out, key=lambda size: float(held_out[size].mean()))
    for size in sorted(held_out):
        losses = held_out[best] - held_out[size]
        if losses.mean() <= losses.std() / np.sqrt(len(losses)):
            return size
    return best


def found_best(found: list[dict[str, Any]]) -> int:
    """Return the best number of components so far, by held-out rows, or by BIC without folds."""
    fitted = [one for one in found if not one["collapsed"]]
    if "held_out" in fitted[0]:
        return int(max(fitted, key=lambda one: one["held_out"])["components"])
    return int(min(fitted, key=lambda one: one["bic"])["components"])


def _n_folds(given: int | None, rows: Rows) -> int:
    """Return the number of folds; without a given number, 0 if there are too few rows."""
    n_rows = int((~np.isnan(rows.values).all(axis=1)).sum())
    if given is not None and n_rows < 2 * given:
        raise TableError(f"expected at least {2 * given} rows for {given} folds, got {n_rows}; try --folds 0")
    return FOLDS * (n_rows >= 2 * FOLDS) if given is None else given


def _tell_pooling(best: Fitted, codes: Any) -> None:
    """Print the gains of pairs of parties from pooling columns, if they are large enough."""
    from vpem.model.evaluation import pooling_gains

    gains, roots = pooling_gains(best, codes), [str(hub.root) for hub in best.hubs]
    for one, other in sorted(gains, key=lambda pair: -gains[pair])[:MOST_PAIRS]:
        if gains[one, other] >= WORTH_POOLING:
            pair, gain = f"{roots[one]} and {roots[other]}", f"{gains[one, other]:.2f} nats per row or more"
            say(plain(f"columns of {pair} depend on each other within components: pooled (--hops), they gain {gain}"))


def _sizes(text: str) -> list[int]:
    """Parse numbers of components: `1..10`, `2,3,5` or one number."""
    sizes: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.partition("..")
            sizes |= set(range(int(first), int(last or first) + 1))
    except ValueError:
        sizes = set()
    if not sizes or min(sizes) < 1:
        raise TableError(f"expected --components as 1..10, as 2,3,5 or as one number, got {text!r}")
    return sorted(sizes)
