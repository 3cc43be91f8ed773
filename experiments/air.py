"""Twelve stations of Beijing, linked by distance: what the network learns together, gaps included."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from sklearn.metrics import adjusted_rand_score

from experiments.common import PAPER_ROUNDS, Experiment, links_of, main, markdown, tidy
from vpem import Consensus, VerticalGaussianMixture
from vpem.datasets import POLLUTANTS, fetch_beijing_air
from vpem.figures import COLOURS, above_and_below, draw_network

FULL = {"n_components": 4, "kilometres": 20.0, "hops": 0, "tol": 1e-3, "max_iter": 200, "every": 1}
QUICK = {"n_components": 3, "every": 20, "max_iter": 20}

# Where the names of stations that are close together are written.
LABELS = {
    "Guanyuan": ((-5, 4), "right"),
    "Gucheng": ((-6, -3), "right"),
    "Dongsi": ((4, -9), "left"),
    "Tiantan": ((6, -5), "left"),
    "Wanshouxigong": ((-5, -8), "right"),
    "Wanliu": ((-5, 3), "right"),
}


def network(places: dict[str, tuple[float, float]], kilometres: float) -> nx.Graph:
    """Stations that are near each other are linked; far ones to the nearest, so that all hang together."""
    graph = nx.Graph()
    graph.add_nodes_from((station, {"pos": place}) for station, place in places.items())

    def distance(one: str, other: str) -> float:
        (x, y), (u, v) = places[one], places[other]
        return float(np.hypot(111.2 * (y - v), 111.2 * np.cos(np.radians(40)) * (x - u)))

    everything = nx.Graph()
    everything.add_weighted_edges_from((a, b, distance(a, b)) for a in places for b in places if a < b)
    graph.add_edges_from((a, b) for a, b, d in everything.edges(data="weight") if d <= kilometres)
    graph.add_edges_from(nx.minimum_spanning_tree(everything).edges)
    return graph


def fit(p: dict[str, Any]) -> dict[str, Any]:
    """The network's model, and every station's own."""
    air = fetch_beijing_air()
    X = np.log(air.data)[:: p["every"]]
    time = air.time[:: p["every"]]
    some, all_there = ~np.isnan(X).all(axis=1), ~np.isnan(X).any(axis=1)
    station_complete = np.any([~np.isnan(X[:, held]).any(axis=1) for held in air.partition.values()], axis=0)
    settings = {"n_components": p["n_components"], "tol": p["tol"], "max_iter": p["max_iter"], "random_state": 0}
    model = VerticalGaussianMixture(
        partition=air.partition,
        graph=network(air.places, p["kilometres"]),
        hops=p["hops"],
        summation=Consensus(PAPER_ROUNDS),
        **settings,
    ).fit(X[some])
    only_complete = VerticalGaussianMixture(partition=air.partition, **settings).fit(X[all_there])
    # Components from clean to polluted, by their mean of PM2.5.
    order = np.argsort(model.means_[:, ::6].mean(axis=1))
    labels = np.argsort(order)[model.predict(X[some])]
    alone, there = {}, {}
    for station, held in air.partition.items():
        seen = ~np.isnan(X[some][:, held]).all(axis=1)
        own = VerticalGaussianMixture(partition=[list(range(6))], **settings).fit(X[some][seen][:, held])
        sure = own.predict_proba(X[some][seen][:, held]).max(axis=1)
        alone[station] = {
            "rand": adjusted_rand_score(labels[seen], own.predict(X[some][seen][:, held])),
            "sure": float(np.mean(sure > 0.95)),
        }
        there[station] = int(seen.sum())
    hours = time[some]
    months = hours.astype("datetime64[M]").astype(int) % 12
    of_day = (hours - hours.astype("datetime64[D]")).astype(int)
    shares = {
        "month": [np.bincount(labels[months == m], minlength=p["n_components"]).tolist() for m in range(12)],
        "hour": [np.bincount(labels[of_day == h], minlength=p["n_components"]).tolist() for h in range(24)],
    }
    missing = np.isnan(X[some]).sum(axis=1)
    return {
        "hours": {
            "all": len(X),
            "any value": some.sum(),
            "a complete station": station_complete.sum(),
            "complete": all_there.sum(),
        },
        "weights": model.weights_[order],
        "medians": np.exp(model.means_[order]).reshape(p["n_components"], 12, 6),
        "shares": shares,
        "alone": alone,
        "there": there,
        "sure": float(np.mean(model.predict_proba(X[some]).max(axis=1) > 0.95)),
        "same_labels": adjusted_rand_score(model.predict(X[all_there]), only_complete.predict(X[all_there])),
        "complete_weights": only_complete.weights_[np.argsort(only_complete.means_[:, ::6].mean(axis=1))],
        "missing": np.bincount(missing, minlength=73).tolist(),
        "iterations": model.n_iter_,
        "converged": model.converged_,
        "bytes": model.traffic_.bytes,
        "disagreement": model.disagreement_,
        "repairs": len(model.repairs_),
    }


def run(experiment: Experiment) -> None:
    """Fit, figures, page."""
    p = experiment.parameters
    found = experiment.step("twelve stations", lambda: fit(p))
    stations, k = list(found["there"]), p["n_components"]
    regimes = [f"regime {number + 1}" for number in range(k)]
    medians, weights = np.array(found["medians"]), np.array(found["weights"])
    experiment.table(
        "regimes",
        (
            {
                "regime": number + 1,
                "weight": weights[number],
                "station": station,
                **dict(zip(POLLUTANTS, medians[number, s], strict=True)),
            }
            for number in range(k)
            for s, station in enumerate(stations)
        ),
    )
    experiment.table(
        "shares",
        (
            {"by": by, "value": value + (by == "month"), **dict(zip(regimes, counts, strict=True))}
            for by, rows in found["shares"].items()
            for value, counts in enumerate(rows)
        ),
    )
    experiment.table("stations", ({"station": s, "hours": found["there"][s], **found["alone"][s]} for s in stations))
    experiment.table("missing", ({"values_missing": n, "hours": count} for n, count in enumerate(found["missing"])))
    experiment.table("hours", ({"hours": name, "number": number} for name, number in found["hours"].items()))

    figure = Figure(figsize=(10.5, 7.0), layout="constrained")
    (place, heat), (month, cover) = figure.subplots(2, 2)
    graph = network(fetch_beijing_air().places, p["kilometres"])
    draw_network(place, graph, size=45)
    experiment.table("networks", links_of("stations", graph))
    for station in stations:
        aside, side = LABELS.get(station, ((5, 3), "left"))
        place.annotate(
            station, graph.nodes[station]["pos"], xytext=aside, textcoords="offset points", fontsize=7, ha=side
        )
    place.set_aspect(1 / np.cos(np.radians(40)))
    place.set_title(f"stations within {p['kilometres']:g} km are linked")
    overall = np.log(medians).mean(axis=1)
    spread = overall - (weights @ overall)
    most = np.abs(spread).max()
    image = heat.imshow(spread, cmap=above_and_below(), vmin=-most, vmax=most, aspect="auto")
    heat.set_xticks(range(6), POLLUTANTS)
    heat.set_yticks(range(k), [f"{name}, {weight:.0%}" for name, weight in zip(regimes, weights, strict=True)])
    for row in range(k):
        for column in range(6):
            colour = "#ffffff" if abs(spread[row, column]) > 0.6 * most else "#000000"
            value = f"{np.exp(overall[row, column]):.0f}"
            heat.text(column, row, value, ha="center", va="center", fontsize=8, color=colour)
    heat.set_title("medians, µg/m³; colour: log ratio to the average")
    figure.colorbar(image, ax=heat, label="blue: above the average, orange: below")
    shares = np.array(found["shares"]["month"], dtype=float)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
    below = np.zeros(12)
    for number in range(k):
        month.bar(range(1, 13), shares[:, number], bottom=below, color=COLOURS[number], label=regimes[number])
        below += shares[:, number]
    tidy(month, xlabel="month", ylabel="share of the hours", title="which hours are which regime")
    month.set_xticks(range(1, 13))
    month.legend(frameon=True, fontsize=7, ncols=k, loc="lower center")
    names = list(found["hours"])
    counts = [found["hours"][name] for name in names]
    cover.barh(range(len(names)), counts, color=COLOURS[6])
    cover.set_yticks(range(len(names)), names)
    cover.invert_yaxis()
    for place_number, count in enumerate(counts):
        cover.annotate(f" {count:,}", (count, place_number), va="center", fontsize=8)
    tidy(cover, xlabel="hours", title="hours with ...")
    cover.margins(x=0.18)
    cover.xaxis.set_major_locator(MaxNLocator(4))
    experiment.figure("air", figure)

    hours = found["hours"]
    more = hours["any value"] / hours["complete"]
    rand = [found["alone"][s]["rand"] for s in stations]
    sure = [found["alone"][s]["sure"] for s in stations]
    table = [
        {
            "regime": number + 1,
            "share": f"{weights[number]:.0%}",
            **{name: f"{np.exp(overall[number, c]):.0f}" for c, name in enumerate(POLLUTANTS)},
        }
        for number in range(k)
    ]
    winter = shares[[11, 0, 1]].mean(axis=0)
    summer = shares[[5, 6, 7]].mean(axis=0)
    experiment.page(f"""
