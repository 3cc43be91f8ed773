"""Do heavy tails pay? Mixtures of Student's t against Gaussian ones on pulsar candidates, one column a party.

Within a component, each column has a t distribution with degrees of freedom of its own: a Gaussian whose precision is
multiplied by a latent u, which is drawn from a Gamma distribution for each row, component and column. EM weights a
row by the u that it expects, and the degrees of freedom follow from an equation (Peel and McLachlan, 2000). Without
the latent u it is EM for Gaussian columns, from the same starts.

Run with `python benchmarks/student.py`; needs the table (see `vpem.datasets.fetch_htru2`). Takes some minutes.
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammaln, logsumexp
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, average_precision_score
from sklearn.preprocessing import StandardScaler

from vpem.datasets import fetch_htru2

SIZES = (2, 3, 5)
FOLDS, STARTS = 5, 2
TOL, MOST = 1e-5, 400
LEAST_VARIANCE = 1e-6
FEWEST, MANY = 1.0, 200.0
"""Degrees of freedom are between these; with so many, a t distribution is a Gaussian."""


class Mixture:
    """Columns that are independent within a component; `nu` is infinite for Gaussian ones."""

    def __init__(self, n_components: int, heavy: bool, seed: int):
        self.n_components, self.heavy, self.seed = n_components, heavy, seed

    def fit(self, X: np.ndarray) -> Mixture:
        """EM from k-means."""
        labels = KMeans(self.n_components, n_init=1, random_state=self.seed).fit_predict(X)
        r = np.eye(self.n_components)[labels]
        shape = (self.n_components, X.shape[1])
        self.nu = np.full(shape, 10.0 if self.heavy else np.inf)
        self.means = (r.T @ X) / r.sum(axis=0)[:, None]
        self.variances = np.maximum((r.T @ X**2) / r.sum(axis=0)[:, None] - self.means**2, LEAST_VARIANCE)
        self.weights, self.bounds = r.mean(axis=0), []
        for _ in range(MOST):
            r, scores = self.respond(X)
            self.bounds.append(scores.mean())
            if len(self.bounds) > 1 and self.bounds[-1] - self.bounds[-2] < TOL:
                break
            self._step(X, r)
        return self

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """(n_rows, n_components)."""
        found = np.empty((len(X), self.n_components))
        for k in range(self.n_components):
            squares = (X - self.means[k]) ** 2 / self.variances[k]
            if self.heavy:
                nu = self.nu[k]
                whole = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(np.pi * nu * self.variances[k])
                own = whole - (nu + 1) / 2 * np.log1p(squares / nu)
            else:
                own = -0.5 * (np.log(2 * np.pi * self.variances[k]) + squares)
            found[:, k] = own.sum(axis=1)
        return found

    def respond(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Responsibilities, (n_rows, n_components), and log-densities, (n_rows,)."""
        joint = self.log_densities(X) + np.log(self.weights)
        scores = logsumexp(joint, axis=1)
        return np.exp(joint - scores[:, None]), scores

    def _step(self, X: np.ndarray, r: np.ndarray) -> None:
        self.weights = r.mean(axis=0)
        for k, total in enumerate(r.sum(axis=0)):
            u = np.ones_like(X)
            if self.heavy:
                squares = (X - self.means[k]) ** 2 / self.variances[k]
                u = (self.nu[k] + 1) / (self.nu[k] + squares)
            w = r[:, k, None] * u
            self.means[k] = (w * X).sum(axis=0) / w.sum(axis=0)
            self.variances[k] = np.maximum((w * (X - self.means[k]) ** 2).sum(axis=0) / total, LEAST_VARIANCE)
            if self.heavy:
                known = r[:, k] @ (np.log(u) - u) / total
                known += digamma((self.nu[k] + 1) / 2) - np.log((self.nu[k] + 1) / 2)
                self.nu[k] = degrees(known)

    def bic(self, X: np.ndarray) -> float:
        """The lower, the better."""
        free = self.n_components * (1 + X.shape[1] * (3 if self.heavy else 2)) - 1
        return -2 * self.respond(X)[1].sum() + free * np.log(len(X))


def degrees(known: np.ndarray) -> np.ndarray:
    """Where log(nu / 2) - digamma(nu / 2) + 1 + known is zero, by halving; it falls with nu."""
    low, high = np.full(len(known), np.log(FEWEST)), np.full(len(known), np.log(MANY))
    for _ in range(50):
        middle = (low + high) / 2
        half = np.exp(middle) / 2
        above = np.log(half) - digamma(half) + 1 + known > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.exp(high)


def best(X: np.ndarray, size: int, heavy: bool) -> Mixture:
    """Of some starts, by the likelihood."""
    return max((Mixture(size, heavy, seed).fit(X) for seed in range(STARTS)), key=lambda one: one.bounds[-1])


def held_out(X: np.ndarray, y: np.ndarray, size: int, heavy: bool) -> tuple[float, float]:
    """Log-likelihood per row, and average precision, of rows that were not fitted.

    A row's score is the expected share of pulsars in its components, where shares are of the fitted rows.
    """
    folds = np.random.default_rng(0).integers(FOLDS, size=len(X))
    scores, pulsar = np.empty(len(X)), np.empty(len(X))
    for fold in range(FOLDS):
        kept, own = folds != fold, folds == fold
        model = best(X[kept], size, heavy)
        r, _ = model.respond(X[kept])
        shares = r.T @ y[kept] / r.sum(axis=0)
        r, scores[own] = model.respond(X[own])
        pulsar[own] = r @ shares
    return float(scores.mean()), float(average_precision_score(y, pulsar))


def main() -> None:
    """Print a table."""
    data = fetch_htru2()
    X, y = StandardScaler().fit_transform(data.data), data.target
    print("components  columns   held out   BIC        Rand   average precision   degrees of freedom, by component")
    for size in SIZES:
        for heavy in (False, True):
            model = best(X, size, heavy)
            rand = adjusted_rand_score(y, model.respond(X)[0].argmax(axis=1))
            score, precision = held_out(X, y, size, heavy)
            name = "t" if heavy else "Gaussian"
            about = f"{size:10}  {name:8}  {score:9.4f}  {model.bic(X):9,.0f}  {rand:6.3f}  {precision:8.3f}"
            print(
                f"{about}   {' | '.join(' '.join(f'{nu:.0f}' for nu in own) for own in model.nu) if heavy else ''}",
                flush=True,
            )


if __name__ == "__main__":
    main()
