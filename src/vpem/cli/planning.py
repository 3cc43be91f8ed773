"""Command that estimates the communication cost of a fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from vpem.cli.app import (
    Accelerate,
    BatchSize,
    Dates,
    Decimal,
    Encoding,
    Family,
    Gaps,
    Graph,
    Header,
    Hops,
    Id,
    Ignore,
    Init,
    Rounds,
    Seed,
    Separator,
    Starts,
    app,
    of_model,
    of_network,
    of_results,
    of_tables,
    out,
    plain,
    plainly,
    say,
)
from vpem.cli.fit_command import STARTS_THAT_SERVE, all_families, codes_of
from vpem.cli.gathering import check_choices, gather, make_form, number_of_rounds, said_dates
from vpem.core.settings import STARTS
from vpem.reading.dialect import Form
from vpem.reading.problems import TableError
from vpem.study import check_graph, read_graph, read_parties
from vpem.summations import way_of
from vpem.words import as_bytes, as_count, as_time

if TYPE_CHECKING:
    from vpem.core.network.parties import Network
    from vpem.core.network.summation import Summation
    from vpem.planning import Estimate, Plan
    from vpem.planning import Study as PlannedStudy
    from vpem.reading.category_parsing import Codes
    from vpem.studies.shared import Study as SharedStudy

NARROW = ("choice", "bytes", "time", "sums")
"""Columns for terminals of 80 characters."""

Shape = tuple[dict[str, list[int]], int, Any]
"""Column numbers of each party, number of rows, and the values, or None without tables."""

PartiesOrNumber = Annotated[
    str | None, of_tables(metavar="N|FILE", help="Number of parties, or a TOML file with a table [parties].")
]
Columns = Annotated[
    str | None,
    of_tables(metavar="N", help="Columns of every party, such as 3, or of each: 3,1,2.", show_default="1"),
]


@app.command()
@plainly
def plan(
    tables: Annotated[
        list[Path], typer.Argument(help="The tables of `vpem fit`; or a study's file, or none, and --rows.")
    ] = [],  # noqa: B006 (typer's way to say: none)
    components: Annotated[
        int | None,
        of_model("--components", "-k", metavar="K", min=1, help="Number of components; not with a study."),
    ] = None,
    rows: Annotated[int | None, of_tables(metavar="N", min=1, help="Number of rows, if there are no tables.")] = None,
    parties: PartiesOrNumber = None,
    columns: Columns = None,
    id_column: Id = None,
    ignore: Ignore = [],  # noqa: B006 (likewise)
    family: Family = [],  # noqa: B006
    dates: Dates = [],  # noqa: B006
    header: Header = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    gaps: Gaps = [],  # noqa: B006
    graph: Graph = "star",
    hops: Hops = 0,
    rounds: Rounds = None,
    init: Init = "kmeans",
    starts: Starts = STARTS_THAT_SERVE,
    batch_size: BatchSize = None,
    accelerate: Accelerate = None,
    iterations: Annotated[str, of_model(metavar="RANGE", help="Iterations of EM in each start.")] = "20..100",
    kmeans_iterations: Annotated[
        str, of_model("--kmeans-iterations", metavar="RANGE", help="Iterations of k-means in each start.")
    ] = "5..60",
    bandwidth: Annotated[
        str, of_network(metavar="SPEED", help="Of each agent, such as 1Gbit or 10MB/s.")
    ] = "100Mbit",
    latency: Annotated[str, of_network(metavar="TIME", help="Time until a message arrives.")] = "20ms",
    seed: Seed = 0,
    as_json: Annotated[bool, of_results("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate traffic and time of each summation before a run, compared with sending the table.

    For example:

    - `vpem plan --rows 100000 --parties 8 --columns 1 -k 3 --graph ring`
    - `vpem plan bank.csv shop.csv --id customer -k 4 --bandwidth 1Gbit --latency 5ms`
    - `vpem plan study.toml --rows 100000 --columns 3,1,2`

    Tables are read only for their shape and their gzipped size. No fit is run.
    """
    from vpem.planning import Line, Study, choices, parse_bandwidth, parse_latency, parse_range
    from vpem.planning import plan as make_plan

    spans = {
        "iterations": parse_range(iterations, "--iterations"),
        "kmeans_iterations": parse_range(kmeans_iterations, "--kmeans-iterations"),
    }
    line, values = Line(parse_bandwidth(bandwidth), parse_latency(latency)), None
    own: Summation | None = None
    if tables and tables[0].suffix == ".toml":
        given = [components, parties, rounds, accelerate, graph if graph != "star" else None, hops or None]
        network, study, shared = _of_study(tables, rows, columns, any(one is not None for one in given))
        own, (low, high), most = shared.summation, spans["iterations"], shared.model.max_iter
        spans["iterations"] = min(low, most), min(high, most)
        wanted = choices(network)
        wanted += [] if own in wanted else [own]
    else:
        check_choices(init=(init, STARTS))
        check_graph(graph)
        number = number_of_rounds(rounds)
        if number is not None and accelerate is not None:
            raise TableError(
                "expected no --rounds with --accelerate, which needs sums that are the same for all parties"
            )
        if tables:
            days = said_dates(dates)
            form = make_form(header, separator, decimal, encoding, gaps, days)
            codes = codes_of(all_families(family, None if parties is None else Path(parties), days))
            about_tables = tables, id_column, parties, ignore, form, graph, codes
            held, n_rows, values = _shape_of_tables(*about_tables, [rows, columns])
        else:
            held, n_rows, values = _shape_given(rows, parties, columns)
        about: Any = {"init_params": init, "n_init": starts, "batch_size": batch_size, "hops": hops}
        study = Study(n_rows=n_rows, n_components=_number_of_components(components), accelerate=accelerate, **about)
        network = _network(held, read_graph(graph, list(held)), hops, seed)
        wanted = choices(network, number)
    ways = [one for one in wanted if study.allows(one)]
    found = make_plan(network, study, **spans, line=line, summations=ways, rows=values)
    if as_json:
        typer.echo(json.dumps(_as_dict(found, spans, own), indent=1))
    else:
        _tell(found, spans, own)


