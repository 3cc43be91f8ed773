"""Tables of several parties in place of one: joined by an id, the parties are the partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from vpem.estimators.coding import word_names
from vpem.estimators.families import said_categories

Data = ArrayLike | Mapping[str, Any]
"""Rows of all columns, or each party's own table."""


def is_joined(X: Any) -> bool:
    """Whether this is one table for each party, joined or not."""
    is_dict = isinstance(X, Mapping) and not hasattr(X, "shape")  # some sparse arrays are dicts too
    return is_dict or getattr(X, "joins_parties", False)


def join_to_fit(estimator: Any, X: Any, on: str | Sequence[str] | None) -> Any:
    """What to fit: X as it is, or the parties' tables joined.

    Sets `on_`, and the partition that such tables are.
    """
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


def arrange(estimator: Any, X: Any) -> Any:
    """The columns of an earlier fit: X as it is, or from parties' tables, in which some may be missing."""
    if not is_joined(X):
        return X
    if not hasattr(estimator, "partition_") or not hasattr(estimator, "feature_names_in_"):
        raise TypeError(f"expected an array or a data frame, got {type(X).__name__}; a fit on such tables takes them")
    names = [str(name) for name in estimator.feature_names_in_]
    parties = {str(party): [names[column] for column in held] for party, held in estimator.partition_.items()}
    if isinstance(X, Mapping):
        from vpem.tables import join

        if not hasattr(estimator, "on_"):
            raise TypeError("expected a model fitted on a dict of tables; try X=vpem.tables.join(tables, on=...)")

        def keep(party: str, name: str) -> bool:
            return party not in parties or not {name, f"{party}.{name}"}.isdisjoint(parties[party])

        X = join(X, on=estimator.on_, keep=keep, codes=takes_words(estimator) and word_names(estimator))
    if X.column_names == names and X.parties == parties:
        return X
    return _Arranged(X.arrange(names, parties), names, X.arrange_words(parties))


def takes_words(estimator: Any) -> bool:
    """Whether columns of words may be categories."""
    return bool(getattr(estimator, "_has_families", False))


class _Arranged:
    """Values with the names of a fit."""

    streams_rows = True

    def __init__(self, values: Any, column_names: list[str], words: dict[str, list[str]]):
        self._values, self.column_names, self.shape, self.words = values, column_names, values.shape, words

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: Any) -> Any:
        return self._values[rows]
