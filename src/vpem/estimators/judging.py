"""Facts about a finished fit, from which `vpem.verdict` derives findings."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.consensus import NEGLIGIBLE_ERROR
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.rows import Holders, Table, row_chunks
from vpem.core.settings import Settings
from vpem.estimators.column_scales import SAME
from vpem.simulation.certificate import Certificate
from vpem.simulation.model import MixtureFit, Problem
from vpem.verdict import BlockFacts, Facts, Finding, FitConvergenceWarning, FitWarning, before_the_run, in_words
from vpem.verdict.rules import MOSTLY_ADDED, ON_ONE_VALUE

Array = NDArray[np.float64]

NEAR = 3.0
"""Distance from the mean of a narrow component, in its deviations, within which its rows are examined."""

MOSTLY_SAME = 0.8
"""Smallest share of these rows with one value, for a component that has collapsed onto this value."""


def gather_facts(
    problem: Problem,
    settings: Settings,
    result: MixtureFit,
    certificate: Certificate | None,
    *,
    scale: Array | None = None,
    is_stopped: bool = False,
    is_start_found: bool = True,
    holders: Holders | None = None,
) -> Facts:
    """Collect the facts about a fit, in the units of the fit.

    Parameters
    ----------
    problem : Problem
    settings : Settings
    result : MixtureFit
    certificate : Certificate or None
        None for a stream, whose earlier rows are no longer available.
    scale : array of shape (n_features,), optional
        Scales that divided the columns for the fit.
    is_stopped, is_start_found : bool
        See `Facts`.
    holders : Holders, optional
        Holders of the rows of the whole table, if rows of too few parties are left out; `problem` is without them.
    """
    known: dict[str, Any] = {}
    if holders is not None:
        known = {"n_held": holders.n_held, "n_left_out": holders.n_left_out, "least_holders": holders.least}
    if certificate is not None:
        known |= {
            "gain": certificate.gain,
            "split": certificate.split,
            "mean_disagreement": certificate.mean_disagreement,
            "effective_rows": certificate.effective_rows,
        }
    factor, needed = sum_facts(problem.summation, problem.network)
    return Facts(
        n_components=settings.n_components,
        tol=settings.tol,
        max_iter=settings.max_iter,
        lower_bounds=[float(bounds.mean()) for bounds in result.lower_bounds],
        converged=result.converged or certificate is None,
        is_stopped=is_stopped,
        is_start_found=is_start_found,
        start_bounds=result.start_bounds,
        error_factor=factor,
        rounds_needed=needed,
        blocks=_blocks(problem, result, scale),
        **known,
    )


def sum_facts(summation: Summation, network: Network) -> tuple[float | None, int | None]:
    """Error factor of the sums, and number of rounds that would make the error negligible."""
    return summation.error_factor(network), summation.rounds_needed(network, NEGLIGIBLE_ERROR)


def about_the_sum(summation: Summation, network: Network) -> list[Finding]:
    """Return findings about the network's sum before a run."""
    return before_the_run(*sum_facts(summation, network))


def _blocks(problem: Problem, result: MixtureFit, scale: Array | None) -> list[BlockFacts]:
    density = result.mixture.density
    shrinkage = getattr(density, "shrinkage", None)
    found, network = [], problem.network
    for whole, hub, held, block in zip(
        problem.overall.columns, network.named_hubs(), network.block_columns, result.mixture.blocks, strict=True
    ):
        chosen = density.scaled_columns(len(held), hub.members)  # other families have their own bounds
        if not len(chosen):
            continue
        own = whole if len(chosen) == len(held) else whole.take(chosen)
        is_shared = bool(getattr(density, "is_tied", False))
        deviations = density.deviations(block)[:, chosen]
        variances = np.square(deviations)
        added = float(getattr(density, "reg_covar", 0.0))
        is_low = (variances <= MOSTLY_ADDED * added) | (variances <= ON_ONE_VALUE * own.variances)
        means = density.means(block)[:, chosen]
        is_one_value = _have_one_value(problem.X, held[chosen], means, deviations, is_low)
        found.append(
            BlockFacts(
                party=str(own.party),
                columns=[str(column) for column in held[chosen]],
                variances=variances[:1] if is_shared else variances,
                overall=np.where(own.variances > (SAME * own.largest) ** 2, own.variances, 0.0),
                scale=None if scale is None else scale[held[chosen]],
                is_one_value=is_one_value[:1] if is_shared else is_one_value,
                added=added,
                is_matrix=bool(getattr(density, "is_matrix", False)),
                is_shared=is_shared,
                is_shrunk=bool(shrinkage),
            )
        )
    return found


def _have_one_value(
    X: Table, columns: NDArray[np.intp], means: Array, deviations: Array, asked: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """True where most rows near a component's mean have the same value, among the components and columns in `asked`.

    All arrays except X and `columns` have shape (n_components, n_columns).
    """
    value, n_near, n_same = np.full(means.shape, np.nan), np.zeros(means.shape), np.zeros(means.shape)
    places = np.flatnonzero(asked.any(axis=0))
    for rows in row_chunks(0, len(X), X.shape[1]) if len(places) else ():
        part = np.asarray(X[rows], dtype=np.float64)
        for c in places:
            values = part[:, columns[c]]
            near = np.abs(values[:, None] - means[:, c]) <= NEAR * deviations[:, c]
            for k in np.flatnonzero(asked[:, c] & near.any(axis=0)):
                own = values[near[:, k]]
                if np.isnan(value[k, c]):
                    value[k, c] = np.partition(own, len(own) // 2)[len(own) // 2]
                n_near[k, c] += len(own)
                n_same[k, c] += (np.abs(own - value[k, c]) <= SAME * abs(value[k, c])).sum()
    return asked & (n_same >= MOSTLY_SAME * n_near)


def warn(findings: Sequence[Finding], *, is_stopped: bool, stacklevel: int) -> None:
    """Issue one warning for all red findings, and for a fit that did not converge unless the user stopped it."""
    is_late = any(one.code == "not_converged" for one in findings) and not is_stopped
    told = [one for one in findings if one.severity == "red" or (one.code == "not_converged" and is_late)]
    if not told:
        return
    category = FitConvergenceWarning if is_late else FitWarning
    warnings.warn(f"this fit is not to be trusted as it is:\n{in_words(told)}", category, stacklevel=stacklevel + 1)
