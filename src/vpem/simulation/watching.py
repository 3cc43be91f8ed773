"""What a fit tells while it runs."""

from __future__ import annotations

from typing import Protocol


class Watch(Protocol):
    """Hears of starts and iterations; may end the fit."""

    @property
    def stopped(self) -> bool:
        """Whether the fit is to end with the best run so far."""

    def note(self, text: str) -> None:
        """Something about the whole fit."""

    def start(self, number: int) -> None:
        """A run begins."""

    def iteration(self, number: int, lower_bound: float) -> bool:
        """An iteration is over, with this log-likelihood per row; True ends the fit."""

    def end(self, converged: bool, n_iter: int, n_repairs: int) -> None:
        """A run is over."""

    def fail(self, error: Exception) -> None:
        """A run came to nothing."""
