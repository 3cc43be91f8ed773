"""Loops are compiled when they are first called, whichever is called first, by however many threads."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from vpem.core.compiling import PRECISE, Loop, compiled


@compiled(PRECISE)
def outer(values):
    total = 0.0
    for place in range(len(values)):
        total += inner(values[place])
    return total


@compiled(PRECISE)
def inner(value):
    return 2.0 * value


KEPT = [outer]  # as another module does that imports the name


def test_a_loop_becomes_the_compiled_function_with_all_that_it_calls():
    [early] = KEPT
    assert isinstance(early, Loop)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(early, [np.arange(number + 1.0) for number in range(8)]))
    assert found == [float(number * (number + 1)) for number in range(8)]
    assert not isinstance(outer, Loop)
    assert not isinstance(inner, Loop)
    assert early.py_func.__name__ == "outer"
    assert len(outer.signatures) == 1, "one version for all threads"


def test_a_loop_of_another_module_brings_those_that_it_calls():
    code = """
from vpem.core.blocks import kernels, matrix_kernels
from vpem.core.compiling import Loop
assert "numba" not in __import__("sys").modules
loops = [value for value in vars(matrix_kernels).values() if isinstance(value, Loop)]
assert loops
[loop] = [loop for loop in loops if loop._function.__name__ == 'collect_matrices']
loop.prepare()
for room in (kernels, matrix_kernels):
    assert not [name for name, value in vars(room).items() if isinstance(value, Loop)], room
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
