"""Whether a fit can be trusted: findings in words, from facts about it."""

from vpem.verdict.facts import BlockFacts, Facts
from vpem.verdict.findings import Finding, FitConvergenceWarning, FitWarning, colour, in_words
from vpem.verdict.rules import before_the_run, best_at_edge, judge

__all__ = [
    "BlockFacts",
    "Facts",
    "Finding",
    "FitConvergenceWarning",
    "FitWarning",
    "before_the_run",
    "best_at_edge",
    "colour",
    "in_words",
    "judge",
]