def _number_of_components(given: int | None) -> int:
    if given is None:
        raise TableError("expected --components, or a study's file, which says it, got neither; try -k 3")
    return given


def _of_study(
    files: list[Path], rows: int | None, columns: str | None, is_more_given: bool
) -> tuple[Network, PlannedStudy, SharedStudy]:
    """Return the network and the settings of a study's file, and the study itself."""
    import networkx as nx

    from vpem.planning import Study
    from vpem.studies.shared_file import read_study

    if len(files) > 1 or is_more_given:
        raise TableError(
            "expected --rows and --columns alone with a study's file, which says the number of components, the "
            "parties, the links, the hops, the rounds and the acceleration"
        )
    shared = read_study(files[0])
    if rows is None:
        raise TableError(f"expected --rows with {files[0]}, which does not say how many there are; try --rows 100000")
    counts = _column_counts(len(shared.parties), columns)
    held = _places({party.name: count for party, count in zip(shared.parties, counts, strict=True)})
    asked = shared.model
    study = Study(
        n_rows=rows,
        n_components=asked.components,
        init_params=asked.init,
        n_init=asked.starts,
        batch_size=None,
        hops=asked.hops,
        accelerate=asked.accelerate,
    )
    links: Any = "star" if shared.server is not None else nx.Graph(list(shared.links))
    return _network(held, links, asked.hops, shared.seed), study, shared


def _shape_given(rows: int | None, parties: str | None, columns: str | None) -> Shape:
    """Return the shape given by options, without tables."""
    if rows is None or parties is None:
        raise TableError(
            "expected tables, or a shape by --rows and --parties; try vpem plan --rows 100000 --parties 8 -k 3"
        )
    if not parties.isdecimal():
        if columns is not None:
            raise TableError("expected no --columns with a file of parties, which says what each holds")
        counts = {party: len(own) for party, own in read_parties(parties).items()}
    else:
        counts = {str(party): n_own for party, n_own in enumerate(_column_counts(int(parties), columns))}
    return _places(counts), rows, None


