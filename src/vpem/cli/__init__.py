"""The program `vpem`: arguments to calls of the library, nothing else."""

from vpem.cli import fitting, selecting, planning, explaining, showing, studies, privacy, flower  # isort: skip (the order)
from vpem.cli.app import app


def main() -> None:
    """Run the program."""
    app()


__all__ = ["main", "explaining", "fitting", "flower", "planning", "privacy", "selecting", "showing", "studies"]
