"""What repeated sums reveal: one party against the total of the others, over whole fits under masks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.common import Experiment, main, markdown, style, tidy
from vpem import Masked, Star, VerticalGaussianMixture
from vpem.extend import Memory, Place, SumKind

FULL = {
    "n_samples": 4_000,
    "n_components": 3,
    "parties": [3, 5, 10],
    "columns": [1, 4],
    "sums": [1, 2, 5, 10, 20, 40],
    "max_iter": 40,
    "draws": 5,
    "separation": 2.0,
}
QUICK = {"n_samples": 600, "parties": [3, 5], "sums": [1, 5, 10], "max_iter": 10, "draws": 1}


@dataclass(frozen=True)
class Watched(Masked):
    """Masked sums that note what the first party has, and nothing else."""

    notes: list[np.ndarray] = field(default_factory=list, compare=False, repr=False)

    def begin(self, place: Place, carry: Memory, term: Any) -> Memory:
        """Note the first party's own term."""
        if place.position == 0 and place.series.kind is SumKind.ITERATE:
            self.notes.append(np.array(term[: place.shape.n_rows * place.shape.width]))
        return super().begin(place, carry, term)

    def end(self, place: Place, state: Memory) -> Any:
        """And what is left of the total without it, as log-ratios against the first component."""
        values, carry = super().end(place, state)
        if place.position == 0 and place.series.kind is SumKind.ITERATE:
            shape = place.shape.n_rows, place.shape.width
            others = values[: shape[0] * shape[1]].reshape(shape) - self.notes[-1].reshape(shape)
            self.notes[-1] = others[:, 1:] - others[:, :1]
        return values, carry


def draw(p: dict[str, Any], n_parties: int, n_columns: int, seed: int) -> np.ndarray:
    """Groups that differ in their means and shapes, independent between parties within a group."""
    rng = np.random.default_rng([seed, n_parties, n_columns])
    groups = rng.integers(p["n_components"], size=p["n_samples"])
    parts = []
    for _ in range(n_parties):
        mixing = rng.normal(size=(p["n_components"], n_columns, n_columns)) / np.sqrt(n_columns)
        means = p["separation"] * rng.normal(size=(p["n_components"], n_columns)) / np.sqrt(n_parties)
        noise = rng.normal(size=(p["n_samples"], n_columns))
        parts.append(means[groups] + np.einsum("mc,mcd->md", noise, mixing[groups]))
    return np.hstack(parts)


def r_squared(seen: np.ndarray, column: np.ndarray) -> float:
    """Share of a column that a linear regression explains in rows that it was not fitted to; 0 if none."""
    design = np.column_stack([np.ones(len(column)), seen / seen.std(axis=0).clip(1e-12)])
    half = len(column) // 2
    coefficients = np.linalg.lstsq(design[:half], column[:half], rcond=1e-9)[0]
    left = column[half:] - design[half:] @ coefficients
    return max(0.0, 1.0 - left.var() / column[half:].var())


def attack(p: dict[str, Any], n_parties: int, n_columns: int, seed: int) -> dict[str, Any]:
    """R^2 of the second party's columns, from the first's view of the first sums of a fit."""
    X = draw(p, n_parties, n_columns, seed)
    columns = {f"p{n}": list(range(n * n_columns, (n + 1) * n_columns)) for n in range(n_parties)}
    way = Watched(Star())
    settings = {"init_params": "random", "max_iter": p["max_iter"], "tol": 0.0, "random_state": seed}
    model = VerticalGaussianMixture(p["n_components"], partition=columns, summation=way, **settings).fit(X)
    target = X[:, columns["p1"]]

    def best(seen: np.ndarray) -> list[float]:
        found = [r_squared(seen, target[:, column]) for column in range(n_columns)]
        return [min(found), max(found)]

    known = np.clip(model.predict_proba(X), 1e-12, 1.0)
    return {
        "sums": {str(n): best(np.hstack(way.notes[:n])) for n in p["sums"]},
        "responsibilities": best(np.hstack([known[:, 1:], np.log(known)])),
    }


def run(experiment: Experiment) -> None:
    """All numbers of parties and columns, figure, page."""
    p = experiment.parameters
    cases = [(n, d) for d in p["columns"] for n in p["parties"]]
    found = {
        (n, d): [
            experiment.step(f"{n} parties, {d} columns, draw {s}", lambda n=n, d=d, s=s: attack(p, n, d, s))
            for s in range(p["draws"])
        ]
        for n, d in cases
    }
    experiment.table(
        "sums",
        (
            {"parties": n, "columns": d, "draw": s, "sums": count, "worst": low, "best": high}
            for (n, d), draws in found.items()
            for s, one in enumerate(draws)
            for count, (low, high) in [*one["sums"].items(), ("responsibilities", one["responsibilities"])]
        ),
    )
    figure = Figure(figsize=(8.6, 3.4), layout="constrained")
    axes = figure.subplots(1, len(p["columns"]), sharey=True, squeeze=False)[0]
    for axis, d in zip(axes, p["columns"], strict=True):
        for number, n in enumerate(p["parties"]):
            values = [np.mean([one["sums"][str(count)][1] for one in found[n, d]]) for count in p["sums"]]
            axis.plot(p["sums"], values, marker="o", label=f"{n} parties", **style(number))
        tidy(axis, xlabel="sums that were seen", ylabel="R²" if d == p["columns"][0] else "")
        axis.set_title(f"{d} column{'s' if d > 1 else ''} each", fontsize=10)
        axis.set_xscale("log")
        axis.set_ylim(0, 1)
    axes[0].legend(frameon=False)
    experiment.figure("sums", figure)

    def shown(pairs: list[list[float]]) -> str:
        low, high = np.mean([pair[0] for pair in pairs]), np.mean([pair[1] for pair in pairs])
        return f"{high:.2f}" if abs(high - low) < 0.005 else f"{low:.2f} to {high:.2f}"

    first, last = str(p["sums"][0]), str(p["sums"][-1])
    table = [
        {
            "parties": n,
            "columns each": d,
            "the last responsibilities alone": shown([one["responsibilities"] for one in found[n, d]]),
            "1 sum": shown([one["sums"][first] for one in found[n, d]]),
            f"{last} sums": shown([one["sums"][last] for one in found[n, d]]),
        }
        for n, d in cases
    ]
    experiment.page(f"""
# What repeated sums reveal

Under masks every party sees the total of all terms in every iteration, and can subtract its own. This experiment measures what the
total of the *others* reveals about one of them. A linear regression of that party's columns on the log-ratios of the others is
fitted to half of the rows. The table shows R^2 in the other half ({p["n_samples"]:,} rows, {p["n_components"]} components, means of {p["draws"]} draws; the worst and the best column).
The attacker knows the columns of half of the rows; with fewer known rows, it recovers no more than this.

![sums](sums.svg)

{markdown(table)}

Parties are independent within a component here, as the model assumes. The responsibilities alone show what a participant of any
clustering learns: the group of a row contains information about its values. The sums reveal more: in every iteration a party's columns
have other weights in the total, and each sum is another equation for the same row.

**R^2 is lower** with more parties, more columns for each, or fewer sums (a larger `tol`, `accelerate="squarem"`, few starts).
""")


if __name__ == "__main__":
    main("sums", run, FULL, QUICK)
