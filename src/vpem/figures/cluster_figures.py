"""Figures of the clusters: matplotlib figures that notebooks display without `pyplot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vpem.figures.style import ABOVE, BELOW, COLOURS, above_and_below, make_figure
from vpem.meaning import entropy, short_number, verdict_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vpem.model.fitted import Fitted

MOST_COLUMNS = 40
"""Maximum number of columns in a figure."""
MOST_DOTS = 5000
"""Maximum number of rows in a figure."""
MOST_CATEGORIES = 20
"""Maximum number of categories of a column in a figure; the most common ones are shown."""
LEAST_SHARE = 0.005
"""Smallest share of a category in a component for which a dot is drawn."""
LARGEST_DOT = 220.0
"""Area of a dot for a share of 1, in points squared."""
MOST_CELLS = 16
"""Maximum number of components for which cells have numbers."""


def plot_profiles(model: Any, max_columns: int = MOST_COLUMNS) -> Figure:
    """Plot profiles of the components as a heat map of means, coloured by the distance from everyone.

    Means are in the columns' units. Blue is above everyone and orange below, as in the report. For a column of
    categories, a cell shows the category whose share is farthest above everyone's.

    Parameters
    ----------
    model : VerticalMixture
        Fitted.
    max_columns : int, default=40
        Maximum number of columns; the most informative ones are shown.
    """
    from matplotlib.colors import Normalize

    fitted = model.fitted_
    found = fitted.profile
    n_components, n_features = found.means.shape
    shown = np.arange(n_features)
    if n_features > max_columns:
        nats = np.array([one.nats for one in fitted.column_information])
        shown = np.argsort(-nats, kind="stable")[:max_columns]
    distances = found.distances[:, shown].T
    limit = float(np.clip(np.abs(distances).max(), 0.5, 3.0))
    names, labels = _long_names(fitted), fitted.coding.labels
    widest = max(len(names[column]) for column in shown)
    figure = make_figure(max(4.0, 1.6 + 0.075 * widest + 0.75 * n_components), max(3.0, 1.7 + 0.26 * len(shown)))
    axes = figure.add_subplot()
    image = axes.imshow(distances, cmap=above_and_below(), norm=Normalize(-limit, limit), aspect="auto")
    for row, column in enumerate(shown) if n_components <= MOST_CELLS else ():
        for k in range(n_components):
            colour = "white" if abs(distances[row, k]) > 0.65 * limit else "black"
            is_number = column not in found.categories
            text = short_number(found.means[k, column]) if is_number else found.text(k, int(column), labels)
            axes.text(k, row, text, ha="center", va="center", fontsize=7, color=colour)
    axes.set_yticks(range(len(shown)), [names[column] for column in shown], fontsize=8)
    _name_components(axes.xaxis, found.shares)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(
        image, ax=axes, label="distance in deviations of everyone", shrink=min(1.0, 12 / len(shown))
    )
    bar.ax.set_title("blue: above\neveryone", fontsize=8, color=ABOVE)
    bar.ax.set_xlabel("orange:\nbelow", fontsize=8, color=BELOW)
    some = f"means of the {len(shown)} most informative of {n_features} columns"
    axes.set_title("means of the components" if len(shown) == n_features else some, fontsize=10)
    return figure


def plot_importance(model: Any, max_columns: int = MOST_COLUMNS) -> Figure:
    """Plot the information of columns and of parties about the component, in nats, with its maximum.

    Parameters
    ----------
    model : VerticalMixture
        Fitted.
    max_columns : int, default=40
        Maximum number of columns, and of parties.
    """
    fitted = model.fitted_
    most, known = entropy(fitted.weights), list(map(str, fitted.partition))
    of_columns, of_parties = fitted.column_information, fitted.party_information
    single = all(len(held) == 1 for held in fitted.partition.values())
    is_plain = single or len(known) > len(COLOURS)  # otherwise parties would share colours
    colour_of = {party: COLOURS[0 if is_plain else number] for number, party in enumerate(known)}
    panels = [("columns", of_columns, _long_names(fitted), [colour_of[party] for party in fitted.party_of_column])]
    if not single:
        panels.append(("parties", of_parties, known, [colour_of[party] for party in known]))
    lengths = [min(len(found), max_columns) for _, found, *_ in panels]
    longest, rest = max(lengths), max(lengths) - lengths[-1]
    figure = make_figure(5.0 * len(panels), max(1.3 + 0.24 * longest, 2.2))
    # There are often few parties, so their panel is only as high as its bars.
    grid = figure.add_gridspec(2, len(panels), height_ratios=[longest - rest + 2, max(rest - 2, 0.01)])
    for number, (title, found, labels, colours) in enumerate(panels):
        axes = figure.add_subplot(grid[0 if number and rest > 6 else slice(None), number])
        order = sorted(range(len(found)), key=lambda place: -found[place].nats)[:max_columns]
        errors = [2 * found[place].error for place in order]
        axes.barh(
            range(len(order)),
            [found[place].nats for place in order],
            color=[colours[place] for place in order],
            xerr=errors if any(errors) else None,
        )
        axes.axvline(most, color="#000000", linestyle=":", linewidth=1)
        axes.set_yticks(range(len(order)), [labels[place] for place in order], fontsize=8)
        axes.set_ylim(max(len(order), longest if rest <= 6 else 0) - 0.5, -0.5)
        axes.set_xlim(0, 1.05 * most if most > 0 else 1)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("nats about the component (dotted: all there is)", fontsize=8)
        axes.set_title(f"{len(order)} of {len(found)} {title}" if len(order) < len(found) else title, fontsize=10)
    return figure


def plot_certainty(model: Any, X: ArrayLike) -> Figure:
    """Plot a histogram of each row's largest component probability under the model.

    A wrong model can be as certain as a right one, so the title gives the verdict on the fit.

    Parameters
    ----------
    model : VerticalMixture
        Fitted.
    X : array-like of shape (n_samples, n_features)
    """
    found = model.certainty(X)
    figure = make_figure(6.4, 3.6)
    axes, below = figure.add_subplot(), np.zeros(len(found.edges) - 1)
    used = found.counts.sum(axis=0) > 0
    for k, own in enumerate(found.counts):
        look = {"color": COLOURS[k % len(COLOURS)], "hatch": ("", "///", "...")[k // len(COLOURS) % 3]}
        widths = np.diff(found.edges)
        axes.bar(
            found.edges[:-1], own / found.n_rows, widths, below, align="edge", edgecolor="white", label=k, **look
        )
        below = below + own / found.n_rows
    axes.set_xlim(min(float(found.edges[:-1][used].min()), 0.5), 1.0)
    axes.set(xlabel="largest probability of a component, under the model", ylabel="share of the rows")
    axes.set_title(
        f"{found.sure_share:.1%} of {found.n_rows:,} rows have a component above 95%; mean {found.mean_largest:.3f}\n"
        f"right if the model is; verdict on the fit: {verdict_of(model)[0] or 'not judged'}",
        fontsize=10,
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="component", frameon=False, fontsize=8, ncols=1 + (len(found.counts) - 1) // 8)
    return figure


def plot_confusion(model: Any, X: ArrayLike) -> Figure:
    """Plot the expected confusion: the share of each component's rows that are labelled with another component.

    Parameters
    ----------
    model : VerticalMixture
        Fitted.
    X : array-like of shape (n_samples, n_features)
    """
    shares = model.certainty(X).confusion
    names = [f"{k}" for k in range(len(shares))]
    texts = [[f"{share:.0%}" if share >= 0.005 else "" for share in row] for row in shares]
    return _table(shares, texts, names, "rows of component", "expected shares of each component's rows")


def plot_classes(classes: ArrayLike, labels: ArrayLike) -> Figure:
    """Plot the number of rows of each known class in each component, coloured by the share of the class.

    Parameters
    ----------
    classes, labels : array-like of shape (n_samples,)
    """
    from vpem.metrics import compare_labels

    found = compare_labels(classes, labels)
    shares = found.confusion / found.confusion.sum(axis=1, keepdims=True)
    texts = [[f"{count:,}" if count else "" for count in row] for row in found.confusion.tolist()]
    title = f"adjusted Rand index {found.adjusted_rand:.3f}, mutual information {found.mutual_information:.3f}"
    return _table(shares, texts, list(map(str, found.classes)), "class", title)


def _table(shares: Any, texts: list[list[str]], names: list[str], rows: str, title: str) -> Figure:
    """Draw a heat map of shares of rows, with a line for each name and a column for each component."""
    n_rows, n_columns = shares.shape
    figure = make_figure(max(4.2, 1.5 + 0.5 * n_columns), max(2.4, 1.4 + 0.4 * n_rows))
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            colour = "white" if shares[row, column] > 0.55 else "black"
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
    axes.set_yticks(range(n_rows), names, fontsize=8)
    axes.set_xticks(range(n_columns), [str(k) for k in range(n_columns)], fontsize=8)
    axes.set(xlabel="labelled with component", ylabel=rows)
    axes.set_title(title, fontsize=9, wrap=True)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, label="share")
    return figure


def plot_features(model: Any, one: str | int, other: str | int, X: ArrayLike | None = None) -> Figure:
    """Plot two columns: ellipses of one and two deviations of each component, and rows if given.

    Categories have no order and no deviation. Each category has a position on its axis, where the area of a
    component's dot is the share of the category in the component. Lines show one and two deviations of the other
    column if it is numeric.

    Parameters
    ----------
    model : VerticalMixture
        Fitted.
    one, other : str or int
        Names or numbers of columns.
    X : array-like of shape (n_samples, n_features), optional
        Rows, coloured by label. Of more than 5,000, a regular subsample is drawn.
    """
    fitted = model.fitted_
    found, names = fitted.profile, fitted.column_names
    pair = [_number(column, names) for column in (one, other)]
    shown = {column: _categories(found, column) for column in pair if column in found.categories}
    sizes = [0.35 * len(shown[column]) + 1.6 if column in shown else 0.0 for column in pair]
    figure = make_figure(max(5.6, sizes[0]), max(4.6, sizes[1]))
    axes: Any = figure.add_subplot()
    if X is not None:
        _add_rows(axes, model, X, pair, shown)
    if shown:
        _add_categories(axes, found, pair, shown)
        for column, axis in zip(pair, (axes.xaxis, axes.yaxis), strict=True):
            _name_categories(axis, shown.get(column), fitted.coding.labels.get(column))
        lines = "\nlines: one and two deviations" if len(shown) < len(set(pair)) else ""
        axes.set_title(f"area of a dot: share of the category in the component{lines}", fontsize=8)
    else:
        _add_ellipses(axes, found.means[:, pair], _covariances(fitted, *pair))
    for k, share in enumerate(found.shares):
        colour = COLOURS[k % len(COLOURS)]
        axes.scatter([], [], color=colour, edgecolors="#000000", s=90, label=f"{k}: {share:.0%}")
    axes.autoscale_view()
    axes.set(xlabel=names[pair[0]], ylabel=names[pair[1]])
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(title="component", frameon=False, fontsize=8, loc="outside right upper")
    return figure


def _add_ellipses(axes: Any, means: Any, covariances: list[Any]) -> None:
    """Draw ellipses of one and two deviations around each component's means, shape (n_components, 2)."""
    from matplotlib.patches import Ellipse

    for k, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
        colour = COLOURS[k % len(COLOURS)]
        values, vectors = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
        for size in (1, 2):
            width, height = 2 * size * np.sqrt(np.maximum(values[::-1], 0))
            shape = Ellipse(mean, width, height, angle=angle, fill=False, zorder=3)
            shape.set(edgecolor=colour, linewidth=2.2 - 0.6 * size)
            axes.add_patch(shape)
        axes.scatter(*mean, color=colour, edgecolors="#000000", s=90, zorder=4)
        axes.annotate(str(k), mean, ha="center", va="center", fontsize=7, zorder=5)


