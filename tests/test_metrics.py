import pytest

from vpem.metrics import clustering_accuracy


@pytest.mark.parametrize(
    ("classes", "labels", "expected"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], 1.0),
        ([0, 0, 1, 1], [5, 5, 5, 5], 0.5),
        ([0, 0, 1, 1], [0, 1, 2, 3], 0.5),
        (["a", "a", "b"], [0, 1, 1], 2 / 3),
    ],
)
def test_accuracy_under_the_best_matching(classes, labels, expected):
    assert clustering_accuracy(classes, labels) == pytest.approx(expected)
