"""Read values of a TOML file one by one, and report all problems together, with their line numbers."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vpem.reading.problems import MOST_SHOWN, unknown
from vpem.studies.lines import Key, key_lines, line_of

DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|sec|min|m|h|d|days?|weeks?)\s*")
SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "day": 86_400, "days": 86_400}
SECONDS |= {"week": 604_800, "weeks": 604_800}
FINGERPRINT = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){15}")
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MISSING: Any = object()
"""Value of a field that is not in the file."""


class StudyFileError(ValueError):
    """A file of a study cannot be used; the message has a line for each problem."""


class Fields:
    """Contents of a file; keys that were never taken are reported as unknown at the end.

    Parameters
    ----------
    path : path
        Path of a TOML file.
    what : str
        Description of the file, for the error if it does not exist.
    text : str, optional
        Contents of the file, if they were not read from the path.
    """

    def __init__(self, path: str | os.PathLike[str], what: str, text: str | None = None):
        self.path, self.problems = Path(path), list[tuple[int, str]]()
        """Line number and message of each problem."""
        try:
            text = self.path.read_text(encoding="utf-8-sig") if text is None else text
            self.content = tomllib.loads(text)
        except FileNotFoundError:
            raise StudyFileError(f"{path}: expected {what}, found no such file") from None
        except (IsADirectoryError, PermissionError) as error:
            raise StudyFileError(
                f"{path}: expected {what}, got no file that can be read ({error.strerror})"
            ) from None
        except UnicodeDecodeError:
            raise StudyFileError(f"{path}: expected {what} in UTF-8, got something else") from None
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"line (\d+)", str(error))
            where = f", line {line.group(1)}" if line else ""
            raise StudyFileError(f"{path}{where}: expected TOML, got something else: {error}") from None
        self._lines = key_lines(text)
        self._known: dict[Key, list[str]] = {}

    def take(self, key: str | Key, check: Callable[[Any], Any], default: Any = MISSING) -> Any:
        """Return the value at a key, as `check` returns it, or the default if the key is missing.

        If `check` raises, or if the key is missing and has no default, note a problem and return None. `check`
        raises ValueError with what it expects; the value that it received is added here.
        """
        path = (key,) if isinstance(key, str) else key
        value = self._find(path)
        if value is MISSING:
            if default is MISSING:
                self.add(path, f"expected {'.'.join(path)}, found none")
                return None
            return default
        try:
            return check(value)
        except ValueError as error:
            self.add(path, f"{'.'.join(path)}: {error}, got {_shown(value)}")
            return None

    def table(self, key: str | Key) -> list[str]:
        """Return the names in a table; an empty list if the table is missing."""
        path = (key,) if isinstance(key, str) else key
        found = self._find(path)
        if found is MISSING:
            return []
        if not isinstance(found, dict):
            self.add(path, f"expected a table [{'.'.join(path)}], got {_shown(found)}")
            return []
        return list(found)

    def has(self, *key: str) -> bool:
        """True if the file contains a key."""
        return self._find(key) is not MISSING

    def add(self, key: Key, text: str) -> None:
        """Note a problem with a key."""
        line = line_of(self._lines, key)
        self.problems.append((line, f"{self.path}, line {line}: {text}"))

    def end(self) -> None:
        """Raise StudyFileError if there were problems, or keys that were never taken."""
        self._add_unknown((), self.content)
        complain([text for _, text in sorted(self.problems)])

    def _find(self, path: Sequence[str]) -> Any:
        value: Any = self.content
        for depth, name in enumerate(path):
            self._known.setdefault(tuple(path[:depth]), []).append(name)
            value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
        return value

    def _add_unknown(self, path: Key, table: dict[str, Any]) -> None:
        known = list(dict.fromkeys(self._known.get(path, ())))
        for name, value in table.items():
            here = (*path, name)
            text = unknown(name, known, f"{'.'.join(path)}: the key" if path else "the key")
            if text is not None:
                self.add(here, text.replace("is not there", "is not one of this file", 1))
            elif isinstance(value, dict) and here in self._known:
                self._add_unknown(here, value)


def complain(problems: Sequence[str]) -> None:
    """Raise StudyFileError if there are problems."""
    if not problems:
        return
    if len(problems) == 1:
        raise StudyFileError(problems[0])
    lines = [f"- {text}" for text in problems[:MOST_SHOWN]]
    if len(problems) > MOST_SHOWN:
        lines.append(f"- and {len(problems) - MOST_SHOWN} more")
    raise StudyFileError(
        "\n".join([f"expected files that can be used as they are, got {len(problems)} problems:", *lines])
    )


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# Checks of single values: each raises ValueError with what it expects


def text(value: Any) -> str:
    """Validate a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text")
    return value


def name(value: Any) -> str:
    """Validate a name that can also be used in files, in certificates and on the wire."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ValueError("expected 1 to 64 letters, digits, - and _")
    return value


def fingerprint(value: Any) -> str:
    """Validate the fingerprint of a key, as printed by `vpem keys show`; return it in lower case."""
    if not isinstance(value, str) or not FINGERPRINT.fullmatch(value.lower()):
        raise ValueError("expected 16 pairs of hexadecimal digits with colons, as vpem keys show says them")
    return value.lower()


def names(value: Any) -> tuple[str, ...]:
    """Validate one name of a column, or a list of different names; return a tuple."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(one, str) and one for one in found):
        raise ValueError("expected names of columns")
    if len(set(found)) < len(found):
        raise ValueError("expected every name once")
    return tuple(found)


def whole(smallest: int, largest: int = 2**31 - 1) -> Callable[[Any], int]:
    """Return a check for a whole number between limits, which are included."""

    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not smallest <= value <= largest:
            more = f"{smallest} or more" if largest == 2**31 - 1 else f"from {smallest} to {largest}"
            raise ValueError(f"expected a whole number, {more}")
        return value

    return check


def number(value: Any) -> float:
    """Validate a finite number of at least zero."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ValueError("expected a number, 0 or more")
    return float(value)


def boolean(value: Any) -> bool:
    """Validate true or false."""
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def one_of(known: Sequence[str]) -> Callable[[Any], str]:
    """Return a check for one of the known words."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return value

    return check


def duration(value: Any) -> float:
    """Return seconds, from a number of seconds or a text such as 10s, 30min, 1h, 2d."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    found = DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None or not (seconds := float(found.group(1)) * SECONDS[found.group(2)]):
        raise ValueError('expected a time such as "10s", "30min", "1h" or "2d"')
    return seconds


def address(value: Any) -> str:
    """Validate an address of the form host:port."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    is_host = bool(host) and not any(one in host for one in " /#?") and (":" not in host or host.startswith("["))
    if not is_host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("expected host:port, such as north.example.org:7450")
    return str(value)


def hexadecimal(value: Any) -> str:
    """Validate at least 16 bytes as hexadecimal digits; return them in lower case."""
    if not isinstance(value, str) or not re.fullmatch(r"([0-9a-fA-F]{2}){16,}", value):
        raise ValueError("expected at least 32 hexadecimal digits, drawn at random (vpem study init draws them)")
    return value.lower()