def _places(counts: dict[str, int]) -> dict[str, list[int]]:
    """Assign consecutive column numbers to the parties."""
    ends = np.cumsum([0, *counts.values()]).tolist()
    return {party: list(range(ends[place], ends[place + 1])) for place, party in enumerate(counts)}


def _column_counts(n_parties: int, columns: str | None) -> list[int]:
    """Parse --columns into the number of columns of each party."""
    given = (columns or "1").split(",")
    counts = [int(text) for text in given if text.strip().isdecimal()]
    if n_parties < 1 or len(counts) < len(given) or min(counts) < 1 or len(counts) not in (1, n_parties):
        raise TableError(
            f"expected one party or more, and --columns as one number or {as_count(n_parties, 'number')}, 1 or more "
            f"each, got {as_count(n_parties, 'party', 'parties')} and {columns or '1'!r}"
        )
    return counts * (n_parties if len(counts) == 1 else 1)


def _shape_of_tables(
    tables: list[Path],
    id_column: str | None,
    parties: str | None,
    ignore: list[str],
    form: Form,
    graph: str,
    codes: Codes,
    shape: list[Any],
) -> Shape:
    """Return the shape of tables, read as for a fit."""
    if shape != [None, None]:
        raise TableError("expected no --rows and --columns with tables, which have a shape of their own")
    path = None if parties is None else Path(parties)
    check = partial(read_graph, graph)
    found, partition = gather(tables, id_column, path, ignore, form, check, codes=codes)
    values = found.values[~np.isnan(found.values).all(axis=1)]
    return partition, len(values), values


def _network(held: dict[str, list[int]], links: Any, hops: int, seed: int) -> Network:
    """Build the network of a fit with the same options; the seed breaks ties between hubs of equal size."""
    from vpem.estimators.checks import build_network, shared_seed

    n_columns = sum(map(len, held.values()))
    return build_network(held, links, hops, None, n_columns, None, shared_seed(seed))[0]


# Output


def _tell(found: Plan, spans: dict[str, tuple[int, int]], own: Summation | None) -> None:
    _tell_network(found)
    study, table = found.study, found.table
    moves = f", {_span(spans['kmeans_iterations'], _number)} of k-means" if study.init_params == "kmeans" else ""
    say(
        f"{as_count(study.n_rows, 'row')}, {as_count(study.n_components, 'component')}, "
        f"{as_count(study.n_init, 'start')} of {_span(spans['iterations'], _number)} iterations of EM{moves}"
    )
    _print_table([_cells(found, one) for one in found.estimates])
    packed = "not known without the table" if table.gzipped is None else as_bytes(table.gzipped)
    seconds = as_time(table.bytes / found.line.bandwidth + found.line.latency)
    say(f"sending the table once: {as_bytes(table.bytes)}, {seconds}; gzipped: {packed}")
    for one in found.estimates:
        is_near = one.bytes.low > 0.9 * one.usual_bytes.low and one.bytes.high < 1.1 * one.usual_bytes.high
        if not one.has_fixed_length and (one.is_lossy or not is_near):
            low, high = map(as_bytes, one.bytes)
            say(f"{one.name}: bytes as measured on real tables; at least {low}, at most {high}")
    from vpem.planning.estimates import short_name

    cheapest, quickest = found.cheapest, found.quickest
    say(
        f"cheapest: {cheapest.name}, {_option(cheapest)}; quickest: {quickest.name}, {_option(quickest)}; "
        + (f"default: {found.default}" if own is None else f"the study's: {short_name(own)}")
    )


def _print_table(rows: list[dict[str, str]]) -> None:
    """Print all columns if they fit the width of the terminal, else the most important ones."""
    shown = list(rows[0])
    for names in (list(rows[0]), ["choice", "bytes", "x table", "rounds", "time", "sums"], list(NARROW)):
        shown = [name for name in names if name in rows[0]]
        widths = [max(len(name), *(len(row[name]) for row in rows)) + 2 for name in shown]
        if sum(widths) <= out.width:
            break
    table = Table(*shown, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(plain(row[name]) for name in shown))
    out.print(table, highlight=False)
    if len(shown) < len(rows[0]):
        say("a wider terminal shows more columns; --json has all numbers")


