"""How many bytes a whole fit takes, its start included, until the certificate holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from matplotlib.figure import Figure

from experiments.air import network
from experiments.common import PAPER_ROUNDS, Experiment, main, markdown, queue_stand_in, tidy
from experiments.pulsar import GRAPHS
from vpem import Consensus, Differences, Tree, VerticalGaussianMixture
from vpem.datasets import fetch_beijing_air, fetch_htru2, make_vertical_blobs, random_geometric_graph
from vpem.figures import COLOURS

LEAST_SHOWN = 1e-7
"""Of differences of likelihoods in the figure: as many digits as the table has."""

HELD = 1e-6
"""What one more exact step may gain, and how far the parties' responsibilities may differ."""

AUTO = "consensus, auto, labels"

WAYS: dict[str, dict[str, Any]] = {
    "the paper's": {"summation": Consensus(PAPER_ROUNDS), "init_params": "kmeans"},
    "consensus, as many rounds as needed": {"summation": Consensus(), "init_params": "kmeans"},
    AUTO: {"summation": Consensus("auto"), "init_params": "labels"},
    "tree": {"summation": Tree(), "init_params": "kmeans"},
    "differences, labels": {"summation": Differences(Tree()), "init_params": "labels"},
    "differences, labels, squarem": {
        "summation": Differences(Tree()),
        "init_params": "labels",
        "accelerate": "squarem",
    },
}
FULL = {
    "cases": [
        *(f"ring of 5, K={k}" for k in (2, 3)),
        *(f"pulsars, {graph}, K={k}" for graph in ("ring of 8", "geometric", "scale-free") for k in (2, 3)),
        "Beijing, 12 stations, K=4",
        *(f"100 agents, degree {degree}, K={k}" for degree in (9.7, 31) for k in (2, 3)),
    ],
    "ways": list(WAYS),
    "starts": 20,
    "tols": [1e-3, 1e-4, 1e-5, 1e-6, 1e-7],
    "tols of": {AUTO: [1e-5, 1e-6, 1e-7, 1e-8]},
    "max_iter": 1000,
}
QUICK = {"cases": ["ring of 5, K=3"], "starts": 2, "tols": [1e-3, 1e-5, 1e-7]}


class Case(NamedTuple):
    """A table, its parties, links for each draw, and the number of components."""

    X: np.ndarray
    partition: Any
    graph: Callable[[int], nx.Graph]
    n_components: int


