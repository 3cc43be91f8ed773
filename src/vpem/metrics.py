"""Scores of a clustering against known classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix


def clustering_accuracy(classes: ArrayLike, labels: ArrayLike) -> float:
    """Share of rows whose label matches their class, under the best matching of labels to classes.

    Parameters
    ----------
    classes, labels : array-like of shape (n_samples,)
    """
    table = contingency_matrix(classes, labels)
    return float(table[linear_sum_assignment(-table)].sum() / np.size(labels))
