"""How inner loops are compiled: at their first call, to run without the interpreter's lock.

Compiled code is kept on disk beside the package, or in the user's cache.

The same input gives the same bits wherever it lies in memory. A loop that adds up in lanes and writes to memory is
compiled twice, with and without lanes, and which of the two runs depends on how far apart its arrays are: so such a
loop touches one work array only, which holds all that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

REORDER = {"reassoc", "contract", "nsz"}
"""Sums may run in several lanes. Infinity and NaN keep their meaning."""
PRECISE = {"contract", "nsz"}


def compiled(fastmath: set[str]) -> Callable[[Callable[..., Any]], Any]:
    """Compile at the first call; keep the result on disk, if possible."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(nogil=True, fastmath=fastmath, cache=True)(function)
        except RuntimeError:  # nowhere to write
            return numba.njit(nogil=True, fastmath=fastmath)(function)

    return decorate
