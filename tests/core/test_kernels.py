"""Each compiled kernel is held to the function that defines what it computes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from definitions import (
    centre_sums,
    columns_with_noise,
    expected_statistics,
    nearest,
    observed_contribution,
    respond,
    squared_distances,
)
from oracles import examples, relative_error
from vpem import Consensus, VerticalGaussianMixture, VerticalKMeans
from vpem.core.blocks import kernels, matrix_kernels
from vpem.core.blocks.arrays import Statistics
from vpem.core.blocks.factors import make_block
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.blocks.layouts import WIDEST_MATRIX, make_layout, sort_blocks
from vpem.core.blocks.overall import column_moments, shared_statistics
from vpem.core.blocks.packed import Densities, Tally, warm_up
from vpem.core.blocks.tiles import ColumnTally, Distances, Tile, columns_first
from vpem.core.network.parties import make_network
from vpem.core.settings import STARTS

pytestmark = pytest.mark.processors

# Sums in another order.
TOLERANCE = 1e-12


def case(seed, covariance_type, widths, n_rows=300, n_components=3, gaps=0.0):
    """Blocks with parameters, and rows for them; columns first."""
    rng = np.random.default_rng(seed)
    blocks = []
    for width in widths:
        roots = rng.normal(size=(n_components, width, width)) / np.sqrt(width) + 2 * np.eye(width)
        full = roots @ roots.transpose(0, 2, 1)
        covariances = {
            "full": full,
            "tied": full[:1],
            "diag": np.diagonal(full, axis1=1, axis2=2).copy(),
            "spherical": full[:, :1, 0],
        }[covariance_type]
        blocks.append(make_block(rng.normal(size=(n_components, width)), covariances))
    XT = 3 * rng.normal(size=(sum(widths), n_rows))
    XT[rng.random(XT.shape) < gaps] = np.nan
    layout = make_layout(widths, n_components, is_matrix=covariance_type in ("full", "tied"))
    return rng, blocks, layout, XT


def tile_of(XT, layout=None, gaps=False):
    """A tile, and what Gaussian blocks note of its gaps."""
    noted = None if layout is None else sort_blocks(layout, XT, np.full(len(layout.widths), gaps))
    return Tile(XT, slice(0, XT.shape[1]), noted)


CASES = given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["full", "tied", "diag", "spherical"]),
    st.lists(st.sampled_from([1, 1, 2, 3, 4, 5, 9, WIDEST_MATRIX + 1]), min_size=1, max_size=5),
    st.sampled_from([1, 5, 128, 200, 300]),
    st.sampled_from([0.0, 0.1]),
)


@examples(60)
@CASES
def test_contributions(seed, covariance_type, widths, n_rows, gaps):
    _, blocks, layout, given = case(seed, covariance_type, widths, n_rows, gaps=gaps)
    XT = given.copy()
    tile = tile_of(XT, layout, gaps > 0)
    targets = np.repeat(np.arange(len(widths)), widths)
    out = np.zeros((len(widths), 3, n_rows))
    Densities(layout, blocks).add(tile, targets, out)
    total = np.zeros((1, 3, n_rows))
    Densities(layout, blocks).add(tile, np.zeros_like(targets), total)
    expected = [observed_contribution(given[layout.columns(b)].T, block).T for b, block in enumerate(blocks)]
    for found, wanted in zip(out, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=1e-10)
    np.testing.assert_allclose(total[0], sum(expected), rtol=TOLERANCE, atol=1e-10)


@examples(60)
@CASES
def test_statistics(seed, covariance_type, widths, n_rows, gaps):
    rng, blocks, layout, XT = case(seed, covariance_type, widths, n_rows, gaps=gaps)
    responsibilities = rng.dirichlet(np.ones(3), size=(2, n_rows)).transpose(0, 2, 1).copy()
    views = rng.integers(2, size=len(widths))
    densities = Densities(layout, blocks)
    tallies = []
    for rows in (slice(0, n_rows // 2), slice(n_rows // 2, n_rows)):  # halves can be added
        tally = Tally(layout, densities.means, densities)
        if rows.stop > rows.start:
            own = tile_of(XT[:, rows].copy(), layout, gaps > 0)
            tally.collect(own, responsibilities[:, :, rows].copy(), np.repeat(views, widths))
        tallies.append(tally)
    tallies[0].add(tallies[1])
    for b, (found, block) in enumerate(zip(tallies[0].statistics(), blocks, strict=True)):
        wanted = expected_statistics(XT[layout.columns(b)].T, responsibilities[views[b]].T, block)
        np.testing.assert_allclose(found.counts, wanted.counts, rtol=TOLERANCE, atol=1e-14)
        there = wanted.counts > 0
        assert relative_error(found.means[there], wanted.means[there]) < 1e-11 if there.any() else True
        scale = max(np.abs(wanted.scatters).max(), 1.0) * 100  # the squares around a shift cancel
        np.testing.assert_allclose(found.scatters, wanted.scatters, atol=1e-13 * scale * n_rows)
        assert found.gap_entropy == pytest.approx(wanted.gap_entropy, rel=1e-9, abs=1e-9)


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from([1e-3, 1.0, 50.0, 1e5, 1e300]))
def test_responsibilities(seed, n_components, scale):
    rng = np.random.default_rng(seed)
    sums = -scale * rng.exponential(size=(2, n_components, 150))
    log_weights = np.log(rng.dirichlet(np.ones(n_components), size=2))
    sums[:, :, :5] = 0.0  # rows that no party has
    expected, scores = respond(sums.transpose(0, 2, 1), log_weights[:, None, :])
    found, seen = sums.copy(), np.empty((2, 150))
    counts, entropies = np.zeros((2, n_components)), np.zeros(2)
    kernels.respond(found, log_weights, seen, counts, entropies, True)
    np.testing.assert_allclose(found.transpose(0, 2, 1), expected, rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(seen, scores, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(counts, expected.sum(axis=1), rtol=1e-12)
    surprise = -(expected * np.log(np.where(expected > 0, expected, 1.0))).sum(axis=(1, 2))
    np.testing.assert_allclose(entropies, surprise, rtol=1e-9, atol=1e-10 * max(1.0, min(scale, 1e5)))


@examples(40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3]), st.sampled_from([np.float64, np.float32]))
def test_a_whole_pass_over_columns(seed, gaps, dtype):
    rng, blocks, layout, XT = case(seed, "diag", [1, 1, 1, 1], gaps=gaps)
    X = XT.T.astype(dtype)
    XT = np.ascontiguousarray(X.T.astype(np.float64))
    densities = Densities(layout, blocks)
    log_weights = np.log(rng.dirichlet(np.ones(3)))
    shifts = densities.means
    counts, firsts, seconds = np.zeros((3, *shifts.shape))
    totals, scores, entropies = np.zeros(3), np.empty(300), np.zeros(1)
    parameters = densities.means, densities.scales, densities.column_normalizers
    kernels.pass_columns(
        np.ascontiguousarray(X), *parameters, log_weights, shifts, counts, firsts, seconds, totals, scores, entropies
    )
    tile = tile_of(XT, layout)
    sums = np.zeros((1, 3, 300))
    densities.add(tile, np.zeros(4, dtype=np.int64), sums)
    there = ~np.isnan(XT).all(axis=0)
    seen, wanted_totals, wanted_entropies = np.empty((1, 300)), np.zeros((1, 3)), np.zeros(1)
    kernels.respond(sums, log_weights[None], seen, wanted_totals, wanted_entropies, True)
    tally = Tally(layout, shifts)
    tally.collect(tile, sums, np.zeros(4, dtype=np.int64))
    np.testing.assert_allclose(scores[there], seen[0, there], rtol=1e-12)
    assert np.isinf(scores[~there]).all()
    np.testing.assert_allclose(totals, wanted_totals[0], rtol=1e-11)
    np.testing.assert_allclose(entropies, wanted_entropies, rtol=1e-8, atol=1e-9)
    for found, wanted in ((counts, tally.counts), (firsts, tally.firsts), (seconds, tally.seconds)):
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@examples(40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.2, 1.0]))
def test_distances_and_centres(seed, gaps):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 4))
    X[rng.random(X.shape) < gaps] = np.nan
    centres = rng.normal(size=(3, 4))
    XT = np.ascontiguousarray(X.T)
    sums = np.zeros((1, 3, 200))
    Distances(centres).add(tile_of(XT), np.zeros(4, dtype=np.int64), sums)
    distances = squared_distances(X, centres)
    np.testing.assert_allclose(-2 * sums[0].T, distances, rtol=1e-12)
    labels, smallest = nearest(distances)
    scores, counts = np.empty((1, 200)), np.zeros((1, 3))
    kernels.respond_nearest(sums, scores, counts)
    np.testing.assert_array_equal(sums[0].T, labels)
    np.testing.assert_allclose(scores[0], smallest, rtol=1e-12)
    tally = ColumnTally(centres)
    tally.collect(tile_of(XT), sums, np.zeros(4, dtype=np.int64))
    numbers, totals = centre_sums(X, labels)
    np.testing.assert_allclose(tally.counts, numbers, rtol=1e-12)
    wanted = np.where(numbers > 0, totals / np.maximum(numbers, 1e-300), centres)
    np.testing.assert_allclose(tally.means(), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_m_steps_of_many_single_columns(covariance_type):
    _, blocks, layout, XT = case(0, covariance_type, [1, 1, 2, 1, 1])
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(3), size=300)
    XT[1] = 5.0  # collapses
    statistics = [expected_statistics(XT[layout.columns(b)].T, weights, block) for b, block in enumerate(blocks)]
    fewer = {**statistics[4].arrays, "counts": np.array([0.0, 1.0, 2.0])}
    statistics[4] = Statistics(**fewer)  # has no rows of one component
    density = Gaussian(covariance_type=covariance_type, reg_covar=0.0)
    smallest = [np.full(width, 1e-20) for width in (1, 1, 2, 1, 1)]
    smallest[3][:] = 1e9  # of this one alone, everything is rounding
    columns = list(map(columns_with_noise, smallest))
    found, broken = density.m_steps(statistics, blocks, columns)
    for b, block in enumerate(blocks):
        wanted, collapsed = density.m_step(statistics[b], block, columns[b])
        assert broken[b] == collapsed
        for name in ("means", "covariances", "whiteners", "log_normalizers"):
            one, other = getattr(found[b], name), getattr(wanted, name)
            assert one.shape == other.shape, name
            np.testing.assert_allclose(one, other, rtol=1e-13)
    assert broken[1], "the example must have something that collapses"


@pytest.mark.parametrize(
    ("width", "shift", "far"),
    [
        (1, 0.0, False),
        (1, 100.0, False),
        (1, 1e3, True),
        (1, 1e200, True),
        (3, 0.0, False),
        (3, 1.0, False),
        (3, 100.0, False),
        (3, 1e3, True),
        (3, 1e200, True),
        (4, 100.0, True),  # the narrowest direction has fewer digits to spare
        (5, 5.0, True),  # a column that does not vary has none
    ],
)
def test_a_shift_that_is_far_away_is_noticed(width, shift, far):
    _, _, layout, XT = case(0, "full", [width])
    if width == 5:
        XT[4] = 5.0
    if width == 4:
        XT[3] = XT[2] + 0.1 * XT[3]
    weights = np.ones((1, 3, 300)) / 3
    tally = Tally(layout, np.full((3, width), shift))
    tally.collect(tile_of(XT, layout), weights, np.zeros(width, dtype=np.int64))
    assert (tally.again() is not None) == far


@examples(40)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.sampled_from([np.float64, np.float32]),
    st.sampled_from([0.0, 1e5]),
)
def test_moments_of_columns(seed, gaps, dtype, offset):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(200, 3)) + offset).astype(dtype)
    X[rng.random(X.shape) < gaps] = np.nan
    counts, means, variances, largest = column_moments(X)
    wide = X.astype(np.float64)
    there = ~np.isnan(wide)
    np.testing.assert_array_equal(counts, there.sum(axis=0))
    for j in np.flatnonzero(there.any(axis=0)):
        own = wide[there[:, j], j]
        assert means[j] == pytest.approx(own.mean(), rel=1e-13, abs=1e-13)
        assert variances[j] == pytest.approx(own.var(), rel=1e-10, abs=1e-24)
        assert largest[j] == np.abs(own).max()
    size = float(np.median(np.abs(wide[there]))) if there.any() else 0.0
    assert kernels.count_larger(X, size) == (np.abs(wide[there]) > size).sum()
    assert kernels.count_larger(X, 1e300) == 0
    X[rng.integers(200), 1] = -np.inf
    assert kernels.count_larger(X, np.finfo(np.float64).max) == 1


@examples(40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.2, 1.0]), st.sampled_from([np.float64, np.float32]))
def test_rows_as_they_lie_in_memory(seed, gaps, dtype):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 4)).astype(dtype)
    X[rng.random(X.shape) < gaps] = np.nan
    centres = rng.normal(size=(3, 4))
    distances = np.zeros((3, 200))
    kernels.add_row_distances(X, centres, distances)
    wide = X.astype(np.float64)
    np.testing.assert_allclose(-2 * distances.T, squared_distances(wide, centres), rtol=1e-12)
    weights = rng.dirichlet(np.ones(3), size=200).T.copy()
    weights[:, ::3] = np.eye(3)[:, rng.integers(3, size=67)]
    tally = ColumnTally(centres)
    XT = np.ascontiguousarray(wide.T)
    tally.collect(tile_of(XT), weights[None], np.zeros(4, dtype=np.int64))
    counts, firsts, seconds = np.zeros((3, 3, 4))
    kernels.collect_rows(X, centres, weights, counts, firsts, seconds)
    for found, wanted in ((counts, tally.counts), (firsts, tally.firsts), (seconds, tally.seconds)):
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


@examples(40)
@CASES
def test_statistics_that_need_no_sum(seed, covariance_type, widths, n_rows, gaps):
    rng, blocks, layout, XT = case(seed, covariance_type, widths, n_rows, gaps=gaps)
    order = rng.permutation(layout.n_columns)
    X = np.empty((n_rows, layout.n_columns))
    X[:, order] = XT.T
    columns = {b: order[layout.columns(b)].tolist() for b in range(len(widths))}
    responsibilities = rng.dirichlet(np.ones(3), size=n_rows)
    remaining = iter(responsibilities)
    counts, found = shared_statistics(
        X,
        make_network(columns, "star"),
        Gaussian(covariance_type=covariance_type),
        blocks,
        lambda n: np.array([next(remaining) for _ in range(n)]),
        np.isnan(X).any(axis=0),
    )
    np.testing.assert_allclose(counts[0], responsibilities.sum(axis=0), rtol=1e-12)
    for b, (own, block) in enumerate(zip(found, blocks, strict=True)):
        wanted = expected_statistics(XT[layout.columns(b)].T, responsibilities, block)
        np.testing.assert_allclose(own.counts, wanted.counts, rtol=TOLERANCE, atol=1e-14)
        scale = max(np.abs(wanted.scatters).max(), 1.0) * 100
        np.testing.assert_allclose(own.scatters, wanted.scatters, atol=1e-13 * scale * n_rows)


def test_nothing_is_left_to_compile_after_the_warm_up():
    warm_up()
    rooms = {**vars(kernels), **vars(matrix_kernels)}
    functions = [function for function in rooms.values() if hasattr(function, "signatures")]
    before = [set(function.signatures) for function in functions]
    X = np.random.default_rng(0).normal(size=(60, 6))
    X[::7, 1] = np.nan
    for parties in ([[0, 5, 1], [2, 3], [4]], [[column] for column in range(6)]):
        for init in STARTS:
            for covariance_type in ("full", "diag"):
                VerticalGaussianMixture(
                    2,
                    partition=parties,
                    init_params=init,
                    covariance_type=covariance_type,
                    max_iter=2,
                    tol=1e9,
                    random_state=0,
                ).fit(X)
        arguments = {"partition": parties, "graph": "path", "summation": Consensus(5)}
        VerticalGaussianMixture(2, batch_size=30, max_iter=2, tol=1e9, random_state=0, **arguments).fit(X)
        VerticalKMeans(2, tol=1e9, random_state=0, **arguments).fit(X)
        VerticalKMeans(2, tol=1e9, random_state=0, partition=parties).fit(X).predict(X)
    assert {f.py_func.__name__ for f, old in zip(functions, before, strict=True) if set(f.signatures) != old} == set()


def test_a_tile_is_never_read_only():
    table = np.asfortranarray(np.random.default_rng(0).normal(size=(5, 3)))
    order = np.arange(1, 3)
    assert np.shares_memory(columns_first(table, order), table)
    table.flags.writeable = False  # as pandas gives it: kernels would be compiled again for such arrays
    for columns in (order, np.array([2, 0])):
        found = columns_first(table, columns)
        assert found.flags.writeable
        np.testing.assert_array_equal(found, table.T[columns])
