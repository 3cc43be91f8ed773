"""The program, its options, and what happens to errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import vpem

app = typer.Typer(
    name="vpem",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Parties that hold different columns of the same rows fit one Gaussian mixture together.\n\n"
    "Try `vpem demo`, then `vpem fit --help`.",
)
# Without emoji: the fingerprint of a key, or a column's name, may have ":ab:" in it.
out, err = Console(emoji=False), Console(stderr=True, emoji=False)
state = {"debug": False}

INTERRUPTED = 130
NOT_TRUSTED = 3
"""Exit code of --strict if a finding is red."""
EXTRAS = {"matplotlib": "figures", "pooch": "datasets", "cryptography": "zenoh", "zenoh": "zenoh"}
"""Which extra brings what may be missing."""
PICTURES = (".png", ".svg", ".pdf")
COVARIANCES = ("full", "tied", "diag", "spherical")


def plainly(command: Callable[..., None]) -> Callable[..., None]:
    """What went wrong in a sentence, without a traceback unless --debug asks for it; exit code 1."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            err.print("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except ModuleNotFoundError as error:
            if state["debug"] or error.name not in EXTRAS:
                raise
            needed = f"pip install 'vpem[{EXTRAS[error.name]}]'"
            err.print(f"[bold red]error:[/bold red] {plain(f'this needs {error.name}: {needed}')}", highlight=False)
            raise typer.Exit(1) from None
        except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
            if state["debug"]:
                raise
            text = plain(str(error) or type(error).__name__)
            err.print(f"[bold red]error:[/bold red] {text}", highlight=False, soft_wrap=True)  # to copy remedies from
            raise typer.Exit(1) from None

    return run


def plain(text: str) -> str:
    """Text in which brackets are no markup."""
    return text.replace("[", r"\[")


def say(text: str) -> None:
    """Print a line as it is."""
    out.print(plain(text), highlight=False, soft_wrap=True)


def check_can_draw(picture: Path | None) -> None:
    """Before any work: a picture that is wanted can be drawn; raises ModuleNotFoundError if not."""
    if picture is not None:
        import matplotlib  # noqa: F401 (what is drawn with it is drawn later)


@app.callback(invoke_without_command=True)
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version, and end.")] = False,
) -> None:
    """Options of all commands."""
    state["debug"] = debug
    if version:
        typer.echo(f"vpem {vpem.__version__}")
        raise typer.Exit()


# Arguments that several commands have

Tables = Annotated[
    list[Path],
    typer.Argument(help="CSV (however separated, also .gz or .zst) or Parquet; several, one per party, with --id."),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id", help="Column that names the rows, by which tables are joined; or several, as year,month,day."
    ),
]
Parties = Annotated[Path | None, typer.Option(help="TOML file: a table [parties], each with a list of its columns.")]
Ignore = Annotated[list[str], typer.Option(help="Columns to leave out, as name,station; may be given several times.")]
Family = Annotated[
    list[str],
    typer.Option(
        "--family",
        help="Families of columns, as rain=zeros, hour=angles:24 or visits=counts, or auto; words become categories. "
        "What is not said is found out. Without this option all columns are Gaussian.",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(help="Column of known classes: left out of the fit, and compared with the components afterwards."),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header", help="Whether the first line of a CSV file has names.", show_default="found out"
    ),
]
Separator = Annotated[
    str | None, typer.Option(help="Between the values of a CSV file: , ; | or tab.", show_default="found out")
]
Decimal = Annotated[str | None, typer.Option(help="Decimal mark of a CSV file: . or ,", show_default="found out")]
Encoding = Annotated[str | None, typer.Option(help="Of a CSV file, as utf-8 or latin-1.", show_default="found out")]
Graph = Annotated[str, typer.Option(help="star, ring, path, complete, or a file with two linked parties per line.")]
Hops = Annotated[int, typer.Option(help="Hops within which parties pool their columns at a root.")]
Way = Annotated[
    str | None,
    typer.Option(
        "--sum",
        help="How the network adds. exact: a server, or a tree on other graphs; differences: the same with rounded "
        "changes, far fewer bytes; masked: only the sum can be read; consensus: the paper's averages; running: "
        "averages over links that lose messages.",
        show_default="exact",
    ),
]
Accelerate = Annotated[str | None, typer.Option(help="squarem: extrapolate, for fewer iterations.")]
Rounds = Annotated[
    str | None,
    typer.Option(
        help="Rounds of consensus for each sum; auto: few, as each sum goes on from the last one, and of rounded "
        "changes. If not given, as many as the graph needs."
    ),
]
Covariance = Annotated[str, typer.Option(help="full, tied, diag or spherical, within each block.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same result.")]
Starts = Annotated[int, typer.Option("--starts", help="Number of starts, of which the best is kept.")]
Tol = Annotated[float, typer.Option(help="Change of the log-likelihood per row below which a fit ends.")]
MaxIter = Annotated[int, typer.Option(help="Iterations at most.")]
RegCovar = Annotated[float, typer.Option(help="Added to every variance.")]
Shrinkage = Annotated[
    str,
    typer.Option(
        help="For many columns beside the rows. auto: components with few rows are drawn toward what all have in "
        "common; oas, or a number from 0 to 1: covariances are drawn toward their diagonals; none.",
    ),
]
Standardize = Annotated[
    bool | None,
    typer.Option(
        "--standardize/--no-standardize",
        help="Divide each column by its own deviation for the fit; results are in the columns' own units. By "
        "default, unless the covariance is spherical.",
    ),
]
Title = Annotated[str | None, typer.Option(help="Title of the report; the tables' names if not given.")]
Strict = Annotated[bool, typer.Option("--strict", help="End with code 3 if the verdict on the fit is red.")]
Init = Annotated[str, typer.Option(help="How to start: kmeans, k-means++, labels, random, random_from_data.")]
BatchSize = Annotated[int | None, typer.Option(help="Rows in a batch (incremental EM); all, if not given.")]
