"""Commands of one party of a study: join it, score new rows, assemble parts into a model."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vpem.cli.app import INTERRUPTED, NOT_TRUSTED, Strict, app, err, out, plain, plainly, say
from vpem.cli.gathering import said_families
from vpem.files import check_outputs

if TYPE_CHECKING:
    from vpem.studies.joining import StudyEnded

STAYED_AWAY, REFUSED = 4, 5
"""Exit codes if a party was unreachable, and if this one was refused."""

SharedFile = Annotated[Path, typer.Argument(help="The file that all parties share.")]
OwnFile = Annotated[Path | None, typer.Option("--party", help="The party's own file.")]
Server = Annotated[bool, typer.Option("--server", help="Be the server of a star.")]
OwnFamily = Annotated[
    list[str],
    typer.Option("--family", help="Family of a column of this party, such as rain=zeros; replaces that of its file."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Plain TCP without certificates.")]
Without = Annotated[
    list[str],
    typer.Option(
        help="Continue for good without this party; all its neighbours must do the same, under masks all parties."
    ),
]


@app.command()
@plainly
def join(
    study: SharedFile,
    party: OwnFile = None,
    server: Server = False,
    insecure: Insecure = False,
    family: OwnFamily = [],  # noqa: B006 (typer's way to say: none)
    without: Without = [],  # noqa: B006
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the saved state; all parties must.")] = False,
    log: Annotated[Path | None, typer.Option(help="File for the log, lines of JSON.")] = None,
    strict: Strict = False,
) -> None:
    """Take part in a study as one party, from the beginning to the end, as in these examples.

    - `vpem join study.toml --party clinic.toml`
    - `vpem join study.toml --party clinic.toml --family rain=zeros`
    - `vpem join study.toml --server --party server.toml`

    Ctrl-C ends it; the same command resumes. Exit codes: 0 done, 1 error, 3 verdict red (--strict), 4 a party was
    unreachable, 5 refused, 130 interrupted.
    """
    from vpem.cli.process import own_process
    from vpem.studies.joining import StudyEnded
    from vpem.studies.joining import join as take_part

    check_seat(party, server=server)
    with own_process(), stopping() as stop, watching() as tell:
        try:
            about: Any = {"insecure": insecure, "without": without, "fresh": fresh, "log": log}
            fit = take_part(study, party, families=said_families(family), progress=tell, stop=stop, **about)
        except StudyEnded as ended:
            leave(ended)
    if fit is None:
        return
    from vpem.cli.model_summary import show_findings
    from vpem.studies.results import describe_own
    from vpem.verdict import in_python

    end = "converged" if fit.converged else "ended"
    say(f"rows: {fit.rows.describe()}; {describe_own(fit.rows, fit.party)}".rstrip("; "))
    say(f"gaps: {fit.rows.describe_gaps()}")
    say(f"{end} after {fit.n_iter} iterations; verdict: {fit.colour}")
    show_findings(fit.verdict, in_python)  # the findings already have the wording of a study
    say(f"results: {fit.folder}")
    if strict and fit.colour == "red":
        raise typer.Exit(NOT_TRUSTED)


def check_seat(party: Path | None, *, server: bool) -> None:
    """Raise ValueError if neither a party nor the server is named."""
    if party is None and not server:
        raise ValueError("expected --party with the party's own file, or --server, got neither")


def leave(ended: StudyEnded) -> None:
    """Print why a run has ended, and exit with its code."""
    code = {"gave up": STAYED_AWAY, "refused": REFUSED, "interrupted": INTERRUPTED}.get(ended.outcome.kind, 1)
    kind = ended.outcome.kind
    said = plain(str(ended).removeprefix(kind))
    err.print(f"[bold red]{kind}[/bold red]{said}", highlight=False, soft_wrap=True)
    raise typer.Exit(code)


@contextmanager
def stopping() -> Iterator[Any]:
    """Yield a function that returns True after SIGINT or SIGTERM; a second signal raises KeyboardInterrupt."""
    told = threading.Event()

    def handle(number: int, frame: Any) -> None:  # noqa: ARG001 (signal's signature)
        if told.is_set():
            raise KeyboardInterrupt
        told.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def watching() -> Iterator[Any]:
    """Yield a function that prints events as lines; in a terminal, a last line shows progress or awaited parties."""
    from vpem.studies.telling import Lines, Tokens

    if not out.is_terminal:
        yield Lines(lambda line: out.file.write(f"{line}\n") and out.file.flush()).tell
        return
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    lines = Lines(lambda line: live.console.print(plain(line), highlight=False))

    def last() -> Text | Table:
        awaited, tokens = lines.state.waiting(), lines.state.tokens
        if tokens is not None and not awaited:
            bar = ProgressBar(total=tokens.total, completed=tokens.done, width=40)
            row = Table.grid(padding=(0, 1))
            row.add_row("matching rows", bar, f"{tokens.percent} %", Text(lines.state.tokens_rest(), style="dim"))
            return row
        return Text(f"waiting for {awaited}" if awaited else lines.state.line(), style="bold")

    def tell(event: Any) -> None:
        if isinstance(event, Tokens):  # the bar shows them
            lines.state.take(event)
        else:
            lines.tell(event)

    with Live(console=out, get_renderable=last, refresh_per_second=4, transient=True) as live:
        yield tell


@app.command()
@plainly
def assemble(
    parts: Annotated[list[Path], typer.Argument(help="The parties' parts: model.vpem in their folders.")],
    output: Annotated[Path, typer.Option("--out", "-o", help="File for the whole model.")] = Path("model.vpem"),
) -> None:
    """Assemble the whole model from the parts that parties hand over.

    Example: `vpem assemble north.vpem east.vpem south.vpem -o model.vpem`
    """
    import vpem
    from vpem.studies.assembling import assemble as put_together

    check_outputs([output], parts)
    model = put_together(parts)
    vpem.save(model, output)
    say(f"model: {output}, {len(model.partition_)} parties, {model.n_features_in_} columns")


def predict_together(
    study: Path,
    tables: list[Path],
    party: Path | None,
    output: Path,
    *,
    server: bool,
    n_rows: int | None,
    insecure: bool,
    without: list[str],
    family: list[str],
) -> None:
    """Run `vpem predict` as one party of a study."""
    from vpem.cli.process import own_process
    from vpem.studies.joining import StudyEnded
    from vpem.studies.predicting import predict
    from vpem.studies.results import write_rows

    check_seat(party, server=server)
    if len(tables) > 1 or (not tables and not server):
        raise ValueError(f"expected one table of new rows for a party of a study, got {len(tables)}")
    with own_process(), stopping() as stop, watching() as tell:
        try:
            new = tables[0] if tables else None
            about: Any = {"n_rows": n_rows, "insecure": insecure, "without": without}
            scores = predict(study, party, new, families=said_families(family), progress=tell, stop=stop, **about)
        except StudyEnded as ended:
            leave(ended)
    if scores is not None:
        write_rows(output, scores.ids, scores.responsibilities, scores.log_densities)
        say(f"{len(scores.responsibilities):,} rows: {output}")
        if scores.n_left_out:
            say(f"{scores.n_left_out:,} of them have no score: too few parties have them for a masked sum")
