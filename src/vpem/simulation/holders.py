"""Rows that too few blocks have for their sum to hide a term."""

from __future__ import annotations

import numpy as np

from vpem.core.network.parties import Network
from vpem.core.network.summation import HOLDERS, Shape
from vpem.core.rows import Table, rows_held, without_rows
from vpem.simulation.channel import Channel


def leave_out(table: Table, network: Network, channel: Channel) -> Table:
    """Count the holders of each row, as agents do, if the summation asks for it; the table that is left."""
    least = channel.summation.least_holders(network)
    if least < 2:
        return table
    held = np.array([rows_held(table, columns) for columns in network.block_columns])
    holders = np.rint(channel.add(held, Shape(len(table), 1), HOLDERS)[0])
    if not (holders >= least).any():
        raise ValueError(
            f"expected rows that at least {least} parties have, got none; more parties need the same rows, or the "
            "study must accept rows of fewer"
        )
    return without_rows(table, holders, least)
