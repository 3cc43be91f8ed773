"""Comparison of several fitted models."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpem.core.blocks.arrays import Array
from vpem.verdict.findings import Colour, Finding, colour

SEVERITIES = ("red", "amber", "note")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Facts about several models. All lists have the same order."""

    names: list[str]
    facts: list[dict[str, Any]]
    """Facts of each model: `verdict` (its colour, None if it was not judged), `components`, `columns`, `parties`,
    `parameters`, `iterations`, `converged`, `messages`, `bytes` and `fit_log_likelihood` (per row of its own fit),
    and on the rows `log_likelihood` (per row), `bic` and `aic`; these are None without rows."""
    findings: list[list[Finding]]
    """Findings about the fit of each model, the worst first."""
    trajectories: list[list[float]]
    """`lower_bounds_` of each model, one for each iteration."""
    agreement: Array | None
    """Shape (n_models, n_models): adjusted Rand index of the labels on the same rows; None without rows."""
    n_rows: int
    """Number of rows of which every model has some value."""
    same_columns: bool
    """True if all models have the same columns, so that log-likelihoods and criteria can be compared."""
    refusal: str = ""
    """Reason for which log-likelihoods and criteria are left out: a column has a density in one model and a
    probability in another. Empty if they are not left out."""


def compare_models(models: Mapping[str, Any], tables: Sequence[Any] | None = None) -> Comparison:
    """Compare fitted models, on the given rows if any.

    Parameters
    ----------
    models : mapping
        Name to fitted estimator.
    tables : sequence of arrays of shape (n_rows, n_features), optional
        The same rows for each model, with the model's columns in its order. Rows of which a model has no value are
        left out for all.
    """
    fitted = list(models.values())
    judged = [verdict_of(one) for one in fitted]
    columns = [tuple(map(str, getattr(one, "feature_names_in_", range(one.n_features_in_)))) for one in fitted]
    facts = [{"verdict": colour, **_facts(one)} for one, (colour, _) in zip(fitted, judged, strict=True)]
    findings = [found for _, found in judged]
    trajectories = [[float(bound) for bound in one.lower_bounds_] for one in fitted]
    same = len({frozenset(own) for own in columns}) == 1
    refusal = _refusal(models)
    if tables is None:
        return Comparison(list(models), facts, findings, trajectories, None, 0, same, refusal)
    arrays = [np.asarray(table, dtype=np.float64) for table in tables]
    if len(arrays) != len(fitted) or len({len(array) for array in arrays}) > 1:
        shapes = [array.shape for array in arrays]
        raise ValueError(f"expected a table with the same rows for each of {len(fitted)} models, got shapes {shapes}")
    there = np.logical_and.reduce([~np.isnan(array).all(axis=1) for array in arrays])
    if not there.any():
        raise ValueError(
            "expected rows of which every model has some value, got none; are these the models' columns?"
        )
    from sklearn.metrics import adjusted_rand_score  # slow to import

    n_rows, labels = int(there.sum()), []
    for one, array, own in zip(fitted, arrays, facts, strict=True):
        with warnings.catch_warnings():
            # An array has no names, but its columns are in the model's order.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            labels.append(one.predict(array[there]))
            score = one.score(array[there])
        misfit = -2 * score * n_rows
        criteria = {"bic": misfit + own["parameters"] * math.log(n_rows), "aic": misfit + 2 * own["parameters"]}
        if not refusal:
            own |= {"log_likelihood": score, **criteria}
    agreement = np.array([[adjusted_rand_score(one, other) for other in labels] for one in labels])
    return Comparison(list(models), facts, findings, trajectories, agreement, n_rows, same, refusal)


def _refusal(models: Mapping[str, Any]) -> str:
    """Return a message on a column whose log-densities are not comparable; empty if all are."""
    known: dict[str, tuple[str, str]] = {}
    for name, model in models.items():
        for column, measure in model.fitted_.measures.items():
            other, expected = known.setdefault(column, (name, measure))
            if measure != expected:
                return (
                    f"the likelihoods of {other} and {name} do not compare, nor do BIC and AIC: column {column!r} "
                    f"has a {expected} in one and a {measure} in the other; compare labels, or models of the same "
                    "families"
                )
    return ""


def verdict_of(model: Any) -> tuple[Colour | None, list[Finding]]:
    """Return the colour of a model's verdict and its findings, the worst first.

    The colour is None for a model that was not judged, such as one from a file of an older version.
    """
    return judged(getattr(model, "verdict_", None))


def judged(found: Sequence[Finding] | None) -> tuple[Colour | None, list[Finding]]:
    """Return the colour of findings and the findings, the worst first; the colour is None without a verdict."""
    if found is None or any(finding.code == "not_judged" for finding in found):
        return None, []
    return colour(found), sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def _facts(model: Any) -> dict[str, Any]:
    return {
        "components": len(model.weights_),
        "columns": model.means_.shape[1],
        "parties": len(model.partition_),
        "parameters": model.fitted_.n_parameters,
        "iterations": model.n_iter_,
        "converged": bool(model.converged_),
        "messages": int(model.traffic_.messages),
        "bytes": int(model.traffic_.bytes),
        "fit_log_likelihood": float(getattr(model, "log_likelihood_", model.lower_bound_)),
        "log_likelihood": None,
        "bic": None,
        "aic": None,
    }
