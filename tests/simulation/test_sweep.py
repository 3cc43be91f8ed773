"""A pass over the rows: whatever way it takes, and however many threads take it."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from oracles import make_settings, relative_error
from vpem import Consensus, Star, VerticalGaussianMixture, VerticalKMeans
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.network.adders import linear_adder
from vpem.core.network.parties import make_network
from vpem.simulation.certificate import certify
from vpem.simulation.model import Mixture, make_problem
from vpem.simulation.simulated_pass import e_step

pytestmark = pytest.mark.processors

COLUMNS = {"a": [4, 0], "b": [1], "c": [2, 3, 5]}


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3000, 6)) @ rng.normal(size=(6, 6)) + 3 * rng.integers(2, size=(3000, 1))


def mixture_of(problem, X, n_views=1):
    pairs = zip(problem.network.block_columns, problem.overall.blocks, strict=True)
    parts = (Gaussian().start(X[:2][:, held], block) for held, block in pairs)
    weights = np.array([[0.4, 0.6]]) if n_views == 1 else np.random.default_rng(0).dirichlet([5, 5], size=n_views)
    return Mixture(Gaussian(), weights, tuple(parts))


def test_single_precision_loses_nothing_but_the_datas_own_digits(X):
    offset = 1e4  # sums in single precision would lose all digits of the deviations
    narrow = (X + offset).astype(np.float32)
    for arguments in ({"partition": COLUMNS}, {"graph": "path", "summation": Consensus(3)}):
        model = VerticalGaussianMixture(2, random_state=0, **arguments)
        wide = model.fit(narrow.astype(np.float64)).means_
        assert relative_error(model.fit(narrow).means_, wide) < 1e-12
    kmeans = VerticalKMeans(2, random_state=0)
    wide = kmeans.fit(narrow.astype(np.float64)).cluster_centers_
    assert relative_error(kmeans.fit(narrow).cluster_centers_, wide) < 1e-12


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("step", [1, 2])
def test_any_order_in_memory_will_do(X, order, step):
    table = np.asarray(X, order=order)[::step]
    expected = VerticalGaussianMixture(2, random_state=0).fit(np.ascontiguousarray(table)).means_
    assert relative_error(VerticalGaussianMixture(2, random_state=0).fit(table).means_, expected) < 1e-12


def test_columns_that_are_far_from_their_start_keep_their_digits(X):
    problem = make_problem(X + 1e6, make_network(COLUMNS, "star"), Star(), Gaussian())
    near = mixture_of(problem, X + 1e6)
    expected = e_step(problem, problem.channel(), near)
    pairs = zip(near.blocks, problem.overall.blocks, strict=True)
    blocks = (near.density.start(block.means * 0 - 1e9, whole) for block, whole in pairs)
    far = replace(near, blocks=tuple(blocks))
    found = e_step(problem, problem.channel(), far)
    for own, held in zip(found.statistics(), problem.network.block_columns, strict=True):
        # All components explain everything equally badly: the statistics are those of all rows.
        np.testing.assert_allclose(own.means[0], (X + 1e6)[:, held].mean(axis=0), rtol=1e-14)
        covariance = np.cov((X + 1e6)[:, held].T, bias=True).reshape(own.scatters[0].shape)
        np.testing.assert_allclose(own.scatters[0] / own.counts[0], covariance, rtol=1e-9)
    assert np.isfinite(expected.scores).all()


# How a network adds


def sums_by(adder, terms):
    return np.broadcast_to(adder.add(terms), (len(terms), *terms.shape[1:]))


@pytest.mark.parametrize(
    ("graph", "rounds", "way"),
    [
        (nx.complete_graph(12), 40, "the exact sum, from which"),
        (nx.random_geometric_graph(40, 0.5, seed=1), 60, "modes, as the others are below rounding"),
        (nx.path_graph(12), 5, "a matrix of 12 roots by 12 hubs"),
    ],
)
def test_every_way_of_adding_gives_the_same_sums(graph, rounds, way):
    network = make_network({number: [number] for number in graph}, graph)
    adder = linear_adder(Consensus(rounds).matrix(network))
    assert way in adder.path
    terms = -1e3 * np.random.default_rng(0).exponential(size=(len(graph), 3, 50))
    W = Consensus(rounds).mixing_matrix(network)
    expected = len(graph) * terms
    for _ in range(rounds):  # literally
        expected = np.einsum("ij,j...->i...", W, expected)
    np.testing.assert_allclose(sums_by(adder, terms), expected, rtol=1e-10)
    for root in (0, len(graph) - 1):
        one = adder.seen_by(adder.view_of_hub[root])
        np.testing.assert_allclose(one.add(terms)[0], expected[root], rtol=1e-10)
    each = adder.for_each_root()
    assert each.n_views == len(graph)
    np.testing.assert_allclose(each.add(terms), expected, rtol=1e-10)


def test_modes_are_kept_as_long_as_they_matter():
    rng = np.random.default_rng(0)
    left, right = np.linalg.qr(rng.normal(size=(20, 20)))[0], np.linalg.qr(rng.normal(size=(20, 20)))[0]
    sizes = np.zeros(20)
    sizes[:3] = 1.0, 1e-6, 1e-12
    matrix = 1.0 + (left * sizes) @ right
    adder = linear_adder(matrix)
    assert adder.modes[0].shape == (20, 1 + 3)
    np.testing.assert_allclose(adder.modes[0] @ adder.modes[1], matrix, rtol=1e-13)


def test_roots_of_different_minds_do_not_share_a_view(X):
    network = make_network(COLUMNS, "complete")
    problem = make_problem(X, network, Consensus(200), Gaussian())
    assert problem.channel().is_exact
    assert problem.channel().begin(mixture_of(problem, X).weights).n_views == 1
    differing = mixture_of(problem, X, n_views=3)
    assert problem.channel().begin(differing.weights).n_views == 3
    rules = make_settings(n_components=2, covariance_type="full", tol=1e-3, reg_covar=1e-6, max_iter=5)
    assert certify(problem, differing, rules).disagreement > 1e-3
