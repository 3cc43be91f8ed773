"""Zenoh's own log: lines that it writes to the process's standard output, and that are removed from there.

Zenoh always writes its log to file descriptor 1; this cannot be configured. So while wires are open, the descriptor
is a pipe that a thread reads. Python's own `sys.stdout` still writes to the old destination, and the thread passes on
lines that are not zenoh's.
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
"""Maximum number of lines that are kept until they are read."""
ENDING_SECONDS = 1.0

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r"\d{4}-\S+Z\s+(?:TRACE|DEBUG|INFO|WARN|ERROR)\s.*?ThreadId\(\d+\)\s(.*)")
_WHERE = re.compile(r"(?:\S+:\s)*?((?:zenoh|rustls)[\w:]*): (.*)")
_NOISE = re.compile(r" at /\S+?\.rs:\d+\.?|\. Hint: increase the system open file limit\.| Retry in \S+")
_FILTER = "warn,zenoh::net::runtime::orchestrator=debug"
"""Filter of zenoh's log: warnings, and reasons why it could not connect."""
_USUAL = ("Gossip is disabled", "Scouting delay elapsed", "Skipping name verification")
"""Warnings about intended settings."""
_ECHOES = ("Received a close message", "Error syncing transport", "Remapping unsupported")
"""Parts of warnings about connections that the other end replaces; another line reports if no new one begins."""
_AWAITED = ("Connection refused", "No route to host", "Network is unreachable", "imed out", "Connection reset")
"""Parts of system errors which mean that the other end is absent; links detect this themselves."""


_UNABLE = re.compile(r"Unable to connect to (?:configured )?(?:peer )?(?:\w+/)?(\S+?)! (.*)")
_VALUES = re.compile(r"\w+ \{.*\}")
MOST_CHARACTERS = 200
_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r"reason (MAX_LINKS)",
            "it still counts an old connection of this party; another one is tried",
        ),
        (r"close message \(reason (\w+)\)", "it ended the connection before it was ready; another one is tried"),
        (r"invalid peer certificate: ([\w ]+)", "its certificate is not valid in this study"),
        (r"fatal alert: (\w*(?:Certificate|CA)\w*)", "it does not accept this party's certificate"),
        (r"fatal alert: (\w+)", "it ended the encryption"),
        (r"peer sent no certificates", "it showed no certificate"),
        (r"Unable to push non droppable", "closed, as the other end has not read from it for too long"),
        (r"(corrupt message|handshake eof|InvalidContentType)", "it did not speak TLS"),
    )
)
"""Patterns of the messages of zenoh and its TLS library, and their meanings."""


class ZenohLog:
    """Lines of zenoh's log. `zenoh_log` creates it once per process; each wire opens it once."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._lock = threading.Lock()
        self._n_open = 0
        self._outlet: _Outlet | None = None

    def open(self) -> None:
        """Start to remove zenoh's lines from the standard output, if the process has one."""
        with self._lock:
            self._n_open += 1
            if self._outlet is None:
                with contextlib.suppress(OSError):
                    self._outlet = _Outlet(self._take)
        _begin()

    def close(self) -> None:
        """Restore the standard output once the log was closed as often as it was opened."""
        with self._lock:
            self._n_open -= 1
            if self._n_open == 0 and self._outlet is not None:
                self._outlet.close()
                self._outlet = None

    def _take(self, line: bytes) -> bool:
        """Return True if a line is one of zenoh's; keep it if it reports a problem."""
        match = _LINE.fullmatch(_COLOUR.sub("", line.decode(errors="replace")).rstrip())
        if match is not None and (problem := _problem(match[1])) is not None:
            self._lines.append(problem)
        return match is not None

    def lines(self) -> list[str]:
        """Return the lines since the last call."""
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._lines.popleft())
        return found


class _Outlet:
    """Descriptor 1 as a pipe: a thread offers each line to `take`, and passes on the lines that it does not take."""

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
        """Restore descriptor 1, and wait until everything that was written to the pipe has been passed on."""
        if self._stdout is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stdout.flush()  # puts what was written to it in the meantime in the pipe's order
        os.dup2(self._old, 1, inheritable=True)  # closes the pipe's last write end, so that the thread ends
        self._thread.join(ENDING_SECONDS)
        if not self._thread.is_alive():  # a child process may hold the pipe
            os.close(self._old)
        if self._ours is not None and sys.stdout is self._ours:
            sys.stdout = self._stdout
            self._ours.close()


def without_places(text: str) -> str:
    """Remove source locations and hints from a message of zenoh."""
    return _NOISE.sub("", text).strip()


def _problem(text: str) -> str | None:
    """Return the problem that a line of the log reports, or None if it reports no problem."""
    match = _WHERE.fullmatch(text)
    where, what = ("", text) if match is None else match.groups()
    what = without_places(what)
    if where.endswith("::orchestrator"):
        match = _UNABLE.match(what)
        if match is None or any(words in what for words in _AWAITED):
            return None
        return f"{match[1]}: {_in_words(match[2])}"
    if what.startswith(_USUAL) or any(words in what for words in _ECHOES):
        return None
    return f"a connection: {_in_words(what)}"


def _in_words(what: str) -> str:
    """Explain zenoh's message about a connection in plain words, with zenoh's own term in parentheses."""
    for pattern, words in _WORDS:
        if (match := pattern.search(what)) is not None:
            return words + (f" ({match[1]})" if match.groups() else "")
    return f"zenoh says: {_VALUES.sub('...', what)[:MOST_CHARACTERS]}"


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
    """Return the only log of this process."""
    return ZenohLog()
