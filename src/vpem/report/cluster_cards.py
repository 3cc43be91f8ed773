"""Cards about the clusters and the certainty of labels; the numbers are computed by `vpem.meaning`.

The cards do not reveal any row. A component that stands for fewer than `SMALLEST_COUNT` rows is excluded, also from
"everyone", from which its mean would follow. Counts of fewer rows are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.meaning import Certainty, Profile, entropy
from vpem.model.fitted import Fitted
from vpem.report.bins import SMALLEST_COUNT, hide_small
from vpem.report.values import short

Array = NDArray[np.float64]

NEGLIGIBLE = 1e-12
"""Weight of an excluded component; not 0, which has no logarithm."""
MOST_CONFUSED = 6
"""Maximum number of pairs of confused components in the page."""


def without_small(fitted: Fitted, n_rows: int) -> Fitted:
    """Return the fit, with a negligible weight of components that stand for too few rows.

    Its profile and information then describe the other components. If all components stand for too few rows, they
    keep their weights; the page then shows nothing about components.
    """
    small = fitted.weights * n_rows < SMALLEST_COUNT
    if not small.any() or small.all():
        return fitted
    weights = np.where(small, NEGLIGIBLE, fitted.weights)
    return replace(fitted, mixture=replace(fitted.mixture, weights=weights[None] / weights.sum()))


def profile_of(
    profile: Profile, nats: float, column: int, hidden: NDArray[np.bool_], distances: Array | None = None
) -> dict[str, Any]:
    """Return the profile of one column: everyone, the components' distances from it, and its information.

    Parameters
    ----------
    profile : Profile
        Profile without small components.
    nats : float
        Information of the column.
    column : int
    hidden : array of shape (n_components,)
        True for components with too few values in this column. If such a component has enough rows in total, it
        contributes to "everyone", and the whole profile is omitted.
    distances : array of shape (n_components,), optional
        Distances to use instead of the profile's.
    """
    if (hidden & (profile.shares > 2 * NEGLIGIBLE)).any():
        return {"everyone": None, "distances": None, "nats": None}
    everyone = profile.overall_means[column], profile.overall_deviations[column]
    own = profile.distances[:, column] if distances is None else distances
    told = np.where(hidden, np.nan, np.round(own, 3))
    return {"everyone": short(everyone), "distances": short(told), "nats": round(nats, 3)}


def importance_card(fitted: Fitted, n_rows: int) -> dict[str, Any]:
    """Return the information of parties about a row's component; the features card has that of columns.

    Empty if all components stand for too few rows.
    """
    if (fitted.weights * n_rows < SMALLEST_COUNT).all():
        return {"entropy": 0, "party_nats": []}
    return {
        "entropy": round(entropy(fitted.weights), 3),
        "party_nats": [[round(one.nats, 3), round(one.error, 3)] for one in fitted.party_information],
    }


def certainty_card(found: Certainty, weights: Array) -> dict[str, Any]:
    """Return the certainty of the rows' labels."""
    if found.n_rows < SMALLEST_COUNT:
        return {"certainty": None}
    counts = hide_small(found.counts)
    return {
        "certainty": {
            "edges": short(found.edges),
            "counts": counts.tolist(),
            "left_out": round(1 - float(counts.sum()) / found.n_rows, 4),
            "mean": round(found.mean_largest, 3),
            "sure": _bounded(found.sure_share, found.n_rows),
            "confused": _confused(found, weights),
        }
    }


def _bounded(share: float, n_rows: int) -> list[Any]:
    """Bound a share by a word and a number, so that it does not reveal fewer than `SMALLEST_COUNT` rows."""
    least = SMALLEST_COUNT / n_rows
    if share < least:
        return ["less than", round(least, 4)]
    if share > 1 - least:
        return ["more than", round(1 - least, 4)]
    return ["", round(share, 4)]


def _confused(found: Certainty, weights: Array) -> Sequence[Any]:
    """Return pairs with enough confused rows: true component, component of the label, expected share."""
    pairs = found.confused_pairs(most=MOST_CONFUSED)
    return [
        [one, other, round(share, 4)]
        for one, other, share in pairs
        if share * weights[one] * found.n_rows >= SMALLEST_COUNT
    ]
