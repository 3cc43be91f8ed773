"""Data with a natural vertical split."""

from __future__ import annotations

from sklearn.datasets import load_breast_cancer
from sklearn.utils import Bunch


def load_breast_cancer_parties() -> Bunch:
    """Breast cancer data that ships with scikit-learn, split between three parties.

    569 tumours, 30 columns: the mean, the standard error and the worst value of ten measurements of cell nuclei,
    each held by one party.

    Returns
    -------
    Bunch
        `data` (569, 30), `target` (569,): 0 malignant, 1 benign, `feature_names`, `partition`: party to column
        numbers.
    """
    bunch = load_breast_cancer()
    partition = {"mean": range(10), "error": range(10, 20), "worst": range(20, 30)}
    return Bunch(
        data=bunch.data,
        target=bunch.target,
        feature_names=bunch.feature_names,
        partition={party: list(columns) for party, columns in partition.items()},
    )
