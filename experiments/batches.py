"""The supplement's batch VP-EM: log-likelihood against rows touched and bytes sent."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.common import PAPER_ROUNDS, Experiment, common_start, main, markdown, style, tidy, vertical_em
from vpem.datasets import make_network_mixture

FULL = {
    "n_samples": 20_000,
    "n_agents": 20,
    "n_components": 3,
    "mean_degree": 6.0,
    "separation": 0.4,
    "batches": [1, 2, 5, 20, 100],
    "n_passes": 40,
    "seed": 1,
}
QUICK = {"n_samples": 3_000, "n_passes": 6, "batches": [1, 5, 20]}


def setting(p: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Network, rows, and a common start."""
    data = make_network_mixture(
        p["n_samples"],
        p["n_agents"],
        p["n_components"],
        mean_degree=p["mean_degree"],
        separation=p["separation"],
        random_state=p["seed"],
    )
    start = common_start(data.data, p["n_components"], np.random.default_rng(p["seed"]))
    return data, start


def trajectory(p: dict[str, Any], n_batches: int) -> list[dict[str, float]]:
    """Log-likelihood of all rows and bytes sent, after each number of passes."""
    data, start = setting(p)
    points = []
    for passes in range(1, p["n_passes"] + 1):
        model = vertical_em(
            data.data,
            start,
            data.graph,
            max_iter=passes,
            tol=0.0,
            batch_size=None if n_batches == 1 else -(-p["n_samples"] // n_batches),
        )
        points.append(
            {
                "passes": passes,
                "log_likelihood": model.score(data.data),
                "bytes": model.traffic_.bytes,
                "messages": model.traffic_.messages,
            }
        )
    return points


def limit(p: dict[str, Any]) -> float:
    """Log-likelihood per row after ten times as many passes over all rows."""
    data, start = setting(p)
    return vertical_em(data.data, start, data.graph, max_iter=10 * p["n_passes"], tol=0.0).score(data.data)


def run(experiment: Experiment) -> None:
    """All batch sizes, figure, page."""
    p = experiment.parameters
    found = {
        n: experiment.step(f"{n} batch{'es' if n > 1 else ''}", lambda n=n: trajectory(p, n)) for n in p["batches"]
    }
    experiment.table(
        "batches",
        (
            {
                "batches": n,
                "batch_size": -(-p["n_samples"] // n),
                "rows_touched": p["n_samples"] * point["passes"],
                **point,
            }
            for n, points in found.items()
            for point in points
        ),
    )
    later = experiment.step("where it ends", lambda: limit(p))
    best = max(points[-1]["log_likelihood"] for points in found.values())
    names = {n: "full batch" if n == 1 else f"{n} batches of {-(-p['n_samples'] // n):,}" for n in found}
    figure = Figure(figsize=(10.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for number, (n, points) in enumerate(found.items()):
        values = [point["log_likelihood"] for point in points]
        look = {**style(number), "linewidth": 1.8}
        left.plot([p["n_samples"] * point["passes"] / 1000 for point in points], values, label=names[n], **look)
        right.plot([point["bytes"] / 1e9 for point in points], values, label=names[n], **look)
    tidy(left, xlabel="rows touched, thousands", ylabel="log-likelihood per row")
    tidy(right, xlabel="GB sent by all agents")
    left.set_ylim(best - 0.12, best + 0.005)
    left.legend(frameon=False)
    experiment.figure("batches", figure)

    within = 1e-3
    shown = []
    for n, points in found.items():
        reached = next((point for point in points if best - point["log_likelihood"] < within), None)
        shown.append(
            {
                "batches": names[n],
                f"passes to {within:g} nats of the best": reached["passes"]
                if reached
                else f"more than {p['n_passes']}",
                "GB sent until then": f"{reached['bytes'] / 1e9:.1f}" if reached else "-",
                "messages until then": f"{reached['messages']:,}" if reached else "-",
                "log-lik./row in the end": f"{points[-1]['log_likelihood']:.4f}",
            }
        )
    experiment.page(f"""
# Batches

{p["n_agents"]} agents, mean degree {p["mean_degree"]:g}, {p["n_samples"]:,} rows, {PAPER_ROUNDS} rounds for each sum; a pass touches
every row once, batch after batch, and updates the parameters after each.

![batches](batches.svg)

{markdown(shown)}

**As in the paper**, an iteration on a batch costs only the batch's share of the bytes, and more frequent updates need
fewer passes. Here the gain is large at first and then levels off.

**Limits.** Bytes are not the only cost: the sum of each batch takes {PAPER_ROUNDS} rounds, so
twenty batches wait twenty times as long for the network's latency in a pass. Moreover, a curve that has
levelled off need not have converged: {10 * p["n_passes"]} iterations on all rows reach {later:.4f}, better than everything above. The paper gives
no figure for batches.
""")


if __name__ == "__main__":
    main("batches", run, FULL, QUICK)
