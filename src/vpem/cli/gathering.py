"""Tables that the commands read: which columns, whose they are, and what was found out about the files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vpem.cli.app import err, plain
from vpem.reading.dialect import Form
from vpem.reading.problems import MOST_SHOWN, TableError, check_known, meant, unknown
from vpem.study import read_parties

if TYPE_CHECKING:
    from vpem import VerticalMixture
    from vpem.reading import Rows, Source
    from vpem.reading.coding import Codes


def gather(
    tables: list[Path],
    id_column: str | None,
    parties: Path | None,
    ignore: list[str],
    form: Form | None = None,
    check: Callable[[list[str]], object] = lambda _: None,
    *,
    codes: Codes = False,
) -> tuple[Rows, Any]:
    """Rows of one table or of several, and which columns are whose; `check` sees the parties before rows are read.

    With `codes`, words are coded, as categories.
    """
    from vpem.reading import join, look_at_all, read

    if parties is not None and len(tables) > 1:
        raise TableError("expected no --parties with several tables: each file is a party of its own")
    partition: Any = None if parties is None else read_parties(parties)
    sources = look_at_all(tables, form)
    ids, ignored = find_names(sources, id_column, ignore)
    if partition is not None or len(tables) > 1:
        check([source.party for source in sources] if partition is None else list(partition))
    elif sources[0].index is None:  # or else the columns, which are the parties, are known only then
        check([name for name in sources[0].names if name not in ids and name not in ignored])
    if len(tables) > 1:
        rows = join(sources, ids, lambda party, name: not ignored & {name, f"{party}.{name}"}, codes=codes)
        partition = rows.parties
    elif partition is not None:
        partition = {party: [name for name in own if name not in ignored] for party, own in partition.items()}
        rows = read(
            sources[0], id_column=ids, columns=[name for own in partition.values() for name in own], codes=codes
        )
    else:
        rows = read(sources[0], id_column=ids, keep=lambda name: name not in ignored, codes=codes)
        partition = {name: [name] for name in rows.names}
    _tell(rows)
    numbers = {name: number for number, name in enumerate(rows.names)}
    return rows, {party: [numbers[name] for name in own] for party, own in partition.items() if own}


def said_families(given: list[str]) -> dict[str, str]:
    """What --family says of columns; nothing of them, if it says auto alone."""
    words = [text for text in given if "=" not in text]
    if set(words) - {"auto"}:
        raise TableError(
            f"expected --family as column=family, or auto, got {words[0]!r}; such as --family rain=zeros"
        )
    return {name: text for name, _, text in (one.rpartition("=") for one in given if "=" in one)}


def number_of_rounds(text: str | None) -> int | Literal["auto"] | None:
    """What --rounds says."""
    if text is None:
        return None
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise TableError(f"expected --rounds to be a whole number, 1 or more, or auto, got {text!r}")
    return int(text)


def columns_of(
    fitted: VerticalMixture,
    tables: list[Path],
    id_column: str | None,
    form: Form | None = None,
    told: set[str] | None = None,
) -> tuple[Any, dict[str, list[str]] | None, list[str]]:
    """The model's columns in its order, as far as the tables have them; the ids; parties that are not there.

    Notes in `told` are not told again.
    """
    from vpem.estimators.coding import word_names
    from vpem.reading import join, look_at_all, read

    wanted = [str(name) for name in getattr(fitted, "feature_names_in_", [])]
    codes = fitted._has_families and word_names(fitted)
    if hasattr(fitted, "feature_names_in_"):
        fitted._told_names = wanted
        del fitted.feature_names_in_
    sources = look_at_all(tables, form)
    ids, _ = find_names(sources, id_column)
    if len(tables) > 1:
        rows = join(sources, ids, lambda party, name: name in wanted or f"{party}.{name}" in wanted, codes=codes)
    else:
        own = [name for name in sources[0].names if name not in ids]
        known = [name for name in own if name in wanted or f"{sources[0].party}.{name}" in wanted]
        if wanted and not known:
            check_known(wanted[0], own, f"{tables[0]}: the model's column")
        rows = read(sources[0], id_column=ids, columns=known if wanted else None, codes=codes)
    _tell(rows, told)
    if not wanted:
        return rows.values, rows.keys, []
    place: dict[str, int] = {}
    for party, own in (rows.parties or {sources[0].party: rows.names}).items():
        for name in own:
            place.setdefault(name if name in wanted else f"{party}.{name}", rows.names.index(name))
    values, absent = np.full((len(rows.values), len(wanted)), np.nan), []
    missing: list[str] = []
    for owner, held in fitted.partition_.items():
        there = [column for column in held if wanted[column] in place]
        if not there:
            absent.append(str(owner))
        for column in held if there else []:
            text = unknown(wanted[column], list(place), f"the model's column (of {owner})")
            if text is None:
                name = rows.names[place[wanted[column]]]
                values[:, column] = _as_fitted(fitted, column, rows.values[:, place[wanted[column]]], rows, name)
            else:
                missing.append(text)
    if missing:
        raise TableError("\n".join(missing))
    return values, rows.keys, absent


def _as_fitted(fitted: VerticalMixture, column: int, values: Any, rows: Rows, name: str) -> Any:
    """Values of one column, with words coded as in the fit; words that it has not seen count as missing."""
    from vpem.estimators.coding import Coding

    if name not in rows.words:
        if column not in fitted._coding.labels or column in fitted._coding.numbers:
            return values
        try:
            return fitted._coding.code_numbers(column, values, name)
        except ValueError as error:
            raise TableError(str(error)) from None
    if column not in fitted._coding.labels:
        raise TableError(
            f"expected numbers in the model's column {name!r}, got words, such as {rows.words[name][0]!r}"
        )
    own = Coding({0: fitted._coding.labels[column]})
    found, unseen = own.code_rows(values[:, None], {0: rows.words[name]}, [name])
    if unseen:
        shown = unseen[0].removeprefix(f"{name!r}: ")
        err.print(
            plain(f"note: column {name!r} has words that the fit has not seen, which count as missing: {shown}")
        )
    return found[:, 0]


def check_choices(**options: tuple[str, Sequence[str]]) -> None:
    """Raise for options that are none of the words they may be; before any table is read."""
    wrong = []
    for option, (given, known) in options.items():
        if given not in known:
            words = f"{', '.join(known[:-1])} or {known[-1]}"
            wrong.append(f"expected --{option.replace('_', '-')} to be {words}, got {given!r}{meant(given, known)}")
    if wrong:
        raise TableError("\n".join(wrong))


def split_names(given: str, known: Sequence[str]) -> list[str]:
    """Names that commas separate, as in a line of CSV; a known name with a comma in it is one."""
    if given in known:
        return [given]
    return [name.strip() for name in next(csv.reader([given], skipinitialspace=True), []) if name.strip()]


def find_names(
    sources: Sequence[Source], id_column: str | None, ignore: Sequence[str] = ()
) -> tuple[list[str], set[str]]:
    """Columns that make the id, and those to leave out; all that is wrong with either is in one message."""
    every = list(dict.fromkeys(name for source in sources for name in source.names))
    if id_column is None and len(sources) > 1:
        shared = [name for name in every if all(name in source.names for source in sources)]
        hint = f" All have {', '.join(shared[:10])}{' ...' if len(shared) > 10 else ''}" if shared else ""
        raise TableError(f"expected --id with several tables, got none; which column names the rows?{hint}")
    ids = [] if id_column is None else split_names(id_column, every)
    wrong = [unknown(name, source.names, f"{source.path}: --id: column") for name in ids for source in sources]
    of_parties = [f"{source.party}.{name}" for source in sources for name in source.names] if len(sources) > 1 else []
    known = [name for name in every if name not in ids] + of_parties
    ignored = [name for given in ignore for name in split_names(given, [*every, *of_parties])]
    for name in ignored:
        if name in ids:
            wrong.append(f"expected other columns for --ignore than for --id, got {name!r}")
        else:
            wrong.append(unknown(name, known, "--ignore: column"))
    texts = [text for text in wrong if text is not None]
    if texts:
        raise TableError("\n".join(texts[:MOST_SHOWN]))
    return ids, set(ignored)


def _tell(rows: Rows, told: set[str] | None = None) -> None:
    told = set() if told is None else told
    for note in rows.notes:
        if note not in told:
            err.print(f"[yellow]note:[/yellow] {plain(note)}", highlight=False)
            told.add(note)
