"""The cards about what the clusters are and how sure the labels are; the numbers are those of `vpem.meaning`.

No row can be read from them. A component that stands for fewer than `SMALLEST_COUNT` rows has no part in them, not
even in what "everyone" is, from which its mean would follow. Counts of fewer rows are left out.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.rows import Table
from vpem.meaning import Certainty, Profile, entropy
from vpem.report.bins import SMALLEST_COUNT, hide_small
from vpem.report.values import short

Array = NDArray[np.float64]

NEGLIGIBLE = 1e-12
"""Weight of a component that must not be seen; 0 has no logarithm."""
MOST_CONFUSED = 6
"""Pairs of components in the page."""


def without_small(model: Any, n_rows: int) -> Any:
    """A copy of the model in which components that stand for too few rows have no weight.

    Everything of `vpem.meaning` that it is asked for is then about the other components. If all stand for too few
    rows, the model as it is: nothing of its components is shown in the page.
    """
    small = model.weights_ * n_rows < SMALLEST_COUNT
    if not small.any() or small.all():
        return model
    shown = copy.copy(model)
    weights = np.where(small, NEGLIGIBLE, model.weights_)
    shown.weights_ = weights / weights.sum()
    return shown


def profile_of(
    profile: Profile, nats: float, column: int, hidden: NDArray[np.bool_], distances: Array | None = None
) -> dict[str, Any]:
    """One column of the profiles: everyone, distances of the components from it, and what it tells.

    Parameters
    ----------
    profile : Profile
        Without small components.
    nats : float
    column : int
    hidden : array of shape (n_components,)
        Components that have too few values in this column. If they have enough rows elsewhere, they have a part in
        "everyone", which is then left out.
    distances : array of shape (n_components,), optional
        In place of the profile's.
    """
    if (hidden & (profile.shares > 2 * NEGLIGIBLE)).any():
        return {"everyone": None, "distances": None, "nats": None}
    everyone = profile.overall_means[column], profile.overall_deviations[column]
    own = profile.distances[:, column] if distances is None else distances
    told = np.where(hidden, np.nan, np.round(own, 3))
    return {"everyone": short(everyone), "distances": short(told), "nats": round(nats, 3)}


def importance_card(model: Any, n_rows: int) -> dict[str, Any]:
    """What parties tell about the component of a row; what columns tell is with the features.

    Nothing if all components stand for too few rows.
    """
    if (model.weights_ * n_rows < SMALLEST_COUNT).all():
        return {"entropy": 0, "party_nats": []}
    found = model._party_information()
    return {
        "entropy": round(entropy(model.weights_), 3),
        "party_nats": [[round(one.nats, 3), round(one.error, 3)] for one in found],
    }


def certainty_card(model: Any, table: Table) -> dict[str, Any]:
    """How sure the labels of the rows are."""
    found: Certainty = model.certainty(table)
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
            "confused": _confused(found, model.weights_),
        }
    }


def _bounded(share: float, n_rows: int) -> list[Any]:
    """A share in words and a number, such that fewer than `SMALLEST_COUNT` rows cannot be told from it."""
    least = SMALLEST_COUNT / n_rows
    if share < least:
        return ["less than", round(least, 4)]
    if share > 1 - least:
        return ["more than", round(1 - least, 4)]
    return ["", round(share, 4)]


def _confused(found: Certainty, weights: Array) -> Sequence[Any]:
    """Pairs of components of which enough rows are confused: of, labelled with, expected share."""
    pairs = found.confused_pairs(most=MOST_CONFUSED)
    return [
        [one, other, round(share, 4)]
        for one, other, share in pairs
        if share * weights[one] * found.n_rows >= SMALLEST_COUNT
    ]
