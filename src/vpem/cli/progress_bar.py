"""Progress bar of a fit, with handling of Ctrl-C."""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn


class FitBar:
    """Progress bar with iterations, log-likelihood and the maximum remaining time.

    The first Ctrl-C ends the fit, which keeps the best model so far. The second Ctrl-C ends the program.
    """

    def __init__(self, console: Console, max_iter: int, n_starts: int, *, quiet: bool = False):
        self.max_iter, self.n_starts, self.quiet = max_iter, n_starts, quiet
        self.interrupted = False
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("log-likelihood {task.fields[bound]}"),
            TextColumn("[dim]{task.fields[left]}[/dim]"),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._last = 0.0
        self._seconds = 0.0
        self._before: Any = None

    def __enter__(self) -> FitBar:
        self._bar.start()
        self._task = self._bar.add_task("starting", total=self.max_iter, bound="...", left="")
        self._last = time.monotonic()
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        if not self._console.is_terminal and not self.quiet:  # without a terminal, no bar is shown
            self._console.print("fitting; Ctrl-C ends it with the best model so far")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._bar.stop()

    def __call__(self, start: int, iteration: int, lower_bound: float) -> bool:
        """Update the bar after an iteration; return True to end the fit."""
        now = time.monotonic()
        # A moving average; the first interval is skipped, because it includes the initialization.
        seconds = now - self._last
        self._seconds = 0.0 if iteration == 1 else 0.7 * (self._seconds or seconds) + 0.3 * seconds
        self._last = now
        remaining = self.max_iter - iteration + (self.n_starts - start) * self.max_iter
        assert self._task is not None, "entered"
        self._bar.update(
            self._task,
            completed=iteration,
            description=f"start {start} of {self.n_starts}" if self.n_starts > 1 else "iteration",
            bound=f"{lower_bound:.5f}",
            left=f"at most {_duration(remaining * self._seconds)} more" if self._seconds else "",
        )
        return self.interrupted

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (signal's signature)
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self._console.print("ending after this iteration with the best model so far; Ctrl-C again to give up")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