def _categories(found: Any, column: int) -> list[int]:
    """Return the codes of a column's most common categories, in ascending order."""
    everyone = found.shares @ found.categories[column]
    return sorted(int(code) for code in np.argsort(-everyone, kind="stable")[:MOST_CATEGORIES])


def _name_categories(axis: Any, shown: list[int] | None, labels: Any) -> None:
    if shown is None:
        return
    names = [str(code) if labels is None else str(labels[code]) for code in shown]
    is_long = axis.axis_name == "x" and sum(map(len, names)) > 40
    axis.set_ticks(range(len(shown)), names, fontsize=8, rotation=90 if is_long else 0)
    axis.axes.set(**{f"{axis.axis_name}lim": (-0.5, len(shown) - 0.5)})


def _add_categories(axes: Any, found: Any, pair: list[int], shown: dict[int, list[int]]) -> None:
    """Draw a dot for each component and category (or pair of categories), and error bars along a numeric axis."""
    n_components = len(found.shares)
    for k in range(n_components):
        look: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)]}
        aside = 0.6 * ((k + 0.5) / n_components - 0.5)  # so that dots of different components do not overlap
        places, shares = [], []
        for column in pair:
            chosen = shown.get(column)
            places.append(np.arange(len(chosen)) + aside if chosen is not None else found.means[[k], column])
            shares.append(found.categories[column][k, chosen] if chosen is not None else np.ones(1))
        areas = np.outer(*shares).ravel()
        x, y = (axis.ravel()[areas >= LEAST_SHARE] for axis in np.meshgrid(*places, indexing="ij"))
        for column, draw, at, along in zip(pair, (axes.hlines, axes.vlines), (y, x), (x, y), strict=True):
            for size in (1, 2) if column not in shown else ():
                reach = size * found.deviations[k, column]
                draw(at, along - reach, along + reach, linewidths=3.6 - 1.3 * size, zorder=3, **look)
        areas = LARGEST_DOT * areas[areas >= LEAST_SHARE]
        axes.scatter(x, y, s=areas, edgecolors="#000000", linewidths=0.6, zorder=4, **look)


