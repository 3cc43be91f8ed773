"""Memory of messages, which the C library would give back to the system after each, and get anew for the next."""

from __future__ import annotations

import ctypes

LARGE_BYTES = 32 * 1024 * 1024
"""Larger arrays give their memory back at once: those with numbers of all of a million rows."""
MOST_FREE_BYTES = 32 * 1024 * 1024
"""Free memory that the process keeps at most."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's settings."""


def keep_memory() -> bool:
    """Ask the C library to keep free memory, if it is one that can be asked; returns whether it does.

    It then takes a third less of the processor to move messages of some megabytes.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another library, another system
        return False
    settings = (M_MMAP_THRESHOLD, LARGE_BYTES), (M_TRIM_THRESHOLD, MOST_FREE_BYTES)
    return all(set_option(*setting) == 1 for setting in settings)
