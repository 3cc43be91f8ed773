"""Problems in zenoh's own log, in plain words.

Zenoh can write its log only to file descriptor 1 of the process, and only if `begin_log` is called. The library
does neither that nor redirect the descriptor: both are up to the owner of the process. The program `vpem` does so
(`vpem.cli.process`). Without it, a wire reports only what it sees itself, and refused certificates show as links that
do not begin.
"""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress
from functools import cache

MOST_LINES = 1000
"""Maximum number of lines that are kept until they are read."""

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


_problems: deque[str] = deque(maxlen=MOST_LINES)
"""Problems that were not read yet: one list for the process, as zenoh has one log for all its sessions."""


@cache
def begin_log() -> None:
    """Let zenoh write its log; only once in a process, as zenoh cannot begin it twice."""
    import zenoh

    zenoh.init_log_from_env_or(_FILTER)


def take_line(line: bytes) -> bool:
    """Return True if a line is one of zenoh's; keep it if it reports a problem."""
    match = _LINE.fullmatch(_COLOUR.sub("", line.decode(errors="replace")).rstrip())
    if match is not None and (problem := _problem(match[1])) is not None:
        _problems.append(problem)
    return match is not None


def logged_problems() -> list[str]:
    """Return the problems since the last call; none if nobody passes on zenoh's lines."""
    found = []
    with suppress(IndexError):
        while True:
            found.append(_problems.popleft())
    return found


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
