"""Commands about what parties learn of each other: explain a study, match its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vpem.cli.app import app, plainly, say
from vpem.cli.gathering import said_families
from vpem.cli.join_command import OwnFamily, OwnFile, Server, SharedFile, check_seat, leave, stopping, watching


@app.command()
@plainly
def explain(study: Annotated[Path, typer.Argument(help="The file that all parties share.")]) -> None:
    """List what each party, the matcher and the server can and cannot learn, before anything is sent.

    The list follows from the schedule of the study's agents. Example: `vpem explain study.toml`
    """
    from textwrap import fill

    from vpem.studies.ledger import explain_study
    from vpem.studies.shared_file import read_study

    for section in explain_study(read_study(study)):
        say(f"\n{section.heading}")
        for sentence in section.sentences:
            say(fill(sentence, 100, initial_indent="  - ", subsequent_indent="    "))


@app.command()
@plainly
def match(
    study: SharedFile,
    party: OwnFile = None,
    server: Server = False,
    family: OwnFamily = [],  # noqa: B006 (typer's way to say: none)
    fresh: Annotated[bool, typer.Option("--fresh", help="Match again; all parties must.")] = False,
) -> None:
    """Find the rows that the parties have in common, without revealing ids; `vpem join` does this if needed.

    The study has `match = "inner"` or `"outer"` in its `[rows]`.
    Example: `vpem match study.toml --party clinic.toml`
    """
    from vpem.cli.process import own_process
    from vpem.studies.joining import StudyEnded
    from vpem.studies.joining import match as take_part

    check_seat(party, server=server)
    with own_process(), stopping() as stop, watching() as tell:
        try:
            found = take_part(study, party, fresh=fresh, families=said_families(family), progress=tell, stop=stop)
        except StudyEnded as ended:
            leave(ended)
    if found is not None:
        say(f"{len(found):,} matched rows; this party has {int((found.order >= 0).sum()):,} of them")
