"""Peak memory at the size of the paper's largest experiment, in a process of its own."""

import subprocess
import sys

import pytest

PROGRAM = """
import warnings
import networkx as nx
import numpy as np
from vpem import VerticalGaussianMixture

def peak():  # in MB, of this process alone (ru_maxrss would begin with its parent's)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3

rng = np.random.default_rng(0)
graph = nx.random_geometric_graph(100, 0.25, seed=1)
assert nx.is_connected(graph)
X = rng.standard_normal((150_000, 100))
centres = 2 * rng.standard_normal((3, 100))
for rows in range(0, len(X), 1000):
    X[rows : rows + 1000] += centres[rng.integers(3, size=1000)]
loaded = peak()
warnings.simplefilter("ignore")
model = VerticalGaussianMixture(3, graph=graph, max_iter=2, tol=0.0, random_state=0).fit(X)
assert model.hub_weights_.shape == (100, 3)
print(peak() - loaded)
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read as Linux reports it")
def test_a_hundred_agents_never_hold_half_an_array_of_agents_by_rows_by_components():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 180  # MB; 100 x 150,000 x 3 float64 are 360
