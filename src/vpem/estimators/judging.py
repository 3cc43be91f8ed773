"""The facts of a finished fit, from which `vpem.verdict` makes findings."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from vpem.core.network.consensus import NEGLIGIBLE_ERROR
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.settings import Settings
from vpem.estimators.units import SAME
from vpem.simulation.em import Certificate, MixtureFit
from vpem.simulation.model import Problem
from vpem.verdict import BlockFacts, Facts, Finding, FitConvergenceWarning, FitWarning, before_the_run, in_words


def gather_facts(
    problem: Problem,
    settings: Settings,
    result: MixtureFit,
    certificate: Certificate | None,
    *,
    is_stopped: bool = False,
    is_start_found: bool = True,
) -> Facts:
    """What there is to judge of a fit; in the units in which it was made.

    Parameters
    ----------
    problem : Problem
    settings : Settings
    result : MixtureFit
    certificate : Certificate or None
        None: of a stream, whose rows are gone.
    is_stopped, is_start_found : bool
        See `Facts`.
    """
    known = {}
    if certificate is not None:
        known = {
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
        blocks=_blocks(problem, result),
        **known,  # type: ignore[arg-type]
    )


def sum_facts(summation: Summation, network: Network) -> tuple[float | None, int | None]:
    """How inexact the sums are, and how many rounds would make that negligible."""
    return summation.error_factor(network), summation.rounds_needed(network, NEGLIGIBLE_ERROR)


def about_the_sum(summation: Summation, network: Network) -> list[Finding]:
    """What can be said before a run."""
    return before_the_run(*sum_facts(summation, network))


def _blocks(problem: Problem, result: MixtureFit) -> list[BlockFacts]:
    density = result.mixture.density
    shrinkage = getattr(density, "shrinkage", None)
    found, network = [], problem.network
    for whole, hub, held, block in zip(
        problem.overall.columns, network.named_hubs(), network.block_columns, result.mixture.blocks, strict=True
    ):
        chosen = density.scaled_columns(len(held), hub.members)  # others have bounds of their own
        if not len(chosen):
            continue
        own = whole if len(chosen) == len(held) else whole.take(chosen)
        is_shared = bool(getattr(density, "is_tied", False))
        variances = np.square(density.deviations(block)[:, chosen])
        found.append(
            BlockFacts(
                party=str(own.party),
                columns=[str(column) for column in held[chosen]],
                variances=variances[:1] if is_shared else variances,
                overall=np.where(own.variances > (SAME * own.largest) ** 2, own.variances, 0.0),
                added=float(getattr(density, "reg_covar", 0.0)),
                is_matrix=bool(getattr(density, "is_matrix", False)),
                is_shared=is_shared,
                is_shrunk=bool(shrinkage),
            )
        )
    return found


def warn(findings: Sequence[Finding], *, is_stopped: bool, stacklevel: int) -> None:
    """One warning with everything red, and with a fit that did not converge unless that was wanted."""
    is_late = any(one.code == "not_converged" for one in findings) and not is_stopped
    told = [one for one in findings if one.severity == "red" or (one.code == "not_converged" and is_late)]
    if not told:
        return
    category = FitConvergenceWarning if is_late else FitWarning
    warnings.warn(f"this fit is not to be trusted as it is:\n{in_words(told)}", category, stacklevel=stacklevel + 1)
