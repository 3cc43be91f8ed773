"""Families of single columns: log-densities are scipy's, M-steps are maxima, statistics add."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from vpem.core.blocks.angles import Angles
from vpem.core.blocks.categorical import Categorical
from vpem.core.blocks.counts import Counts, Poisson
from vpem.core.blocks.families import Discrete
from vpem.core.blocks.structure import parse_families, parse_family
from vpem.core.blocks.zeros import Zeros

RNG = np.random.default_rng(0)


def amounts(n, log=True):
    rest = np.exp(RNG.normal(3, 1, size=n)) if log else RNG.normal(50, 3, size=n)
    return np.where(RNG.random(n) < 0.4, 0.0, rest)


CASES = {
    "categorical:4": RNG.choice(4, p=[0.5, 0.3, 0.15, 0.05], size=300).astype(float),
    "poisson:40": RNG.poisson(4.0, size=300).astype(float),
    "counts:80": RNG.negative_binomial(2, 0.25, size=300).astype(float),
    "counts:30": RNG.binomial(20, 0.5, size=300).astype(float),  # its variance does not exceed the mean
    "zeros": amounts(300),
    "zeros:gaussian": amounts(300, log=False),
    "angles:24": RNG.vonmises(2.0, 1.5, size=300) * 24 / (2 * np.pi) % 24,
}


def sums(family, x, weights, parameters):
    """Statistics by definition."""
    if isinstance(family, Discrete):
        return np.stack([weights[:, x == value].sum(axis=1) for value in range(family.n_values)], axis=1)
    return weights @ family.transform(x, parameters).T


def some_parameters(family, x):
    """Of three components, from random responsibilities."""
    weights = np.random.default_rng(1).dirichlet([0.3] * 3, size=len(x)).T
    first = family.first(float(x.mean()), float(x.var()))
    overall = family.settle(family.m_step(sums(family, x, np.ones((1, len(x))), first), first, 0.0))
    before = family.start(np.quantile(x, [0.2, 0.5, 0.9]), overall)
    statistics = sums(family, x, weights, before)
    return weights, statistics, before, family.m_step(statistics, before, 0.0)


def scipys(family, x, parameters):
    """Log-densities by scipy."""
    if isinstance(family, Categorical):
        return np.log(parameters)[:, x.astype(int)]
    if isinstance(family, Poisson):
        found = [
            stats.poisson.logpmf(x, mean) if a == 0 else stats.nbinom.logpmf(x, 1 / a, 1 / (1 + a * mean))
            for mean, a in parameters
        ]
    elif isinstance(family, Zeros):
        found = []
        for share, mean, variance, *_ in parameters:
            deviation = np.sqrt(variance)
            safe = np.where(x == 0, 1.0, x)
            rest = (
                stats.lognorm.logpdf(safe, deviation, scale=np.exp(mean))
                if family.is_log
                else stats.norm.logpdf(safe, mean, deviation)
            )
            found.append(np.where(x == 0, np.log(share), np.log1p(-share) + rest))
    else:
        angles = 2 * np.pi * x / family.argument
        found = [
            stats.vonmises.logpdf(angles, k, loc=mean) + np.log(2 * np.pi / family.argument) for mean, k in parameters
        ]
    return np.array(found)


@pytest.mark.parametrize("text", CASES)
def test_log_densities_are_scipys(text):
    family, x = parse_family(text), CASES[text]
    assert str(family) == text
    parameters = some_parameters(family, x)[3]
    family.check(parameters)
    np.testing.assert_allclose(family.log_density(x, parameters), scipys(family, x, parameters), rtol=1e-10)
    if isinstance(family, Discrete):
        values = family.values()
        np.testing.assert_allclose(family.log_table(parameters), scipys(family, values, parameters), rtol=1e-9)
        assert family.log_density(np.array([0.5, -1.0]), parameters).max() == -np.inf


@pytest.mark.parametrize("text", CASES)
def test_the_m_step_is_a_maximum(text):
    family, x = parse_family(text), CASES[text]
    weights, statistics, before, found = some_parameters(family, x)
    expected = (weights * family.log_density(x, found)).sum()
    assert family.expected_log_density(statistics, found) == pytest.approx(expected, rel=1e-12)

    def loss(vector):
        own = family.from_vector(vector.reshape(family.to_vector(before).shape), before)
        return -family.expected_log_density(statistics, own)

    start = family.to_vector(before).ravel()
    best = minimize(loss, start, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-8})
    assert loss(family.to_vector(found).ravel()) <= best.fun + 1e-7 * abs(best.fun)
    assert -loss(family.to_vector(found).ravel()) == pytest.approx(expected, rel=1e-7)  # a dispersion of 0 is 1e-8
    assert family.expected_log_density(statistics, found) >= family.expected_log_density(statistics, before)


def test_a_dispersion_follows_the_variance():
    shares = np.array([stats.binom.pmf(np.arange(30), 20, 0.5), stats.nbinom.pmf(np.arange(30), 3, 0.5)])
    found = Counts(30.0).m_step(1000 * shares, np.array([[1.0, 0.0], [1.0, 0.0]]), 0.0)
    assert found[0, 1] == 0.0
    assert found[1] == pytest.approx([3.0, 1 / 3], rel=1e-3)  # the tail beyond 30 is cut off
    assert Poisson(30.0).m_step(1000 * shares, found * [1, 0], 0.0)[:, 1].tolist() == [0.0, 0.0]


def test_dispersions_near_zero_lose_no_digits():
    values = np.arange(200.0)
    for a in (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3):
        table = Counts(200.0).log_table(np.array([[7.0, a]]))[0]
        np.testing.assert_allclose(Counts(200.0).log_density(values, np.array([[7.0, a]]))[0], table, atol=1e-6)
        assert np.exp(table).sum() == pytest.approx(1.0, abs=1e-12)


def test_smoothing_leaves_no_category_out():
    family = parse_family("categorical:3")
    found = family.m_step(np.array([[4.0, 0.0, 0.0]]), family.first(0, 0), 1.0)
    np.testing.assert_allclose(found, [[13 / 15, 1 / 15, 1 / 15]])
    assert family.m_step(np.zeros((1, 3)), found, 1.0).tolist() == found.tolist()  # no rows: as before


def test_equal_amounts_make_no_spike():
    family = parse_family("zeros")
    x = np.concatenate([np.zeros(50), np.exp(np.linspace(0, 4, 100)), np.full(50, 99.0)])
    first = family.first(x.mean(), x.var())
    overall = family.settle(family.m_step(sums(family, x, np.ones((1, 200)), first), first, 0.0))
    weights = (np.arange(200) >= 150)[None].astype(float)
    found = family.m_step(sums(family, x, weights, overall), overall, 0.0)
    assert found[0, 2] == pytest.approx(0.01 * overall[0, 2])


@pytest.mark.parametrize("text", CASES)
def test_samples_and_vectors(text):
    family, x = parse_family(text), CASES[text]
    parameters = some_parameters(family, x)[3]
    again = family.from_vector(family.to_vector(parameters), parameters)
    np.testing.assert_allclose(
        family.log_density(x, again), family.log_density(x, parameters), rtol=1e-9, atol=1e-6
    )  # a dispersion of 0 becomes 1e-8
    labels = np.repeat(np.arange(3), 40_000)
    drawn = family.sample(parameters, labels, np.random.default_rng(0)).reshape(3, -1)
    if not isinstance(family, Angles):
        deviations = family.deviations(parameters)
        near = 5 * deviations / np.sqrt(40_000)
        assert (np.abs(drawn.mean(axis=1) - family.means(parameters)) < near).all()
        tolerance = 0.3 if text == "zeros" else 0.05  # log-normal variances have heavy tails
        np.testing.assert_allclose(drawn.std(axis=1), deviations, rtol=tolerance)
    else:
        statistics = np.stack([family.transform(own, parameters).sum(axis=1) for own in drawn])
        found = family.m_step(statistics, parameters, 0.0)
        np.testing.assert_allclose(np.cos(found[:, 0] - parameters[:, 0]), 1.0, atol=1e-3)
        np.testing.assert_allclose(found[:, 1], parameters[:, 1], rtol=0.05)
    features = family.features(np.append(x, np.nan), some_parameters(family, x)[2][:1])
    assert features.shape == (family.n_features, len(x) + 1)
    assert np.isnan(features[:, -1]).all()
    assert np.isfinite(features[:, :-1]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("words", "expected a family of gaussian, categorical, counts, poisson, zeros, angles, got 'words'"),
        ("categorical", "expected a number after the colon"),
        ("categorical:1", "expected categorical with a whole number of values, 2 or more"),
        ("counts:1e6", "expected counts below 4096"),
        ("angles:0", "expected a positive period"),
        ("zeros:7", "expected zeros or zeros:gaussian"),
    ],
)
def test_wrong_families_say_what_was_expected(text, message):
    with pytest.raises(ValueError, match=message):
        parse_families(("gaussian", text))
