"""The program `vpem`: it translates arguments into calls of the library."""

from vpem.cli import fit_command, selecting, planning, imputing_commands, showing, studies, privacy, flower, manual  # isort: skip (the order)
from vpem.cli.app import app

COMMANDS = (fit_command, selecting, planning, imputing_commands, showing, studies, privacy, flower, manual)
"""Modules that register their commands on import."""


def main() -> None:
    """Run the program."""
    app()


__all__ = ["main"]
