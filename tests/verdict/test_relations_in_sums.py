"""What a party finds in the sums: others that depend on it, and rows in another order."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vpem import VerticalGaussianMixture
from vpem.estimators.relations import find_relations_in_sums

CORRELATION = 0.99
TRUE_NATS = -0.5 * np.log(1 - CORRELATION**2)
APART = 7.0


def table(n_groups, n_rows=800, n_columns=4, seed=0):
    """Groups of rows; columns are independent within groups."""
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], n_columns)
    return rng.normal(size=(n_rows, n_columns)) + APART * rng.integers(n_groups, size=n_rows)[:, None] * signs


def look(X, n_components, partition, inexact=0.0, is_lossy=False):
    """Relations that each party finds in its own columns, its contributions and their sum."""
    model = VerticalGaussianMixture(n_components, partition=partition, n_init=2, random_state=0).fit(X)
    terms = [np.zeros((len(X), n_components)) for _ in partition]
    for block, held in enumerate(partition):
        there = ~np.isnan(X[:, held]).any(axis=1)
        for k in range(n_components):
            density = multivariate_normal(model.means_[k, held], model.covariances_[block][k])
            terms[block][there, k] = density.logpdf(X[np.ix_(there, held)])
    totals = sum(terms)
    return [
        find_relations_in_sums(
            X[:, held],
            own,
            totals + inexact * (own - totals / 2) + (own.max(axis=1, keepdims=True) if is_lossy else 0.0),
            model.weights_,
            has_heaps=True,
            name=str(number),
            is_lossy=is_lossy,
        )
        for number, (held, own) in enumerate(zip(partition, terms, strict=True))
    ]


@pytest.mark.parametrize("n_components", [1, 3])
@pytest.mark.parametrize("n_columns", [2, 4])
@pytest.mark.parametrize(("inexact", "is_lossy"), [(0.0, False), (1e-6, False), (0.0, True)])
def test_parties_that_are_independent_within_components(n_components, n_columns, inexact, is_lossy):
    half = n_columns // 2
    X = table(n_components, n_columns=n_columns)
    for own in look(X, n_components, [list(range(half)), list(range(half, n_columns))], inexact, is_lossy):
        assert own.dependence is None or own.dependence.nats < 0.02
        assert own.unrelated == ()


@pytest.mark.parametrize(("n_components", "share"), [(1, 0.5), (3, 0.8)])
def test_parties_that_are_correlated_by_99_percent(n_components, share):
    rng = np.random.default_rng(1)
    X = rng.multivariate_normal([0, 0], [[1, CORRELATION], [CORRELATION, 1]], 800)
    X += APART * rng.integers(n_components, size=800)[:, None]
    X[0] += [APART, -APART]  # one row far from all others
    for own in look(X, n_components, [[0], [1]]):
        assert share * TRUE_NATS < own.dependence.nats < TRUE_NATS, "one component shows the distance, not the side"
        assert own.dependence.correlation == pytest.approx(np.sqrt(1 - np.exp(-2 * own.dependence.nats)))
        assert own.unrelated == ()


def test_rows_that_one_of_two_lacks_are_left_out():
    X = table(3, n_columns=2, n_rows=1200)
    X[:300, 0] = X[300:600, 1] = np.nan
    for own in look(X, 3, [[0], [1]]):
        assert own.dependence is None or own.dependence.nats < 0.05


@pytest.mark.parametrize("n_parties", [2, 3])
def test_rows_of_the_last_party_are_in_another_order(n_parties):
    X = table(3, n_columns=2 * n_parties, seed=n_parties)
    X[:, -2:] = np.random.default_rng(0).permutation(X[:, -2:])
    partition = np.arange(2 * n_parties).reshape(-1, 2).tolist()
    found = [own.unrelated for own in look(X, 3, partition)]
    if n_parties == 3:
        assert found == [(), (), ("2",)]
    else:  # either of two may be the one in another order
        assert any(found)


def test_noise_beside_clusters_is_no_other_order():
    X = table(3, n_columns=4)
    X[:, 2:] = np.random.default_rng(0).normal(size=(len(X), 2))
    assert look(X, 3, [[0, 1], [2, 3]])[0].unrelated == ()


def test_few_rows_tell_nothing():
    X = table(2, n_rows=80, n_columns=2)
    assert all(own == (None, (), False) for own in look(X, 2, [[0], [1]]))
