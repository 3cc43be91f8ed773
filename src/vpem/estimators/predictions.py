"""Methods of a fitted mixture. All use the assembled model and are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from vpem import meaning
from vpem.core.rows import Table
from vpem.estimators import checks, frames
from vpem.estimators.filling import Deviations, Filling
from vpem.estimators.joined import Data, join_to_read
from vpem.estimators.weighting import counts_each_row_once
from vpem.meaning import Certainty, Profile
from vpem.model.evaluation import (
    draw,
    evaluate,
    find_certainty,
    impute,
    in_cells,
    measure_fit,
    pooling_gains,
    unusual_rows,
)
from vpem.model.fitted import Fitted

Array = NDArray[np.float64]


class FittedMixture:
    """Predictions, scores, descriptions and samples of a fitted mixture."""

    random_state: Any
    n_features_in_: int
    _fitted: Fitted | None = None
    _kind = "VerticalMixture"
    """Name of the class of this estimator, or of the one that it inherits from."""

    @property
    def fitted_(self) -> Fitted:
        """The fit as one value, with the estimator's parameters as they are now."""
        if self._fitted is None:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet, so it has no fitted_")
        parameters: Any = self.get_params()  # type: ignore[attr-defined]  # of BaseEstimator
        return replace(self._fitted, estimator=self._kind, parameters=parameters)

    @property
    def _found(self) -> Fitted:
        """The fit; raise NotFittedError without one."""
        check_is_fitted(self, "weights_")
        assert self._fitted is not None, "with its weights"
        return self._fitted

    def read(self, X: Data) -> Table:
        """Return rows as numbers, with the codes of the fit for categories; (n_samples, n_features)."""
        check_is_fitted(self, "weights_")
        return checks.read_table(self, X, reset=False)

    def predict(self, X: Data) -> NDArray[np.intp]:
        """Most probable component of each row, under the assembled model; (n_samples,)."""
        labels: NDArray[np.intp] = self.predict_proba(X).argmax(axis=1)
        return labels

    def predict_proba(self, X: Data) -> Array:
        """Responsibilities under the assembled model; (n_samples, n_components).

        Gaps are marginalized; the responsibilities of a row without any value are the weights. A row so far from
        every component that its squared distances overflow is an error.
        """
        return np.concatenate([responsibilities for responsibilities, *_ in evaluate(self._found, self.read(X))])

    def score_samples(self, X: Data) -> Array:
        """Log-density of the observed values of each row under the assembled model; (n_samples,)."""
        return np.concatenate([log_densities for _, log_densities, _ in evaluate(self._found, self.read(X))])

    @counts_each_row_once
    def score(self, X: Data, y: object = None) -> float:  # noqa: ARG002 (scikit-learn's signature)
        """Mean log-density per row under the assembled model; rows without any value are ignored."""
        return measure_fit(self._found, self.read(X)).score

    def sample(self, n_samples: int = 1) -> tuple[Any, NDArray[np.intp]]:
        """Draw rows from the assembled model, grouped by component as in scikit-learn.

        Returns
        -------
        X : table of shape (n_samples, n_features)
            Table of the same kind as that of the fit: a data frame of the same library, with its names and words; a
            dict of tables, whose ids are row numbers; or an array (of objects, if it has words). A loaded model has
            column names but no library, and returns the same kinds of table as `profile`.
        y : array of shape (n_samples,)
            Component of each row.
        """
        fitted, seed = self._found, checks.shared_seed(self.random_state)
        X, labels = draw(fitted, checks.check_count("n_samples", n_samples, 1), seed)
        columns, kinds = in_cells(fitted, X), fitted.kinds
        if fitted.on is not None:
            ids = {name: np.arange(len(X)) for name in fitted.on}
            parties = {
                party: {name: columns[number] for name, number in own.items()}
                for party, own in fitted.own_columns.items()
            }
            return {
                party: frames.make_frame({**ids, **own}, kinds.get(party, frames.OTHER))
                for party, own in parties.items()
            }, labels
        kind = kinds.get("", frames.ARRAY if fitted.names is None else frames.OTHER)
        if kind == frames.ARRAY:
            has_words = any(isinstance(column, list) or column.dtype == bool for column in columns)
            return np.array(columns, dtype=object).T if has_words else X, labels
        names: Sequence[Any] = range(len(columns)) if fitted.names is None else fitted.names
        return frames.make_frame(dict(zip(names, columns, strict=True)), kind), labels

    def bic(self, X: Data) -> float:
        """Bayesian information criterion on X, with the number of parameters of the blocks; the lower, the better.

        Compare only models whose columns have the same kind of log-densities: log-probabilities (of categories and
        counts) and log-densities, which depend on the column's unit, are not comparable.
        """
        return measure_fit(self._found, self.read(X)).bic

    def aic(self, X: Data) -> float:
        """Akaike information criterion on X, with the number of parameters of the blocks; the lower, the better."""
        return measure_fit(self._found, self.read(X)).aic

    def icl(self, X: Data) -> float:
        """Integrated completed likelihood on X, on the scale of BIC; the lower, the better.

        It is `bic` plus twice the entropy of the responsibilities. It penalizes components that overlap: it selects
        a number of clusters, while BIC selects a density.
        """
        return measure_fit(self._found, self.read(X), with_icl=True).icl

    def profile(self) -> Any:
        """Describe each component column by column, in the columns' units.

        Returns
        -------
        pandas.DataFrame
            One row for each component and column: `component`, `share` (of all rows), `party`, `column`, `mean` and
            `deviation` within the component, `overall_mean` and `overall_deviation` over all components, and
            `distance`: signed difference between the mean and the overall mean, in overall deviations. If some
            columns have categories, also `category`, the one whose share exceeds its overall share most, and
            `category_share`; the distance is then that of the share. The mean of a column of words is the mean of
            their positions in `categories_`, which is meaningful only for two categories. Without pandas, a polars
            data frame; without both, an Arrow table.
        """
        fitted, found = self._found, self._found.profile
        n_components, n_features = found.means.shape
        return frames.make_frame(
            {
                "component": np.repeat(np.arange(n_components), n_features),
                "share": np.repeat(found.shares, n_features),
                "party": fitted.party_of_column * n_components,
                "column": fitted.column_names * n_components,
                "mean": found.means.ravel(),
                "deviation": found.deviations.ravel(),
                "distance": found.distances.ravel(),
                "overall_mean": np.tile(found.overall_means, n_components),
                "overall_deviation": np.tile(found.overall_deviations, n_components),
                **_typical(fitted, found),
            }
        )

    def importance(self, by: str = "column") -> Any:
        """Rank columns or parties by the information that they carry about the component.

        This is the mutual information under the fitted model. It needs no rows, and each party can compute its own
        part from its own block and the weights.

        Parameters
        ----------
        by : {"column", "party"}, default="column"
            Information of each column by itself, or of all columns of a party together.

        Returns
        -------
        pandas.DataFrame
            Most informative first: `party` and `column` (or `party` alone), `information` in nats, `error` (standard
            error if the value was estimated from rows drawn from the model; else 0), and `share` of the entropy of
            the components, which bounds the information. Without pandas, the same kinds of table as `profile`.
        """
        checks.check_choice("by", by, ("column", "party"))
        fitted, named = self._found, list[str]()
        if by == "column":
            found, parties, named = fitted.column_information, fitted.party_of_column, fitted.column_names
        else:
            found, parties = fitted.party_information, list(map(str, fitted.partition))
        order = sorted(range(len(found)), key=lambda place: -found[place].nats)
        most = meaning.entropy(fitted.weights)
        columns: dict[str, Any] = {"party": [parties[place] for place in order]}
        if named:
            columns["column"] = [named[place] for place in order]
        columns["information"] = np.array([found[place].nats for place in order])
        columns["error"] = np.array([found[place].error for place in order])
        columns["share"] = columns["information"] / most if most > 0 else np.zeros(len(order))
        return frames.make_frame(columns)

    def certainty(self, X: ArrayLike) -> Certainty:
        """Summarize how certain the labels of some rows are, and which components are confused.

        A model that does not describe the data can be certain and wrong: see `verdict_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        Certainty
            Counts and shares, without information on single rows.
        """
        return find_certainty(self._found, self.read(X))

    def unusual_rows(self, X: ArrayLike, n_rows: int = 20) -> Any:
        """Return the rows that fit worst.

        The result is about single rows: it is meant for a party that may see them, not for a shared report.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        n_rows : int, default=20
            Number of rows to return.

        Returns
        -------
        pandas.DataFrame
            Worst first: `row` (its number in X), `tail_probability` that a row drawn from the model, with the same
            gaps, fits as badly (at least 1 in 2001; some rows of a large table have small ones by chance), `score`
            (difference between log-density and expected log-density, in deviations), `log_density`, `component`, and
            the `column` farthest from the component's mean, with its `distance` in the component's deviations.
            Without pandas, the same kinds of table as `profile`. Only `log_density` depends on units: to compare
            amounts with zeros, the other values use densities per deviation of all amounts ("zeros": of their
            logarithms).
        """
        checks.check_count("n_rows", n_rows, 1)
        found, names = unusual_rows(self._found, self.read(X), n_rows), self._found.column_names
        return frames.make_frame({**found, "column": [names[column] for column in found["column"]]})

    def pooling_gains(self, X: ArrayLike) -> Any:
        """Bound from below the gain of pooling the columns of each pair of blocks: see `hops`.

        The gain is the information between two blocks, given the component, which a model with independent blocks
        omits. The bound follows from the contributions alone, which parties send anyway; it needs no columns.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        pandas.DataFrame
            Largest first: `one` and `other` (roots of the blocks) and `nats` per row. Without pandas, the same kinds
            of table as `profile`.
        """
        found, roots = pooling_gains(self._found, self.read(X)), [str(hub.root) for hub in self._found.hubs]
        order = sorted(found, key=lambda pair: -found[pair])
        return frames.make_frame(
            {
                "one": [roots[one] for one, _ in order],
                "other": [roots[other] for _, other in order],
                "nats": np.array([found[pair] for pair in order]),
            }
        )

    def impute(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Fill gaps (NaN) with their expected values, given the observed values of the row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False
            Also return the standard deviations of the imputed values.

        Returns
        -------
        filled : as X
            A table of the same kind. A data frame keeps its index, names and types. A dict of tables gives a dict in
            which every party, including a missing one, has a table with all rows and ids, in the order of
            ``vpem.tables.join(X, on).ids``. An array gives an array of numbers or of objects. Paths and joined
            tables give data frames. Only gaps change: a category that was not in the fit stays. A gap in a column of
            categories becomes the most probable category, which is a code in an array of numbers.
        deviations : as X
            Standard deviations of the imputed values, 0 elsewhere; for categories, the probability of any other
            category. Only with `return_std`.
        """
        fitted, X = self._found, frames.collected(X)
        source = join_to_read(self, X)
        values, words = checks.read_values(self, source, reset=False)
        filled, deviations = impute(fitted, fitted.coding.code(values, words, fitted.names))
        there = np.asarray(values[0 : len(filled)], dtype=np.float64)
        result = _like(fitted, X, source, Filling(there, words, filled, fitted.coding))
        if not return_std:
            return result
        return result, _like(fitted, X, source, Deviations(there, words, deviations, fitted.coding))


def _typical(fitted: Fitted, found: Profile) -> dict[str, Any]:
    """Typical category of each component and column, and its share; empty if no column has categories."""
    if not found.categories:
        return {}
    n_components, n_features = found.means.shape
    names: list[Any] = [None] * (n_components * n_features)
    shares = np.full((n_components, n_features), np.nan)
    for column, own in found.categories.items():
        for k, place in enumerate(found.typical[column]):
            labels = fitted.coding.labels.get(column)
            names[k * n_features + column] = str(place) if labels is None else labels[place]
            shares[k, column] = own[k, place]
    return {"category": names, "category_share": shares.ravel()}


def _like(fitted: Fitted, X: Any, source: Any, filling: Filling) -> Any:
    """Return a table of the kind of X; `source` is X with the parties' tables joined."""
    if isinstance(X, Mapping) and source is not X:
        return filling.like_tables(X, source, fitted.own_columns)
    return filling.like(X, fitted.column_names)
