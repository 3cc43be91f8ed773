"""Tables of several parties as input: they are joined by an id, and the parties are the partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from vpem.estimators.family_choice import Families, said_categories
from vpem.estimators.frames import kind_of
from vpem.model.fitted import Fitted

Data = ArrayLike | Mapping[str, Any]
"""Rows of all columns, or each party's own table."""


def is_joined(X: Any) -> bool:
    """True for tables of several parties, joined or not."""
    is_dict = isinstance(X, Mapping) and not hasattr(X, "shape")  # some sparse arrays are dicts too
    return is_dict or getattr(X, "joins_parties", False)


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """A table to fit, and what is known about it; `VerticalMixture.fit` takes one in place of a table."""

    table: Any
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kind of the table, under "", or of each party's table."""
    parties: dict[str, list[str]] | None = None
    """Party to its columns, for tables of several parties."""
    on: tuple[str, ...] | None = None
    """Id columns of the parties' tables."""
    rows: Any = None
    """Rows of files, which `table` has without those without any value; they have names, and are counted."""
    gaps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Column of the files to its words for gaps."""
    families: Families | None = None
    """Families determined from more rows than those of the table, in place of the estimator's."""


def make_source(estimator: Any, X: Any, on: str | Sequence[str] | None) -> Source:
    """Return the table to fit: the parties' tables joined, or X unchanged."""
    if isinstance(X, Source):
        return X
    kinds = {str(party): kind_of(own) for party, own in (X if isinstance(X, Mapping) else {"": X}).items()}
    if not is_joined(X):
        if on is not None:
            raise TypeError(f"expected on= with a dict from party to table, got on={on!r} with {type(X).__name__}")
        return Source(table=X, kinds=kinds)
    if estimator.partition is not None:
        raise ValueError("expected partition=None with a dict of tables, whose parties it is, got another partition")
    if isinstance(X, Mapping):
        from vpem.tables import Said, join  # takes a while

        on = getattr(estimator, "on_", None) if on is None else on
        if on is None:
            raise TypeError("expected on= to name the column by which the parties' tables are joined, got none")
        X = join(X, on=on, codes=takes_words(estimator) and Said(said_categories(estimator.families)))
    return Source(table=X, kinds=kinds, parties=X.parties, on=X.on)


def join_to_read(estimator: Any, X: Any) -> Any:
    """Join a dict of tables by the id columns of an earlier fit; return other tables as they are."""
    if not is_joined(X):
        return X
    fitted: Fitted | None = getattr(estimator, "_fitted", None)
    if fitted is None or fitted.names is None:
        raise TypeError(f"expected an array or a data frame, got {type(X).__name__}; a fit on such tables takes them")
    if not isinstance(X, Mapping):
        return X
    from vpem.tables import dates_of, join

    if fitted.on is None:
        raise TypeError(
            "expected a model that knows which column names the rows of a dict of tables, got one that was fitted on "
            "one table, or saved without it; try X=vpem.tables.join(tables, on=...)"
        )
    parties = fitted.named_parties

    def keep(party: str, name: str) -> bool:
        return party not in parties or not {name, f"{party}.{name}"}.isdisjoint(parties[party])

    codes = takes_words(estimator) and fitted.word_names
    return join(X, on=fitted.on, keep=keep, codes=codes, dates=dates_of(fitted.read_as))


def arrange(estimator: Any, X: Any) -> Any:
    """Arrange the parties' tables, of which some may be missing, by the columns of the fit.

    Return other tables unchanged.
    """
    X = join_to_read(estimator, X)
    if not is_joined(X):
        return X
    names, parties = estimator._fitted.column_names, estimator._fitted.named_parties
    if X.column_names == names and X.parties == parties:
        return X
    return _Arranged(X.arrange(names, parties), names, X.arrange_words(parties))


def takes_words(estimator: Any) -> bool:
    """True if the estimator accepts columns of words as categories."""
    return bool(getattr(estimator, "_has_families", False))


class _Arranged:
    """Values with the column names of a fit."""

    streams_rows = True

    def __init__(self, values: Any, column_names: list[str], words: dict[str, list[str]]):
        self._values, self.column_names, self.shape, self.words = values, column_names, values.shape, words

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: Any) -> Any:
        return self._values[rows]
