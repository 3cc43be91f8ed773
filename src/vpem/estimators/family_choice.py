"""Families of the columns: given by the user, or chosen by each party from the types and values of its columns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.families import GAUSSIAN, MOST_VALUES, Discrete, Facts
from vpem.core.blocks.structure import FAMILIES, parse_family, takes_words
from vpem.core.rows import Table, row_chunks
from vpem.model.category_codes import Coding, number_name

Array = NDArray[np.float64]

AUTO = "auto"

FEW_WORDS = 50
"""Largest number of distinct words in a column of categories; a column with more is free text."""

ROWS_OF_AN_ID = 20
"""Smallest number of rows in which whole numbers that grow from row to row are taken as an id or a clock."""


@dataclass(frozen=True, eq=False)
class Families:
    """Families of a table's columns, and the coding of its categories."""

    texts: tuple[str, ...]
    coding: Coding


def said_categories(given: Any, partition: Any = None) -> frozenset[str] | None:
    """Names of the columns that the user declared categorical; None if all columns are.

    Their texts are categories, whatever they look like.
    """
    if not isinstance(given, Mapping):
        return None if takes_words(str(given)) else frozenset()
    keys = [key for key, text in given.items() if takes_words(str(text))]
    held = partition if isinstance(partition, Mapping) else {}
    return frozenset(str(name) for key in keys for name in (key, *held.get(key, ())))


def find_families(
    given: Any,
    table: Table,
    words: Mapping[int, Sequence[str]],
    parties: Mapping[Hashable, Sequence[int]],
    names: Sequence[str] | None,
) -> Families:
    """Choose the family of each column.

    Parameters
    ----------
    given : "auto", another family, or dict
        A family for all columns; or a dict from columns, by name or number, or from parties to families. The families
        of other columns are chosen from their values.
    table : Table of shape (n_rows, n_columns)
    words : mapping
        Column to the words that its codes represent, for columns of words.
    parties : mapping
        Party to its columns.
    names : sequence of str, optional

    Raises
    ------
    ValueError
        If no family fits some columns; the message lists all of them.
    """
    wanted = _wanted(given, table.shape[1], parties, names)
    texts, problems = [], []
    labels: dict[int, list[str]] = {}
    numbers: dict[int, Array] = {}
    for column, facts in enumerate(look_at(table)):
        own = words.get(column)
        try:
            text = _decide(wanted[column], facts, own)
        except ValueError as error:
            called = column if names is None else repr(str(names[column]))
            problems.append(f"column {called}: {error}")
            text = GAUSSIAN
        texts.append(text)
        if takes_words(text):
            if own is None:
                assert facts.distinct is not None, "few values"
                numbers[column] = facts.distinct
                labels[column] = [number_name(value) for value in facts.distinct.tolist()]
            else:
                labels[column] = list(own)
    if problems:
        raise ValueError("\n".join(["expected columns that some family can take, got others:", *problems]))
    return Families(tuple(texts), Coding(labels, numbers))


def look_at(table: Table) -> list[Facts]:
    """Summarize each column in one pass over the rows, a chunk at a time."""
    n_columns = table.shape[1]
    found = [_Looker() for _ in range(n_columns)]
    for rows in row_chunks(0, len(table), n_columns):
        chunk = np.asarray(table[rows])
        for column, own in enumerate(found):
            own.add(chunk[:, column].astype(np.float64))
    return [own.facts() for own in found]


