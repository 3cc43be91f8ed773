"""Families of the columns: given by the user, or chosen by each party from the types and values of its columns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.counts import MOST_VALUES
from vpem.core.blocks.structure import parse_family
from vpem.core.rows import Table, row_chunks
from vpem.model.category_codes import Coding, number_name

Array = NDArray[np.float64]

AUTO = "auto"

FEW_WORDS = 50
"""Largest number of distinct words in a column of categories; a column with more is free text."""

FEW_VALUES = 10
"""Largest number of distinct whole numbers in a column that is taken as categorical."""

MANY_ZEROS = 0.1
"""Smallest share of zeros for which amounts get the family "zeros"."""

SMALL_COUNTS = 20.0
"""Upper limit on the mean of whole numbers that are taken as counts."""

HEAP = 0.2
"""Share of one value from which whole numbers are taken as counts: a Gaussian would collapse onto that value."""

ROWS_OF_AN_ID = 20
"""Smallest number of rows in which whole numbers that grow from row to row are taken as an id or a clock."""


class Facts(NamedTuple):
    """Summary of one column's values, computed by its party."""

    distinct: Array | None
    """Distinct values in ascending order; None if they are too many."""
    is_whole: bool
    smallest: float
    largest: float
    mean: float
    share_of_zeros: float
    largest_share: float
    """Share of the rows with the most common value, among whole numbers from 0 to below `MOST_VALUES`."""
    grows: bool
    """True if the values are whole numbers, each larger than the one before, in at least `ROWS_OF_AN_ID` rows."""


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
        return None if given == "categorical" else frozenset()
    keys = [key for key, text in given.items() if str(text).partition(":")[0] == "categorical"]
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
            problems.append(f"column {_called(column, names)}: {error}")
            text = "gaussian"
        texts.append(text)
        if text.startswith("categorical"):
            if own is None:
                assert facts.distinct is not None, "few values"
                numbers[column], labels[column] = (
                    facts.distinct,
                    [number_name(value) for value in facts.distinct.tolist()],
                )
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
    if words is not None:
        if wanted not in (AUTO, "categorical"):
            raise ValueError(f"has words, which are categories and not {wanted!r}")
        if wanted == AUTO and len(words) > FEW_WORDS:
            raise ValueError(
                f"has {len(words)} different words, free text or names; leave it out, or say that it is 'categorical'"
            )
        return f"categorical:{len(words)}"
    if wanted == AUTO:
        wanted = _guess(facts)
    if wanted == "categorical":
        if n_different is None:
            raise ValueError(f"has more than {MOST_VALUES} different values, too many for categories")
        return f"categorical:{n_different}"
    if wanted in ("counts", "poisson"):
        if not facts.is_whole or facts.smallest < 0:
            raise ValueError(f"has other values than whole numbers from 0, which are no {wanted}")
        if facts.largest >= MOST_VALUES:
            raise ValueError(
                f"has values up to {facts.largest:g}, too large to be counted; try 'zeros' or 'gaussian'"
            )
        return f"{wanted}:{facts.largest + 1:g}"
    if wanted.startswith("zeros") and facts.distinct is not None and len(np.setdiff1d(facts.distinct, [0.0])) < 2:
        raise ValueError("has one amount beside zero, and no spread of it; say that it is 'categorical'")
    if wanted == "zeros" and facts.smallest < 0:
        raise ValueError(f"has amounts down to {facts.smallest:g}, whose logarithm is none; try 'zeros:gaussian'")
    if wanted == "angles":
        raise ValueError("needs the period of its angles, such as 'angles:360' or 'angles:24'")
    family = parse_family(wanted)
    if family is not None and family.is_strange(np.array([facts.smallest, facts.largest])).any():
        expected, _, remedy = family.expects.partition("; ")
        raise ValueError(f"has values from {facts.smallest:g} to {facts.largest:g}, and not {expected}; {remedy}")
    return wanted


def _guess(facts: Facts) -> str:
    """Choose a family from the values alone."""
    if facts.distinct is not None and len(facts.distinct) == 2:
        return "categorical"
    if facts.is_whole:
        if facts.distinct is not None and len(facts.distinct) <= FEW_VALUES:
            return "categorical"
        if facts.grows:
            raise ValueError("has whole numbers that grow from row to row, an id or a clock; leave it out, or say")
        is_small = facts.mean < SMALL_COUNTS and facts.largest < 100
        has_heap = facts.largest_share >= HEAP > facts.share_of_zeros
        if facts.smallest >= 0 and facts.largest < MOST_VALUES and (is_small or has_heap):
            return "counts"
    if facts.smallest >= 0 and facts.share_of_zeros >= MANY_ZEROS:
        return "zeros"
    return "gaussian"


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
    if text not in (AUTO, "categorical", "counts", "poisson", "angles"):
        parse_family(text)
    kind = text.partition(":")[0]
    return kind if kind in ("categorical", "counts", "poisson") else text


def _called(column: int, names: Sequence[str] | None) -> str:
    return str(column) if names is None else repr(str(names[column]))
