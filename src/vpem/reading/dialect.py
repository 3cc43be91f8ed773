"""Format of a text file: encoding, separator, decimal mark and header, detected from its first bytes or given."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vpem.reading.date_parts import check_dates
from vpem.reading.gap_words import MISSING, GapWords, check_gaps
from vpem.reading.problems import TableError

SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas", " ": "spaces"}
"""Separators that are tried, with their names. The comma may be a decimal mark, so it is tried late."""

HEAD_BYTES = 2**18
MOST_RECORDS = 400

NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)", re.IGNORECASE)
COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([., ]\d{3})+")


@dataclass(frozen=True, kw_only=True)
class Form:
    """Format of text files as the user gave it; None for properties to detect."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: bool | None = None
    dates: Mapping[str, str] = field(default_factory=dict)
    """Columns of dates, as `name` or `party.name`, to the part they are converted to; applies to all file types."""
    gaps: Any = field(default=None, hash=False)
    """Words that are gaps: a list for all columns, or column to list; the column "*" stands for all others."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gaps", check_gaps(self.gaps))
        separator = {"tab": "\t", r"\t": "\t", "space": " "}.get(self.separator or "", self.separator)
        object.__setattr__(self, "separator", separator)
        if separator is not None and (len(separator) != 1 or separator in '"\r\n' or not separator.isascii()):
            raise TableError(f"expected one character as separator, such as ; or , or tab, got {self.separator!r}")
        object.__setattr__(self, "dates", check_dates(self.dates))
        if self.decimal not in (None, ".", ","):
            raise TableError(f"expected . or , as decimal mark, got {self.decimal!r}")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise TableError(
                    f"expected the name of an encoding, such as utf-8, utf-16 or latin-1, got {self.encoding!r}"
                ) from None


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """Format of one file."""

    encoding: str = "utf-8"
    separator: str = ","
    decimal: str = "."
    has_header: bool = True
    names: tuple[str, ...]
    """Names of all columns; generated for columns without a name."""
    unnamed: frozenset[str] = frozenset()
    """Generated names of columns without a name in the header."""
    index: str | None = None
    """First column if it has no name: the row numbers or names that pandas and R write."""
    skipped_lines: int = 0
    """Number of lines before the rows: the header, and a line `sep=` of Excel."""
    gaps: GapWords | None = field(default=None, hash=False)
    """Words that are gaps, as the user gave them; None if not given."""
    doubt: str = ""
    """Ambiguity that the user must resolve, or ""."""
    notes: tuple[str, ...] = ()
    """Notes for the user on an unusual format."""


def sniff(head: bytes, form: Form | None = None, *, is_whole: bool = True) -> Dialect:
    """Detect the format of a file from its first bytes.

    Parameters
    ----------
    head : bytes
        Decompressed bytes.
    form : Form, optional
        Properties that are given, and therefore not detected.
    is_whole : bool
        True if `head` is the whole file; otherwise its last line is ignored, as it may be incomplete.

    Raises
    ------
    TableError
        If the bytes are not text, or the file is empty.
    """
    form = Form() if form is None else form
    encoding = form.encoding or _encoding(head)
    text = _decode(head, encoding)
    text, told, n_before = _told_by_excel(text)
    separator = form.separator or told or _separator(text, is_whole, form.decimal)
    records, n_lines = _records(text, separator, is_whole)
    if not records:
        raise TableError("expected a table, got a file that is empty or has no whole line")
    first, rest = records[0], records[1:]
    has_header = _is_header(first, rest) if form.header is None else form.header
    decimal, doubt = _decimal(rest if has_header else records, separator, form)
    given = _complete(first, rest) if has_header else [""] * len(first)
    if not doubt and form.separator is None and separator == "," and len(first) == 1 and len(given) == 2:
        shown = ",".join(rest[0])
        doubt = f"expected as many names as values, got one name and {shown!r}: is the comma a decimal mark?"
    names, unnamed = _names(given, has_header)
    is_index = has_header and (given[0].strip() == "" or given[0].startswith("Unnamed: 0")) and len(given) > 1
    notes = [] if form.encoding or encoding == "utf-8" else [f"read as {_spoken(encoding)}"]
    if separator != "," and not form.separator:
        notes.append(f"separated by {SEPARATORS.get(separator, repr(separator))}")
    if decimal != "." and not form.decimal:
        notes.append("with decimal commas")
    if form.header is None:
        notes += _header_notes(first, names, has_header)
    return Dialect(
        encoding=encoding,
        separator=separator,
        decimal=decimal,
        has_header=has_header,
        names=tuple(names),
        unnamed=frozenset(unnamed),
        index=names[0] if is_index else None,
        skipped_lines=n_before + (n_lines[0] if has_header else 0),
        gaps=form.gaps,
        doubt=doubt,
        notes=tuple(notes),
    )


def _encoding(head: bytes) -> str:
    marks = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    for mark, name in marks.items():
        if head.startswith(mark):
            return name
    if b"\0" in head:
        even, odd = head[::2].count(0), head[1::2].count(0)
        if odd > len(head) / 4 and not even:
            return "utf-16-le"
        if even > len(head) / 4 and not odd:
            return "utf-16-be"
        raise TableError("expected a table as text or Parquet, got other binary data")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _decode(head: bytes, encoding: str) -> str:
    name = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    try:
        return codecs.getincrementaldecoder(name)(errors="replace" if name == "cp1252" else "strict").decode(head)
    except UnicodeDecodeError as error:
        raise TableError(f"expected text in {_spoken(encoding)}, got other bytes: {error.reason}") from None


def _spoken(encoding: str) -> str:
    names = {"cp1252": "Windows-1252 (Latin), as it is not UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16"}
    return names.get(encoding, encoding.upper())


def _told_by_excel(text: str) -> tuple[str, str | None, int]:
    """Return the text after a first line such as `sep=;`, its separator or None, and the number of lines removed."""
    found = re.match(r'"?sep=(.)"?\r?\n', text)
    return (text[found.end() :], found.group(1), 1) if found else (text, None, 0)


def _records(text: str, separator: str, is_whole: bool) -> tuple[list[list[str]], list[int]]:
    """Return the fields of the first non-empty records, and the number of the line on which each record ends."""
    if not is_whole:
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1] or text
    reader = csv.reader(re.split(r"(?<=\n)|(?<=\r)(?!\n)", text), delimiter=separator, strict=False)
    records, lines = [], []
    try:
        for record in reader:
            if any(record) or len(record) > 1:
                records.append(record)
                lines.append(reader.line_num)
            if len(records) > MOST_RECORDS:
                break
    except csv.Error:
        pass  # Arrow's reader raises a clearer error
    return records, lines


def _separator(text: str, is_whole: bool, decimal: str | None) -> str:
    """Return the separator that splits most lines into the same number of fields.

    The header must have as many fields, or one fewer, as R writes it.
    """
    best, best_share = ";" if decimal == "," else ",", 0.0
    for separator in SEPARATORS:
        counts = [len(record) for record in _records(text, separator, is_whole)[0]]
        if not counts:
            continue
        body = Counter(counts[1:] or counts)
        width = max(body, key=lambda size: (body[size], size))
        if width < 2 or counts[0] not in (width, width - 1):
            continue
        if separator == decimal and counts[0] != width:
            continue  # one column of numbers with decimal marks
        share = body[width] / body.total()
        if separator == " " and (share < 1 or best_share > 0):
            continue
        if share > best_share:
            best, best_share = separator, share
    return best


def _is_number(text: str) -> bool:
    return NUMBER.fullmatch(text.strip()) is not None


def _is_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """True if the first line is a header: it has other texts than numbers and gaps, or pandas' names 0, 1, 2, ..."""
    texts = [text.strip() for text in first]
    if not any(map(_is_number, texts)) or not all(_is_number(text) or text in MISSING for text in texts):
        return True
    counted = texts[1:] if texts[0] == "" else texts
    if counted != [str(number) for number in range(len(counted))]:
        return False
    fractions = any(re.search(r"[.,]\d", text) for record in rest for text in record[-len(counted) :])
    return texts[0] == "" or fractions or len(counted) > 2