def _tell_network(found: Plan) -> None:
    network, spectrum = found.network, found.spectrum
    n_links = network.links.number_of_edges()
    parties = as_count(len(network.parties), "party", "parties")
    if spectrum is None:
        say(f"{parties}, each linked with a server: diameter {network.diameter}")
        return
    hubs = "" if found.study.hops == 0 else f", {as_count(len(network.hubs), 'hub')}"
    say(f"{parties}, {as_count(n_links, 'link')}{hubs}, diameter {network.diameter}")
    say(
        f"Metropolis weights: lambda_2 {spectrum.second:.4f}, lambda_N {spectrum.smallest:.4f}; a round of averaging "
        f"leaves {spectrum.contraction:.4f} of an error: {as_count(spectrum.rounds, 'round')} for a millionth"
    )


def _cells(found: Plan, one: Estimate) -> dict[str, str]:
    """Return the cells of one choice, by column."""
    table, least = found.table, found.cheapest.usual_bytes.high
    others = {"x table": table.bytes, **({"x gzip": table.gzipped} if table.gzipped else {})}
    return {
        "choice": one.name,
        "bytes": _span(one.usual_bytes, as_bytes),
        **{name: _span([size / other for size in one.usual_bytes], _times) for name, other in others.items()},
        "x least": _times(one.usual_bytes.high / least if least else 1.0),
        "messages": _span(one.messages, _number),
        "rounds": _span(one.rounds, _number),
        "time": _span(one.seconds, as_time),
        "memory": "unknown" if one.memory is None else as_bytes(one.memory),
        "sums": _error(one),
    }


def _option(one: Estimate) -> str:
    """Return the option of `vpem fit` for a summation."""
    rounds = getattr(one.summation, "rounds", None)
    return f"--sum {way_of(one.summation)}" + ("" if rounds is None else f" --rounds {rounds}")


def _error(one: Estimate) -> str:
    if one.error_factor is None:
        return "unknown"
    if one.error_factor == 0:
        return "exact in the end" if one.is_exact_later else "exact"
    return f"off by {one.error_factor:.0e}"


def _times(share: float) -> str:
    return f"{share:.2g}" if share < 10 else f"{share:,.0f}"


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _span(ends: Sequence[float], words: Callable[[float], str]) -> str:
    """Format a range as "2 to 3 MB", or as one number if both ends are equal."""
    low, high = map(words, ends)
    unit = high.partition(" ")[2]
    return high if low == high else f"{low.removesuffix(f' {unit}') if unit else low} to {high}"


def _as_dict(found: Plan, spans: dict[str, tuple[int, int]], own: Summation | None) -> dict[str, Any]:
    """Return the plan as JSON values, in bytes and seconds, with ranges as pairs."""
    from vpem.planning.estimates import short_name

    network, study, spectrum = found.network, found.study, found.spectrum
    return {
        "parties": {str(party): len(own) for party, own in network.named_columns().items()},
        "links": network.links.number_of_edges(),
        "diameter": network.diameter,
        "spectrum": None if spectrum is None else spectrum._asdict(),
        "rows": study.n_rows,
        "components": study.n_components,
        "starts": study.n_init,
        **spans,
        "bandwidth": found.line.bandwidth,
        "latency": found.line.latency,
        "table": found.table._asdict(),
        "choices": {
            one.name: {
                "bytes": one.usual_bytes,
                "bounds": one.bytes,
                "messages": one.messages,
                "rounds": one.rounds,
                "seconds": one.seconds,
                "memory": one.memory,
                "error_factor": one.error_factor,
                "exact_in_the_end": one.is_exact_later,
            }
            for one in found.estimates
        },
        "cheapest": found.cheapest.name,
        "quickest": found.quickest.name,
        "default": found.default if own is None else short_name(own),
    }
