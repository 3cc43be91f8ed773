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
_LINE = re.compile(r"\S+Z\s+(TRACE|DEBUG|INFO|WARN|ERROR)\s+(?:ThreadId\(\d+\)\s+)?((?:zenoh|rustls)[\w:]*): (.*)")
_USUAL = ("Gossip is disabled", "Scouting delay elapsed")
"""Warnings about what is meant so."""


class ZenohLog:
    """Lines of zenoh's log; made by `zenoh_log`, once in a process."""

    def __init__(self, filter_: str):
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
        zenoh.init_log_from_env_or(filter_)

    def _read(self) -> None:
        for line in self._pipe:
            text = _COLOUR.sub("", line.decode(errors="replace")).rstrip()
            match = _LINE.fullmatch(text)
            if match is None:
                with contextlib.suppress(OSError):
                    os.write(self._old, line)
            elif not match[3].startswith(_USUAL):
                self._lines.append(f"{match[3]} ({match[2]})")

    def lines(self) -> list[str]:
        """What has come since the last call."""
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._lines.popleft())
        return found


def _number(file: object) -> int | None:
    try:
        return file.fileno()  # type: ignore[attr-defined,no-any-return]
    except (AttributeError, OSError, ValueError):
        return None


@cache
def zenoh_log(filter_: str = "warn") -> ZenohLog:
    """The one log of this process."""
    return ZenohLog(filter_)
