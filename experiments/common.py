"""What every experiment needs: steps that are kept, tables, figures, a page."""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import PowerTransformer

from vpem import Consensus, FitWarning, VerticalGaussianMixture
from vpem.datasets import fetch_beijing_air
from vpem.figures import STYLES, save_figure

ROOT = Path(__file__).parent
RESULTS = ROOT / "results"
BUILD = ROOT.parent / "build" / "experiments"

PAPER_ROUNDS = 100
"""Rounds of consensus for each sum, throughout the paper."""


class Experiment:
    """One run: parameters, steps that survive an interruption, and a folder of results.

    A step's result is written down as soon as it is there. When the same experiment is started again with the same
    parameters, finished steps are not done again.
    """

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, Any],
        *,
        quick: bool,
        fresh: bool = False,
        out: str | os.PathLike[str] | None = None,
    ):
        self.name, self.parameters, self.quick = name, dict(parameters), quick
        if out is None:
            self.folder = BUILD / f"{name}-quick" if quick else RESULTS / name
            self.journal = BUILD / f"{name}{'-quick' if quick else ''}.jsonl"
        else:
            self.folder, self.journal = Path(out) / name, Path(out) / f"{name}.jsonl"
        text = json.dumps(self.parameters, sort_keys=True, default=str)
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()[:12]
        if fresh:
            self.journal.unlink(missing_ok=True)
        self.done = self._read()
        self.started = time.monotonic()

    def _read(self) -> dict[str, Any]:
        done = {}
        lines = self.journal.read_text().splitlines() if self.journal.is_file() else []
        for line in lines:
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:  # the run was killed while it wrote
                continue
            if entry["parameters"] == self.fingerprint:
                done[entry["step"]] = entry["result"]
        return done

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        """Result of some work, numbers and lists only; from the last run if that got so far."""
        if name in self.done:
            print(f"  {name}: kept from the last run", flush=True)
            return self.done[name]
        print(f"  {name} ...", end=" ", flush=True)
        start = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a fixed number of iterations is meant
            warnings.simplefilter("ignore", FitWarning)  # and bad fits are shown
            result = json.loads(json.dumps(work(), default=_plain))
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        with self.journal.open("a") as file:
            # On a line of its own, even after one that was cut off.
            file.write("\n" + json.dumps({"parameters": self.fingerprint, "step": name, "result": result}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.done[name] = result
        print(f"{time.monotonic() - start:.1f} s", flush=True)
        return result

    def table(self, name: str, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Write rows as CSV, whole or not at all."""
        rows = [dict(row) for row in rows]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f".{os.getpid()}-{name}.csv"
        with unfinished.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows({key: _short(value) for key, value in row.items()} for row in rows)
        unfinished.replace(self.folder / f"{name}.csv")
        return rows

    def figure(self, name: str, figure: Figure, dpi: int = 130) -> None:
        """Write a figure as SVG and as PNG."""
        for ending in ("svg", "png"):
            save_figure(figure, self.folder / f"{name}.{ending}", dpi=dpi)

    def page(self, text: str) -> None:
        """Write the page of what was found."""
        note = "\n\n*A quick run, of smaller data: its numbers mean little.*" if self.quick else ""
        lines = "\n".join(f"- {name}: {_shown(value)}" for name, value in self.parameters.items())
        whole = f"{text.strip()}{note}\n\nParameters (`python -m experiments.{self.name}`):\n\n{lines}\n"
        unfinished = self.folder / f".{os.getpid()}-page"
        unfinished.write_text(whole)
        unfinished.replace(self.folder / "README.md")
        print(f"{self.name}: {self.folder / 'README.md'} ({time.monotonic() - self.started:.0f} s)")


def main(name: str, run: Callable[[Experiment], None], full: Mapping[str, Any], quick: Mapping[str, Any]) -> None:
    """Command line of one experiment."""
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{name}", description=sys.modules[run.__module__].__doc__
    )
    parser.add_argument("--quick", action="store_true", help="smaller, in less than a minute; results to build/")
    parser.add_argument("--fresh", action="store_true", help="do not go on from an interrupted run")
    parser.add_argument("--out", metavar="FOLDER", help="where results go, and the steps that are done")
    options = parser.parse_args()
    parameters = {**full, **quick} if options.quick else full
    experiment = Experiment(name, parameters, quick=options.quick, fresh=options.fresh, out=options.out)
    print(f"{name}{' (quick)' if options.quick else ''}", flush=True)
    try:
        run(experiment)
    except KeyboardInterrupt:
        print(f"\ninterrupted; finished steps are in {experiment.journal}, start again to go on")
        raise SystemExit(130) from None
    except OSError as error:  # data that cannot be had, a disk that is full
        raise SystemExit(f"\nerror: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"expected numbers, lists and texts as a step's result, got {type(value).__name__}")


def _short(value: Any) -> Any:
    return f"{value:.10g}" if isinstance(value, float) else value


def _shown(value: Any) -> str:
    return ", ".join(map(_shown, value)) if isinstance(value, list | tuple | range) else f"{value}"


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table."""
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *([row[column] for column in columns] for row in rows)]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def links_of(name: str, graph: nx.Graph, hubs: Iterable[tuple[Any, Iterable[Any]]] = ()) -> list[dict[str, Any]]:
    """A drawn network as rows: its links, where their ends are, and whose hub an agent is in."""
    root_of = {member: root for root, members in hubs for member in members}
    places = nx.get_node_attributes(graph, "pos")
    return [
        {
            "network": name,
            "agent": one,
            "neighbour": other,
            **(
                {"x": places[one][0], "y": places[one][1], "x2": places[other][0], "y2": places[other][1]}
                if places
                else {}
            ),
            **({"root": root_of[one], "root2": root_of[other]} if root_of else {}),
        }
        for one, other in graph.edges
    ]


def metropolis(graph: nx.Graph) -> np.ndarray:
    """Weights of one round, written down once more: the largest other eigenvalue is the theory's rate."""
    W = np.zeros((len(graph), len(graph)))
    for one, other in graph.edges:
        W[one, other] = W[other, one] = 1 / (1 + max(graph.degree[one], graph.degree[other]))
    np.fill_diagonal(W, 1 - W.sum(axis=1))
    return W


def mean_and_range(values: Sequence[float], digits: int = 1) -> str:
    """As "85.6 (85.1 to 88.3)"."""
    return f"{np.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def tidy(axes: Axes, **settings: Any) -> None:
    """The common look."""
    axes.set(**settings)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def style(number: int) -> dict[str, Any]:
    """Line style of a curve, by its number."""
    return dict(STYLES[number % len(STYLES)])


# Three ways to fit from one start

METHODS = ("EM", "block-diagonal EM", "VP-EM")


def common_start(X: np.ndarray, n_components: int, rng: np.random.Generator) -> dict[str, Any]:
    """Random rows as means, all columns' own variances, equal weights: what everybody can begin with."""
    return {
        "weights": np.full(n_components, 1 / n_components),
        "means": X[rng.choice(len(X), n_components, replace=False)],
        "precisions": 1 / X.var(axis=0),
    }


def centralized_em(X: np.ndarray, start: Mapping[str, Any], **settings: Any) -> GaussianMixture:
    """Scikit-learn's EM with full covariances, from a common start."""
    k = len(start["weights"])
    return GaussianMixture(
        k,
        weights_init=start["weights"],
        means_init=start["means"],
        precisions_init=np.array([np.diag(start["precisions"])] * k),
        init_params="random_from_data",
        random_state=0,
        **settings,
    ).fit(X)


def vertical_em(
    X: np.ndarray, start: Mapping[str, Any], graph: Any = "star", **settings: Any
) -> VerticalGaussianMixture:
    """Ours with one agent per column, from a common start; on a star this is block-diagonal EM."""
    k = len(start["weights"])
    return VerticalGaussianMixture(
        k,
        graph=graph,
        summation=None if graph == "star" else Consensus(PAPER_ROUNDS),
        weights_init=start["weights"],
        means_init=start["means"],
        precisions_init=[np.full((k, 1, 1), precision) for precision in start["precisions"]],
        random_state=0,
        **settings,
    ).fit(X)


# The stand-in for the paper's queues

QUEUE_FEATURES = ("hour", "weekday", "temperature", "wind speed", "PM2.5 (Yeo-Johnson)")


@cache
def queue_stand_in(n_rows: int, station: str, seed: int) -> np.ndarray:
    """Complete hours of one station of Beijing, in place of the paper's data, which are not public."""
    air = fetch_beijing_air()
    number = list(air.partition).index(station)
    days = air.time.astype("datetime64[D]").astype(int)
    table = np.column_stack(
        [
            (air.time - air.time.astype("datetime64[D]")).astype(int),
            (days + 3) % 7,  # the first of January 1970 was a Thursday; Monday is 0
            air.weather[:, number, air.weather_names.index("TEMP")],
            air.weather[:, number, air.weather_names.index("WSPM")],
            air.data[:, air.partition[station][0]],
        ]
    ).astype(float)
    complete = table[~np.isnan(table).any(axis=1)]
    rows = np.random.default_rng(seed).choice(len(complete), n_rows, replace=False)
    pool = complete[np.sort(rows)]
    pool[:, 4:] = PowerTransformer(method="yeo-johnson").fit_transform(pool[:, 4:])
    return pool
