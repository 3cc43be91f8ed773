"""The supplement's question: what sharing columns with neighbours buys, and what it costs."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from matplotlib.figure import Figure

from experiments.common import PAPER_ROUNDS, Experiment, main, markdown, style, tidy
from vpem import Consensus, VerticalGaussianMixture
from vpem.datasets import make_network_mixture
from vpem.figures import COLOURS, draw_network

FULL = {
    "n_samples": 6_000,
    "n_agents": 100,
    "n_components": 3,
    "mean_degree": 9.7,
    "separation": 0.2,
    "tol": 1e-4,
    "max_iter": 300,
    "seed": 100,
}
QUICK = {"n_samples": 2_000, "n_agents": 30, "mean_degree": 5.0, "max_iter": 50}

# The supplement's picture is not in its text; this network has the text's hubs and roots, without a tie.
NINE_AGENTS = nx.Graph([(2, 1), (2, 3), (2, 4), (2, 5), (5, 6), (6, 7), (6, 8), (4, 9)])


def one_fit(p: dict[str, Any], hops: int) -> dict[str, Any]:
    """Fit with hubs of so many hops; score on rows that it has not seen too."""
    data = setting(p)
    half = p["n_samples"]
    model = VerticalGaussianMixture(
        p["n_components"],
        graph=data.graph,
        hops=hops,
        summation=Consensus(PAPER_ROUNDS),
        tol=p["tol"],
        max_iter=p["max_iter"],
        random_state=0,
    ).fit(data.data[:half])
    sizes = [len(hub.members) for hub in model.hubs_]
    paths = dict(nx.all_pairs_shortest_path_length(data.graph))
    relayed = sum(paths[hub.root][member] for hub in model.hubs_ for member in hub.members)
    return {
        "log_likelihood": model.lower_bound_,
        "held_out": model.score(data.data[half:]),
        "n_blocks": len(sizes),
        "widest": max(sizes),
        "columns_shared": p["n_agents"] - len(sizes),
        "shared_bytes": 8 * half * relayed,
        "root_work": half * p["n_components"] * max(size**2 for size in sizes),
        "all_work": half * p["n_components"] * sum(size**2 for size in sizes),
        "covariances": p["n_components"] * sum(size * (size + 1) // 2 for size in sizes),
        "iterations": model.n_iter_,
        "bytes": model.traffic_.bytes,
        "disagreement": model.disagreement_,
        "blocks": sizes,
    }


def setting(p: dict[str, Any]) -> Any:
    """Twice as many rows as are fitted."""
    return make_network_mixture(
        2 * p["n_samples"],
        p["n_agents"],
        p["n_components"],
        mean_degree=p["mean_degree"],
        separation=p["separation"],
        random_state=p["seed"],
    )


def nine_agents() -> list[dict[str, Any]]:
    """The hubs of the supplement's network, for each number of hops."""
    found = []
    for hops in range(nx.diameter(NINE_AGENTS) + 1):
        model = VerticalGaussianMixture(
            partition={agent: [agent - 1] for agent in range(1, 10)},
            graph=NINE_AGENTS,
            hops=hops,
            random_state=0,
        ).fit(np.random.default_rng(0).normal(size=(50, 9)))
        found.append({"hops": hops, "hubs": [[hub.root, list(hub.members)] for hub in model.hubs_]})
        if len(model.hubs_) == 1:
            break
    return found


