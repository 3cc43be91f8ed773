"""Initial covariances from the user's precisions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.covariances import STRUCTURES
from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.factors import make_block, variances
from vpem.core.blocks.overall import LARGEST
from vpem.core.network.parties import Network
from vpem.estimators import checks

Array = NDArray[np.float64]


def covariances_from_precisions(
    precisions: Any, covariance_type: str, n_components: int, network: Network
) -> list[Array]:
    """Return each block's covariances from `precisions_init`, in the shapes of `vpem.core.blocks.factors`."""
    n_blocks = len(network.hubs)
    if isinstance(precisions, str | dict) or not hasattr(precisions, "__len__"):
        raise ValueError(f"expected precisions_init to be a list with an array for each block, got {precisions!r}")
    if len(precisions) != n_blocks:
        raise ValueError(
            f"expected precisions_init with one entry for each of the {n_blocks} blocks (in the order of hubs_), "
            f"got {len(precisions)}"
        )
    covariances: list[Array] = []
    for number, (given, columns) in enumerate(zip(precisions, network.block_columns, strict=True)):
        width = len(columns)
        shape = {
            "full": (n_components, width, width),
            "tied": (width, width),
            "diag": (n_components, width),
            "spherical": (n_components,),
        }[covariance_type]
        name = f"precisions_init[{number}]"
        found = checks.finite_array(name, given, shape)
        is_matrix = STRUCTURES[covariance_type].is_matrix
        inverse = _inverses(found.reshape((-1, width, width) if is_matrix else (n_components, -1)), is_matrix)
        if inverse is None:
            needed = "symmetric and positive definite" if is_matrix else "positive"
            raise ValueError(
                f"expected {name} to be {needed}, with variances (its inverse) from {1 / LARGEST**2:g} to "
                f"{LARGEST**2:g}, got {given!r}; scale the columns if they are that small or large"
            )
        covariances.append(inverse)
    return covariances


def _inverses(precisions: Array, is_matrix: bool) -> Array | None:
    """Invert precisions of shape (n_components, width, width) or (n_components, width); None if they are invalid."""
    no_means, found = np.zeros((len(precisions), precisions.shape[-1])), precisions
    # Scaling by a power of two is exact, and keeps LAPACK from overflow and from treating small numbers as zeros.
    _, exponents = np.frexp(np.abs(precisions).max(axis=tuple(range(1, precisions.ndim)), keepdims=True))
    scaled = np.ldexp(precisions, -exponents)
    try:
        make_block(no_means, scaled)
        with np.errstate(over="ignore", under="ignore"):
            if is_matrix:
                if np.abs(scaled - scaled.transpose(0, 2, 1)).max() > 1e-8:
                    return None
                found = np.ldexp(np.linalg.inv(scaled), -exponents)
            else:
                found = 1.0 / precisions
        make_block(no_means, found)
    except (np.linalg.LinAlgError, CollapsedComponentError):
        return None
    sizes = variances(found)
    return found if ((sizes >= LARGEST**-2) & (sizes <= LARGEST**2)).all() else None
