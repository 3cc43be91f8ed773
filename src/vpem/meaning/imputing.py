"""Imputation of the gaps of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpem.core.blocks.arrays import Array, Block
from vpem.core.blocks.density import Density
from vpem.meaning.circles import mean_on_circle


def impute_rows(
    density: Density, blocks: Sequence[Block], columns: Sequence[Sequence[int]], X: Array, responsibilities: Array
) -> tuple[Array, Array]:
    """Expected values and standard deviations of gaps, given the values that each row has.

    Within a component, a gap depends on the other columns of its block. The component's probability depends on all
    columns. Variances add up by the law of total variance: the mean of the variances within components, and the
    variance of the means between them. A gap in a categorical column becomes the most probable category, and its
    deviation is the probability of all other categories.

    Parameters
    ----------
    density : Density
    blocks : sequence of Block
    columns : sequence of sequences of int
        Each block's column numbers.
    X : array of shape (n_rows, n_features)
    responsibilities : array of shape (n_rows, n_components)

    Returns
    -------
    filled : array of shape (n_rows, n_features)
        X, with expected values in its gaps.
    deviations : array of shape (n_rows, n_features)
        0 where X has a value.
    """
    filled, deviations = np.array(X, dtype=np.float64), np.zeros(X.shape)
    for block, own in zip(blocks, columns, strict=True):
        has_gaps = np.flatnonzero(np.isnan(filled[:, own]).any(axis=1))
        if not len(has_gaps):
            continue
        place = np.ix_(has_gaps, np.asarray(own))
        XT, shares = filled[place].T, responsibilities[has_gaps].T[:, None]
        means, within = density.conditional(block, XT), density.conditional_deviations(block, XT)
        centre = (shares * means).sum(axis=0)
        variances = (shares * (within**2 + (means - centre) ** 2)).sum(axis=0)
        for column in range(len(XT)):
            if (period := density.period(block, column)) is not None:
                own_shares, own_means, own_within = shares[:, 0], means[:, column], within[:, column]
                centre[column], spread = mean_on_circle(own_shares, own_means, own_within, period)
                variances[column] = np.square(spread)
            shown = density.categories(block, column)
            if shown is not None:
                probabilities = shares[:, 0].T @ shown
                centre[column] = probabilities.argmax(axis=1)
                variances[column] = np.square(1.0 - probabilities.max(axis=1))
        gaps = np.isnan(XT)
        filled[place] = np.where(gaps, centre, XT).T
        deviations[place] = np.where(gaps, np.sqrt(variances), 0.0).T
    return filled, deviations
