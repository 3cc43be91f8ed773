"""Scores of a clustering against known classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix


def clustering_accuracy(classes: ArrayLike, labels: ArrayLike) -> float:
    """Share of rows whose label matches their class, under the best matching of labels to classes.

    Parameters
    ----------
    classes, labels : array-like of shape (n_samples,)
    """
    table = contingency_matrix(classes, labels)
    return float(table[linear_sum_assignment(-table)].sum() / np.size(labels))


class Agreement(NamedTuple):
    """Agreement between the labels of a clustering and known classes."""

    classes: list[Any]
    """Classes in ascending order."""
    confusion: NDArray[np.int64]
    """(n_classes, n_components): number of rows of each class in each component."""
    adjusted_rand: float
    """Adjusted Rand index: 1 for equal partitions, about 0 for independent ones."""
    mutual_information: float
    """Normalized mutual information, from 0 to 1."""
    accuracy: float
    """Share of rows that match, if each class is matched with at most one component."""


def compare_labels(classes: ArrayLike, labels: ArrayLike, n_components: int | None = None) -> Agreement:
    """Compare the labels of a clustering with known classes.

    Parameters
    ----------
    classes : array-like of shape (n_samples,)
        Texts or numbers.
    labels : array-like of shape (n_samples,)
        Numbers of components.
    n_components : int, optional
        Number of components, including those without rows.
    """
    names, numbers = np.unique(np.asarray(classes), return_inverse=True)
    taken = np.asarray(labels)
    if not len(taken) or len(taken) != len(numbers):
        raise ValueError(f"expected a class for each label, got {len(numbers)} classes and {len(taken)} labels")
    confusion = np.zeros((len(names), max(n_components or 0, int(taken.max()) + 1)), dtype=np.int64)
    np.add.at(confusion, (numbers, taken), 1)
    return Agreement(
        names.tolist(),
        confusion,
        float(adjusted_rand_score(numbers, taken)),
        float(normalized_mutual_info_score(numbers, taken)),
        clustering_accuracy(numbers, taken),
    )
