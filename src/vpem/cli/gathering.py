"""Read the tables of a command: columns, their parties, and notes on the files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vpem.cli.app import err, plain
from vpem.reading.date_parts import check_dates, dates_of, is_part
from vpem.reading.dialect import Form
from vpem.reading.gap_words import parse_gaps, unknown_columns
from vpem.reading.problems import MOST_SHOWN, ROW_NUMBER, TableError, check_known, meant, unknown
from vpem.study import read_parties

if TYPE_CHECKING:
    from vpem.model.fitted import Fitted
    from vpem.reading import Rows, Source
    from vpem.reading.category_parsing import Codes


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
    """Read the rows of one or several tables; return them with the column numbers of each party.

    `check` is called with the parties before rows are read. With `codes`, words are encoded as categories.
    """
    from vpem.reading import join, look_at_all, read

    if parties is not None and len(tables) > 1:
        raise TableError("expected no --parties with several tables: each file is a party of its own")
    partition: Any = None if parties is None else read_parties(parties)
    sources = look_at_all(tables, form)
    ids, ignored = find_names(sources, id_column, ignore, form)
    _check_dates(sources, ids, ignored)
    if partition is not None or len(tables) > 1:
        check([source.party for source in sources] if partition is None else list(partition))
    elif sources[0].index is None:  # with an index, the columns, which are the parties, are known only after reading
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
        if len(partition) > 1:
            rows.notes.append(f"each of the {len(partition)} columns is a party of its own (else: --parties FILE)")
    tell_notes(rows.notes)
    numbers = {name: number for number, name in enumerate(rows.names)}
    return rows, {party: [numbers[name] for name in own] for party, own in partition.items() if own}


def said_families(given: list[str]) -> dict[str, str]:
    """Parse --family into column to family; {} for auto alone."""
    words = [text for text in given if "=" not in text]
    if set(words) - {"auto"}:
        raise TableError(
            f"expected --family as column=family, or auto, got {words[0]!r}; such as --family rain=zeros"
        )
    return {name: text for name, _, text in (one.rpartition("=") for one in given if "=" in one)}


def said_dates(given: list[str]) -> dict[str, str]:
    """Parse --dates into column to part of the date."""
    wrong = [text for text in given if "=" not in text]
    if wrong:
        raise TableError(f"expected --dates as column=days, column=weekday or column=hour, got {wrong[0]!r}")
    return check_dates({name: text for name, _, text in (one.rpartition("=") for one in given)})


def number_of_rounds(text: str | None) -> int | Literal["auto"] | None:
    """Parse --rounds."""
    if text is None:
        return None
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise TableError(f"expected --rounds to be a whole number, 1 or more, or auto, got {text!r}")
    return int(text)


def columns_of(
    fitted: Fitted,
    tables: list[Path],
    id_column: str | None,
    form: Form | None = None,
    told: set[str] | None = None,
) -> tuple[Any, dict[str, list[str]] | None, list[str]]:
    """Read the model's columns from tables; return the values, the ids, and the parties absent from the tables.

    Columns are in the model's order; those of absent parties are NaN. Notes in `told` are not printed again.
    """
    from vpem.reading import join, look_at_all, read

    wanted, read_as = list(fitted.names or ()), fitted.read_as
    codes = fitted.families is not None and fitted.word_names
    gaps: Any = fitted.gaps if form is None or form.gaps is None else form.gaps
    sources = look_at_all(tables, replace(form or Form(), dates=dates_of(read_as), gaps=gaps or None))
    ids, _ = find_names(sources, id_column, form=form)
    if len(tables) > 1:
        rows = join(sources, ids, lambda party, name: name in wanted or f"{party}.{name}" in wanted, codes=codes)
    else:
        own = [name for name in sources[0].names if name not in ids]
        known = [name for name in own if name in wanted or f"{sources[0].party}.{name}" in wanted]
        if wanted and not known:
            check_known(wanted[0], own, f"{tables[0]}: the model's column")
        rows = read(sources[0], id_column=ids, columns=known if wanted else None, codes=codes)
    tell_notes(rows.notes, told)
    if not wanted:
        return rows.values, rows.keys, []
    place: dict[str, int] = {}
    for party, own in (rows.parties or {sources[0].party: rows.names}).items():
        for name in own:
            place.setdefault(name if name in wanted else f"{party}.{name}", rows.names.index(name))
    values, absent = np.full((len(rows.values), len(wanted)), np.nan), []
    missing: list[str] = []
    for owner, held in fitted.partition.items():
        there = [column for column in held if wanted[column] in place]
        if not there:
            absent.append(str(owner))
        for column in held if there else []:
            text = unknown(wanted[column], list(place), f"the model's column (of {owner})")
            if text is None:
                name = rows.names[place[wanted[column]]]
                values[:, column] = _as_fitted(fitted, column, rows.values[:, place[wanted[column]]], rows, name)
                _compare_units(wanted[column], read_as.get(wanted[column], ""), rows.read_as.get(name, ""))
            else:
                missing.append(text)
    if missing:
        raise TableError("\n".join(missing))
    return values, rows.keys, absent


def _compare_units(name: str, fitted: str, found: str) -> None:
    """Raise TableError for a currency other than the fit's; print a note if only one of the two has percentages."""
    if fitted == found or is_part(fitted):
        return
    if "%" not in (fitted, found) and fitted and found:
        raise TableError(f"expected amounts in {fitted} in column {name!r}, as in the fit, got amounts in {found}")
    if "%" in (fitted, found):
        has, had = (
            f"has {'percentages' if one == '%' else f'amounts in {one}' if one else 'plain numbers'}"
            for one in (found, fitted)
        )
        note = f"column {name!r} {has}, and the table of the fit {had}; 18% is read as 0.18: are the units the same?"
        err.print(f"[yellow]note:[/yellow] {plain(note)}", highlight=False)