def _add_rows(axes: Any, model: Any, X: Any, pair: list[int], shown: dict[int, list[int]]) -> None:
    labels, values = model.predict(X), np.array(model.read(X)[:], dtype=np.float64)[:, pair]
    for number, column in enumerate(pair):
        if column in shown:  # jitter around the position of the category
            place = np.full(int(np.nanmax(values[:, number], initial=max(shown[column]))) + 1, np.nan)
            place[shown[column]] = np.arange(len(shown[column]))
            codes = np.nan_to_num(values[:, number]).astype(np.intp)
            noise = np.random.default_rng(number).uniform(-0.35, 0.35, len(values))
            values[:, number] = np.where(np.isnan(values[:, number]), np.nan, place[codes] + noise)
    rows = np.flatnonzero(~np.isnan(values).any(axis=1))
    rows = rows[:: -(-len(rows) // MOST_DOTS) or 1]
    colours = [COLOURS[k % len(COLOURS)] for k in labels[rows]]
    axes.scatter(*values[rows].T, c=colours, s=5, alpha=0.35, linewidths=0, zorder=1)


def _covariances(fitted: Fitted, one: int, other: int) -> list[Any]:
    """Return the covariance of two columns within each component, shape (2, 2) each."""
    _, density, blocks, columns = fitted.parts
    deviations = fitted.profile.deviations
    found = [np.diag(own[[one, other]] ** 2) for own in deviations]
    for block, held in zip(blocks, columns, strict=True):
        correlations = density.correlations(block)
        if one == other or one not in held or other not in held or correlations is None:
            continue
        for k, own in enumerate(found):
            rho = correlations[k % len(correlations)][held.index(one), held.index(other)]
            own[0, 1] = own[1, 0] = rho * deviations[k, one] * deviations[k, other]
    return found


def _short(value: object) -> str:
    """Describe a value: strings and numbers in full, others by their type."""
    return repr(value) if isinstance(value, str | int | float) else type(value).__name__


def _number(column: str | int, names: list[str]) -> int:
    if isinstance(column, str) and column in names:
        return names.index(column)
    if isinstance(column, int | np.integer) and 0 <= column < len(names):
        return int(column)
    shown = ", ".join(names[:20]) + (" ..." if len(names) > 20 else "")
    raise ValueError(f"expected the name or number of a column, one of {shown}, got {_short(column)}")


def _long_names(fitted: Fitted) -> list[str]:
    """Prefix columns with their parties, unless their names already contain them."""
    names, parties = fitted.column_names, fitted.party_of_column
    is_plain = len(set(parties)) == 1 or fitted.names is None
    pairs = zip(parties, names, strict=True)
    return names if is_plain else [name if party in name else f"{party}: {name}" for party, name in pairs]


def _name_components(axis: Any, shares: Any) -> None:
    labels = [f"{k}\n{share:.0%}" for k, share in enumerate(shares)]
    axis.set_ticks(range(len(shares)), labels, fontsize=8)
    axis.set_label_text("component and its share of the rows")
