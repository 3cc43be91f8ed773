"""Verdict on whether a fit can be trusted: findings in words, from facts about it."""

from vpem.verdict.facts import BlockFacts, CodeFacts, DependenceFacts, Facts
from vpem.verdict.findings import Finding, FitConvergenceWarning, FitWarning, colour, in_words
from vpem.verdict.rules import before_the_run, best_at_edge, judge
from vpem.verdict.wording import Wording, in_program, in_python, in_study

__all__ = [
    "BlockFacts",
    "CodeFacts",
    "DependenceFacts",
    "Facts",
    "Finding",
    "FitConvergenceWarning",
    "FitWarning",
    "Wording",
    "before_the_run",
    "best_at_edge",
    "colour",
    "in_program",
    "in_python",
    "in_study",
    "in_words",
    "judge",
]
