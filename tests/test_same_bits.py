"""The same seed gives the same bits on one machine: wherever arrays lie in memory, however many threads there are."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pyarrow as pa
import pytest

from vpem import Consensus, VerticalGaussianMixture
from vpem.core.blocks import kernels, matrix_kernels
from vpem.core.blocks.matrix_kernels import find_patterns
from vpem.core.blocks.packed import warm_up
from vpem.tables import ArrowTable

COLUMNS = {"a": [4, 0], "b": [1], "c": [2, 3, 5]}

pytestmark = pytest.mark.processors


def elsewhere(arrays, rng):
    """Copies of arrays: one behind the other in memory at any distance from a cache line's beginning, or apart."""
    if rng.random() < 0.5:
        return [array.copy() for array in arrays]
    arena = np.empty(64 + sum(array.nbytes + 8 * 70 for array in arrays), dtype=np.uint8)
    place = -arena.ctypes.data % 64 + 8 * int(rng.integers(8))
    copies = []
    for array in arrays:
        copies.append(arena[place : place + array.nbytes].view(array.dtype).reshape(array.shape))
        copies[-1][...] = array
        place += array.nbytes + 8 * int(rng.integers(60))
    return copies


def calls(n_rows, gaps):
    """A call of every kernel that adds up: the kernel, its arguments, and which of them are results."""
    rng = np.random.default_rng(n_rows)
    k, d, starts = 3, 7, np.array([0, 3, 7])
    offsets = np.array([0, k * 9, k * 9 + k * 16])
    X = rng.normal(size=(n_rows, d))
    X[rng.random(X.shape) < gaps] = np.nan
    XT = np.ascontiguousarray(X.T)
    columns, targets, both = np.arange(d), np.zeros(d, dtype=np.int64), np.arange(2)
    means, scales, normalizers = rng.normal(size=(k, d)), 0.5 + rng.random((k, d)), rng.normal(size=(k, d))
    weights = rng.dirichlet(np.ones(k), size=n_rows).T[None].copy()
    sums = 5 * rng.normal(size=(2, k, n_rows))
    whiteners, log_weights = rng.normal(size=offsets[-1]), np.log(np.full((2, k), 1 / k))

    def zeros(*shapes):
        return [np.zeros(shape) for shape in shapes]

    three, out = zeros((k, d), (k, d), (k, d)), zeros((1, k, n_rows))
    parameters = [X, means, scales, normalizers, log_weights[0], means]
    patterns = find_patterns(XT, starts, both if gaps else both[:0])
    precisions = np.concatenate([np.tile(np.eye(width).ravel(), k) for width in (3, 4)])
    matrices = [
        XT,
        both,
        starts,
        offsets,
        means,
        whiteners,
        precisions,
        normalizers[:2, :k].copy(),
        targets,
        *patterns,
    ]

    def add_matrices(*arrays):
        matrix_kernels.add_matrices(*arrays[:9], arrays[9:14], arrays[14])

    def collect_matrices(*arrays):
        matrix_kernels.collect_matrices(*arrays[:9], arrays[9:14], *arrays[14:])

    summed = [XT, both, starts, offsets, means, precisions, means, weights, targets, *patterns]
    return [
        (add_matrices, [*matrices, *out], 1),
        (collect_matrices, [*summed, *three[:2], *zeros(offsets[-1], 2)], 4),
        (kernels.add_moments, [X, *zeros(d, d, d)], 3),
        (kernels.add_squares, [X, means[0], *zeros(d)], 1),
        (kernels.add_columns, [XT, columns, means, scales, normalizers, targets, *out], 1),
        (kernels.collect_columns, [XT, columns, means, weights, targets, *three], 3),
        (kernels.fill_columns, [XT, both, starts, means, scales, means, weights, targets, *three, *zeros(2)], 4),
        (kernels.pass_columns, [*parameters, *three, *zeros(k, n_rows, 1)], 6),
        (kernels.add_row_distances, [X, means, *zeros((k, n_rows))], 1),
        (kernels.collect_rows, [X, means, weights[0], *three], 3),
        (kernels.respond, [log_weights, *zeros((2, n_rows), (2, k), 2), sums], 4),
    ]


@pytest.mark.parametrize("gaps", [0.0, 0.05])
@pytest.mark.parametrize("n_rows", [37, 128, 300])
def test_kernels_do_not_see_where_arrays_lie(n_rows, gaps):
    def run(seed):
        """Call every kernel often, with a heap that changes: what a kernel allocates itself lies elsewhere too."""
        rng, held, found = np.random.default_rng(seed), [], set()
        for _ in range(300):
            held = [*held[-50:], np.empty(rng.integers(1, 600))]
            for kernel, arguments, n_results in calls(n_rows, gaps):
                moved = elsewhere(arguments, rng)
                if kernel is kernels.respond:
                    moved = [moved[-1], *moved[:-1]]
                kernel(*moved, *([True] if kernel is kernels.respond else []))
                found.add((kernel.__name__, b"".join(part.tobytes() for part in moved[-n_results:])))
        return found

    warm_up()  # so that all are what the compiler has made
    with ThreadPoolExecutor(2) as pool:
        found = set.union(*pool.map(run, range(2)))
    names = sorted(name for name, _ in found)
    assert names == sorted(set(names))


def bits(model, X):
    parts = [model.means_, model.weights_, *model.covariances_, np.array(model.lower_bounds_), model.predict_proba(X)]
    return b"".join(part.tobytes() for part in parts)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
@pytest.mark.parametrize("graph", ["star", "path"])
@pytest.mark.parametrize("gaps", [0.0, 0.05])
def test_repeated_fits_have_the_same_bits(graph, covariance_type, gaps, monkeypatch):
    monkeypatch.setattr("vpem.core.rows.CHUNK_VALUES", 2**9)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 6)) @ rng.normal(size=(6, 6)) + 3 * rng.integers(2, size=(2000, 1))
    X[rng.random(X.shape) < gaps] = np.nan
    table = ArrowTable(pa.table({str(j): X[:, j] for j in range(6)}))
    found, held, most = set(), [], numba.get_num_threads()
    try:
        for number in range(8):
            numba.set_num_threads(1 + number % most)
            held.append(np.empty(rng.integers(1, 5000)))
            model = VerticalGaussianMixture(
                2,
                partition=COLUMNS,
                graph=graph,
                summation=None if graph == "star" else Consensus(3),
                covariance_type=covariance_type,
                random_state=0,
            )
            given = table if number % 3 == 2 else X
            found.add(bits(model.fit(given), given))
    finally:
        numba.set_num_threads(most)
    assert len(found) == 1


PROGRAM = """
import hashlib, warnings
import numpy as np
from vpem import VerticalGaussianMixture
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(1500, 205)) + 2 * rng.integers(2, size=(1500, 1))
X[5:50, 202] = np.nan
parties = {"wide": list(range(200)), "narrow": list(range(200, 205))}
model = VerticalGaussianMixture(2, partition=parties, random_state=0, max_iter=3).fit(X)
parts = [model.means_, model.weights_, *model.covariances_, model.predict_proba(X)]
print(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
"""


def test_threads_of_numba_and_of_blas_change_no_bit():
    # Blocks of more than 128 columns go through BLAS.
    def run(threads):
        settings = {
            "NUMBA_NUM_THREADS": threads[0],
            "OMP_NUM_THREADS": threads[1],
            "OPENBLAS_NUM_THREADS": threads[1],
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    with ThreadPoolExecutor(2) as pool:
        found = set(pool.map(run, [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]))
    assert len(found) == 1
