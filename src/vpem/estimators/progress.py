"""Progress output of fits, controlled by `verbose`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Callback = Callable[[int, int, float], object]


class Progress:
    """Print starts (verbose=1) and their iterations (verbose=2); call the callback, which may stop the fit."""

    def __init__(self, verbose: int, callback: Callback | None = None):
        self.verbose, self.callback = int(verbose), callback
        self.stopped = False
        self.n_start = 0
        self.last: float | None = None
        self.shift = 0.0
        """Added to printed log-likelihoods, to give those of the columns in their own units."""

    def note(self, text: str) -> None:
        """Print a line about the whole fit."""
        if self.verbose > 0:
            print(text, flush=True)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Print the duration of the block if it exceeds one second."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        if seconds > 1:
            self.note(f"{what} took {seconds:.0f} s")

    def start(self, number: int) -> None:
        """Record the beginning of a run from a new start."""
        self.n_start, self.last = number + 1, None

    def iteration(self, number: int, lower_bound: float) -> bool:
        """Report an iteration's log-likelihood per row; return True to stop the fit."""
        if self.verbose > 1:
            change = "" if self.last is None else f", change {lower_bound - self.last:+.6f}"
            print(
                f"start {self.n_start}, iteration {number}: log-likelihood {lower_bound + self.shift:.6f}{change}",
                flush=True,
            )
        self.last = lower_bound
        if self.callback is not None and self.callback(self.n_start, number, lower_bound + self.shift):
            self.stopped = True
        return self.stopped

    def end(self, converged: bool, n_iter: int, n_repairs: int) -> None:
        """Report the end of a run."""
        if self.verbose > 0 and self.last is not None:
            outcome = "converged" if converged else "did not converge"
            repairs = f", {n_repairs} components repaired" if n_repairs else ""
            likelihood = f"log-likelihood {self.last + self.shift:.6f}"
            print(f"start {self.n_start} {outcome} in {n_iter} iterations: {likelihood}{repairs}", flush=True)

    def fail(self, reason: str) -> None:
        """Report a run that failed."""
        if self.verbose > 0:
            print(f"start {self.n_start} failed: {reason}", flush=True)