def standardized(X: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and deviation 1; gaps stay."""
    return (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)


def ring(n_components: int) -> Case:
    """Five parties of one column: the stand-in of the paper's data."""
    X = standardized(queue_stand_in(630, "Dongsi", seed=0))
    return Case(X, None, lambda _: nx.cycle_graph(5), n_components)


def pulsars(graph: str, n_components: int) -> Case:
    """Eight parties of one column."""
    links = GRAPHS["cycle" if graph == "ring of 8" else graph]
    return Case(standardized(fetch_htru2().data), None, links, n_components)


def beijing() -> Case:
    """All hours at twelve stations of six pollutants, gaps included; stations within 25 km are linked."""
    air = fetch_beijing_air()
    links = network(air.places, 25.0)
    return Case(standardized(np.log1p(air.data)), air.partition, lambda _: links, 4)


def hundred(degree: str, n_components: int) -> Case:
    """A hundred parties of one column each, in groups that overlap in every column."""
    X = make_vertical_blobs(10_000, 100, 1, n_components, separation=0.5, random_state=0).data
    return Case(standardized(X), None, lambda seed: random_geometric_graph(100, float(degree), seed), n_components)


@cache
def load(name: str) -> Case:
    """A case by its name: data, network, K."""
    data, *details, components = name.split(", ")
    n_components = int(components.removeprefix("K="))
    if data == "pulsars":
        return pulsars(details[0], n_components)
    if data == "100 agents":
        return hundred(details[0].removeprefix("degree "), n_components)
    return beijing() if data == "Beijing" else ring(n_components)


def one_start(p: dict[str, Any], case: Case, way: str, seed: int) -> list[dict[str, Any]]:
    """Fits with a smaller and smaller `tol`, until the certificate holds."""
    found = []
    for tol in p["tols of"].get(way, p["tols"]):
        model = VerticalGaussianMixture(
            case.n_components,
            partition=case.partition,
            graph=case.graph(seed),
            tol=tol,
            max_iter=p["max_iter"],
            random_state=seed,
            **WAYS[way],
        ).fit(case.X)
        certificate = model.certificate_
        found.append(
            {
                "seed": seed,
                "tol": tol,
                "tables": model.traffic_.bytes / case.X.size / 8,
                "rounds": model.traffic_.rounds,
                "iterations": model.n_iter_,
                "gain": certificate.gain,
                "disagreement": certificate.disagreement,
                "log_likelihood": model.log_likelihood_,
                "held": bool(certificate.gain <= HELD and certificate.disagreement <= HELD),
            }
        )
        if found[-1]["held"]:
            break
    return found


def shortened(value: Any) -> Any:
    """As many digits as the file has room for."""
    return float(f"{value:.3g}" if abs(value) < 1e-2 else f"{value:.8g}") if isinstance(value, float) else value


def summary(case: str, found: dict[str, list[list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """One row for each way: medians over the starts whose certificate held."""
    paper = [runs[-1]["tables"] for runs in found["the paper's"]] if "the paper's" in found else []
    rows = []
    for way, starts in found.items():
        last = [runs[-1] for runs in starts]
        held = [one for one in last if one["held"]]
        row: dict[str, Any] = {"data and network": case, "way": way, "held": f"{len(held)} of {len(last)}"}
        if held:
            tables = [one["tables"] for one in held]
            row |= {
                "tables": f"{np.median(tables):,.2f} ({min(tables):,.2f} to {max(tables):,.2f})",
                "less than the paper": f"{np.median(paper) / np.median(tables):,.0f}x" if paper else "",
                "iterations": f"{np.median([one['iterations'] for one in held]):.0f}",
                "rounds": f"{np.median([one['rounds'] for one in held]):,.0f}",
                "log-lik./row": f"{np.mean([one['log_likelihood'] for one in held]):.4f}",
            }
        else:
            least = min(one["gain"] for one in last), min(one["disagreement"] for one in last)
            row |= {"tables": f"never (gain {least[0]:.0e}, disagreement {least[1]:.0e} at best)"}
            row |= {"less than the paper": "", "iterations": "", "rounds": "", "log-lik./row": ""}
        rows.append(row)
    return rows


def paired(found: dict[str, dict[str, list[list[dict[str, Any]]]]]) -> list[dict[str, Any]]:
    """Accelerated fits beside plain ones from the same starts."""
    rows = []
    for case, ways in found.items():
        pairs = [
            (plain[-1], fast[-1])
            for plain, fast in zip(ways["differences, labels"], ways["differences, labels, squarem"], strict=True)
            if plain[-1]["held"] and fast[-1]["held"]
        ]
        gains = np.array([fast["log_likelihood"] - plain["log_likelihood"] for plain, fast in pairs])
        ratios = [fast["tables"] / plain["tables"] for plain, fast in pairs]
        steps = [np.median([one[which]["iterations"] for one in pairs]) for which in (0, 1)]
        rows.append(
            {
                "data and network": case,
                "pairs": len(pairs),
                "better": int((gains > 1e-5).sum()),
                "worse": int((gains < -1e-5).sum()),
                "mean gain per row": f"{gains.mean():+.4f}" if pairs else "",
                "iterations": f"{steps[0]:.0f} / {steps[1]:.0f}" if pairs else "",
                "bytes": f"{np.median(ratios):.2f}x" if pairs else "",
            }
        )
    return rows


def run(experiment: Experiment) -> None:
    """All cases and ways; a table, a frontier and a page."""
    p = experiment.parameters
    found = {
        name: {
            way: experiment.step(
                f"{name}, {way}",
                lambda n=name, w=way: [one_start(p, load(n), w, seed) for seed in range(p["starts"])],
            )
            for way in p["ways"]
        }
        for name in p["cases"]
    }
    for table, chosen in (("thrift", slice(-1, None)), ("before", slice(0, -1))):
        experiment.table(
            table,
            (
                {"case": name, "way": way, **{key: shortened(value) for key, value in one.items()}}
                for name, ways in found.items()
                for way, starts in ways.items()
                for runs in starts
                for one in runs[chosen]
            ),
        )
    experiment.figure("frontier", frontier(found))
    rows = [row for name, ways in found.items() for row in summary(name, ways)]
    experiment.page(f"""
# Bytes of a whole fit

The traffic of a fit, start included, until the certificate holds: one more exact step gains at most 1e-6 per row, and the parties'
responsibilities differ by at most 1e-6. The unit is a table: the number of times that the whole float64 table could have been
sent instead. `tol` is lowered tenfold, from {p["tols"][0]:g} to {p["tols"][-1]:g}, until the certificate holds; only the last fit counts, as if its
`tol` had been known. For `Consensus("auto")`, whose parties agree better the longer EM continues, it is lowered from {p["tols of"][AUTO][0]:g} to {p["tols of"][AUTO][-1]:g}.
Medians over {p["starts"]} starts (and as many graphs, where these are drawn), with the range. "Less than the paper" compares
with what the paper's {PAPER_ROUNDS} rounds send until the same or, where their certificate never holds, with the smallest `tol`.
`thrift.csv` has these fits, `before.csv` those with a larger `tol`.

{markdown(rows)}

![frontier](frontier.svg)

A point shows the medians of all fits with one `tol`; for smaller values, only of the starts whose certificate did not hold
before. Values below {LEAST_SHOWN:g} are shown as this value.

Beijing has all hours, gaps included. The ring of five has the stand-in of the paper's data. The hundred agents hold one
column each of 10,000 drawn rows. Log-likelihoods are means over the starts, so starts that end in another optimum affect them.

## Acceleration, start by start

`accelerate="squarem"` is compared with plain EM from the same start, both with `Differences(Tree())` and until the certificate holds.
A result counts as better or worse if the log-likelihoods differ by more than 1e-5 per row.

{markdown(paired(found))}
""")


def frontier(found: dict[str, dict[str, list[list[dict[str, Any]]]]]) -> Figure:
    """Bytes against what is missing to the best fit, for each `tol`."""
    name = next((name for name in found if name.startswith("pulsars")), next(iter(found)))
    figure = Figure(figsize=(7, 4.8), layout="constrained")
    axes = figure.subplots()
    best = max(one["log_likelihood"] for starts in found[name].values() for runs in starts for one in runs)
    for number, (way, starts) in enumerate(found[name].items()):
        points: dict[float, list[tuple[float, float]]] = {}
        for runs in starts:
            for one in runs:
                points.setdefault(one["tol"], []).append((one["tables"], best - one["log_likelihood"]))
        line = np.array([np.median(own, axis=0) for own in points.values()])
        axes.plot(line[:, 0], np.maximum(line[:, 1], LEAST_SHOWN), "o-", color=COLOURS[-1 - number], label=way)
    axes.set_xscale("log")
    axes.set_yscale("log")
    tidy(axes, xlabel="tables sent", ylabel="log-likelihood per row, below the best", title=name)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


if __name__ == "__main__":
    main("thrift", run, FULL, QUICK)
