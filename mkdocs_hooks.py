"""Hooks of the documentation.

The experiments' figures lie outside docs/, and the site has them all the same. The options of the program are listed
by the program itself.
"""

import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File, Files

from vpem.cli import app

ROOT = Path(__file__).parent
FIGURES = "experiments/results"
OPTIONS = "<!-- every option of every command -->"
"""Stands in a page where the options go."""


def on_files(files: Files, config: Any) -> Files:
    """Add the figures to the files of the site."""
    for path in sorted((ROOT / FIGURES).glob("*/*.svg")):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to the figures find them there, and list the options."""
    if OPTIONS in markdown:
        markdown = markdown.replace(OPTIONS, list_options())
    return re.sub(rf"\]\(\.\./({FIGURES}/[\w./-]+\.svg)\)", r"](\1)", markdown)


def list_options() -> str:
    """All commands with their arguments and options, in Markdown."""
    program = typer.main.get_command(app)
    parts = ["### vpem\n\n" + _table(program.params)]
    for name, command in program.commands.items():
        about = re.sub(r"\s*\n\s*\n\s*", "\n\n", (command.help or "").strip())
        parts.append(f"### vpem {name}\n\n{about}\n\n{_table(command.params)}")
    return "\n\n".join(parts)


def _table(params: list[Any]) -> str:
    rows = ["| argument or option | meaning | default |", "|---|---|---|"]
    for param in params:
        if param.param_type_name == "argument":
            names = f"`{param.name.upper()}`"
        else:
            names = ", ".join(f"`{option}`" for option in (*param.opts, *param.secondary_opts))
        default = "required" if param.required else _default(param.default)
        rows.append(f"| {names} | {(param.help or '').replace('|', chr(92) + '|')} | {default} |")
    return "\n".join(rows)


def _default(value: Any) -> str:
    return "" if value is None or value is False or value == [] or callable(value) else f"`{value}`"