def _complete(first: list[str], rest: list[list[str]]) -> list[str]:
    """Add a name to a header that is one short: R omits the first name, other programs end rows with a separator."""
    width = max(Counter(map(len, rest)).items(), key=lambda item: (item[1], item[0]))[0] if rest else len(first)
    if len(first) != width - 1:
        return first
    ends = all(record[-1].strip() == "" for record in rest if len(record) == width)
    return [*first, ""] if ends else ["", *first]


def _names(given: Sequence[str], has_header: bool) -> tuple[list[str], list[str]]:
    """Return the names of all columns, and those generated for columns without a name in the header."""
    taken, names, made = {text.strip() for text in given}, [], []
    for number, text in enumerate(given):
        name = text.strip()
        if not name:
            name = "index" if number == 0 and has_header else f"column_{number}"
            while name in taken:
                name += "_"
            taken.add(name)
            made.append(name)
        names.append(name)
    return names, made if has_header else []


def _decimal(records: Sequence[Sequence[str]], separator: str, form: Form) -> tuple[str, str]:
    """Return the decimal mark, and a message if it is ambiguous, else ""."""
    if form.decimal is not None or separator == ",":
        return form.decimal or ".", ""
    fields = [text.strip() for record in records for text in record]
    commas = [text for text in fields if COMMA_NUMBER.fullmatch(text)]
    points = [text for text in fields if POINT_NUMBER.fullmatch(text)]
    if len(commas) <= len(points):
        return ".", ""
    if all(THOUSANDS.fullmatch(text) for text in commas):
        return ",", f"expected numbers that can be read in one way, got {commas[0]!r}: is the comma a decimal mark?"
    return ",", ""


def _header_notes(first: Sequence[str], names: Sequence[str], has_header: bool) -> list[str]:
    if not has_header:
        last = f" to {names[-1]}" if len(names) > 1 else ""
        return [f"the first line has numbers and counts as a row; the columns are {names[0]}{last} (else: --header)"]
    numbers = [text.strip() for text in first if _is_number(text)]
    if numbers:
        return [f"the first line counts as names, though it has numbers such as {numbers[0]} (else: --no-header)"]
    return []
