"""What masks cost: fits by agents with and without them, in messages of the same size, turn by turn; and bytes.

Run: python -m benchmarks.masks
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from vpem import Differences, Masked, Star, VerticalGaussianMixture
from vpem.datasets import fetch_beijing_air, fetch_htru2

REPEATS = 5


@dataclass(frozen=True)
class Bare(Masked):
    """The same words without masks and tags."""

    @property
    def has_tags(self) -> bool:
        """None."""
        return False

    def streams(self, place: Any, roots: Any, n_bytes: int) -> Any:  # noqa: ARG002 (none are needed)
        """No masks."""
        return {}


def seconds(X: Any, parties: Any, n_components: int, way: Any, engine: str, **arguments: Any) -> tuple[float, Any]:
    """Time of a fit, and the model."""
    model = VerticalGaussianMixture(
        n_components, partition=parties, summation=way, engine=engine, random_state=0, **arguments
    )
    begun = time.perf_counter()
    model.fit(X)
    return time.perf_counter() - begun, model


def main() -> None:
    """Both data sets."""
    warnings.simplefilter("ignore")
    pulsars, air = fetch_htru2(), fetch_beijing_air()
    studies = {
        "pulsars, 8 parties, K=2": (pulsars.data, {f"p{n}": [n] for n in range(8)}, 2),
        "Beijing, 12 stations, K=3": (air.data, air.partition, 3),
    }
    for name, (X, parties, n_components) in studies.items():
        X = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)
        fixed = {"init_params": "random", "tol": 0.0, "max_iter": 10}
        times: dict[str, list[float]] = {"masked": [], "bare": []}
        for _ in range(REPEATS + 1):
            for key, way in (("masked", Masked(Star())), ("bare", Bare(Star()))):
                times[key].append(seconds(X, parties, n_components, way, "agents", **fixed)[0])
        masked, bare = (float(np.median(times[key][1:])) for key in ("masked", "bare"))
        print(
            f"{name}: 10 iterations of agents masked {masked:.2f} s, without masks {bare:.2f} s: {masked / bare:.2f}"
        )
        for init_params in ("random", "kmeans"):
            for way in (Star(), Differences(Star()), Masked(Star())):
                _, model = seconds(X, parties, n_components, way, "simulation", init_params=init_params, max_iter=500)
                print(
                    f"  {init_params}, {type(way).__name__}: {model.n_iter_} iterations, "
                    f"{model.traffic_.bytes / X.nbytes:.2f} tables, log-likelihood {model.score(X):.6f} per row"
                )


if __name__ == "__main__":
    main()
