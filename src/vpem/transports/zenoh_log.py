"""Zenoh's own log: lines that it writes to the process's standard output, taken out of there.

Zenoh writes its log to file descriptor 1 and cannot be told otherwise. So the descriptor becomes a pipe, while
Python's own `sys.stdout` goes on to the old place, and a thread reads the pipe. Other lines go to the old place.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections import deque
from functools import cache

MOST_LINES = 1000
"""That are kept until they are asked for."""

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
    """Lines of zenoh's log; made by `zenoh_log`, once in a process."""

    def __init__(self) -> None:
        import zenoh

        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        self._old = os.dup(1)
        if sys.stdout is not None and _number(sys.stdout) == 1:
            sys.stdout = open(os.dup(1), "w", buffering=1, encoding=sys.stdout.encoding, errors=sys.stdout.errors)  # noqa: SIM115
        reading, writing = os.pipe()
        os.dup2(writing, 1, inheritable=True)
        os.close(writing)
        self._pipe = open(reading, "rb")  # noqa: SIM115
        threading.Thread(target=self._read, name="vpem-zenoh-log", daemon=True).start()
        os.environ.setdefault("NO_COLOR", "1")
        zenoh.init_log_from_env_or(_FILTER)

    def _read(self) -> None:
        for line in self._pipe:
            text = _COLOUR.sub("", line.decode(errors="replace")).rstrip()
            match = _LINE.fullmatch(text)
            if match is None:
                with contextlib.suppress(OSError):
                    os.write(self._old, line)
            elif (problem := _problem(match[1])) is not None:
                self._lines.append(problem)

    def lines(self) -> list[str]:
        """What has come since the last call."""
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._lines.popleft())
        return found


def _problem(text: str) -> str | None:
    """What a line of the log says of a trouble; None if it says nothing of one."""
    match = _WHERE.fullmatch(text)
    where, what = ("", text) if match is None else match.groups()
    what = _NOISE.sub("", what).strip()
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
def zenoh_log() -> ZenohLog:
    """The one log of this process."""
    return ZenohLog()
