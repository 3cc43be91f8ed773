"""The Typer application, options shared by commands, and error handling."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import vpem
from vpem.core.settings import ACCELERATIONS, STARTS
from vpem.summations import WAYS

app = typer.Typer(
    name="vpem",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Parties that hold different columns of the same rows fit one Gaussian mixture together.\n\n"
    "Try `vpem demo`, then `vpem fit --help`.",
)
# Emoji are off because the fingerprint of a key, or a column's name, may contain ":ab:".
out, err = Console(emoji=False), Console(stderr=True, emoji=False)
state = {"debug": False}

INTERRUPTED = 130
NOT_TRUSTED = 3
"""Exit code of --strict if a finding is red."""
EXTRAS = {"matplotlib": "figures", "pooch": "datasets", "cryptography": "zenoh", "zenoh": "zenoh"}
"""Optional module to the extra that installs it."""
PICTURES = (".png", ".svg", ".pdf")
COVARIANCES = ("full", "tied", "diag", "spherical")


def plainly(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command to print errors as one sentence and exit with code 1; --debug shows the traceback."""

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
            err.print(f"[bold red]error:[/bold red] {text}", highlight=False, soft_wrap=True)  # unwrapped, to copy
            raise typer.Exit(1) from None

    return run


def plain(text: str) -> str:
    """Escape brackets, so that rich does not parse them as markup."""
    return text.replace("[", r"\[")


def say(text: str) -> None:
    """Print a line without markup, highlighting or wrapping."""
    out.print(plain(text), highlight=False, soft_wrap=True)


def check_can_draw(picture: Path | None) -> None:
    """Raise ModuleNotFoundError if a picture is requested and matplotlib is missing; called before any work."""
    if picture is not None:
        import matplotlib  # noqa: F401 (what is drawn with it is drawn later)


