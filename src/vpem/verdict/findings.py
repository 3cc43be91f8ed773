"""A finding, the colour of several, and the warnings that carry them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from sklearn.exceptions import ConvergenceWarning

Severity = Literal["red", "amber", "note"]
Colour = Literal["red", "amber", "green"]


class Finding(NamedTuple):
    """Something about a fit that its user should know."""

    code: str
    """A short name, such as "few_rows"; it stays the same between versions."""
    severity: Severity
    """"red": the fit is not to be trusted. "amber": look at it before you rely on the fit. "note": good to know."""
    sentence: str
    """What was found, with its numbers."""
    remedy: str
    """What to try; may be empty for a note."""


class FitWarning(UserWarning):
    """A fit has red findings, or did not converge; see `verdict_`."""


class FitConvergenceWarning(FitWarning, ConvergenceWarning):  # type: ignore[misc]  # scikit-learn has no types
    """A `FitWarning` about convergence, for filters of scikit-learn's warning."""


def colour(findings: Iterable[Finding]) -> Colour:
    """The worst severity as a traffic light: notes do not count."""
    found = {finding.severity for finding in findings}
    return "red" if "red" in found else "amber" if "amber" in found else "green"


def in_words(findings: Sequence[Finding]) -> str:
    """One paragraph a finding: its sentence, then what to try."""
    return "\n".join(f"- {one.sentence}" + (f" Try: {one.remedy}." if one.remedy else "") for one in findings)
