"""Figures of fits and clusters, made with matplotlib (`pip install vpem[figures]`).

matplotlib is imported when the first figure is made.
"""

from vpem.figures.cluster_figures import (
    plot_certainty,
    plot_classes,
    plot_confusion,
    plot_features,
    plot_importance,
    plot_profiles,
)
from vpem.figures.fits import draw_network, plot_selection, plot_trajectories, save_figure
from vpem.figures.style import COLOURS, STYLES, above_and_below

__all__ = [
    "COLOURS",
    "STYLES",
    "above_and_below",
    "draw_network",
    "plot_certainty",
    "plot_classes",
    "plot_confusion",
    "plot_features",
    "plot_importance",
    "plot_profiles",
    "plot_selection",
    "plot_trajectories",
    "save_figure",
]