def run(experiment: Experiment) -> None:
    """All hops, figures, page."""
    p = experiment.parameters
    diameter = nx.diameter(setting({**p, "n_samples": 1}).graph)
    fits: dict[int, Any] = {}
    for hops in range(diameter + 1):
        fits[hops] = experiment.step(f"{hops} hops", lambda hops=hops: one_fit(p, hops))
        if fits[hops]["n_blocks"] == 1:  # more hops change nothing
            break
    nine = experiment.step("nine agents", nine_agents)
    numbers = (
        "log_likelihood",
        "held_out",
        "n_blocks",
        "widest",
        "columns_shared",
        "shared_bytes",
        "root_work",
        "all_work",
        "covariances",
        "iterations",
        "bytes",
        "disagreement",
    )
    experiment.table("hops", ({"hops": hops, **{name: fit[name] for name in numbers}} for hops, fit in fits.items()))
    experiment.table(
        "nine_agents",
        (
            {"hops": one["hops"], "root": root, "members": " ".join(map(str, members))}
            for one in nine
            for root, members in one["hubs"]
        ),
    )

    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    hops = list(fits)
    for number, (name, label) in enumerate(
        (("log_likelihood", "rows that were fitted"), ("held_out", "rows kept back"))
    ):
        left.plot(
            hops, [fits[h][name] for h in hops], marker="o", label=label, **{**style(2 * number), "markersize": 4}
        )
    tidy(left, xlabel="hops", ylabel="log-likelihood per row", title="what it buys")
    left.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
    middle.plot(
        hops, [fits[h]["n_blocks"] for h in hops], marker="o", label="blocks", **{**style(0), "markersize": 4}
    )
    middle.plot(
        hops,
        [fits[h]["widest"] for h in hops],
        marker="s",
        label="columns of the widest",
        **{**style(2), "markersize": 4},
    )
    tidy(middle, xlabel="hops", title="blocks")
    middle.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
    right.plot(
        hops,
        [100 * fits[h]["columns_shared"] / p["n_agents"] for h in hops],
        marker="o",
        label="columns that leave, %",
        **{**style(0), "markersize": 4},
    )
    right.plot(
        hops,
        [100 * fits[h]["root_work"] / fits[max(hops)]["root_work"] for h in hops],
        marker="s",
        label="busiest root's work, %",
        **{**style(2), "markersize": 4},
    )
    tidy(right, xlabel="hops", title="what it costs")
    right.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
    for axes in (left, middle, right):
        axes.set_xticks(hops)
    experiment.figure("hops", figure)

    sparsity = Figure(figsize=(2.6 * len(nine), 5.6), layout="constrained")
    axes = sparsity.subplots(2, len(nine), squeeze=False)
    for column, one in enumerate(nine):
        hubs = [(root, members) for root, members in one["hubs"]]
        draw_network(axes[0, column], NINE_AGENTS, hubs=hubs, names=True, size=170)
        axes[0, column].set_title(
            f"{one['hops']} hop{'s' if one['hops'] != 1 else ''}: {len(hubs)} block{'s' if len(hubs) > 1 else ''}"
        )
        order = [member for _, members in hubs for member in members]
        first = 0
        for number, (_, members) in enumerate(hubs):
            size = len(members)
            square = {"facecolor": COLOURS[number % len(COLOURS)], "edgecolor": "#000000", "linewidth": 0.8}
            axes[1, column].axvspan(first, first + size, 1 - (first + size) / 9, 1 - first / 9, **square)
            first += size
        axes[1, column].set(xlim=(0, 9), ylim=(9, 0), aspect="equal")
        axes[1, column].set_xticks(np.arange(9) + 0.5, order, fontsize=8)
        axes[1, column].set_yticks(np.arange(9) + 0.5, order, fontsize=8)
        axes[1, column].tick_params(length=0)
    experiment.figure("sparsity", sparsity)

    shown = [
        {
            "hops": h,
            "blocks": fit["n_blocks"],
            "widest": fit["widest"],
            "log-lik./row": f"{fit['log_likelihood']:.2f}",
            "kept back": f"{fit['held_out']:.2f}",
            "columns shared": f"{fit['columns_shared']} of {p['n_agents']}",
            "of them sent": f"{fit['shared_bytes'] / 1e6:.1f} MB",
            "sent in all": f"{fit['bytes'] / 1e9:.0f} GB",
            "busiest root": f"{fit['root_work'] / 1e6:.1f} M",
            "iterations": fit["iterations"],
        }
        for h, fit in fits.items()
    ]
    best = max(fits, key=lambda h: fits[h]["held_out"])
    experiment.page(f"""
# Hubs of several hops

The sparse network of the first experiment with {p["n_samples"]:,} rows, and as many that are kept back (held out). "Busiest root":
multiplications for its block's densities in one iteration, rows x K x columns squared; an M-step costs as much again.

{markdown(shown)}

![hops](hops.svg)

**As the paper expects**, more hops mean wider blocks (and fewer, except for the small remainders that the greedy rule leaves) and a
larger likelihood, from {fits[0]["log_likelihood"]:.1f} with none to {fits[max(fits)]["log_likelihood"]:.1f} per row when one root has all columns. The likelihood of the rows kept back is highest with
{best} hop{"s" if best != 1 else ""}: {fits[best]["held_out"]:.1f} per row.

**The price.** Already one hop takes {fits[1]["columns_shared"]} of {p["n_agents"]} columns away from their agents. The
cost of a sum stays the same, because all agents take part in every round. Most of the traffic ("sent in all") is the sums of the
k-means with which a fit starts, and their number varies. The work is concentrated
at few roots: with {max(fits)} hops one of them does {fits[max(fits)]["root_work"] / fits[0]["root_work"]:,.0f} times what an agent
does with none.

![sparsity](sparsity.svg)

The figure shows the supplement's nine agents, the hubs that the greedy rule finds, and the blocks that they allow in every
covariance. (The text of the supplement does not define its network: this one has the hubs and roots that the text gives for one hop.)
""")


if __name__ == "__main__":
    main("hops", run, FULL, QUICK)
