"""Tables of several parties as input: they are joined by an id, and the parties are the partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from vpem.estimators.coding import word_names
from vpem.estimators.families import said_categories
from vpem.estimators.frames import kind_of

Data = ArrayLike | Mapping[str, Any]
"""Rows of all columns, or each party's own table."""


def is_joined(X: Any) -> bool:
    """True for tables of several parties, joined or not."""
    is_dict = isinstance(X, Mapping) and not hasattr(X, "shape")  # some sparse arrays are dicts too
    return is_dict or getattr(X, "joins_parties", False)


def join_to_fit(estimator: Any, X: Any, on: str | Sequence[str] | None) -> Any:
    """Return the table to fit: the parties' tables joined, or X unchanged.

    For tables of several parties, set `on_` and the partition.
    """
    estimator._kinds = {str(party): kind_of(own) for party, own in (X if isinstance(X, Mapping) else {"": X}).items()}
    vars(estimator).pop("read_as_", None)
    vars(estimator).pop("gaps_", None)
    if not is_joined(X):
        if on is not None:
            raise TypeError(f"expected on= with a dict from party to table, got on={on!r} with {type(X).__name__}")
        estimator._held = None
        vars(estimator).pop("on_", None)
        return X
    if estimator.partition is not None:
        raise ValueError("expected partition=None with a dict of tables, whose parties it is, got another partition")
    if isinstance(X, Mapping):
        from vpem.tables import Said, join  # takes a while

        on = getattr(estimator, "on_", None) if on is None else on
        if on is None:
            raise TypeError("expected on= to name the column by which the parties' tables are joined, got none")
        X = join(X, on=on, codes=takes_words(estimator) and Said(said_categories(estimator.families)))
    estimator._held, estimator.on_ = X.parties, X.on
    return X


def join_to_read(estimator: Any, X: Any) -> Any:
    """Join a dict of tables by the id columns of an earlier fit; return other tables as they are."""
    if not is_joined(X):
        return X
    if not hasattr(estimator, "partition_") or not hasattr(estimator, "feature_names_in_"):
        raise TypeError(f"expected an array or a data frame, got {type(X).__name__}; a fit on such tables takes them")
    if not isinstance(X, Mapping):
        return X
    from vpem.tables import dates_of, join

    if not hasattr(estimator, "on_"):
        raise TypeError(
            "expected a model that knows which column names the rows of a dict of tables, got one that was fitted on "
            "one table, or saved without it; try X=vpem.tables.join(tables, on=...)"
        )
    parties = _party_names(estimator)

    def keep(party: str, name: str) -> bool:
        return party not in parties or not {name, f"{party}.{name}"}.isdisjoint(parties[party])

    codes = takes_words(estimator) and word_names(estimator)
    return join(X, on=estimator.on_, keep=keep, codes=codes, dates=dates_of(getattr(estimator, "read_as_", {})))


def arrange(estimator: Any, X: Any) -> Any:
    """Arrange the parties' tables, of which some may be missing, by the columns of the fit.

    Return other tables unchanged.
    """
    X = join_to_read(estimator, X)
    if not is_joined(X):
        return X
    names, parties = [str(name) for name in estimator.feature_names_in_], _party_names(estimator)
    if X.column_names == names and X.parties == parties:
        return X
    return _Arranged(X.arrange(names, parties), names, X.arrange_words(parties))


def _party_names(estimator: Any) -> dict[str, list[str]]:
    """Party to the names of its columns in the fit."""
    names = [str(name) for name in estimator.feature_names_in_]
    return {str(party): [names[column] for column in held] for party, held in estimator.partition_.items()}


def party_columns(estimator: Any) -> dict[str, dict[str, int]]:
    """Party to its columns: name in the party's own table, without the prefix of a join, to column number."""
    parties = _party_names(estimator)
    count = Counter(name.removeprefix(f"{party}.") for party, own in parties.items() for name in own)
    number_of = {str(name): number for number, name in enumerate(estimator.feature_names_in_)}
    return {
        party: {name if count[bare := name.removeprefix(f"{party}.")] == 1 else bare: number_of[name] for name in own}
        for party, own in parties.items()
    }


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