def _as_fitted(fitted: Fitted, column: int, values: Any, rows: Rows, name: str) -> Any:
    """Return one column with words encoded as in the fit; words unknown to the fit become missing."""
    from vpem.model.category_codes import Coding

    if name not in rows.words:
        if column not in fitted.coding.labels or column in fitted.coding.numbers:
            return values
        try:
            return fitted.coding.code_numbers(column, values, name)
        except ValueError as error:
            raise TableError(str(error)) from None
    if column not in fitted.coding.labels:
        raise TableError(
            f"expected numbers in the model's column {name!r}, got words, such as {rows.words[name][0]!r}"
        )
    own = Coding({0: fitted.coding.labels[column]})
    found, unseen = own.code_rows(values[:, None], {0: rows.words[name]}, [name])
    if unseen:
        shown = unseen[0].removeprefix(f"{name!r}: ")
        err.print(
            plain(f"note: column {name!r} has words that the fit has not seen, which count as missing: {shown}")
        )
    return found[:, 0]


def check_choices(**options: tuple[str, Sequence[str]]) -> None:
    """Raise TableError for options with unknown values; called before any table is read."""
    wrong = []
    for option, (given, known) in options.items():
        if given not in known:
            words = f"{', '.join(known[:-1])} or {known[-1]}"
            wrong.append(f"expected --{option.replace('_', '-')} to be {words}, got {given!r}{meant(given, known)}")
    if wrong:
        raise TableError("\n".join(wrong))


def split_names(given: str, known: Sequence[str]) -> list[str]:
    """Split names at commas, as in a line of CSV; a known name that contains a comma is not split."""
    if given in known:
        return [given]
    return [name.strip() for name in next(csv.reader([given], skipinitialspace=True), []) if name.strip()]


def find_names(
    sources: Sequence[Source], id_column: str | None, ignore: Sequence[str] = (), form: Form | None = None
) -> tuple[list[str], set[str]]:
    """Return the id columns and the columns to leave out; raise all errors in either as one TableError."""
    every = list(dict.fromkeys(name for source in sources for name in source.names))
    if id_column is None and len(sources) > 1:
        shared = [name for name in every if all(name in source.names for source in sources)]
        hint = f" All have {', '.join(shared[:10])}{' ...' if len(shared) > 10 else ''}." if shared else ""
        aligned = f"If all have the same rows in the same order, --id {ROW_NUMBER}"
        raise TableError(f"expected --id with several tables, got none; which column names the rows?{hint} {aligned}")
    ids = [] if id_column is None else split_names(id_column, every)
    named = [] if ids == [ROW_NUMBER] else ids
    wrong = [unknown(name, source.names, f"{source.path}: --id: column") for name in named for source in sources]
    of_parties = [f"{source.party}.{name}" for source in sources for name in source.names] if len(sources) > 1 else []
    known = [name for name in every if name not in ids] + of_parties
    ignored = [name for given in ignore for name in split_names(given, [*every, *of_parties])]
    for name in ignored:
        if name in ids:
            wrong.append(f"expected other columns for --ignore than for --id, got {name!r}")
        else:
            wrong.append(unknown(name, known, "--ignore: column"))
    texts = [text for text in wrong if text is not None]
    texts += unknown_columns(None if form is None else form.gaps, [*every, *of_parties], "--gaps")
    if texts:
        raise TableError("\n".join(texts[:MOST_SHOWN]))
    return ids, set(ignored)


def _check_dates(sources: Sequence[Source], ids: Sequence[str], ignored: set[str]) -> None:
    """Raise TableError for dates of columns that are unknown or not used."""
    known = [name for source in sources for own in source.names for name in (own, f"{source.party}.{own}")]
    wrong: list[str | None] = []
    for name in sources[0].form.dates:
        if name in ids or name in ignored:
            wrong.append(f"expected --dates of a column that is used, got {name!r}, which is an id or left out")
        else:
            wrong.append(unknown(name, list(dict.fromkeys(known)), "--dates: column"))
    texts = [text for text in wrong if text is not None]
    if texts:
        raise TableError("\n".join(texts))


def make_form(
    header: bool | None,
    separator: str | None,
    decimal: str | None,
    encoding: str | None,
    gaps: Sequence[str],
    dates: Mapping[str, str] | None = None,
) -> Form:
    """Create the form of text files and dates from the options."""
    words = parse_gaps(gaps)
    return Form(header=header, separator=separator, decimal=decimal, encoding=encoding, gaps=words, dates=dates or {})


def tell_notes(notes: Iterable[str], told: set[str] | None = None) -> None:
    """Print notes that are not in `told`, and add them to it."""
    told = set() if told is None else told
    for note in notes:
        if note not in told:
            err.print(f"[yellow]note:[/yellow] {plain(note)}", highlight=False)
            told.add(note)
