"""From which width on BLAS beats the kernel for blocks with whole matrices: `python benchmarks/crossover.py`."""

import time
import warnings

import numpy as np

from vpem import VerticalGaussianMixture
from vpem.core.blocks import layouts

N_ROWS, N_COMPONENTS = 20_000, 3


def seconds(X: np.ndarray, width: int) -> float:
    """An iteration's, from the difference of two fits."""
    times = []
    for n_iter in (3, 9):
        model = VerticalGaussianMixture(
            N_COMPONENTS,
            partition=[list(range(first, first + width)) for first in range(0, X.shape[1], width)],
            init_params="random_from_data",
            max_iter=n_iter,
            tol=0,
            random_state=0,
        )
        start = time.perf_counter()
        model.fit(X)
        times.append(time.perf_counter() - start)
    return (times[1] - times[0]) / 6


def main() -> None:
    """Print both ways for some widths."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    print(f"{'width':>5}{'kernel':>12}{'BLAS':>12}")
    seconds(rng.normal(size=(1000, 96)), 8)  # compile
    for width in (8, 16, 32, 48, 96):
        X = rng.normal(size=(N_ROWS, 96 // width * width))
        times = []
        for widest in (10_000, 1):
            layouts.WIDEST_MATRIX = widest
            times.append(min(seconds(X, width) for _ in range(3)))
        print(f"{width:>5}{times[0] * 1e3:>9.0f} ms{times[1] * 1e3:>9.0f} ms", flush=True)


if __name__ == "__main__":
    main()
