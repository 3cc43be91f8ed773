"""Colours, and figures that notebooks display."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct under any colour vision; widths and dashes keep equal curves visible.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "linestyle": "-", "linewidth": 1.5},
    {"color": "#56b4e9", "linestyle": "-", "linewidth": 5.0},
    {"color": "#d55e00", "linestyle": "--", "linewidth": 1.8},
    {"color": "#009e73", "linestyle": "-.", "linewidth": 1.8},
    {"color": "#cc79a7", "linestyle": ":", "linewidth": 2.2},
)
COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#d55e00", "#0072b2", "#999999")
"""Colours of areas and markers, by the same authors."""


ABOVE, BELOW = "#0072b2", "#d55e00"
"""Colours for values above and below everyone's: blue and orange, as in the report."""


def above_and_below() -> Any:
    """Return a colour map from orange (below everyone) through white to blue (above everyone)."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("above and below", [BELOW, "#ffffff", ABOVE])


@cache
def _figure_class() -> Any:
    """Return a figure class that notebooks display without `pyplot`; matplotlib is imported on the first call."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            content = io.BytesIO()
            self.savefig(content, format="png", dpi=110)
            return content.getvalue()

    return ShownFigure


def make_figure(width: float, height: float) -> Figure:
    """Create an empty figure of this size in inches."""
    figure: Figure = _figure_class()(figsize=(width, height), layout="constrained")
    return figure
