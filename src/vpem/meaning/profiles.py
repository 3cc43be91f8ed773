"""Profile of each component, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.arrays import Array, Block
from vpem.core.blocks.density import Density
from vpem.meaning.circles import arc, mean_on_circle
from vpem.words import short_number


@dataclass(frozen=True, eq=False)
class Profile:
    """Moments of each component and of all components together, in the units of the columns."""

    shares: Array
    """Shape (n_components,): the weights."""
    means: Array
    """Shape (n_components, n_features)."""
    deviations: Array
    """Shape (n_components, n_features): standard deviations."""
    overall_means: Array
    """Shape (n_features,): means of all components together."""
    overall_deviations: Array
    """Shape (n_features,): standard deviations of all components together, including that between their means."""
    categories: Mapping[int, Array] = field(default_factory=dict)
    """Categorical column to the probabilities of its categories, (n_components, n_categories)."""
    periods: Mapping[int, float] = field(default_factory=dict)
    """Column of angles to its period."""

    @cached_property
    def distances(self) -> Array:
        """Signed distance of each mean from the overall mean, in overall deviations; (n_components, n_features).

        In a categorical column, it is the distance of the share of one category: see `typical`.
        """
        spread = np.where(self.overall_deviations > 0, self.overall_deviations, 1.0)
        found: Array = (self.means - self.overall_means) / spread
        for column, period in self.periods.items():
            found[:, column] = arc(self.means[:, column], self.overall_means[column], period) / spread[column]
        for column in self.categories:
            found[:, column] = np.take_along_axis(self.unlike(column), self.typical[column][:, None], axis=1)[:, 0]
        return found

    @cached_property
    def typical(self) -> dict[int, NDArray[np.intp]]:
        """Categorical column to each component's category whose share is farthest above the overall share."""
        return {column: self.unlike(column).argmax(axis=1) for column in self.categories}

    def unlike(self, column: int) -> Array:
        """Shares of categories less the overall shares, in overall deviations; shape (n_components, n_categories)."""
        probabilities = self.categories[column]
        everyone = self.shares @ probabilities
        found: Array = (probabilities - everyone) / np.sqrt(np.maximum(everyone * (1 - everyone), 1e-12))
        return found

    def text(self, k: int | None, column: int, labels: Mapping[int, Sequence[str]]) -> str:
        """Describe one column of a component, or of all (`k` None): mean and deviation, or a category's share."""
        own = self.categories.get(column)
        if own is None:
            mean = self.overall_means[column] if k is None else self.means[k, column]
            deviation = self.overall_deviations[column] if k is None else self.deviations[k, column]
            return f"{short_number(mean)} ± {short_number(deviation)}"
        shares = self.shares @ own if k is None else own[k]
        place = int(shares.argmax() if k is None else self.typical[column][k])
        name = labels[column][place] if column in labels else str(place)
        return f"{name} {shares[place]:.0%}"


def make_profile(
    weights: Array,
    density: Density,
    blocks: Sequence[Block],
    columns: Sequence[Sequence[int]],
    numbers: Mapping[int, Array] | None = None,
) -> Profile:
    """Compute the profile of a mixture.

    Parameters
    ----------
    weights : array of shape (n_components,)
    density : Density
    blocks : sequence of Block
    columns : sequence of sequences of int
        Each block's column numbers.
    numbers : mapping, optional
        Column to the numeric values of its categories, (n_categories,). Means of other categories are those of codes.
    """
    order = np.argsort(np.concatenate([np.asarray(own) for own in columns]))
    means = np.concatenate([density.means(block) for block in blocks], axis=1)[:, order]
    deviations = np.concatenate([density.deviations(block) for block in blocks], axis=1)[:, order]
    categories = {
        int(column): found
        for block, own in zip(blocks, columns, strict=True)
        for place, column in enumerate(own)
        if (found := density.categories(block, place)) is not None
    }
    for column, values in (numbers or {}).items():
        means[:, column] = categories[column] @ values
        squares = np.square(values - means[:, [column]])
        deviations[:, column] = np.sqrt((categories[column] * squares).sum(axis=1))
    overall = weights @ means
    spread = np.sqrt(weights @ (deviations**2 + (means - overall) ** 2))
    periods = {
        int(column): period
        for block, own in zip(blocks, columns, strict=True)
        for place, column in enumerate(own)
        if (period := density.period(block, place)) is not None
    }
    for column, period in periods.items():
        overall[column], spread[column] = mean_on_circle(weights, means[:, column], deviations[:, column], period)
    return Profile(np.asarray(weights), means, deviations, overall, spread, categories, periods)
