"""The program `vpem`: arguments to calls of the library, nothing else."""

from vpem.cli import fitting, selecting, planning, explaining, showing, studies  # isort: skip (the order of the commands)
from vpem.cli.app import app


def main() -> None:
    """Run the program."""
    app()


__all__ = ["main", "explaining", "fitting", "planning", "selecting", "showing", "studies"]
