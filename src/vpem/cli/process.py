"""What the program `vpem` does to its own process while it is one party of a study.

The library does none of this, as it does not own the process.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from vpem.transports.zenoh_log import begin_log, take_line

ENDING_SECONDS = 1.0
"""Time limit for the output to be passed on."""
LARGE_BYTES = 32 * 1024 * 1024
"""Larger arrays return their memory at once: those with numbers for each of a million rows."""
MOST_FREE_BYTES = 32 * 1024 * 1024
"""Maximum free memory that the process keeps."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Numbers of the options of glibc's `mallopt`."""


@contextmanager
def own_process() -> Iterator[None]:
    """Keep the memory of messages, and take zenoh's log out of the standard output, for runs to report."""
    keep_memory()
    with suppress(ImportError):  # reported when a wire is opened
        begin_log()
    outlet = None
    with suppress(OSError):  # a process without a standard output
        outlet = _Outlet(take_line)
    try:
        yield
    finally:
        if outlet is not None:
            outlet.close()


def keep_memory() -> bool:
    """Make the C library keep free memory, if it supports this; return True if it does.

    It would otherwise return the memory of each message to the system. To move messages of some megabytes then takes
    a third less processor time.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library or system
        return False
    settings = (M_MMAP_THRESHOLD, LARGE_BYTES), (M_TRIM_THRESHOLD, MOST_FREE_BYTES)
    return all(set_option(*setting) == 1 for setting in settings)


class _Outlet:
    """Descriptor 1 as a pipe: a thread offers each line to `take`, and passes on the lines that it does not take."""

    def __init__(self, take: Callable[[bytes], bool]):
        self._take, self._stdout = take, sys.stdout
        self._ours: TextIO | None = None
        self._old = os.dup(1)
        if self._stdout is not None and _number(self._stdout) == 1:
            self._stdout.flush()
            encoding, errors = self._stdout.encoding, self._stdout.errors
            self._ours = sys.stdout = open(os.dup(1), "w", buffering=1, encoding=encoding, errors=errors)  # noqa: SIM115
        reading, writing = os.pipe()
        os.dup2(writing, 1, inheritable=True)
        os.close(writing)
        self._pipe = open(reading, "rb")  # noqa: SIM115
        self._thread = threading.Thread(target=self._read, name="vpem-zenoh-log", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._pipe:
            for line in self._pipe:
                if not self._take(line):
                    with suppress(OSError):
                        os.write(self._old, line)

    def close(self) -> None:
        """Restore descriptor 1, and wait until everything that was written to the pipe has been passed on."""
        if self._stdout is not None:
            with suppress(OSError, ValueError):
                self._stdout.flush()  # puts what was written to it in the meantime in the pipe's order
        os.dup2(self._old, 1, inheritable=True)  # closes the pipe's last write end, so that the thread ends
        with suppress(RuntimeError):  # an interpreter that is about to end, from Python 3.14 on
            self._thread.join(ENDING_SECONDS)
        if not self._thread.is_alive():  # a child process may hold the pipe
            os.close(self._old)
        if self._ours is not None and sys.stdout is self._ours:
            sys.stdout = self._stdout
            self._ours.close()


def _number(file: object) -> int | None:
    try:
        return file.fileno()  # type: ignore[attr-defined,no-any-return]
    except (AttributeError, OSError, ValueError):
        return None
