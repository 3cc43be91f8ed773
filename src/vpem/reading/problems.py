"""What is wrong with tables, all of it in one message."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_SHOWN = 12
"""Problems that are told one by one."""


class TableError(ValueError):
    """A table that cannot be used as it is; the message says where, and what to try."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong with one table."""

    table: str
    """File or party."""
    text: str
    """A sentence: where, what was expected, what came."""
    kind: tuple[str, ...] = ()
    """Problems of several tables with the same kind are told once; empty: with no other."""
    remedy: str = ""
    column: str | None = None
    """Column that may be left out as a remedy."""
    may_be_id: bool = False


@dataclass(frozen=True)
class Words:
    """How the remedies are called where the tables came from."""

    ignore: str = "--ignore {}"
    id: str = "--id {}"
    quoted: bool = False
    families: str = "--family auto takes words as categories"

    def ignoring(self, names: Sequence[str]) -> str:
        """What leaves these columns out."""
        return self.ignore.format(list(names) if self.quoted else _in_shell(",".join(names)))

    def naming(self, name: str) -> str:
        """What makes this column the id."""
        return self.id.format(repr(name) if self.quoted else _in_shell(name))


def _in_shell(text: str) -> str:
    return text if all(one.isalnum() or one in "_-.,:%+" for one in text) else "'" + text.replace("'", "'\\''") + "'"


PROGRAM = Words()
PYTHON = Words(
    "vpem.tables.join(..., ignore={})", "on={}", quoted=True, families="VerticalMixture takes words as categories"
)

STUDY = Words(
    "ignore = {}",
    "id = {}",
    quoted=True,
    families='families = "auto" in the [model] of the shared file takes words as categories',
)
"""In the files of a study."""


def complain(problems: Sequence[Problem], words: Words = PROGRAM) -> None:
    """Raise TableError if there are problems: every kind once, then what leaves the columns out."""
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
    """`; did you mean 'x'?`, or nothing if no known name is near."""
    near = difflib.get_close_matches(name, known, n=1)
    if not near:
        folded = {one.casefold(): one for one in known}
        near = [folded[one] for one in difflib.get_close_matches(name.casefold(), folded, n=1)]
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown(name: str, known: Sequence[str], what: str) -> str | None:
    """What is wrong with a name that is none of the known ones; None if it is one."""
    if name in known:
        return None
    known = list(map(str, known))
    shown = ", ".join(known[:20]) + (" ..." if len(known) > 20 else "")
    return f"{what} {name!r} is not there{meant(name, known) or ';'} known are {shown}"


def check_known(name: str, known: Sequence[str], what: str) -> None:
    """Raise TableError for a name that is none of the known ones, with the one that was meant, perhaps."""
    text = unknown(name, known, what)
    if text is not None:
        raise TableError(text)
