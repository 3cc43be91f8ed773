"""A start from labels beside vertical k-means: what EM comes to, and what the network sends."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits, load_wine

from experiments.common import Experiment, main, markdown, tidy
from vpem import VerticalGaussianMixture
from vpem.datasets import fetch_beijing_air, fetch_htru2, load_breast_cancer_parties
from vpem.figures import COLOURS

FULL = {
    "data": ["pulsars", "breast cancer", "wine", "Beijing", "digits"],
    "components": {
        "pulsars": [2, 3, 5],
        "breast cancer": [2, 3, 5],
        "wine": [3],
        "Beijing": [2, 3, 4],
        "digits": [10],
    },
    "tols": [1e-3, 1e-6],
    "starts": 20,
    "first_seed": 200,
    "max_iter": 1000,
}
QUICK = {"data": ["breast cancer", "wine"], "tols": [1e-3], "starts": 3, "max_iter": 100}
KINDS = ("kmeans", "labels")
TUNED = {("pulsars", 2), ("pulsars", 3), ("breast cancer", 2), ("breast cancer", 3), ("wine", 3), ("Beijing", 3)}
"""Where the start was tried out while it was made, with other seeds."""


@cache
def table_of(name: str) -> tuple[np.ndarray, Any]:
    """Rows, and who holds which columns."""
    if name == "pulsars":
        return fetch_htru2().data, None
    if name == "breast cancer":
        data = load_breast_cancer_parties()
        return data.data, data.partition
    if name == "wine":
        return load_wine().data, [list(range(6)), list(range(6, 13))]
    if name == "digits":
        X = load_digits().data
        kept = np.flatnonzero(X.std(axis=0) > 0.5)
        return X[:, kept], [part.tolist() for part in np.array_split(np.arange(len(kept)), 4)]
    data = fetch_beijing_air()
    return data.data[~np.isnan(data.data).any(axis=1)], data.partition


def settings_of(name: str) -> dict[str, Any]:
    """Arguments that do not depend on the start."""
    return {"partition": table_of(name)[1], "reg_covar": 1e-2 if name == "digits" else 1e-6}


@cache
def start_bytes(name: str, n_components: int, kind: str, seed: int) -> int:
    """What is sent before EM: beside a start from the shared seed, which sends nothing."""
    sent = [
        VerticalGaussianMixture(n_components, init_params=other, max_iter=0, random_state=seed, **settings_of(name))
        .fit(table_of(name)[0])
        .traffic_.bytes
        for other in (kind, "random_from_data")
    ]
    return int(sent[0] - sent[1])


def one_start(p: dict[str, Any], name: str, n_components: int, tol: float, kind: str, seed: int) -> dict[str, Any]:
    """What EM comes to, and what the start and the fit have sent."""
    model = VerticalGaussianMixture(
        n_components, init_params=kind, tol=tol, max_iter=p["max_iter"], random_state=seed, **settings_of(name)
    ).fit(table_of(name)[0])
    return {
        "log_likelihood": model.log_likelihood_,
        "iterations": model.n_iter_,
        "start_bytes": start_bytes(name, n_components, kind, seed),
        "bytes": model.traffic_.bytes,
    }


def run(experiment: Experiment) -> None:
    """All data sets, a table, a figure, a page."""
    p = experiment.parameters
    seeds = range(p["first_seed"], p["first_seed"] + p["starts"])
    cases = [(name, k, tol) for tol in p["tols"] for name in p["data"] for k in p["components"][name]]
    found: dict[Any, dict[str, list[dict[str, Any]]]] = {}
    for case in cases:
        found[case] = {
            kind: experiment.step(
                f"{case[0]}, K={case[1]}, tol={case[2]:g}, {kind}",
                lambda case=case, kind=kind: [one_start(p, *case, kind, seed) for seed in seeds],
            )
            for kind in KINDS
        }
    experiment.table(
        "starts",
        (
            {"data": name, "components": k, "tol": tol, "start": kind, "seed": seed, **one}
            for (name, k, tol), kinds in found.items()
            for kind, fits in kinds.items()
            for seed, one in zip(seeds, fits, strict=True)
        ),
    )
    rows = {case: summary(case, found[case]) for case in cases}
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    axes = figure.subplots()
    shown = [case for case in cases if case[2] == p["tols"][0]]
    for place, case in enumerate(shown):
        ratios = [
            np.mean([one[part] for one in found[case]["labels"]])
            / np.mean([one[part] for one in found[case]["kmeans"]])
            for part in ("start_bytes", "bytes")
        ]
        for ratio, part, colour in zip(ratios, ("the start", "the whole fit"), COLOURS[1:7:5], strict=False):
            axes.scatter(ratio, place, color=colour, label=part if place == 0 else None)
    axes.axvline(1.0, color="#999999", linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(shown)), [f"{name}, K={k}" for name, k, _ in shown])
    axes.legend(frameon=False)
    tidy(axes, xlabel="bytes with labels / bytes with k-means")
    experiment.figure("bytes", figure)
    experiment.page(page(p, rows, found))


def summary(case: tuple[str, int, float], kinds: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """A row of the page."""
    values = {kind: np.array([one["log_likelihood"] for one in fits]) for kind, fits in kinds.items()}
    means = {kind: {part: np.mean([one[part] for one in fits]) for part in fits[0]} for kind, fits in kinds.items()}
    gain = values["labels"] - values["kmeans"]
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return {
        "data": f"{case[0]}, K={case[1]}{'' if case[:2] in TUNED else ' (new)'}",
        **{f"{kind}: mean (worst)": f"{own.mean():.4f} ({own.min():.4f})" for kind, own in values.items()},
        "labels - kmeans": f"{gain.mean():+.4f} ± {error:.4f}",
        "iterations": " / ".join(f"{means[kind]['iterations']:.0f}" for kind in KINDS),
        "start, kB": " / ".join(f"{means[kind]['start_bytes'] / 1e3:,.0f}" for kind in KINDS),
        "fit, kB": " / ".join(f"{means[kind]['bytes'] / 1e3:,.0f}" for kind in KINDS),
    }


def page(p: dict[str, Any], rows: dict[Any, dict[str, Any]], found: dict[Any, Any]) -> str:
    """What was found, also where it is worse."""

    def gain(case: Any) -> float:
        kmeans, labels = (np.mean([one["log_likelihood"] for one in found[case][kind]]) for kind in KINDS)
        return float(labels - kmeans)

    worse = [
        f"{name}, K={k}, tol={tol:g} ({gain((name, k, tol)):+.5f})"
        for name, k, tol in rows
        if gain((name, k, tol)) < 0
    ]
    tables = "\n\n".join(
        f"## tol={tol:g}\n\n{markdown([row for case, row in rows.items() if case[2] == tol])}" for tol in p["tols"]
    )
    return f"""
# A start from labels

`init_params="labels"` is compared with `"kmeans"`: {p["starts"]} starts of each on a star, each a separate fit (`n_init=1`). The table shows the
log-likelihood per row at the end of EM; "±" is the standard error over starts. "Start" is the traffic before EM, and "fit" that of the
whole fit; pairs of numbers are k-means / labels. Digits are in four parts with reg_covar=0.01.

The start was developed on the data sets without "(new)", with other seeds (0 to 19, 100 to 107). About 45 variants were tried: scaling
of columns, 3 to 31 local clusters, k-means or EM at the root of the tree, and the share of the rows that they see. The last variant was
kept. As it was chosen on these data, its results on them may be too good. The lines with "(new)", another data set or
another K, were computed afterwards, and nothing was changed after them.

{tables}

![bytes](bytes.svg)

**Where labels are worse on average:** {"; ".join(worse) if worse else "nowhere here"}.
"""


if __name__ == "__main__":
    main("labels", run, FULL, QUICK)
