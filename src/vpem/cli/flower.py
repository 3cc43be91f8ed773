"""Commands for studies on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vpem.cli.app import app, plainly, say

flower = typer.Typer(
    no_args_is_help=True, help="Studies on a federation that runs Flower. Example: `vpem flower init study.toml`"
)
app.add_typer(flower, name="flower")


@flower.command()
@plainly
def init(
    study: Annotated[Path, typer.Argument(help="The shared file of a study, a star.")],
    folder: Annotated[Path, typer.Argument(help="New folder for the app.")] = Path("flower-app"),
    keys: Annotated[
        bool, typer.Option("--keys", help="Make keys for all parties on this machine, for a simulation.")
    ] = False,
) -> None:
    """Write an app for Flower that runs a study, as in these examples.

    - `vpem flower init study.toml`
    - `flwr run flower-app`

    Missing fields get values that take few rounds: one start from labels (random under masks) and squarem.
    All parties use the copy of study.toml that is in the app's folder.
    """
    from vpem.flower.app_folder import write_app
    from vpem.flower.server import most_time

    found = write_app(study, folder)
    if keys:
        from vpem.studies.local_trial import find_files, make_keys
        from vpem.studies.shared_file import read_study

        made = make_keys(read_study(study), find_files(found, study.resolve().parent))
        say(f"keys made for {', '.join(made) or 'no one, as all have some'}, by an authority of this try alone")
    say(f"an app for Flower: {folder}; how to run it is in {folder / 'README.md'}")
    say(f"for all parties: {folder / 'study.toml'}; send the same copy to each")
    say(most_time(found))
