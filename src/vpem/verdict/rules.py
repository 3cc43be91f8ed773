"""Rules that turn facts into findings: one function for each problem that a fit can have."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vpem.verdict.facts import BlockFacts, Facts
from vpem.verdict.findings import Finding, Severity
from vpem.verdict.row_rules import few_in_common, near_ids

SPLIT = {"red": 0.01, "amber": 0.001}
"""Limits on the share of rows whose label differs between parties."""
MEAN_DISAGREEMENT = {"red": 0.05, "amber": 0.005}
"""Limits on the mean difference between parties' responsibilities."""
SUM_ERROR = {"red": 0.1, "amber": 1e-3}
"""Limits on the error factor of a sum."""
LARGE_GAIN = 0.01
"""Gain of one more step, in nats per row, above which a fit is far from a maximum."""
MOSTLY_ADDED = 1.5
"""Multiple of `reg_covar` up to which a variance consists mostly of `reg_covar`."""
ON_ONE_VALUE = 1e-9
"""Share of a column's variance up to which a component has a single value."""
FAR_ABOVE = 10.0
"""Multiple of `reg_covar` up to which `reg_covar` blurs a column of this variance."""
MAKE_GAPS = "make them gaps (empty cells, NaN)"

MOST_LEFT_OUT = 0.05
"""Share of left-out rows above which the other rows may not represent all rows."""
ACCEPT = "Masked(accept=('rows of two parties are plain to both',))"
ROWS_PER_COLUMN = 3.0
"""Effective rows per column below which a covariance matrix is uncertain."""
SAME_CLUSTERS = 0.95
"""Smallest adjusted Rand index at which two starts count as the same clusters."""
COPIES = 0.97
"""Smallest correlation between two parties' columns, given the component, at which one nearly repeats the other."""
NATS_LEFT_OUT = 0.5
"""Smallest dependence between parties' columns, given the component, that is reported; in nats per row."""
NATS_IN_SUMS = 0.2
"""Smallest dependence that a party reports, which sees a part of it in the sums; in nats per row."""
MANY_NAMES = 4


