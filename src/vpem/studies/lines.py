"""Line numbers of the keys of a TOML text, which the parser of the standard library does not report."""

from __future__ import annotations

Key = tuple[str, ...]

BLANK = " \t\r\n"


def key_lines(text: str) -> dict[Key, int]:
    r"""Return the line, from 1, of every table and key of a valid TOML text, except for keys in `{ }`.

    Examples
    --------
    >>> key_lines('a = 1\n[b."c d"]\ne.f = [\n 2,\n]\ng = 3')
    {('a',): 1, ('b', 'c d'): 2, ('b', 'c d', 'e', 'f'): 3, ('b', 'c d', 'g'): 6}
    """
    found: dict[Key, int] = {}
    table: Key = ()
    place = 0
    while (place := _skip_blank(text, place)) < len(text):
        line = text.count("\n", 0, place) + 1
        if text[place] == "[":
            while text[place] in "[ \t":
                place += 1
            table, place = _read_key(text, place)
            found.setdefault(table, line)
            place = _end_of_line(text, place)
            continue
        key, place = _read_key(text, place)
        found.setdefault((*table, *key), line)
        place = _skip_value(text, place + 1)
    return found


def line_of(lines: dict[Key, int], key: Key) -> int:
    """Return the line of a key, or else of the table that has or should have it, or else 1."""
    while key:
        if key in lines:
            return lines[key]
        key = key[:-1]
    return 1


def _skip_blank(text: str, place: int) -> int:
    while place < len(text) and (text[place] in BLANK or text[place] == "#"):
        place = _end_of_line(text, place) if text[place] == "#" else place + 1
    return place


def _end_of_line(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


def _read_key(text: str, place: int) -> tuple[Key, int]:
    """Read a dotted key. Return it and the position of the `=` or `]` after it."""
    parts: list[str] = []
    while True:
        while text[place] in " \t":
            place += 1
        if text[place] in "\"'":
            end = _end_of_string(text, place)
            parts.append(text[place + 1 : end - 1])
        else:
            end = place
            while end < len(text) and text[end] not in " \t.=]":
                end += 1
            parts.append(text[place:end])
        place = end
        while place < len(text) and text[place] in " \t":
            place += 1
        if place >= len(text) or text[place] != ".":
            return tuple(parts), place
        place += 1


def _end_of_string(text: str, place: int) -> int:
    """Return the position after the string that begins at `place`."""
    mark = text[place]
    if text.startswith(mark * 3, place):
        mark *= 3
    place += len(mark)
    while not text.startswith(mark, place):
        place += 2 if text[place] == "\\" and mark[0] == '"' else 1
    place += len(mark)
    while len(mark) == 3 and text.startswith(mark[0], place):  # the string may end with quotes of its own
        place += 1
    return place


def _skip_value(text: str, place: int) -> int:
    """Return the position after the value that begins at `place`: the end of a line with no open bracket."""
    depth = 0
    while place < len(text):
        if text[place] in "\"'":
            place = _end_of_string(text, place)
            continue
        if text[place] == "#":
            place = _end_of_line(text, place)
            continue
        if text[place] == "\n" and depth == 0:
            break
        depth += (text[place] in "[{") - (text[place] in "]}")
        place += 1
    return place
