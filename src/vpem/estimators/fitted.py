"""What a fitted mixture can do; all of it exactly, with the assembled model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.mixture import GaussianMixture
from sklearn.utils.validation import check_is_fitted

from vpem.core.blocks.covariances import STRUCTURES, n_covariance_parameters
from vpem.core.blocks.gaussian import LOWEST, normalize
from vpem.core.blocks.overall import check_sizes, has_too_large, too_large
from vpem.core.blocks.packed import make_layout
from vpem.core.blocks.sweep import em_pass
from vpem.core.network.parties import NamedHub, Network
from vpem.core.rows import row_chunks
from vpem.estimators import checks
from vpem.simulation.model import Mixture
from vpem.simulation.threads import one_blas_thread

Array = NDArray[np.float64]


class BlockMixture(GaussianMixture):  # type: ignore[misc]  # scikit-learn has no types
    """`sklearn.mixture.GaussianMixture` whose covariances are known to consist of blocks, for `bic` and `aic`.

    scikit-learn would count every entry of the dense matrices. A new fit knows no blocks, and counts as scikit-learn
    does.

    Attributes
    ----------
    n_block_parameters_ : int
        Free parameters of the block structure.
    """

    n_block_parameters_: int

    def fit_predict(self, X: ArrayLike, y: object = None) -> NDArray[np.intp]:
        """Fit as scikit-learn does, without blocks."""
        labels: NDArray[np.intp] = super().fit_predict(X, y)
        if hasattr(self, "n_block_parameters_"):
            del self.n_block_parameters_
        return labels

    def _n_parameters(self) -> int:
        return int(getattr(self, "n_block_parameters_", super()._n_parameters()))


class FittedMixture:
    """Predictions, scores, samples and conversions of `VerticalGaussianMixture`."""

    tol: float
    reg_covar: float
    max_iter: int
    random_state: Any
    weights_: Array
    means_: Array
    hubs_: Sequence[NamedHub]
    partition_: dict[Any, list[int]]
    _network: Network
    _mixture: Mixture
    _covariance_type: str

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Most probable component of each row, under the assembled model; (n_samples,)."""
        labels: NDArray[np.intp] = self.predict_proba(X).argmax(axis=1)
        return labels

    def predict_proba(self, X: ArrayLike) -> Array:
        """Responsibilities under the assembled model; (n_samples, n_components).

        Gaps are marginalized; a row in which everything is missing gets the weights. A row so far from every
        component that its squared distances cannot be added is an error.
        """
        return np.concatenate([responsibilities for responsibilities, *_ in self._evaluate(X)])

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of each row (of what it has) under the assembled model; (n_samples,)."""
        return np.concatenate([log_likelihoods for _, log_likelihoods, _ in self._evaluate(X)])

    def score(self, X: ArrayLike, y: object = None) -> float:  # noqa: ARG002 (scikit-learn's signature)
        """Mean log-density per row under the assembled model; rows without any value do not count."""
        total, n_rows = self._total(X)
        return total / n_rows

    def sample(self, n_samples: int = 1) -> tuple[Array, NDArray[np.intp]]:
        """Draw rows from the assembled model, as scikit-learn does: component after component.

        Returns
        -------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        """
        check_is_fitted(self, "weights_")
        rng = np.random.default_rng(checks.shared_seed(self.random_state))
        counts = rng.multinomial(checks.check_count("n_samples", n_samples, 1), self.weights_)
        labels = np.repeat(np.arange(len(counts)), counts)
        X = self.means_[labels]
        for columns, block in zip(self._network.block_columns, self._mixture.blocks, strict=True):
            noise = rng.standard_normal((len(labels), len(columns)))
            for k in range(len(counts)):
                chosen = labels == k
                covariance = block.covariances[k % len(block.covariances)]
                if covariance.ndim == 2:
                    noise[chosen] = noise[chosen] @ np.linalg.cholesky(covariance).T
                else:
                    noise[chosen] *= np.sqrt(covariance)
            X[:, columns] += noise
        return X, labels

    def bic(self, X: ArrayLike) -> float:
        """Bayesian information criterion on X; the lower, the better. Parameters count as the blocks have them."""
        total, n_rows = self._total(X)
        return -2 * total + self._n_parameters() * math.log(n_rows)

    def aic(self, X: ArrayLike) -> float:
        """Akaike information criterion on X; the lower, the better. Parameters count as the blocks have them."""
        return -2 * self._total(X)[0] + 2 * self._n_parameters()

    def covariance_matrix(self) -> Array:
        """Dense covariances in the order of X's columns; (n_components, n_features, n_features)."""
        check_is_fitted(self, "weights_")
        n_components, n_features = self.means_.shape
        dense = np.zeros((n_components, n_features, n_features))
        for columns, block in zip(self._network.block_columns, self._mixture.blocks, strict=True):
            if block.covariances.ndim == 3:
                dense[:, columns[:, None], columns] = block.covariances
            else:
                dense[:, columns, columns] = block.covariances
        return dense

    def to_sklearn(self) -> GaussianMixture:
        """Fitted `sklearn.mixture.GaussianMixture` with the same densities, `bic` and `aic`.

        It has the covariance type of the fit, except that "spherical" with several blocks, each of which has a
        variance of its own, becomes "diag". Where scikit-learn would count other parameters than the blocks have, the
        result is a `BlockMixture`: a subclass that differs in that count only.
        """
        dense, n_parameters = self.covariance_matrix(), self._n_parameters()
        n_components, n_features = self.means_.shape
        kind = self._covariance_type
        if kind == "spherical" and len(self._network.hubs) > 1:
            kind = "diag"
        counted = (
            n_components - 1 + n_components * n_features + n_covariance_parameters(n_components, n_features, kind)
        )
        model = (GaussianMixture if counted == n_parameters else BlockMixture)(
            n_components,
            covariance_type=kind,
            tol=self.tol,
            reg_covar=self.reg_covar,
            max_iter=self.max_iter,
            random_state=self.random_state,
        )
        if counted != n_parameters:
            model.n_block_parameters_ = n_parameters
        factors = np.linalg.inv(np.linalg.cholesky(dense)).transpose(0, 2, 1)
        if kind == "tied":
            dense, factors = dense[0], factors[0]
        elif kind == "diag":
            dense, factors = (np.diagonal(part, axis1=1, axis2=2).copy() for part in (dense, factors))
        elif kind == "spherical":
            dense, factors = dense[:, 0, 0].copy(), factors[:, 0, 0].copy()
        model.weights_, model.means_ = self.weights_.copy(), self.means_.copy()
        model.covariances_, model.precisions_cholesky_ = dense, factors
        is_matrix = STRUCTURES[kind].is_matrix
        model.precisions_ = factors @ np.swapaxes(factors, -1, -2) if is_matrix else factors**2
        for name in ("converged_", "n_iter_", "lower_bound_", "lower_bounds_", "n_features_in_"):
            setattr(model, name, getattr(self, name))
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        return model

    def _total(self, X: ArrayLike) -> tuple[float, int]:
        """Log-density of all rows, and how many have some value."""
        parts = [part[1:] for part in self._evaluate(X)]
        scores, is_there = map(np.concatenate, zip(*parts, strict=True))
        if not is_there.any():
            raise ValueError("expected rows with some values, got gaps (NaN) only")
        return float(scores.sum()), int(is_there.sum())

    def _evaluate(self, X: ArrayLike) -> Iterator[tuple[Array, Array, NDArray[np.bool_]]]:
        """Responsibilities and log-densities of X, and which rows have some value; some rows at a time."""
        check_is_fitted(self, "weights_")
        table = checks.read_table(self, X, reset=False)
        log_weights = np.log(self.weights_)
        blocks, order = self._mixture.blocks, np.concatenate(self._network.block_columns)
        widths = [len(columns) for columns in self._network.block_columns]
        layout = make_layout(widths, len(log_weights), is_matrix=blocks[0].covariances.ndim == 3)
        views = np.zeros(len(blocks), dtype=np.int64)
        halves = em_pass(layout, blocks, order, None, log_weights[None], views)
        for rows in row_chunks(0, len(table), halves.values_per_row):
            chunk = table[rows]
            if has_too_large(chunk):
                check_sizes(self._network, np.fmax.reduce(np.abs(chunk), axis=0))
            with one_blas_thread():
                sums = [halves.contribute(tile)[0].T for tile in halves.tiles(chunk, rows.start)]
            found = normalize(np.concatenate(sums) + log_weights)
            for row in np.flatnonzero(~(found[1] > LOWEST)):  # cut off: all components would be equally likely
                raise self._too_far(chunk[row], rows.start + row)
            is_there: NDArray[np.bool_] = np.asarray(~np.isnan(chunk).all(axis=1))
            yield *found, is_there

    def _too_far(self, row: NDArray[np.floating], number: int) -> ValueError:
        """What to raise for a row whose squared distances from all components are too large to be added."""
        deviations = np.empty(self.means_.shape)
        for columns, block in zip(self._network.block_columns, self._mixture.blocks, strict=True):
            is_matrix = block.covariances.ndim == 3
            variances = np.diagonal(block.covariances, axis1=1, axis2=2) if is_matrix else block.covariances
            with np.errstate(over="ignore"):
                deviations[:, columns] = np.abs(row[columns] - block.means) / np.sqrt(variances)
        farthest = np.nan_to_num(deviations.min(axis=0))
        column = int(farthest.argmax())
        party = next(party for party, held in self.partition_.items() if column in held)
        why = f", {farthest[column]:.1g} standard deviations from every component; leave out row {number}"
        return too_large(row[column], column, party, why)

    def _n_parameters(self) -> int:
        """Free parameters of the block structure."""
        n_components, n_features = map(int, self.means_.shape)
        covariances = (
            n_covariance_parameters(n_components, len(hub.columns), self._covariance_type) for hub in self.hubs_
        )
        return int(n_components - 1 + n_components * n_features + sum(covariances))
