"""Description of the clusters of a fitted mixture, and imputation of gaps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from vpem import meaning
from vpem.core.network.parties import Network
from vpem.core.rows import row_chunks
from vpem.estimators import checks, frames
from vpem.estimators.coding import Coding
from vpem.estimators.filling import Deviations, Filling
from vpem.estimators.joined import join_to_read, party_columns
from vpem.meaning import Certainty, Information, Profile
from vpem.simulation.model import Mixture

Array = NDArray[np.float64]


class ExplainedMixture(ABC):
    """Profiles, importance, certainty and imputation of a fitted mixture."""

    weights_: Array
    n_features_in_: int
    partition_: dict[Any, list[int]]
    _network: Network
    _mixture: Mixture
    _coding: Coding = Coding()
    _told_names: Sequence[str] = ()
    """Display names of the columns, used if `feature_names_in_` does not exist because the table has no names."""

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
        found, names, party_of = self._profile(), self._column_names(), self._party_of_column()
        n_components, n_features = found.means.shape
        return frames.make_frame(
            {
                "component": np.repeat(np.arange(n_components), n_features),
                "share": np.repeat(found.shares, n_features),
                "party": party_of * n_components,
                "column": names * n_components,
                "mean": found.means.ravel(),
                "deviation": found.deviations.ravel(),
                "distance": found.distances.ravel(),
                "overall_mean": np.tile(found.overall_means, n_components),
                "overall_deviation": np.tile(found.overall_deviations, n_components),
                **self._typical(found),
            }
        )

    def _typical(self, found: Profile) -> dict[str, Any]:
        """Typical category of each component and column, and its share; empty if no column has categories."""
        if not found.categories:
            return {}
        n_components, n_features = found.means.shape
        names: list[Any] = [None] * (n_components * n_features)
        shares = np.full((n_components, n_features), np.nan)
        for column, own in found.categories.items():
            for k, place in enumerate(found.typical[column]):
                labels = self._coding.labels.get(column)
                names[k * n_features + column] = str(place) if labels is None else labels[place]
                shares[k, column] = own[k, place]
        return {"category": names, "category_share": shares.ravel()}

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
        if by == "column":
            found, named = self._column_information(), self._column_names()
            parties = self._party_of_column()
        else:
            found, parties, named = self._party_information(), list(map(str, self.partition_)), []
        order = sorted(range(len(found)), key=lambda place: -found[place].nats)
        most = meaning.entropy(self.weights_)
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
        parts = [found[is_there] for found, _, is_there in self._evaluate(X)]
        responsibilities = np.concatenate(parts)
        if not len(responsibilities):
            raise ValueError("expected rows with some values, got gaps (NaN) only")
        return meaning.make_certainty(responsibilities)

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
        found, names = self._unusual_rows(X, n_rows), self._column_names()
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
        found, roots = self._pooling_gains(X), [str(hub.root) for hub in self._network.named_hubs()]
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
        check_is_fitted(self, "weights_")
        X = frames.collected(X)
        source = join_to_read(self, X)
        values, words = checks.read_values(self, source, reset=False)
        table = self._coding.code(values, words, getattr(self, "feature_names_in_", None))
        _, density, blocks, columns = self._parts()
        start, filled, deviations = 0, np.empty(table.shape), np.empty(table.shape)
        for responsibilities, _, _ in self._evaluate(source):
            # Expected values are computed for every component, so memory grows with their number: use small chunks.
            for own in row_chunks(0, len(responsibilities), table.shape[1] * responsibilities.shape[1]):
                rows = slice(start + own.start, start + own.stop)
                part = np.asarray(table[rows], dtype=np.float64)
                filled[rows], deviations[rows] = meaning.impute_rows(
                    density, blocks, columns, part, responsibilities[own]
                )
            start += len(responsibilities)
        there = np.asarray(values[0 : len(filled)], dtype=np.float64)
        result = self._like(X, source, Filling(there, words, self._coding.decode(filled), self._coding))
        if not return_std:
            return result
        return result, self._like(X, source, Deviations(there, words, deviations, self._coding))

    def _like(self, X: Any, source: Any, filling: Filling) -> Any:
        """Return a table of the kind of X; `source` is X with the parties' tables joined."""
        if isinstance(X, Mapping) and source is not X:
            return filling.like_tables(X, source, party_columns(self))
        return filling.like(X, self._column_names())

    # Data for figures, the program and the report

    def _unusual_rows(self, X: ArrayLike, n_rows: int) -> dict[str, Any]:
        """Columns of `unusual_rows`, with column numbers in place of names."""
        checks.check_count("n_rows", n_rows, 1)
        check_is_fitted(self, "weights_")
        parts = list(zip(*self._evaluate(X), strict=True))
        responsibilities, log_densities = np.concatenate(parts[0]), np.concatenate(parts[1])
        table = self._read(X)
        tails, scores = meaning.typicality(*self._parts(), np.asarray(table[:], dtype=np.float64), log_densities)
        worst = np.lexsort((scores, tails))[:n_rows]
        worst = worst[np.concatenate(parts[2])[worst]]
        labels = responsibilities[worst].argmax(axis=1)
        found = self._profile()
        rows = np.asarray(table[worst], dtype=np.float64)
        spread = np.where(found.deviations > 0, found.deviations, 1.0)
        distances = (rows - found.means[labels]) / spread[labels]
        for column, own in found.categories.items():
            # The distance at which a Gaussian density, relative to its peak, equals the category's probability.
            codes = np.nan_to_num(rows[:, column]).astype(np.intp)
            surprise = np.sqrt(-2 * np.log(np.maximum(own[labels, codes], 1e-300)))
            distances[:, column] = np.where(np.isnan(rows[:, column]), np.nan, surprise)
        farthest = np.nan_to_num(np.abs(distances), nan=-1.0).argmax(axis=1)
        return {
            "row": worst,
            "tail_probability": tails[worst],
            "score": scores[worst],
            "log_density": log_densities[worst],
            "component": labels,
            "column": farthest,
            "distance": distances[np.arange(len(worst)), farthest],
        }

    def _pooling_gains(self, X: ArrayLike) -> dict[tuple[int, int], float]:
        """Gains of `pooling_gains`, by pairs of block numbers."""
        check_is_fitted(self, "weights_")
        responsibilities = np.concatenate([found for found, _, _ in self._evaluate(X)])
        table = np.asarray(self._read(X)[0 : len(responsibilities)], dtype=np.float64)
        _, density, blocks, columns = self._parts()
        pairs = zip(blocks, columns, strict=True)
        return meaning.pooling_gains(
            [density.log_density(table[:, own].T, block).T for block, own in pairs], responsibilities
        )

    def _profile(self) -> Profile:
        check_is_fitted(self, "weights_")
        return meaning.make_profile(*self._parts(), self._coding.numbers)

    def _column_information(self) -> list[Information]:
        """Information of each column by itself, in the order of the table."""
        check_is_fitted(self, "weights_")
        found: dict[int, Information] = {}
        weights, density, blocks, columns = self._parts()
        for block, own in zip(blocks, columns, strict=True):
            found |= zip(own, meaning.column_information(weights, density, block), strict=True)
        return [found[column] for column in range(len(found))]

    def _party_information(self) -> list[Information]:
        """Information of each party's columns together, in the order of `partition_`."""
        check_is_fitted(self, "weights_")
        weights, density, blocks, columns = self._parts()
        by_column = self._column_information()
        place = {c: (number, at) for number, own in enumerate(columns) for at, c in enumerate(own)}
        found = []
        for held in self.partition_.values():
            if len(held) == 1:
                found.append(by_column[held[0]])
                continue
            block = blocks[place[held[0]][0]]
            found.append(meaning.block_information(weights, density, block, [place[c][1] for c in held]))
        return found

    def _parts(self) -> tuple[Array, Any, Sequence[Any], list[list[int]]]:
        """Return the weights, the density, the blocks and their columns."""
        columns = [own.tolist() for own in self._network.block_columns]
        return self.weights_, self._mixture.density, self._mixture.blocks, columns

    def _column_names(self) -> list[str]:
        names = self._told_names or range(self.n_features_in_)
        return [str(name) for name in getattr(self, "feature_names_in_", names)]

    def _party_of_column(self) -> list[str]:
        party_of = {column: str(party) for party, held in self.partition_.items() for column in held}
        return [party_of[column] for column in range(len(party_of))]

    def _read(self, X: ArrayLike) -> Any:
        return checks.read_table(self, X, reset=False)

    @abstractmethod
    def _evaluate(self, X: ArrayLike) -> Iterator[tuple[Array, Array, NDArray[np.bool_]]]:
        """Yield responsibilities, log-densities and a mask of the rows with some value, in chunks of rows."""
