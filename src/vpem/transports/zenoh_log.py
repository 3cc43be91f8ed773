"""Zenoh's own log: lines that it writes to the process's standard output, taken out of there.

Zenoh writes its log to file descriptor 1 and cannot be told otherwise. So while wires are open, the descriptor is a
pipe that a thread reads. Python's own `sys.stdout` goes on to the old place, and so do lines that are not zenoh's.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import TextIO

MOST_LINES = 1000
"""That are kept until they are asked for."""
ENDING_SECONDS = 1.0

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r"\d{4}-\S+Z\s+(?:TRACE|DEBUG|INFO|WARN|ERROR)\s.*?ThreadId\(\d+\)\s(.*)")
_WHERE = re.compile(r"(?:\S+:\s)*?((?:zenoh|rustls)[\w:]*): (.*)")
_NOISE = re.compile(r" at /\S+?\.rs:\d+\.?|\. Hint: increase the system open file limit\.| Retry in \S+")
_FILTER = "warn,zenoh::net::runtime::orchestrator=debug"
"""What zenoh writes: warnings, and why it could not connect."""
_USUAL = ("Gossip is disabled", "Scouting delay elapsed", "Skipping name verification")
"""Warnings about what is meant so."""
_AWAITED = ("Connection refused", "No route to host", "Network is unreachable", "imed out", "Connection reset")
"""In words of the system: the other end is not there, which links see for themselves."""


class ZenohLog:
    """Lines of zenoh's log; made by `zenoh_log`, once in a process, and opened once for each wire."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._lock = threading.Lock()
        self._n_open = 0
        self._outlet: _Outlet | None = None

    def open(self) -> None:
        """Take lines out of the standard output, unless there is none."""
        with self._lock:
            self._n_open += 1
            if self._outlet is None:
                with contextlib.suppress(OSError):
                    self._outlet = _Outlet(self._take)
        _begin()

    def close(self) -> None:
        """Give the standard output back, when it was closed as often as it was opened."""
        with self._lock:
            self._n_open -= 1
            if self._n_open == 0 and self._outlet is not None:
                self._outlet.close()
                self._outlet = None

    def _take(self, line: bytes) -> bool:
        """Keep a line, if it is one of zenoh's."""
        match = _LINE.fullmatch(_COLOUR.sub("", line.decode(errors="replace")).rstrip())
        if match is not None and (problem := _problem(match[1])) is not None:
            self._lines.append(problem)
        return match is not None

    def lines(self) -> list[str]:
        """What has come since the last call."""
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._lines.popleft())
        return found


class _Outlet:
    """Descriptor 1 as a pipe: a thread offers its lines, and passes on what is not taken."""

    def __init__(self, take: Callable[[bytes], bool]):
        self._take, self._stdout = take, sys.stdout
        self._ours: TextIO | None = None
        self._old = os.dup(1)
        if self._stdout is not None and _number(self._stdout) == 1:
            self._stdout.flush()
            encoding, errors = self._stdout.encoding, self._stdout.errors
            self._ours = sys.stdout = open(os.dup(1), "w", buffering=1, encoding=encoding, errors=errors)  # noqa: SIM115
        reading, writing = os.pipe()
        os.dup2(writing, 1, inheritable=True)
        os.close(writing)
        self._pipe = open(reading, "rb")  # noqa: SIM115
        self._thread = threading.Thread(target=self._read, name="vpem-zenoh-log", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe:
            for line in self._pipe:
                if not self._take(line):
                    with contextlib.suppress(OSError):
                        os.write(self._old, line)

    def close(self) -> None:
        """Descriptor 1 is what it was before, and everything that was written to it has come out."""
        if self._stdout is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stdout.flush()  # what was written to it in the meantime is in the pipe's order
        os.dup2(self._old, 1, inheritable=True)  # the pipe's last end to write to is closed, so that the thread ends
        self._thread.join(ENDING_SECONDS)
        if not self._thread.is_alive():  # a child process may have the pipe
            os.close(self._old)
        if self._ours is not None and sys.stdout is self._ours:
            sys.stdout = self._stdout
            self._ours.close()


def without_places(text: str) -> str:
    """A message of zenoh without places in its source."""
    return _NOISE.sub("", text).strip()


def _problem(text: str) -> str | None:
    """What a line of the log says of a trouble; None if it says nothing of one."""
    match = _WHERE.fullmatch(text)
    where, what = ("", text) if match is None else match.groups()
    what = without_places(what)
    if where.endswith("::orchestrator"):
        is_trouble = what.startswith("Unable to") and not any(words in what for words in _AWAITED)
        return what if is_trouble else None
    return None if what.startswith(_USUAL) else what


def _number(file: object) -> int | None:
    try:
        return file.fileno()  # type: ignore[attr-defined,no-any-return]
    except (AttributeError, OSError, ValueError):
        return None


@cache
def _begin() -> None:
    import zenoh

    zenoh.init_log_from_env_or(_FILTER)


@cache
def zenoh_log() -> ZenohLog:
    """The one log of this process."""
    return ZenohLog()
