"""Information about the component: against Monte Carlo, scipy's integrals, sums and bounds."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, norm

from test_own_density import Gamma
from vpem import Gaussian, VerticalGaussianMixture
from vpem.extend import LOWEST, Block
from vpem.meaning import block_information, column_information, entropy, whole_information

FULL = Gaussian(covariance_type="full")


def gaussian_block(means, covariances):
    return FULL.make({"means": np.array(means, dtype=float), "covariances": np.array(covariances, dtype=float)})


def by_scipy(weights, curves, limits):
    """The same integral by an adaptive rule, between breakpoints."""

    def integrand(x):
        densities = np.array([curve(x) for curve in curves])
        total = weights @ densities
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = weights * densities * np.log(densities / total)
        return np.nansum(parts)

    pieces = pairwise(limits)
    return sum(quad(integrand, *piece, limit=200, epsabs=1e-12)[0] for piece in pieces)


@pytest.mark.parametrize(
    ("weights", "means", "deviations"),
    [
        ([0.5, 0.5], [0, 1], [1, 1]),
        ([0.2, 0.3, 0.5], [-4, 0, 1], [1, 0.1, 3]),
        ([0.7, 0.3], [0, 0], [1, 1e-4]),  # variances alone, of very different sizes
        ([0.9, 0.1], [1e6, 1e6 + 2], [1, 2]),
    ],
)
def test_a_gaussian_column_is_scipys_integral(weights, means, deviations):
    weights = np.array(weights)
    block = gaussian_block(np.array(means)[:, None], np.square(deviations)[:, None, None])
    curves = [norm(mean, deviation).pdf for mean, deviation in zip(means, deviations, strict=True)]
    ends = sorted({m + t * d for m, d in zip(means, deviations, strict=True) for t in range(-9, 10)})
    [found] = column_information(weights, FULL, block)
    assert found.error == 0
    assert found.nats == pytest.approx(by_scipy(weights, curves, ends), abs=1e-8)


def test_columns_that_tell_nothing_and_all():
    weights = np.array([0.25, 0.75])
    block = gaussian_block([[0, 0], [0, 1000]], [np.eye(2), np.eye(2)])
    nothing, everything = column_information(weights, FULL, block)
    assert nothing.nats == pytest.approx(0, abs=1e-12)
    assert everything.nats == pytest.approx(entropy(weights), abs=1e-12)
    assert entropy(weights) == pytest.approx(-0.25 * np.log(0.25) - 0.75 * np.log(0.75))
    assert entropy(np.array([1.0])) == 0
    one = gaussian_block([[3.0]], [[[2.0]]])
    assert column_information(np.array([1.0]), FULL, one)[0].nats == 0


@pytest.mark.parametrize("family", ["full", "tied", "diag", "spherical"])
def test_every_covariance_type_agrees_with_drawing(family):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 1 + c / 3, (200, 3)) for c in (0, 2, 5)])
    model = VerticalGaussianMixture(3, partition=[[0, 1, 2]], covariance_type=family, random_state=0).fit(X)
    weights, density, [block], _ = model.fitted_.parts
    for place, exact in enumerate(column_information(weights, density, block)):
        drawn = block_information(weights, density, block, [place], seed=place)
        assert abs(drawn.nats - exact.nats) < 5 * drawn.error + 1e-9
        assert 0 < drawn.error < 0.01
    together = block_information(weights, density, block)
    assert together.nats > max(one.nats for one in column_information(weights, density, block))
    assert together.nats <= entropy(weights)
    whole = whole_information(weights, density, [block])
    assert whole == together, "one block is all there is"


def test_the_stated_error_is_that_of_repeated_draws():
    weights = np.array([0.3, 0.7])
    block = gaussian_block([[0, 0], [1, 1]], [np.eye(2), [[2, 0.5], [0.5, 1]]])
    found = [block_information(weights, FULL, block, n_draws=1000, seed=seed) for seed in range(60)]
    spread = np.std([one.nats for one in found])
    assert 0.7 < spread / np.mean([one.error for one in found]) < 1.4
    assert block_information(weights, FULL, block) == block_information(weights, FULL, block), "a fixed seed"


def test_a_gamma_column_is_scipys_integral():
    weights = np.array([0.4, 0.6])
    block = Block(shape=np.array([[2.0], [7.0]]), scale=np.array([[1.0], [2.0]]))
    curves = [gamma(2.0, scale=1.0).pdf, gamma(7.0, scale=2.0).pdf]
    [found] = column_information(weights, Gamma(), block)
    assert found.nats == pytest.approx(by_scipy(weights, curves, [0, 1, 2, 5, 10, 20, 40, 80]), abs=2e-3)


@dataclass(frozen=True)
class Coins(Gamma):
    """Columns of zeros and ones; only what information needs."""

    listed: bool = True

    def log_density(self, XT, block):
        chance = block.chance[:, :, None]
        found = np.where(XT == 1, np.log(chance), np.where(XT == 0, np.log(1 - chance), LOWEST))
        return np.where(np.isnan(XT), 0.0, found).sum(axis=1)

    def means(self, block):
        return block.chance

    def deviations(self, block):
        return np.sqrt(block.chance * (1 - block.chance))

    def sample(self, block, labels, rng):
        return (rng.random((len(labels), block.chance.shape[1])) < block.chance[labels]).astype(float)

    def values(self, block, column):
        return np.array([0.0, 1.0]) if self.listed else None


def test_columns_of_few_values_are_added_up_or_drawn():
    weights, chance = np.array([0.4, 0.6]), np.array([[0.9], [0.2]])
    block = Block(chance=chance)
    joint = weights[:, None] * np.hstack([1 - chance, chance])
    expected = (joint * np.log(joint / joint.sum(axis=0) / weights[:, None])).sum()
    [listed] = column_information(weights, Coins(), block)
    assert listed.nats == pytest.approx(expected, abs=1e-12)
    [drawn] = column_information(weights, Coins(listed=False), block)
    assert drawn.error > 0
    assert abs(drawn.nats - expected) < 5 * drawn.error
