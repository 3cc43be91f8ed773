"""Figures of fits and networks."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx

from vpem.figures.style import COLOURS, STYLES, make_figure
from vpem.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_trajectories(trajectories: Mapping[str, Sequence[float]], title: str = "") -> Figure:
    """Plot the log-likelihood per row against iterations, with one curve for each method.

    Parameters
    ----------
    trajectories : mapping
        Name of the method to its `lower_bounds_`.
    title : str
    """
    from matplotlib.ticker import MaxNLocator

    figure = make_figure(6.4, 4.0)
    axes = figure.add_subplot()
    for number, (name, values) in enumerate(trajectories.items()):
        axes.plot(range(1, len(values) + 1), values, label=name, **STYLES[number % len(STYLES)])
    axes.set(xlabel="iteration", ylabel="log-likelihood per row", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def plot_selection(found: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot criteria against the number of components, with the smallest value of each marked.

    Parameters
    ----------
    found : sequence of mappings
        Mappings with the keys `components`, `bic`, `aic` and optionally `icl` and `held_out`. `held_out` is the
        log-likelihood per row of held-out rows, of which the largest is marked. Values are None for a number of
        components whose fit collapsed, which is drawn as a dotted line. At least one mapping must have numbers.
    """
    from matplotlib.ticker import MaxNLocator

    figure = make_figure(6.4, 4.0)
    axes = figure.add_subplot()
    sizes = [one["components"] for one in found]
    names = [name for name in ("bic", "aic", "icl", "held_out") if name in found[0]]
    for number, name in enumerate(names):
        values = [math.nan if one[name] is None else one[name] for one in found]
        look, is_held_out = STYLES[(2 * number) % len(STYLES)], name == "held_out"
        own = axes.twinx() if is_held_out else axes
        own.plot(sizes, values, label="held out" if is_held_out else name.upper(), marker=".", **look)
        there = (place for place, value in enumerate(values) if not math.isnan(value))
        best = (max if is_held_out else min)(there, key=values.__getitem__)
        own.scatter(sizes[best], values[best], color=look["color"], s=60, zorder=3)
        if is_held_out:
            own.set_ylabel("log-likelihood of held-out rows: the larger, the better")
            own.legend(frameon=False, loc="lower right")
    collapsed = [one["components"] for one in found if one["bic"] is None]
    for number, size in enumerate(collapsed):
        axes.axvline(size, color="#999999", linestyle=":", label="collapsed" if number == 0 else None)
    axes.set(xlabel="components", ylabel="criterion: the smaller, the better")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def draw_network(
    axes: Any,
    graph: nx.Graph,
    *,
    hubs: Sequence[tuple[Hashable, Sequence[Hashable]]] = (),
    names: bool = False,
    size: float = 60.0,
) -> None:
    """Draw agents and links, with hubs in colours and their roots as squares.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
    graph : networkx.Graph
        The attribute `pos` of the nodes gives their places; without it, a layout is computed.
    hubs : sequence of (root, members)
        Hubs, as in `VerticalGaussianMixture.hubs_`.
    names : bool
        True to write the agents' names into their markers.
    size : float
        Area of the markers, in points squared.
    """
    from matplotlib.collections import LineCollection

    places = nx.get_node_attributes(graph, "pos")
    if len(places) < len(graph):
        places = nx.kamada_kawai_layout(graph)
    links = [(places[one], places[other]) for one, other in graph.edges]
    axes.add_collection(LineCollection(links, colors="#999999", linewidths=0.5, zorder=1))
    colour_of = {
        member: COLOURS[number % len(COLOURS)] for number, (_, members) in enumerate(hubs) for member in members
    }
    roots = {root for root, members in hubs if len(members) > 1}
    for agent in graph:
        axes.scatter(
            *places[agent],
            s=size * (1.4 if agent in roots else 1.0),
            marker="s" if agent in roots else "o",
            color=colour_of.get(agent, "#56b4e9"),
            edgecolors="#000000",
            linewidths=0.6,
            zorder=2,
        )
        if names:
            axes.annotate(str(agent), places[agent], ha="center", va="center", fontsize=8, zorder=3)
    axes.set_aspect("equal")
    axes.margins(0.08)
    axes.axis("off")


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 150) -> None:
    """Write a figure to a file, which is replaced atomically; its ending gives the format, by default PNG.

    SVG output is deterministic: the same figure gives the same bytes.
    """
    from matplotlib import rc_context

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished, rc_context({"svg.hashsalt": "vpem", "svg.fonttype": "none"}):
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(unfinished, dpi=dpi, metadata=metadata, format=path.suffix[1:] or "png")
