"""Commands that show models, networks and examples."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Table

import vpem
from vpem.cli.app import PICTURES, Parties, Seed, app, check_can_draw, completing, out, plain, plainly, say
from vpem.cli.cluster_text import DEFAULT_TOP, describe_clusters
from vpem.cli.model_summary import describe, is_of_scaled
from vpem.files import check_outputs, replacing
from vpem.reading import TABLES, TableError, check_known, free_name, write
from vpem.study import read_parties
from vpem.words import MOST_NAMES, OWN_UNITS, SCALED, as_count, as_names

if TYPE_CHECKING:
    import networkx as nx

    from vpem.model.fitted import Fitted


@app.command()
@plainly
def demo(
    picture: Annotated[
        Path | None, typer.Option(help="File for the picture, by default demo.png. Needs matplotlib.")
    ] = None,
) -> None:
    """Fit one mixture of tumours with three parties; print its cost and quality, and draw a picture.

    The data are part of scikit-learn. Without matplotlib there is no picture.
    """
    check_outputs([picture], endings=PICTURES)
    check_can_draw(picture)
    from vpem.demo import default_picture, run

    run(default_picture("demo.png") if picture is None else str(picture))


@app.command()
@plainly
def sample(
    model: Annotated[Path, typer.Argument(help="A model that vpem fit wrote.")],
    number: Annotated[int, typer.Option("-n", help="Number of rows.")] = 1000,
    seed: Seed = 0,
    output: Annotated[Path, typer.Option("--out", "-o", help="CSV or Parquet.")] = Path("sample.csv"),
) -> None:
    """Draw synthetic rows from a model.

    Example: `vpem sample model.vpem -n 1000 -o sample.csv`
    """
    from vpem.estimators.checks import check_count, shared_seed
    from vpem.model.evaluation import draw, in_words
    from vpem.models import load_fitted

    check_outputs([output], [model], endings=TABLES)
    fitted = load_fitted(model)
    values, labels = draw(fitted, check_count("n_samples", number, 1), shared_seed(seed))
    columns = in_words(fitted, values)
    if fitted.names is None:
        columns = {f"column_{name}": cells for name, cells in columns.items()}
    write(output, {**columns, free_name("component", columns): labels})
    say(f"{number:,} rows: {output}")


@app.command()
@plainly
def show(
    model: Annotated[Path, typer.Argument(help="A model that vpem fit wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    top: Annotated[int, typer.Option(min=1, help="Columns and parties to show: the most informative.")] = DEFAULT_TOP,
) -> None:
    """Describe a model, its fit and its components.

    Example: `vpem show model.vpem --top 20`
    """
    from vpem.models import load_fitted

    fitted = load_fitted(model)
    names, findings = fitted.column_names, fitted.judgement.findings
    if as_json:
        from vpem.verdict import colour

        keys = range(fitted.n_features) if fitted.names is None else names
        content = {
            "components": fitted.n_components,
            "weights": fitted.weights.tolist(),
            "columns": names,
            "families": list(fitted.families or ["gaussian"] * len(names)),
            "categories": {keys[c]: list(own) for c, own in sorted(fitted.coding.labels.items())},
            "means": fitted.profile.means.tolist(),
            "deviations": fitted.profile.deviations.tolist(),
            "information": [one.nats for one in fitted.column_information],
            "parties": {str(party): [names[c] for c in own] for party, own in fitted.partition.items()},
            "hubs": [{"root": str(hub.root), "members": list(map(str, hub.members))} for hub in fitted.hubs],
            "log_likelihood": fitted.log_likelihood,
            "lower_bound": fitted.lower_bound if fitted.lower_bounds else None,
            "lower_bound_of": SCALED if is_of_scaled(fitted) else OWN_UNITS,
            "verdict": colour(findings),
            "findings": [finding._asdict() for finding in findings],
            "rows": None if fitted.rows is None else asdict(fitted.rows),
            "iterations": fitted.n_iter,
            "converged": fitted.converged,
            "bytes": fitted.traffic.bytes,
            "messages": fitted.traffic.messages,
        }
        typer.echo(json.dumps(content, indent=1))
        return
    describe(fitted)
    describe_clusters(fitted, top)
    _describe_parties(fitted, names, top)
    for repair in fitted.repairs:
        found = f"component {repair.component} {repair.reason} at {repair.party}"
        what = "restarted" if repair.restarted else "kept"
        say(f"iteration {repair.iteration}: {found}; {what}")


def _describe_parties(fitted: Fitted, names: list[str], top: int) -> None:
    """Print the most informative parties and their columns."""
    table = Table("party", "nats", "hub of", "columns", box=None)
    root_of = {member: hub.root for hub in fitted.hubs for member in hub.members}
    nats = [told.nats for told in fitted.party_information]
    shown = set(sorted(range(len(nats)), key=lambda place: -nats[place])[:top])
    for place, (party, own) in enumerate(fitted.partition.items()):
        if place in shown:
            held = as_names([names[c] for c in own], max(top, MOST_NAMES))
            table.add_row(*(plain(str(text)) for text in (party, f"{nats[place]:.2f}", root_of[party], held)))
    out.print(table, highlight=False)
    if len(nats) > len(shown):
        more = as_count(len(nats) - len(shown), "more party", "more parties")
        say(f"and {more} with less information; --top {len(nats)} shows all")


KINDS = ("star", "ring", "path", "complete", "geometric", "scale-free")


@app.command()
@plainly
def graph(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS), autocompletion=completing(*KINDS))],
    number: Annotated[int, typer.Option("-n", help="Number of agents.")] = 20,
    degree: Annotated[float, typer.Option(help="Mean degree (geometric, scale-free).")] = 6.0,
    parties: Parties = None,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="File of links, for vpem fit --graph.")] = None,
    draw: Annotated[bool, typer.Option("--draw", help="Draw a picture.")] = False,
    picture: Annotated[Path | None, typer.Option(help="File for the picture, by default KIND.png.")] = None,
) -> None:
    """Make a network, and print the cost of a sum on it.

    Example: `vpem graph geometric -n 20 --degree 5 -o links.txt --draw`

    A star is the network of `vpem fit --graph star`: a server with a link to every party.
    """
    check_known(kind, list(KINDS), "the kind of graph")
    if draw and picture is None:
        picture = Path(f"{kind}.png")
    check_outputs([output, picture], [] if parties is None else [parties])
    check_outputs([picture], endings=PICTURES)
    check_can_draw(picture)
    names = [str(place) for place in range(number)] if parties is None else list(read_parties(parties))
    _check_graph(kind, names, degree, output)
    import networkx as nx

    made = _make_graph(kind, len(names), degree, seed)
    _tell_graph(kind, made)
    named = nx.relabel_nodes(made, dict(enumerate([*names, "server"])), copy=True)
    if output is not None:
        with replacing(output) as unfinished:
            unfinished.write_text("".join(f"{one}, {other}\n" for one, other in named.edges), encoding="utf-8")
        say(f"links: {output}")
    if picture is not None:
        _draw(named, picture)


def _check_graph(kind: str, names: list[str], degree: float, output: Path | None) -> None:
    if len(names) < 2:
        raise TableError(f"expected 2 agents or more, got {len(names)}")
    if kind == "star" and output is not None:
        raise TableError(
            "expected no --out for a star: a file of links has parties only, and a star has a server; "
            "try vpem fit --graph star, which needs no file"
        )
    if kind == "scale-free" and round(degree / 2) >= len(names):
        raise TableError(f"expected a mean degree below {2 * len(names) - 1}, got {degree:g}; try a smaller --degree")
    for name in names:
        if "," in name or "#" in name or name != name.strip() or not name:
            raise TableError(f"expected names without commas, # and outer spaces for a file of links, got {name!r}")
        if kind == "star" and name == "server":
            raise TableError("expected parties with other names than that of the star's own server, got 'server'")


def _make_graph(kind: str, n_parties: int, degree: float, seed: int) -> nx.Graph:
    """Create a graph of the parties 0, ..., n_parties - 1; in a star, the server is node n_parties."""
    import networkx as nx

    from vpem.datasets import random_geometric_graph

    kinds: dict[str, Callable[[], nx.Graph]] = {
        "star": lambda: nx.star_graph([n_parties, *range(n_parties)]),
        "ring": lambda: nx.cycle_graph(n_parties),
        "path": lambda: nx.path_graph(n_parties),
        "complete": lambda: nx.complete_graph(n_parties),
        "geometric": lambda: random_geometric_graph(n_parties, degree, seed),
        "scale-free": lambda: nx.barabasi_albert_graph(n_parties, max(1, round(degree / 2)), seed=seed),
    }
    return kinds[kind]()


def _tell_graph(kind: str, made: nx.Graph) -> None:
    """Print the size of the network and the cost of one sum on it."""
    from vpem.core.network.graph import contraction, diameter, metropolis_weights

    if kind == "star":
        n_links = made.number_of_edges()
        say(f"{n_links} parties, each linked with a server: {n_links} links, diameter 2")
        say(f"the server adds exactly: 2 rounds and {2 * n_links} messages for a sum")
        return
    rate = contraction(metropolis_weights(made))
    rounds = 1 if rate < 1e-12 else int(np.ceil(np.log(1e-6) / np.log(rate)))
    mean = 2 * made.number_of_edges() / len(made)
    say(f"{len(made)} agents, {made.number_of_edges()} links, mean degree {mean:.1f}, diameter {diameter(made)}")
    say(f"a round of averaging leaves {rate:.4f} of an error: {rounds} rounds for a millionth")


def _draw(named: nx.Graph, picture: Path) -> None:
    from matplotlib.figure import Figure

    from vpem.figures import draw_network, save_figure

    figure = Figure(figsize=(6, 6), layout="constrained")
    is_small = len(named) <= 40
    draw_network(figure.add_subplot(), named, names=is_small, size=220 if is_small else 60)
    save_figure(figure, picture)
    say(f"picture: {picture}")


EXPERIMENTS = ("synthetic", "cycle", "pulsar", "hops", "rounds", "batches", "components", "air", "adult")


@app.command()
@plainly
def experiment(
    name: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(EXPERIMENTS[:-1])} or {EXPERIMENTS[-1]}.", autocompletion=completing(*EXPERIMENTS)
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Run a small form in less than a minute.")] = False,
) -> None:
    """Repeat one of the experiments, which are part of the source.

    Example: `vpem experiment pulsar --quick`
    """
    places = (Path.cwd(), Path(vpem.__file__).parents[2])
    home = next((place for place in places if (place / "experiments" / "common.py").is_file()), None)
    if home is None:
        raise TableError("expected the folder experiments, which comes with vpem's source; run this in a checkout")
    known = [path.stem for path in sorted((home / "experiments").glob("[a-z]*.py")) if path.stem != "common"]
    check_known(name, known, "the experiment")
    command = [sys.executable, "-m", f"experiments.{name}", *["--quick"] * quick]
    raise typer.Exit(subprocess.run(command, cwd=home, check=False).returncode)