# The air of Beijing

Twelve stations, six pollutants each on a log scale, hour by hour over four years; {graph.number_of_edges()} links between stations
within {p["kilometres"]:g} km and to the nearest ones. K={k}, {p["hops"]} hops, {PAPER_ROUNDS} rounds for each sum: no station sends a
measurement. {found["iterations"]} iterations, {"converged" if found["converged"] else "not converged"}, {found["repairs"]} repairs.

![air](air.svg)

**How many hours.** Of {hours["all"]:,} hours only {hours["complete"]:,} are complete. With gaps filled in by expectation and absent
stations left out of the sum, the model covers all {hours["any value"]:,} hours with a measurement at any station: {more:.2f} times
as many. Fitted to complete hours only, the regimes' shares would be {", ".join(f"{w:.0%}" for w in found["complete_weights"])} instead of
{", ".join(f"{w:.0%}" for w in weights)} (same labels on complete hours: adjusted Rand index {found["same_labels"]:.2f}).

**What the network learns.** The table shows each regime's medians at the stations, averaged on the log scale, in micrograms per cubic metre:

{markdown(table)}

Regimes are ordered from clean to polluted air, by PM2.5. The shares, averaged over the months, are in winter (December to February) {", ".join(f"{s:.0%}" for s in winter)}; in
summer {", ".join(f"{s:.0%}" for s in summer)}.

**What it learns together.** A station by itself, with the same K, finds other regimes: its labels agree with the network's by an
adjusted Rand index of {min(rand):.2f} to {max(rand):.2f}, and one regime has a probability above 95 % in {min(sure):.0%} to {max(sure):.0%} of its hours; in the network, in
{found["sure"]:.0%}. This large increase must be read with care: the model takes stations as independent given the regime,
and neighbouring stations are not.

Two roots' responsibilities differ by at most {found["disagreement"]:.1e}. A real network would have sent
{found["bytes"] / 1e9:.0f} GB.
""")


if __name__ == "__main__":
    main("air", run, FULL, QUICK)
