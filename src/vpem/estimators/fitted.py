"""Methods of a fitted mixture. All use the assembled model and are exact."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from vpem.core.blocks.overall import check_sizes, has_too_large, too_large
from vpem.core.blocks.sweep import em_pass
from vpem.core.blocks.weights import LOWEST, normalize
from vpem.core.network.parties import NamedHub, Network
from vpem.core.rows import row_chunks
from vpem.estimators import checks, frames
from vpem.estimators.explaining import ExplainedMixture
from vpem.estimators.joined import Data, party_columns
from vpem.estimators.weighting import counts_each_row_once
from vpem.simulation.model import Mixture
from vpem.simulation.threads import one_blas_thread

Array = NDArray[np.float64]


class FittedMixture(ExplainedMixture):
    """Predictions, scores and samples of a fitted mixture."""

    random_state: Any
    weights_: Array
    means_: Array
    hubs_: Sequence[NamedHub]
    partition_: dict[Any, list[int]]
    _network: Network
    _mixture: Mixture
    _kinds: Mapping[str, str] = {}
    """Kind of the fit's table, under "", or of each party's table; empty for a loaded model."""

    def predict(self, X: Data) -> NDArray[np.intp]:
        """Most probable component of each row, under the assembled model; (n_samples,)."""
        labels: NDArray[np.intp] = self.predict_proba(X).argmax(axis=1)
        return labels

    def predict_proba(self, X: Data) -> Array:
        """Responsibilities under the assembled model; (n_samples, n_components).

        Gaps are marginalized; the responsibilities of a row without any value are the weights. A row so far from
        every component that its squared distances overflow is an error.
        """
        return np.concatenate([responsibilities for responsibilities, *_ in self._evaluate(X)])

    def score_samples(self, X: Data) -> Array:
        """Log-density of the observed values of each row under the assembled model; (n_samples,)."""
        return np.concatenate([log_likelihoods for _, log_likelihoods, _ in self._evaluate(X)])

    @counts_each_row_once
    def score(self, X: Data, y: object = None) -> float:  # noqa: ARG002 (scikit-learn's signature)
        """Mean log-density per row under the assembled model; rows without any value are ignored."""
        total, n_rows = self._total(X)
        return total / n_rows

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
        X, labels = self._draw(n_samples)
        columns, on = self._in_cells(X), getattr(self, "on_", None)
        if on is not None:
            ids = {name: np.arange(len(X)) for name in on}
            parties = {
                party: {name: columns[number] for name, number in own.items()}
                for party, own in party_columns(self).items()
            }
            return {
                party: frames.make_frame({**ids, **own}, self._kinds.get(party, frames.OTHER))
                for party, own in parties.items()
            }, labels
        has_names = hasattr(self, "feature_names_in_")
        kind = self._kinds.get("", frames.OTHER if has_names else frames.ARRAY)
        if kind == frames.ARRAY:
            has_words = any(isinstance(column, list) or column.dtype == bool for column in columns)
            return np.array(columns, dtype=object).T if has_words else X, labels
        names: Sequence[Any] = self._column_names() if has_names else range(len(columns))
        return frames.make_frame(dict(zip(names, columns, strict=True)), kind), labels

    def _in_cells(self, X: Array) -> list[Any]:
        """Convert drawn rows to columns, (n_rows,) each, with words, booleans and integers in place of codes."""
        found: list[Any] = [self._coding.in_cells(number, values) for number, values in enumerate(X.T)]
        density = self._mixture.density
        for columns, block in zip(self._network.block_columns, self._mixture.blocks, strict=True):
            for place, column in enumerate(columns):
                is_count = density.values(block, place) is not None and column not in self._coding.labels
                found[column] = found[column].astype(np.int64) if is_count else found[column]
        return found

    def _draw(self, n_samples: int) -> tuple[Array, NDArray[np.intp]]:
        """Draw rows, as numbers and codes, and their components."""
        check_is_fitted(self, "weights_")
        rng = np.random.default_rng(checks.shared_seed(self.random_state))
        counts = rng.multinomial(checks.check_count("n_samples", n_samples, 1), self.weights_)
        labels = np.repeat(np.arange(len(counts)), counts)
        X = np.empty((len(labels), self.means_.shape[1]))
        for columns, block in zip(self._network.block_columns, self._mixture.blocks, strict=True):
            X[:, columns] = self._mixture.density.sample(block, labels, rng)
        return self._coding.decode(X), labels

    def bic(self, X: Data) -> float:
        """Bayesian information criterion on X, with the number of parameters of the blocks; the lower, the better.

        Compare only models whose columns have the same kind of log-densities: log-probabilities (of categories and
        counts) and log-densities, which depend on the column's unit, are not comparable.
        """
        total, n_rows = self._total(X)
        return -2 * total + self._n_parameters() * math.log(n_rows)

    def aic(self, X: Data) -> float:
        """Akaike information criterion on X, with the number of parameters of the blocks; the lower, the better."""
        return -2 * self._total(X)[0] + 2 * self._n_parameters()

    def icl(self, X: Data) -> float:
        """Integrated completed likelihood on X, on the scale of BIC; the lower, the better.

        It is `bic` plus twice the entropy of the responsibilities. It penalizes components that overlap: it selects
        a number of clusters, while BIC selects a density.
        """
        entropy = 0.0
        for responsibilities, _, is_there in self._evaluate(X):
            own = responsibilities[is_there]
            entropy -= float((own * np.log(np.maximum(own, np.finfo(float).tiny))).sum())
        return self.bic(X) + 2 * entropy

    def _total(self, X: Data) -> tuple[float, int]:
        """Sum of the rows' log-densities, and the number of rows with some value."""
        parts = [part[1:] for part in self._evaluate(X)]
        scores, is_there = map(np.concatenate, zip(*parts, strict=True))
        if not is_there.any():
            raise ValueError("expected rows with some values, got gaps (NaN) only")
        return float(scores.sum()), int(is_there.sum())

    def _evaluate(self, X: Data) -> Iterator[tuple[Array, Array, NDArray[np.bool_]]]:
        """Yield responsibilities, log-densities and a mask of the rows with some value, in chunks of rows."""
        check_is_fitted(self, "weights_")
        table = checks.read_table(self, X, reset=False)
        log_weights = np.log(self.weights_)
        density, columns = self._mixture.density, self._network.block_columns
        packed = density.pack(self._mixture.blocks, density.layout(list(map(len, columns)), len(log_weights)))
        views = np.zeros(len(columns), dtype=np.int64)
        halves = em_pass(packed, np.concatenate(columns), None, log_weights[None], views)
        for rows in row_chunks(0, len(table), halves.values_per_row):
            chunk = table[rows]
            if has_too_large(chunk):
                check_sizes(self._network, np.fmax.reduce(np.abs(chunk), axis=0))
            with one_blas_thread():
                sums = [halves.contribute(tile)[0].T for tile in halves.tiles(chunk, rows.start)]
            found = normalize(np.concatenate(sums) + log_weights)
            for row in np.flatnonzero(~(found[1] > LOWEST)):  # clipped: all components would seem equally likely
                raise self._too_far(chunk[row], rows.start + row)
            is_there: NDArray[np.bool_] = np.asarray(~np.isnan(chunk).all(axis=1))
            yield *found, is_there

    def _too_far(self, row: NDArray[np.floating], number: int) -> ValueError:
        """Make the error for a row whose squared distances from all components overflow."""
        density, deviations = self._mixture.density, np.empty(self.means_.shape)
        names = self._column_names()
        for columns, block in zip(self._network.block_columns, self._mixture.blocks, strict=True):
            wrong = density.complaint(block, row[columns].astype(np.float64), [names[column] for column in columns])
            if wrong is not None:
                return ValueError(f"row {number}: {wrong}")
        for columns, block in zip(self._network.block_columns, self._mixture.blocks, strict=True):
            with np.errstate(over="ignore"):
                deviations[:, columns] = np.abs(row[columns] - density.means(block)) / density.deviations(block)
        farthest = np.nan_to_num(deviations.min(axis=0))
        column = int(farthest.argmax())
        party = next(party for party, held in self.partition_.items() if column in held)
        why = f", {farthest[column]:.1g} standard deviations from every component; leave out row {number}"
        return too_large(row[column], column, party, why)

    def _measures(self) -> dict[str, str]:
        """Column name to the measure of its log-densities; see `Density.measure`."""
        names, density = self._column_names(), self._mixture.density
        return {
            names[column]: density.measure(block, place)
            for columns, block in zip(self._network.block_columns, self._mixture.blocks, strict=True)
            for place, column in enumerate(columns)
        }

    def _n_parameters(self) -> int:
        """Number of free parameters of the block structure."""
        n_components = len(self.weights_)
        blocks = map(self._mixture.density.n_block_parameters, self._mixture.blocks)
        return n_components - 1 + sum(blocks)
