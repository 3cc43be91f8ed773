"""The program `vpem`: it translates arguments into calls of the library."""

from vpem.cli import fitting, selecting, planning, explaining, showing, studies, privacy, flower, manual  # isort: skip (the order)
from vpem.cli.app import app

COMMANDS = (fitting, selecting, planning, explaining, showing, studies, privacy, flower, manual)
"""Modules that register their commands on import."""


def main() -> None:
    """Run the program."""
    app()


__all__ = ["main"]