class _Looker:
    """Accumulator of the facts about one column."""

    def __init__(self) -> None:
        self.distinct: Array | None = np.empty(0)
        self.counts = np.zeros(MOST_VALUES)
        self.n, self.total, self.zeros = 0, 0.0, 0
        self.smallest, self.largest, self.last = np.inf, -np.inf, -np.inf
        self.is_whole = self.grows = True

    def add(self, x: Array) -> None:
        """Add the values of further rows; gaps are ignored."""
        x = x[~np.isnan(x)]
        if not len(x):
            return
        if self.distinct is not None:
            self.distinct = np.union1d(self.distinct, x)
            if len(self.distinct) > MOST_VALUES:
                self.distinct = None
        self.is_whole = self.is_whole and bool((x == np.floor(x)).all())
        self.grows = self.grows and bool(x[0] > self.last and (np.diff(x) > 0).all())
        self.n, self.total, self.last = self.n + len(x), self.total + float(x.sum()), float(x[-1])
        self.zeros += int((x == 0).sum())
        self.smallest, self.largest = min(self.smallest, float(x.min())), max(self.largest, float(x.max()))
        small = x[(x >= 0) & (x < MOST_VALUES)]
        if self.is_whole:
            self.counts += np.bincount(small.astype(np.intp), minlength=MOST_VALUES)

    def facts(self) -> Facts:
        """Return the facts about all rows added so far."""
        n = max(self.n, 1)
        return Facts(
            self.distinct,
            self.is_whole,
            self.smallest,
            self.largest,
            self.total / n,
            self.zeros / n,
            float(self.counts.max()) / n,
            self.grows and self.is_whole and self.n >= ROWS_OF_AN_ID,
        )


def _decide(wanted: str, facts: Facts, words: Sequence[str] | None) -> str:
    """Return the family of one column as text, with its parameters."""
    n_different = None if facts.distinct is None else len(facts.distinct)
    if n_different == 0:
        raise ValueError("has no value at all; leave it out")
    if n_different == 1:
        raise ValueError("always the same value, which tells nothing; leave it out")
    if wanted == AUTO:
        wanted = _guess(facts, words)
    family = FAMILIES.get(wanted.partition(":")[0])
    if words is None:
        return wanted if family is None else family.choose(wanted, facts)
    if not takes_words(wanted):
        raise ValueError(f"has words, which are categories and not {wanted!r}")
    return f"{wanted}:{len(words)}"


def _guess(facts: Facts, words: Sequence[str] | None) -> str:
    """Choose a family from the values alone."""
    if words is not None and len(words) > FEW_WORDS:
        raise ValueError(
            f"has {len(words)} different words, free text or names; leave it out, or say that it is 'categorical'"
        )
    if facts.grows and words is None:
        raise ValueError("has whole numbers that grow from row to row, an id or a clock; leave it out, or say")
    fitting = (name for name, own in FAMILIES.items() if (own.suits(facts) if words is None else own.takes_words))
    return next(fitting, GAUSSIAN)


def _wanted(
    given: Any, n_columns: int, parties: Mapping[Hashable, Sequence[int]], names: Sequence[str] | None
) -> list[str]:
    """Return the family requested for each column, "auto" by default."""
    if isinstance(given, str):
        return [checked_family(given)] * n_columns
    if not isinstance(given, Mapping):
        raise TypeError(f"expected families to be 'auto', a family, or a dict of columns or parties, got {given!r}")
    place: dict[Any, int] = {number: number for number in range(n_columns)}
    if names is not None:
        place |= {str(name): number for number, name in enumerate(names)}
    found = [AUTO] * n_columns
    for key, text in given.items():
        if key in parties and key not in place:
            for column in parties[key]:
                found[column] = checked_family(text)
    for key, text in given.items():
        if key in place:
            found[place[key]] = checked_family(text)
        elif key not in parties:
            known = list(map(str, place)) if names is None else list(map(str, names))
            raise ValueError(f"expected families of columns or parties, got {key!r}; the columns are {known}")
    return found


def checked_family(text: Any) -> str:
    """Validate the name of a family; drop the number of values of categories and counts."""
    if not isinstance(text, str):
        raise TypeError(f"expected a family as a text, such as 'categorical', got {text!r}")
    if text != AUTO and text not in FAMILIES:
        parse_family(text)
    kind = text.partition(":")[0]
    return kind if kind in FAMILIES and issubclass(FAMILIES[kind], Discrete) else text
