"""Fitted models with one thing changed."""

from dataclasses import replace

from vpem.estimators import from_fitted
from vpem.model.judgement import Judgement


def changed(model, **fields):
    """Return a copy whose fit has other fields."""
    return from_fitted(replace(model.fitted_, **fields))


def judged(model, findings):
    """Return a copy with other findings."""
    return changed(model, judgement=Judgement(findings=findings))