def judge(facts: Facts) -> list[Finding]:
    """Return all findings, the worst first; within a severity, in the order of `RULES`."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: ("red", "amber", "note").index(finding.severity))


def parties_disagree(facts: Facts) -> list[Finding]:
    """Find parties that would give rows different labels."""
    severity = _worse(_level(facts.split, SPLIT), _level(facts.mean_disagreement, MEAN_DISAGREEMENT))
    if severity is None:
        return []
    sentence = (
        f"The parties disagree: {facts.split:.1%} of the rows have another label at another party, and "
        f"responsibilities differ by {facts.mean_disagreement:.2g} on average."
    )
    remedy = _more_rounds(facts)
    if facts.error_factor == 0 and facts.rounds_needed is None:  # each sum continues from the last one
        remedy = "a smaller tol, because sums become exact as EM settles; or a summation that is exact"
    elif facts.error_factor is not None and 0 < facts.error_factor < SUM_ERROR["amber"]:
        more = "more rounds, if links fail for longer than planned (outage)"
        remedy = f"{more}; a graph with more links; or graph='star'"
    return [Finding("parties_disagree", severity, sentence, remedy)]


def sum_error(facts: Facts) -> list[Finding]:
    """Find a sum that the rounds leave inexact, which is known before the run."""
    return before_the_run(facts.error_factor, facts.rounds_needed)


def before_the_run(error_factor: float | None, rounds_needed: int | None) -> list[Finding]:
    """Judge a network's sum before anything is sent.

    Parameters
    ----------
    error_factor : float or None
        Error factor of the summation on this network; None if it is not known.
    rounds_needed : int or None
        Number of rounds that makes the error factor negligible.
    """
    severity = None if error_factor is None else _level(error_factor, SUM_ERROR)
    if severity is None:
        return []
    sentence = (
        f"The rounds of averaging leave {error_factor:.1%} of the differences between the parties in each sum, so "
        "that each party fits to a sum of its own."
    )
    remedy = _rounds(rounds_needed)
    return [Finding("sum_error", severity, sentence, remedy)]


def not_converged(facts: Facts) -> list[Finding]:
    """Find EM that ended before it converged."""
    gain = facts.gain
    if facts.max_iter == 0:
        return [Finding("at_start", "note", "No iteration was asked for: the model is its own start.", "")]
    found = []
    if gain is not None and math.isinf(gain):
        sentence = "One more exact step would collapse a component: the fit stands on a few rows, or on one value."
        found.append(Finding("collapse_ahead", "red", sentence, "fewer components, or a larger reg_covar"))
        gain = None
    is_large = gain is not None and gain > max(10 * facts.tol, LARGE_GAIN)
    more = "" if gain is None else f" One more exact step would add {gain:.2g} per row (tol is {facts.tol:g})."
    if not facts.converged:
        how = "was ended" if facts.is_stopped else "did not converge"
        sentence = f"The best start {how} in {len(facts.lower_bounds)} iterations.{more}"
        remedy = "a larger max_iter or tol, or another init_params"
        return [*found, Finding("not_converged", "red" if is_large else "amber", sentence, remedy)]
    if gain is None or gain <= min(max(2 * facts.tol, 1e-9), LARGE_GAIN):
        return found
    sentence = f"The fit stopped, but it is not at a maximum.{more}"
    remedy = _more_rounds(facts) if facts.error_factor else "a smaller tol"
    return [Finding("gain", "red" if is_large else "amber", sentence, remedy)]


def rows_left_out(facts: Facts) -> list[Finding]:
    """Find rows that a masked sum leaves out because too few parties have them."""
    if not facts.n_left_out:
        return []
    share, n_used = facts.n_left_out / facts.n_held, facts.n_held - facts.n_left_out
    sentence = (
        f"{facts.n_left_out:,} of {facts.n_held:,} rows ({share:.0%}) are left out, as fewer than "
        f"{facts.least_holders} parties have them: a masked sum of so few terms would show them. The fit and its "
        f"likelihood are about the other {n_used:,}."
    )
    remedy = "more parties with the same rows"
    if facts.least_holders > 2:
        remedy += f", or {ACCEPT}"
    return [Finding("rows_left_out", "amber" if share > MOST_LEFT_OUT else "note", sentence, remedy)]


def variances(facts: Facts) -> list[Finding]:
    """Find variances that are determined by `reg_covar` instead of the data."""
    constant, hidden, small, pinned, narrow, most = [], [], [], [], [], 0
    for block in facts.blocks:
        for column, name in enumerate(block.columns):
            overall, own = float(block.overall[column]), block.variances[:, column]
            is_added = own <= MOSTLY_ADDED * block.added
            is_low = is_added | (own <= ON_ONE_VALUE * overall)
            is_pinned = is_low if block.is_one_value is None else is_low & block.is_one_value[:, column]
            if overall == 0:
                constant.append(name)
            elif overall <= block.added:
                hidden.append(name)
            elif overall <= FAR_ABOVE * block.added:
                small.append(name)
            elif is_pinned.any():
                most = max(most, int(is_pinned.sum()))
                pinned.append(name)
            elif is_added.any():
                scale = 1.0 if block.scale is None else float(block.scale[column])
                deviations = scale * math.sqrt(own[is_added].max()), scale * math.sqrt(overall)
                narrow.append(f"{name} ({deviations[0]:,.4g}, of all rows {deviations[1]:,.4g})")
    found = []
    units = "standardize=True, columns in larger units, or a smaller reg_covar"
    if hidden:
        sentence = f"reg_covar is larger than the variance of {_names(hidden)}: it hides the clusters."
        found.append(Finding("scale", "red", sentence, units))
    if pinned:
        sentence = (
            f"In {_names(pinned)}, up to {most} of {facts.n_components} components sit on one value: their variance "
            "is reg_covar, which then decides how likely these rows are."
        )
        remedy = (
            "VerticalMixture(families='auto') for columns of few values, counts or many zeros; leave these columns "
            "out; or a reg_covar as large as differences that do not matter"
        )
        found.append(Finding("one_value", "red", sentence, remedy))
    if narrow:
        sentence = (
            f"reg_covar makes up most of the deviation of components in {_names(narrow)}: a few far values set the "
            "unit in which it is small."
        )
        remedy = "check the far values, and make gaps of those that are errors or codes; or a smaller reg_covar"
        found.append(Finding("narrow", "red", sentence, remedy))
    if small:
        sentence = (
            f"reg_covar is not small compared with the variance of {_names(small)}, and blurs the clusters there."
        )
        found.append(Finding("scale", "amber", sentence, units))
    if constant:
        sentence = f"No variation, and so no information about the components, in {_names(constant)}."
        found.append(Finding("constant", "note", sentence, "fit without it"))
    return found


def few_rows(facts: Facts) -> list[Finding]:
    """Find covariance matrices with too few effective rows for their columns."""
    if not facts.effective_rows:
        return []
    worst: tuple[float, float, BlockFacts] | None = None
    for block in facts.blocks:
        n_columns = len(block.columns)
        if not block.is_matrix or n_columns < 2:
            continue
        rows = sum(facts.effective_rows) if block.is_shared else min(facts.effective_rows)
        if rows < ROWS_PER_COLUMN * n_columns and (worst is None or rows / n_columns < worst[0]):
            worst = rows / n_columns, rows, block
    if worst is None:
        return []
    ratio, rows, block = worst
    severity: Severity = "red" if ratio <= 1 else "amber"
    severity = "note" if block.is_shrunk else severity
    end = ", which is shrunk." if block.is_shrunk else ": it fits these rows, and hardly any others."
    columns = f"{len(block.columns)} columns of {block.party!r}"
    sentence = f"A component has {rows:.0f} effective rows for a covariance of the {columns}{end}"
    remedy = (
        ""
        if block.is_shrunk
        else "shrinkage='auto', covariance_type='tied', covariance_type='diag', or fewer components"
    )
    return [Finding("few_rows", severity, sentence, remedy)]


def one_row(facts: Facts) -> list[Finding]:
    """Find components that represent a single row."""
    lonely = [number for number, rows in enumerate(facts.effective_rows) if rows < 2]
    if not lonely:
        return []
    which = ", ".join(map(str, lonely[:MANY_NAMES])) + (", ..." if len(lonely) > MANY_NAMES else "")
    sentence = f"{len(lonely)} of {facts.n_components} components stand for less than two rows each ({which})."
    return [Finding("one_row", "red", sentence, "fewer components, or leave out rows that are errors")]


def never_left_start(facts: Facts) -> list[Finding]:
    """Find EM that ends at its start. This is fine for clear clusters, but a trap if every start is a maximum."""
    bounds = facts.lower_bounds
    if not facts.is_start_found or facts.n_components == 1 or not facts.converged or not 2 <= len(bounds) <= 3:
        return []
    if abs(bounds[-1] - bounds[0]) > max(facts.tol, 1e-9):
        return []
    is_trap = any(finding.severity != "note" for finding in few_rows(facts))
    sentence = "EM never left its start: the labels are those of the start."
    if is_trap:
        sentence += " With so few rows for each column, every start is a maximum."
    remedy = "shrinkage='auto', covariance_type='tied', or covariance_type='diag'" if is_trap else ""
    return [Finding("never_left_start", "amber" if is_trap else "note", sentence, remedy)]


def starts_apart(facts: Facts) -> list[Finding]:
    """Find starts that ended in other places than the best one."""
    is_finite = [math.isfinite(bound) for bound in facts.start_bounds]
    bounds = np.array([bound for bound, own in zip(facts.start_bounds, is_finite, strict=True) if own])
    if len(bounds) < 2 or facts.n_components == 1:
        return []
    behind = bounds.max() - bounds
    is_near = behind <= max(10 * facts.tol, 1e-3)
    agreement = np.array(facts.start_agreement)
    lowest = float(agreement.min()) if len(agreement) == len(bounds) else 1.0
    remedy = f"n_init={4 * len(bounds)}, or another n_components"
    if is_near.sum() == 1:
        next_one, last = np.sort(behind)[[1, -1]]
        sentence = (
            f"Only one of {len(bounds)} starts reached the best likelihood; the next one is {next_one:.2g} per row "
            f"below it, the last {last:.2g}. Another start may be better still."
        )
        if len(agreement) == len(bounds):
            sentence += _alike("the best start and the others", agreement[~is_near])
        is_same = len(agreement) == len(bounds) and lowest >= SAME_CLUSTERS
        return [Finding("starts_apart", "note" if is_same else "amber", sentence, "" if is_same else remedy)]
    if lowest >= SAME_CLUSTERS:
        return []
    if agreement[is_near].min() < SAME_CLUSTERS:
        sentence = f"{is_near.sum()} of {len(bounds)} starts reached the best likelihood, but with other clusters."
        sentence += _alike("them", agreement[is_near & (behind > 0)])
        return [Finding("unstable", "amber", sentence, remedy)]
    sentence = f"{(~is_near).sum()} of {len(bounds)} starts ended below the best likelihood, with other clusters."
    return [Finding("other_ends", "note", sentence + _alike("the best start and these", agreement[~is_near]), "")]


def _alike(whose: str, agreement: NDArray[np.float64]) -> str:
    """Describe the similarity of labels in a sentence."""
    return (
        f" The adjusted Rand index between labels of {whose} is {np.median(agreement):.2f} (median; lowest "
        f"{agreement.min():.2f}; 1 means the same clusters, 0 means chance)."
    )


def too_many_components(facts: Facts) -> list[Finding]:
    """Find components that a smaller number could replace."""
    fewer, groups = facts.fewer_by_bic, facts.fewer_by_icl
    if fewer is not None:
        sentence = (
            f"{facts.n_components} components are too many by BIC: after merging those that overlap, {fewer} "
            f"{'describes' if fewer == 1 else 'describe'} these rows as well with fewer parameters."
        )
        more = " There may be no clusters." if fewer == 1 else ""
        return [Finding("too_many_components", "amber", sentence + more, f"n_components={fewer}")]
    if groups is not None:
        sentence = (
            f"The components overlap: as clusters (by ICL), {groups} would do instead of {facts.n_components}. The "
            "components describe the density, but their borders are arbitrary."
        )
        severity: Severity = "amber" if groups == 1 else "note"
        return [Finding("overlapping", severity, sentence, f"n_components={groups}" if groups > 1 else "")]
    return []


def too_few_components(facts: Facts) -> list[Finding]:
    """Find components that contain several groups."""
    if not facts.lumped:
        return []
    which = ", ".join(map(str, facts.lumped[:MANY_NAMES])) + (", ..." if len(facts.lumped) > MANY_NAMES else "")
    some = f"Component {which} contains" if len(facts.lumped) == 1 else f"Components {which} contain"
    sentence = f"{some} separate groups of rows: there are more than {facts.n_components} clusters."
    return [
        Finding("too_few_components", "amber", sentence, f"n_components={facts.n_components + len(facts.lumped)}")
    ]


def odd_columns(facts: Facts) -> list[Finding]:
    """Find columns that look like row ids, and columns that repeat each other."""
    found = []
    if facts.row_names:
        columns = _names(facts.row_names)
        look = "looks" if len(facts.row_names) == 1 else "look"
        sentence = (
            f"C{columns[1:]} {look} like ids or numbers of the rows: whole numbers, all different, evenly spread."
        )
        found.append(Finding("row_names", "amber", sentence, "leave it out, or make it the id of the rows"))
    if facts.twins:
        pairs = ", ".join(f"{one} and {other}" for one, other in facts.twins[:MANY_NAMES])
        more = f", and {len(facts.twins) - MANY_NAMES} more pairs" if len(facts.twins) > MANY_NAMES else ""
        sentence = f"Columns of one party repeat each other: {pairs}{more}. What they say counts twice."
        found.append(Finding("twins", "amber", sentence, "leave one of each pair out"))
    return found


def codes(facts: Facts) -> list[Finding]:
    """Find values such as -999 that stand for gaps, but are fitted as numbers."""
    if not facts.codes:
        return []
    # The range of the other values is left out: its ends are values of single rows, and models are passed on.
    shown = [f"{own.value:.10g} in column {own.column} ({own.share:.1%})" for own in facts.codes[:MANY_NAMES]]
    more = f", and {len(facts.codes) - MANY_NAMES} more" if len(facts.codes) > MANY_NAMES else ""
    sentence = (
        "Values of several rows, far from all others, look like codes, but count as numbers: "
        f"{', '.join(shown)} of the rows{more}."
    )
    return [Finding("codes", "amber", sentence, f"if they stand for gaps, {MAKE_GAPS}")]


def dependence(facts: Facts) -> list[Finding]:
    """Find dependence between parties' columns given the component, which a mixture of blocks leaves out."""
    own = facts.dependence
    least = NATS_LEFT_OUT if own is not None and own.one else NATS_IN_SUMS
    if own is None or (own.nats < least and abs(own.correlation) < COPIES):
        return []
    nats = f"{own.nats:.2f}" if own.nats < 10 else f"{own.nats:,.0f}"
    remedy = "leave one of the two out, give both to one party, or pool them: hops=1, with a graph that links them"
    if own.one:
        sentence = (
            f"Columns of different parties depend on each other within the components: {own.one} and {own.other} by "
            f"a correlation of {own.correlation:.3f}. The model leaves that out: about {nats} nats per row."
        )
    else:
        sentence = (
            "The columns of this party depend on those of the others within the components. The model leaves that "
            f"out: about {nats} nats per row or more, as of two columns with a correlation of {own.correlation:.2f}."
        )
        remedy = f"ask the others for columns that repeat yours; {remedy}"
    if abs(own.correlation) < COPIES:
        return [Finding("dependence", "note", sentence, "")]
    return [Finding("dependence", "amber", f"{sentence} What both say counts twice.", remedy)]


