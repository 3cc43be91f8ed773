"""Findings, their overall colour, and the warnings that report them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from sklearn.exceptions import ConvergenceWarning

Severity = Literal["red", "amber", "note"]
Colour = Literal["red", "amber", "green"]


class Finding(NamedTuple):
    """A fact about a fit that its user should know."""

    code: str
    """Short name, such as "few_rows", which stays the same between versions."""
    severity: Severity
    """"red": do not trust the fit. "amber": check the finding before you rely on the fit. "note": good to know."""
    sentence: str
    """Statement of the finding, with its numbers."""
    remedy: str
    """Remedy to try; may be empty for a note."""


class FitWarning(UserWarning):
    """A fit has red findings, or did not converge; see `verdict_`."""


class FitConvergenceWarning(FitWarning, ConvergenceWarning):  # type: ignore[misc]  # scikit-learn has no types
    """A `FitWarning` about convergence, which filters for scikit-learn's `ConvergenceWarning` also match."""


def colour(findings: Iterable[Finding]) -> Colour:
    """Return the worst severity as a traffic light. Notes do not count."""
    found = {finding.severity for finding in findings}
    return "red" if "red" in found else "amber" if "amber" in found else "green"


def in_words(findings: Sequence[Finding]) -> str:
    """Format findings, one paragraph each: its sentence, then its remedy."""
    return "\n".join(f"- {one.sentence}" + (f" Try: {one.remedy}." if one.remedy else "") for one in findings)
