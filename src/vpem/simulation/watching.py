"""Interface for the progress reports of a fit."""

from __future__ import annotations

from typing import Protocol


class Watch(Protocol):
    """Observer of starts and iterations, which may stop the fit."""

    @property
    def stopped(self) -> bool:
        """True if the fit must stop with the best run so far."""

    def note(self, text: str) -> None:
        """Receive a line about the whole fit."""

    def start(self, number: int) -> None:
        """Receive the beginning of a run."""

    def iteration(self, number: int, lower_bound: float) -> bool:
        """Receive the end of an iteration and its log-likelihood per row; return True to stop the fit."""

    def end(self, converged: bool, n_iter: int, n_repairs: int) -> None:
        """Receive the end of a run."""

    def fail(self, reason: str) -> None:
        """Receive the failure of a run."""