def unrelated(facts: Facts) -> list[Finding]:
    """Find parties whose columns are unrelated to those of the others: their rows may be in another order."""
    if not facts.unrelated:
        return []
    who = ", ".join(facts.unrelated[:MANY_NAMES])
    more = f" and {len(facts.unrelated) - MANY_NAMES} more" if len(facts.unrelated) > MANY_NAMES else ""
    sentence = f"There is no relation between the columns of {who}{more} and those of the other parties."
    if not facts.is_structured:
        return [Finding("unrelated", "note", sentence, "")]
    sentence += " Both have a structure of their own: their rows may be in another order, or of other people."
    remedy = "the same rows in the same order, or tables that are joined by an id; else fits of their own"
    return [Finding("unrelated", "amber", sentence, remedy)]


def best_at_edge(sizes: Sequence[int], best: int, criterion: str = "BIC") -> list[Finding]:
    """Find a best number of components that is the smallest or the largest that was tried.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of components that were compared.
    best : int
    criterion : str, default="BIC"
    """
    first, last = min(sizes), max(sizes)
    if best == last and first < last:
        sentence = f"The best number of components by {criterion}, {best}, is the largest that was tried."
        return [Finding("edge", "amber", sentence, f"n_components={first}..{2 * last}")]
    if best == first > 1 and first < last:
        sentence = f"The best number of components by {criterion}, {best}, is the smallest that was tried."
        return [Finding("edge", "amber", sentence, f"n_components=1..{last}")]
    return []


RULES: tuple[Callable[[Facts], list[Finding]], ...] = (
    parties_disagree,
    sum_error,
    not_converged,
    rows_left_out,
    few_rows,
    one_row,
    variances,
    never_left_start,
    too_many_components,
    too_few_components,
    starts_apart,
    odd_columns,
    few_in_common,
    near_ids,
    codes,
    unrelated,
    dependence,
)


def _level(value: float, limits: dict[str, float]) -> Severity | None:
    return "red" if value > limits["red"] else "amber" if value > limits["amber"] else None


def _worse(one: Severity | None, other: Severity | None) -> Severity | None:
    return "red" if "red" in (one, other) else one or other


def _rounds(needed: int | None) -> str:
    if needed is None:
        return "a summation that is exact, or graph='star'"
    return f"rounds={needed}, which is the default; a graph with more links; or graph='star'"


def _more_rounds(facts: Facts) -> str:
    """Return the remedy for inexact sums."""
    return _rounds(facts.rounds_needed)


def _names(names: Sequence[str]) -> str:
    """Format names as "column a" or "columns a, b and 5 more"."""
    shown = ", ".join(names[:MANY_NAMES])
    more = f" and {len(names) - MANY_NAMES} more" if len(names) > MANY_NAMES else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"
