"""Draws and distances of the starts."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from definitions import nearest, squared_distances
from vpem.core.decisions.initial import (
    draw_candidates,
    n_candidates,
    random_responsibilities,
    random_rows,
    shared_generator,
)


def test_parties_that_share_a_seed_draw_alike_and_purposes_differ():
    assert shared_generator(3, 1, 0).random() == shared_generator(3, 1, 0).random()
    draws = {shared_generator(3, *purpose).random() for purpose in ((0,), (1, 0), (1, 1))}
    assert len(draws) == 3


def test_random_responsibilities_and_rows():
    rng = np.random.default_rng(0)
    responsibilities = random_responsibilities(rng, 100, 3)
    assert responsibilities.shape == (100, 3)
    np.testing.assert_allclose(responsibilities.sum(axis=1), 1.0)
    assert sorted(random_rows(rng, 5, 5)) == [0, 1, 2, 3, 4]


def test_distances_and_the_nearest():
    rng = np.random.default_rng(0)
    X, centres = rng.normal(size=(20, 3)), rng.normal(size=(4, 3))
    expected = cdist(X, centres, "sqeuclidean")
    np.testing.assert_allclose(squared_distances(X, centres), expected, rtol=1e-12)
    responsibilities, smallest = nearest(expected[None])
    assert (responsibilities[0].argmax(axis=1) == expected.argmin(axis=1)).all()
    assert (responsibilities.sum(axis=-1) == 1).all()
    np.testing.assert_array_equal(smallest[0], expected.min(axis=1))
    ties, _ = nearest(np.array([[2.0, 1.0, 1.0], [0.0, 0.0, 0.0]]))
    assert ties[0].tolist() == [0.0, 1.0, 0.0]
    assert ties[1].tolist() == [1 / 3] * 3, "a row that is missing everywhere"


def test_candidates_follow_the_distances():
    rng = np.random.default_rng(0)
    closest = np.array([0.0, 1.0, -0.5, 3.0])
    drawn = np.bincount(draw_candidates(rng, closest, 20_000), minlength=4) / 20_000
    assert drawn[0] == drawn[2] == 0
    assert drawn[3] == pytest.approx(0.75, abs=0.02)  # about five standard errors


def test_candidates_where_every_row_lies_on_a_centre():
    assert set(draw_candidates(np.random.default_rng(0), np.zeros(3), 100)) == {0, 1, 2}
    assert n_candidates(1) == 2
    assert n_candidates(8) == 4
