"""Which rows belong to which batch of incremental EM."""

from __future__ import annotations


def batch_slices(n_samples: int, batch_size: int) -> list[slice]:
    """Consecutive batches of `batch_size` rows, the last one perhaps smaller.

    The rows stay in their order: every batch keeps its own statistics, so that, unlike with stochastic gradients,
    no batch has to look like the whole.
    """
    return [slice(start, min(start + batch_size, n_samples)) for start in range(0, n_samples, batch_size)]
