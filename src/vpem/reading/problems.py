"""Problems of tables, collected into one error."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROW_NUMBER = "@row"
"""Placeholder for an id column: match rows by number, for tables with the same rows in the same order."""

MOST_SHOWN = 12
"""Maximum number of problems listed in a message."""


class TableError(ValueError):
    """Raised for a table that cannot be used; the message gives the place and a remedy."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem of one table."""

    table: str
    """File or party."""
    text: str
    """Sentence with the place, what was expected and what was found."""
    kind: tuple[str, ...] = ()
    """Problems of the same kind are reported once for all tables; () is never merged."""
    remedy: str = ""
    column: str | None = None
    """Column that the user may leave out as a remedy."""
    may_be_id: bool = False


@dataclass(frozen=True)
class Words:
    """Wording of the remedies for one interface: the program, Python or a study."""

    ignore: str = "--ignore {}"
    id: str = "--id {}"
    quoted: bool = False
    families: str = "--family auto takes words as categories"
    decimals: str = "say it with --decimal , or --decimal ."
    dates: str = "--dates {name}={what}"
    family: str = "--family {name}={what}"
    gaps: str = "--gaps"

    def ignoring(self, names: Sequence[str]) -> str:
        """Return the option that leaves these columns out."""
        return self.ignore.format(list(names) if self.quoted else _in_shell(",".join(names)))

    def naming(self, name: str) -> str:
        """Return the option that makes this column the id."""
        return self.id.format(repr(name) if self.quoted else _in_shell(name))

    def dating(self, name: str, what: str) -> str:
        """Return the option that converts this column's dates to numbers."""
        return self._filled(self.dates, name, what)

    def circling(self, name: str, family: str) -> str:
        """Return the option that sets this column's family."""
        return self._filled(self.family, name, family)

    def _filled(self, text: str, name: str, what: str) -> str:
        if self.quoted:
            return text.format(name=repr(name), what=repr(what))
        return text.format(name=_in_shell(name), what=what)


def _in_shell(text: str) -> str:
    return text if all(one.isalnum() or one in "_-.,:%+" for one in text) else "'" + text.replace("'", "'\\''") + "'"


PROGRAM = Words()
PYTHON = Words(
    "vpem.tables.join(..., ignore={})",
    "on={}",
    quoted=True,
    families="VerticalMixture takes words as categories",
    decimals="say it with form=vpem.reading.Form(decimal=...)",
    dates="table[{name}] = vpem.tables.date_numbers(table[{name}], {what})",
    family="families={{{name}: {what}}}",
    gaps="vpem.tables.join(..., gaps=)",
)

STUDY = Words(
    "ignore = {}",
    "id = {}",
    quoted=True,
    families='families = "auto" in the [model] of the shared file takes words as categories',
    decimals='say decimal = "," or decimal = "." in [form]',
    dates="{name} = {what} in [dates]",
    family="{name} = {what} in [families]",
    gaps="gaps in the [form] of the party's file",
)
"""Wording for the files of a study."""


def complain(problems: Sequence[Problem], words: Words = PROGRAM) -> None:
    """Raise TableError if there are problems, with each kind once, then the remedies."""
    groups: dict[object, list[Problem]] = {}
    for number, problem in enumerate(problems):
        groups.setdefault(problem.kind or number, []).append(problem)
    if not groups:
        return
    sentences = [_sentence(group) for group in groups.values()]
    remedies = list(dict.fromkeys(problem.remedy for problem in problems if problem.remedy))
    columns = list(dict.fromkeys(problem.column for problem in problems if problem.column is not None))
    if columns:
        what = "the column" if len(columns) == 1 else "the columns"
        remedies.append(f"leave {what} out with {words.ignoring(columns)}, or turn into numbers first")
    ids = dict.fromkeys(problem.column for problem in problems if problem.may_be_id and problem.column is not None)
    if len(ids) == 1:
        remedies.append(f"if it names the rows, {words.naming(next(iter(ids)))}")
    if len(sentences) == 1:
        raise TableError("; ".join([sentences[0], *remedies]))
    shown = sentences[:MOST_SHOWN]
    if len(sentences) > MOST_SHOWN:
        shown.append(f"and {len(sentences) - MOST_SHOWN} more")
    head = f"expected tables that can be used as they are, got {len(sentences)} problems:"
    tries = [f"try: {remedy}" for remedy in remedies]
    raise TableError("\n".join([head, *(f"- {line}" for line in shown), *tries]))


def _sentence(group: list[Problem]) -> str:
    others = list(dict.fromkeys(problem.table for problem in group[1:] if problem.table != group[0].table))
    if not others:
        return group[0].text
    names = ", ".join(Path(name).name for name in others[:3]) + (", ..." if len(others) > 3 else "")
    return f"{group[0].text} (the same in {len(others)} more: {names})"


def meant(name: str, known: Sequence[str]) -> str:
    """Return `; did you mean 'x'?`, or "" if no known name is similar."""
    near = difflib.get_close_matches(name, known, n=1)
    if not near:
        folded = {one.casefold(): one for one in known}
        near = [folded[one] for one in difflib.get_close_matches(name.casefold(), folded, n=1)]
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown(name: str, known: Sequence[str], what: str) -> str | None:
    """Return an error message for an unknown name; None if the name is known."""
    if name in known:
        return None
    known = list(map(str, known))
    shown = ", ".join(known[:20]) + (" ..." if len(known) > 20 else "")
    return f"{what} {name!r} is not there{meant(name, known) or ';'} known are {shown}"


def check_known(name: str, known: Sequence[str], what: str) -> None:
    """Raise TableError for an unknown name; the message suggests a similar one."""
    text = unknown(name, known, what)
    if text is not None:
        raise TableError(text)
