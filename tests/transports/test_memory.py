"""Memory that a process keeps for its next messages."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from vpem.transports.memory import keep_memory
assert not int(sys.argv[1]) or keep_memory()
for number in range(210):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [bytearray(300_000) for _ in range(5)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_pieces_of_messages_get_the_same_memory_again():
    faults = [
        int(subprocess.run([sys.executable, "-c", PROGRAM, keeps], capture_output=True, check=True).stdout)
        for keeps in ("0", "1")
    ]
    assert faults[1] < 0.05 * faults[0], faults
