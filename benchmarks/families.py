"""Mixed columns against StepMix: seconds per iteration on Adult, categories and Gaussian columns, one thread or all.

Run with `python benchmarks/families.py`; needs stepmix (3.0) and the table (see `vpem.datasets.load_adult_parties`).
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from stepmix import StepMix

from vpem import VerticalMixture
from vpem.datasets import load_adult_parties

SIZES = (2, 4, 8)
FEW, MANY = 3, 53
NUMBERS = ["hours-per-week", "age", "capital-gain", "capital-loss"]


def seconds(fit, repeats=3, many=MANY) -> float:
    """Per iteration: what more iterations take."""
    found = []
    for _ in range(repeats):
        times = []
        for n_iterations in (FEW, many):
            begin = time.perf_counter()
            fit(n_iterations)
            times.append(time.perf_counter() - begin)
        found.append((times[1] - times[0]) / (many - FEW))
    return float(np.median(found))


def main() -> None:
    """Print a table."""
    warnings.simplefilter("ignore")
    adult = load_adult_parties()
    X, partition = adult.data, adult.partition
    words = [name for name in X.columns if name not in NUMBERS]
    coded = X.copy()
    for name in words:
        codes = coded[name].astype("category").cat.codes.astype(float)
        coded[name] = codes.where(codes >= 0)
    coded = coded[words + NUMBERS]
    about = {
        "words": {"model": "categorical_nan", "n_columns": len(words)},
        "numbers": {"model": "gaussian_diag_nan", "n_columns": len(NUMBERS)},
    }
    same = dict.fromkeys(NUMBERS, "gaussian")
    print("components   StepMix      vpem, Gaussian numbers      vpem, families as found")
    for size in SIZES:
        theirs = seconds(
            lambda n, size=size: StepMix(
                size, measurement=about, max_iter=n, abs_tol=0, rel_tol=0, progress_bar=0, random_state=0
            ).fit(coded),
            repeats=1,
            many=8,
        )
        ours = []
        for families in (same, "auto"):
            arguments = {"families": families, "partition": partition, "random_state": 0, "init_params": "random"}
            arguments |= {"covariance_type": "diag", "tol": 0.0}
            ours.append(seconds(lambda n, a=arguments, size=size: VerticalMixture(size, max_iter=n, **a).fit(X)))
        shown = "      ".join(f"{1000 * own:7.1f} ms ({theirs / own:5.1f} times faster)" for own in ours)
        print(f"{size:10}   {1000 * theirs:7.1f} ms   {shown}")


if __name__ == "__main__":
    main()