@app.callback(invoke_without_command=True)
def common(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Options of all commands."""
    state["debug"] = debug
    if version:
        typer.echo(f"vpem {vpem.__version__}")
        raise typer.Exit()


# Arguments shared by several commands; `--help` shows them in these groups.

TABLES_PANEL, MODEL_PANEL, UNITS_PANEL, NETWORK_PANEL, RESULTS_PANEL = (
    "Tables",
    "Model",
    "Units",  # separate, as its long negative form would narrow the help texts of its group
    "Network",
    "Results",
)


def completing(*words: str) -> Callable[[str], list[str]]:
    """Return the shell completion function for a fixed set of words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def of_tables(*names: str, **about: Any) -> Any:
    """Create an option about how tables are read."""
    return typer.Option(*names, rich_help_panel=TABLES_PANEL, **about)


def of_model(*names: str, **about: Any) -> Any:
    """Create an option about the model and its fit."""
    return typer.Option(*names, rich_help_panel=MODEL_PANEL, **about)


def of_network(*names: str, **about: Any) -> Any:
    """Create an option about the links and the summation."""
    return typer.Option(*names, rich_help_panel=NETWORK_PANEL, **about)


def of_results(*names: str, **about: Any) -> Any:
    """Create an option about the results."""
    return typer.Option(*names, rich_help_panel=RESULTS_PANEL, **about)


def check_seed(seed: int) -> int:
    """Validate the range of a seed in a callback, so that `--help` does not show the range."""
    if not 0 <= seed < 2**32:
        raise typer.BadParameter(f"expected a whole number from 0 to {2**32 - 1}, got {seed}")
    return seed


Tables = Annotated[
    list[Path],
    typer.Argument(
        metavar="TABLE...",
        help="CSV (also .gz, .zst), Excel (or book.xlsx#sheet) or Parquet; several, one per party, with --id.",
    ),
]
Id = Annotated[
    str | None,
    of_tables(
        "--id",
        metavar="NAMES",
        help="Column of row ids, by which tables are joined; or year,month,day; or @row: the rows' numbers.",
    ),
]
Parties = Annotated[
    Path | None, of_tables(metavar="FILE", help="TOML file: a table [parties], each with a list of its columns.")
]
Ignore = Annotated[list[str], of_tables(metavar="NAMES", help="Columns to leave out: name,station; may be repeated.")]
Family = Annotated[
    list[str],
    of_tables(
        "--family",
        metavar="FAMILY",
        help="Families of columns, as rain=zeros, hour=angles:24 or visits=counts, or auto, which takes words as "
        "categories and finds out the rest. Without it all columns are Gaussian. May be repeated.",
        autocompletion=completing("auto"),
    ),
]
Dates = Annotated[
    list[str],
    of_tables(
        "--dates",
        metavar="DATES",
        help="Dates as numbers: visited=days, =weekday or =hour; may be repeated.",
    ),
]
Label = Annotated[
    str | None,
    of_tables(metavar="NAME", help="Column of known classes: left out of the fit, and compared with its components."),
]
Header = Annotated[
    bool | None,
    of_tables("--header/--no-header", help="Whether a CSV file has a header.", show_default="detected"),
]
Separator = Annotated[
    str | None,
    of_tables(metavar="MARK", help="Separator of a CSV file: , ; | or tab.", show_default="detected"),
]
Decimal = Annotated[
    str | None, of_tables(metavar="MARK", help="Decimal mark of a CSV file: . or ,", show_default="detected")
]
Encoding = Annotated[
    str | None, of_tables(metavar="NAME", help="Encoding of a CSV file: utf-8, latin-1.", show_default="detected")
]
Gaps = Annotated[
    list[str],
    of_tables(
        "--gaps",
        metavar="WORDS",
        help="Words that are gaps in CSV files: NA,?,-999, or in one column: country=NA; may be repeated.",
        show_default="NA, NaN, null ...; among numbers also ? - . none",
    ),
]
Graph = Annotated[
    str,
    of_network(
        metavar="GRAPH",
        help="star, ring, path, complete, or a file with two linked parties per line.",
        autocompletion=completing("star", "ring", "path", "complete"),
    ),
]
Hops = Annotated[int, of_network(metavar="N", help="Hops within which parties pool their columns at a root.")]
Way = Annotated[
    str | None,
    of_network(
        "--sum",
        metavar="SUM",
        help=f"How the network adds. {'; '.join(f'{way}: {about}' for way, about in WAYS.items())}.",
        show_default="exact",
        autocompletion=completing(*WAYS),
    ),
]
Accelerate = Annotated[
    str | None,
    of_model(
        metavar="METHOD",
        help="squarem: extrapolate, for fewer iterations.",
        autocompletion=completing(*ACCELERATIONS),
    ),
]
Rounds = Annotated[
    str | None,
    of_network(
        metavar="N",
        help="Rounds of consensus in each sum; auto: each sum continues the last one with rounded changes. By "
        "default, as many as the graph needs.",
        autocompletion=completing("auto"),
    ),
]
Covariance = Annotated[
    str,
    of_model(
        metavar="TYPE",
        help="full, tied, diag or spherical, within each block.",
        autocompletion=completing(*COVARIANCES),
    ),
]
Seed = Annotated[int, of_model(metavar="N", callback=check_seed, help="The same seed gives the same result.")]
Starts = Annotated[int, of_model("--starts", metavar="N", help="Number of starts, of which the best is kept.")]
Tol = Annotated[float, of_model(metavar="X", help="Change of the log-likelihood per row below which a fit ends.")]
MaxIter = Annotated[int, of_model(metavar="N", help="Maximum number of iterations.")]
RegCovar = Annotated[float, of_model(metavar="X", help="Added to every variance.")]
Shrinkage = Annotated[
    str,
    of_model(
        metavar="AMOUNT",
        help="auto: components with few rows for their columns are drawn toward what all have in common; oas, or a "
        "number from 0 to 1: covariances are drawn toward their diagonals; none.",
        autocompletion=completing("auto", "oas", "none"),
    ),
]
Standardize = Annotated[
    bool | None,
    typer.Option(
        "--standardize/--no-standardize",
        rich_help_panel=UNITS_PANEL,
        help="Divide each column by its deviation for the fit; results keep the columns' units.",
        show_default="unless --covariance spherical",
    ),
]
Title = Annotated[str | None, of_results(metavar="TEXT", help="Title of the report; the tables' names if not given.")]
Strict = Annotated[bool, of_results("--strict", help="End with code 3 if the verdict on the fit is red.")]
Init = Annotated[
    str,
    of_model(
        metavar="START",
        help="How to start: kmeans, k-means++, labels, random or random_from_data.",
        autocompletion=completing(*STARTS),
    ),
]
BatchSize = Annotated[int | None, of_model(metavar="N", help="Rows in a batch (incremental EM); by default all.")]
