"""The program `vpem`: arguments to calls of the library, nothing else."""

from vpem.cli import fitting, selecting, planning, explaining, showing, studies, privacy, flower, manual  # isort: skip (the order)
from vpem.cli.app import app

COMMANDS = (fitting, selecting, planning, explaining, showing, studies, privacy, flower, manual)
"""Modules whose commands are registered when they are imported."""


def main() -> None:
    """Run the program."""
    app()


__all__ = ["main"]
