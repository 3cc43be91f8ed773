"""Events of a run, as lines for people and as lines of JSON for programs."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from vpem.studies.folder import FolderError
from vpem.studies.shared import Study
from vpem.transports.outcomes import Away, Here, Outcome, Problem, Progress, Waiting, Wrong
from vpem.transports.presence import Awaited
from vpem.words import as_bytes, as_time

MATCH = "match"
"""Phase in which rows are matched."""
EVERY = 2.0
"""Seconds between two lines about iterations."""


@dataclass(frozen=True)
class Note:
    """Something that the user should know."""

    text: str


@dataclass(frozen=True)
class Begun:
    """Start of a run, with its participants."""

    study: str
    name: str
    neighbours: tuple[str, ...]
    max_iter: int
    starts: int


@dataclass(frozen=True)
class Tokens:
    """A party's progress with the tokens by which rows are matched."""

    done: int
    total: int

    @property
    def percent(self) -> int:
        """Percentage of the tokens that are done, rounded down."""
        return 100 * self.done // max(self.total, 1)


class Journal:
    """Log of a run: writes every event to a file, counts bytes, and passes the event to `watch`.

    Parameters
    ----------
    path : Path
        File to which each event appends a line of JSON.
    """

    def __init__(self, path: Path):
        self.path = path
        self.watch: Callable[[Any], object] | None = None
        self.sent = self.received = 0
        self._file: TextIO | None = None

    def __enter__(self) -> Journal:
        try:
            self._file = self.path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise FolderError(f"{self.path}: expected a file to write the log to, got: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def begin(self, study: Study, number: int, without: set[int]) -> None:
        """Log the participants."""
        neighbours = tuple(study.names[peer] for peer in study.neighbours(number) if peer not in without)
        self.tell(Begun(study.name, study.names[number], neighbours, study.model.max_iter, study.model.starts))

    def tell(self, event: Any) -> None:
        """Log an event."""
        if isinstance(event, Progress):
            self.sent, self.received = event.sent, event.received
        if self._file is not None:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            about = {name: _plain(value) for name, value in asdict(event).items()}
            try:
                self._file.write(json.dumps({"time": now, "event": type(event).__name__.lower(), **about}) + "\n")
            except OSError:  # a full disk stops the log, but not the run: its checkpoints decide that
                self._file = None
        if self.watch is not None:
            self.watch(event)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Lines:
    """Lines for people: neighbours present and awaited, and the progress of the fit.

    Parameters
    ----------
    write : callable
        Called with each line.
    """

    def __init__(self, write: Callable[[str], object] = lambda line: sys.stdout.write(f"{line}\n")):
        self.write = write
        self.state = State()

    def tell(self, event: Any) -> None:
        """Write a line about an event, if it deserves one."""
        line = self.state.take(event)
        if line is not None:
            self.write(line)


class State:
    """State of a run, updated by its events."""

    def __init__(self) -> None:
        self.begun = Begun("", "", (), 0, 1)
        self.away: dict[str, float] = {}
        """Awaited neighbour to the time since which it is awaited."""
        self.awaited: tuple[Awaited, ...] = ()
        """Agents that this agent waits for, from the last `Waiting` event."""
        self._awaited_at = 0.0
        self.progress: Progress | None = None
        self.tokens: Tokens | None = None
        """Progress with tokens while rows are matched; else None."""
        self._tokens_from = (0.0, 0)
        self._last_line = -math.inf
        self._phase = ""
        self._pace: list[tuple[float, int, int]] = []

    def take(self, event: Any) -> str | None:
        """Update the state with an event. Return a line about it, or None if it does not deserve one."""
        now = time.monotonic()
        if isinstance(event, Tokens):
            return self._token(event, now)
        if isinstance(event, Outcome) or (isinstance(event, Progress) and event.phase != MATCH):
            self.tokens = None
        if isinstance(event, Progress):
            return self._iteration(event, now)
        if isinstance(event, Begun):
            self.begun, self.away = event, dict.fromkeys(event.neighbours, now)
            return f"{event.name} in study {event.study}: waiting for {', '.join(event.neighbours) or 'no one'}"
        if isinstance(event, Here):
            waited = now - self.away.pop(event.name, now)
            still = f"; still waiting for {', '.join(self.away)}" if self.away else "; all neighbours are here"
            return f"{event.name} is here" + (f" after {as_time(waited)}" if waited >= 1 else "") + still
        if isinstance(event, Away):
            self.away[event.name] = now
            return f"{event.name} is away ({event.reason}); waiting for it"
        if isinstance(event, Wrong):
            return f"{event.name} sent what it must not: {event.reason}"
        if isinstance(event, Problem):
            again = f" ({event.count:,} times so far)" if event.count > 1 else ""
            return f"refused: {event.text.removeprefix('refused ')}{again}"
        if isinstance(event, Waiting):
            self.awaited, self._awaited_at = event.awaited, now
            return f"waiting for {self.waiting()}" if event.awaited else None
        if isinstance(event, Note):
            return f"note: {event.text}"
        if isinstance(event, Outcome):
            if event.kind == "finished":
                return f"this party is done; {event.reason}" if event.reason else "all parties are done"
            return f"{event.kind}: {event.reason}"
        return None

    def waiting(self) -> str:
        """Describe each awaited agent: how long it has been awaited, and its last status."""
        now = time.monotonic()
        if self.awaited:
            return ", ".join(_awaited(one, now - self._awaited_at) for one in self.awaited)
        return ", ".join(f"{name} (for {as_time(now - since)})" for name, since in self.away.items())

    def _iteration(self, event: Progress, now: float) -> str | None:
        is_new = event.phase != self._phase
        self.progress, self._phase = event, event.phase
        if event.iteration > 0:
            self._pace = [*self._pace[-9:], (now, event.start, event.iteration)]
        if event.phase == "done" or (event.iteration == 0 and not is_new):
            return self.line() if event.phase == "done" else None
        if now - self._last_line < EVERY:
            return None
        self._last_line = now
        return self.line()

    def _token(self, event: Tokens, now: float) -> str | None:
        if self.tokens is None or event.done < self.tokens.done:  # the first event, or all parties have started again
            self._tokens_from = now, event.done
        self.tokens = event
        if now - self._last_line < EVERY and event.done < event.total:
            return None
        self._last_line = now
        rest = self.tokens_rest()
        return f"match: {event.percent} % of the tokens" + (f"; {rest}" if rest else "")

    def tokens_rest(self) -> str:
        """Describe the time that the remaining tokens take at the present rate."""
        tokens, (since, before) = self.tokens, self._tokens_from
        if tokens is None or tokens.done == before:
            return ""
        if tokens.done >= tokens.total:
            return "waiting for the others' tokens"
        pace = (time.monotonic() - since) / (tokens.done - before)
        return f"about {as_time(pace * (tokens.total - tokens.done))} more"

    def line(self) -> str:
        """Describe the progress of the fit."""
        event = self.progress
        if event is None:
            return "starting"
        traffic = f"sent {as_bytes(event.sent)}, received {as_bytes(event.received)}"
        if event.iteration == 0 or event.bound is None:
            return f"{event.phase}; {traffic}"
        start = f"start {event.start + 1} of {self.begun.starts}, " if self.begun.starts > 1 else ""
        rest = f"; at most {as_time(self.rest())} more" if self.rest() else ""
        return f"{start}iteration {event.iteration}, log-likelihood {event.bound:.5f} per row; {traffic}{rest}"

    def rest(self) -> float:
        """Return the seconds that the rest of the fit takes at most at its present rate; 0 if that is not known."""
        steps = [one for one in self._pace if one[1] == self._pace[-1][1]] if self._pace else []
        if len(steps) < 2 or steps[-1][2] == steps[0][2]:
            return 0.0
        pace = (steps[-1][0] - steps[0][0]) / (steps[-1][2] - steps[0][2])
        _, start, iteration = steps[-1]
        return pace * (self.begun.max_iter - iteration + (self.begun.starts - start - 1) * self.begun.max_iter)


def _awaited(one: Awaited, more: float) -> str:
    """Describe an awaited agent, `more` seconds after the event that reported it."""
    last = "never heard"
    if one.refused:
        last = f"refused: {one.refused}"
    elif one.heard is not None:
        said = f'it said "{one.said}"' if one.said else "it was heard"
        last = f"{said} {as_time(one.heard + more)} ago"
    return f"{one.name} (for {as_time(one.seconds + more)}; {last})"
