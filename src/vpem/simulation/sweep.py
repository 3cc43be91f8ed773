"""Rows on their way through a simulated network.

Nothing of size agents x rows x components is held: a chunk of rows goes all the way before the next one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from vpem.core.network import Network
from vpem.core.rows import Rows, Table, row_chunks
from vpem.core.summation import Adder

Array = NDArray[np.float64]


def network_sums(
    X: Table,
    network: Network,
    adder: Adder,
    n_values: int,
    contribute: Callable[[int, Rows], Array],
    within: slice | None = None,
) -> Iterator[tuple[slice, list[Rows], Array]]:
    """Send rows through the network, some at a time.

    Parameters
    ----------
    X : Table of shape (n_samples, n_features)
    network : Network
    adder : Adder
    n_values : int
        Numbers that a block contributes per row.
    contribute : callable
        Block number and its columns of some rows, (n_rows, n_columns), to contributions (n_rows, n_values).
    within : slice, optional
        Only these rows.

    Yields
    ------
    rows : slice
    blocks : list of arrays of shape (n_rows, n_columns)
        Each block's columns of these rows.
    sums : array of shape (n_views, n_rows, n_values)
    """
    columns = network.block_columns
    within = slice(0, len(X)) if within is None else within
    values_per_row = max(n_values * len(columns), n_values * max(map(len, columns)), X.shape[1])
    for rows in row_chunks(within.start, within.stop, values_per_row):
        chunk = X[rows]
        blocks = [chunk[:, held] for held in columns]
        # Values before rows in memory, as the adder likes it.
        contributions = np.empty((len(blocks), n_values, len(chunk))).transpose(0, 2, 1)
        for number, block in enumerate(blocks):
            contributions[number] = contribute(number, block)
        yield rows, blocks, adder.add(contributions, rows)
