"""Figures of fits, made with matplotlib (`pip install vpem[figures]`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Okabe and Ito's colours, told apart with any colour vision; widths and dashes keep equal curves visible.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "linestyle": "-", "linewidth": 1.5},
    {"color": "#56b4e9", "linestyle": "-", "linewidth": 5.0},
    {"color": "#d55e00", "linestyle": "--", "linewidth": 1.8},
    {"color": "#009e73", "linestyle": "-.", "linewidth": 1.8},
    {"color": "#cc79a7", "linestyle": ":", "linewidth": 2.2},
)


def plot_trajectories(trajectories: Mapping[str, Sequence[float]], title: str = "") -> Figure:
    """Log-likelihood per row against iterations, one curve for each method.

    Parameters
    ----------
    trajectories : mapping
        Name of the method to its `lower_bounds_`.
    title : str
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, values) in enumerate(trajectories.items()):
        axes.plot(range(1, len(values) + 1), values, label=name, **STYLES[number % len(STYLES)])
    axes.set(xlabel="iteration", ylabel="log-likelihood per row", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure to a file, whole or not at all; the ending of its name chooses the format."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        figure.savefig(unfinished, dpi=150)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
